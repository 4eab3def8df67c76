//! What a driver hears of the octets that it reads: where payload goes to straight from the transport, and what became
//! of what it read to a buffer.

use weft_iwarp::Stag;

use crate::host::{Host, RegionFault, Scope, Span};
use crate::scatter::pieces;
use crate::types::{Access, Sge};

/// What a receive pass did with the octets it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Octets that are done with, from the front.
    pub consumed: usize,
    /// Octets that must be in the buffer, counted from the first unconsumed one, before the
    /// next call can do more.
    pub need: usize,
}

/// Where the outstanding payload of the open segment goes, for a direct read.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectTarget {
    spans: [Option<Span>; DirectTarget::MOST],
    /// Octets that the spans cover.
    pub octets: usize,
}

impl DirectTarget {
    /// Most spans a direct read scatters to; what does not fit takes another read.
    pub const MOST: usize = 4;

    /// One run of memory.
    pub(super) fn of_span(span: Span) -> DirectTarget {
        let mut target = DirectTarget::default();
        target.add(span);
        target
    }

    /// The next `len` octets of a scatter list of which `done` are filled, as far as they fit.
    pub(super) fn of_list(
        (sges, done): (&[Sge], u32),
        len: u32,
        scope: Scope,
        host: &impl Host,
    ) -> Result<DirectTarget, RegionFault> {
        let mut target = DirectTarget::default();
        for piece in pieces(sges, done, len) {
            let right = Access::LOCAL_WRITE;
            let span = host.check(Stag(piece.lkey), piece.addr, piece.length, right, scope)?;
            if !target.add(span) {
                break;
            }
        }
        Ok(target)
    }

    /// False where the span does not fit.
    fn add(&mut self, span: Span) -> bool {
        let Some(slot) = self.spans.iter_mut().find(|slot| slot.is_none()) else {
            return false;
        };
        *slot = Some(span);
        self.octets += span.len as usize;
        true
    }

    /// The one run of memory that takes all of `len` octets, where it is one.
    pub(super) fn single(&self, len: u32) -> Option<Span> {
        self.spans[0].filter(|span| span.len == len)
    }

    /// The spans in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::tests::SCOPE;
    use super::*;
    use crate::simulated::Device;
    use alloc::vec::Vec;

    #[test]
    fn as_many_elements_are_read_to_as_fit() {
        let mut device = Device::default();
        let stag = device.region(64, 0, Access::LOCAL_WRITE, 0x100);
        let element = |at: u32| Sge {
            addr: u64::from(at * 8),
            length: at + 1,
            lkey: stag.0,
        };
        let list: Vec<Sge> = (0..6).map(element).collect();
        let of = |done, len| DirectTarget::of_list((&list, done), len, SCOPE, &device);
        let lengths = |target: DirectTarget| target.spans().map(|s| s.len).collect::<Vec<_>>();
        let all = of(0, 21).expect("memory");
        assert_eq!((all.octets, lengths(all)), (10, [1, 2, 3, 4].into()));
        let rest = of(2, 6).expect("memory");
        assert_eq!((rest.octets, lengths(rest)), (6, [1, 3, 2].into()));
        assert_eq!(rest.single(6), None);
        let inside = of(3, 2).expect("memory");
        assert_eq!(inside.single(2).map(|s| (s.offset, s.len)), Some((16, 2)));
    }

    #[test]
    fn there_is_no_target_in_memory_that_may_not_be_written() {
        let mut device = Device::default();
        let stag = device.region(64, 0, Access::REMOTE_READ, 0x100);
        let list = [Sge {
            addr: 0,
            length: 8,
            lkey: stag.0,
        }];
        let target = DirectTarget::of_list((&list, 0), 8, SCOPE, &device);
        assert_eq!(target.map(|t| t.octets), Err(RegionFault::Access));
    }
}
