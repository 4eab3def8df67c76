//! Walking scatter/gather lists.

use weft_iwarp::Stag;

use crate::host::{Host, RegionFault, Scope};
use crate::types::{Access, Sge};

/// Places `octets` behind the first `done` octets of a message that goes to the list `sges`.
#[inline]
pub(crate) fn scatter(
    sges: &[Sge],
    done: u32,
    octets: &[u8],
    scope: Scope,
    host: &mut impl Host,
) -> Result<(), RegionFault> {
    let mut rest = octets;
    for piece in pieces(sges, done, octets.len() as u32) {
        let (now, later) = rest.split_at(piece.length as usize);
        let right = Access::LOCAL_WRITE;
        let span = host.check(Stag(piece.lkey), piece.addr, piece.length, right, scope)?;
        host.write(span, now)
            .map_err(|_| RegionFault::InvalidStag)?;
        rest = later;
    }
    Ok(())
}

/// The parts of a list that octets `[offset, offset + len)` of a message fall on, in order.
pub(crate) fn pieces(sges: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Sge> + '_ {
    let mut skip = offset;
    let mut left = len;
    sges.iter().filter_map(move |sge| {
        if skip >= sge.length {
            skip -= sge.length;
            return None;
        }
        let length = (sge.length - skip).min(left);
        let piece = Sge {
            addr: sge.addr + u64::from(skip),
            length,
            lkey: sge.lkey,
        };
        skip = 0;
        left -= length;
        (length > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Device, PD};
    use crate::types::QpNumber;
    use alloc::vec::Vec;

    fn sge(addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: 1,
        }
    }

    #[test]
    fn octets_go_behind_those_that_are_there() {
        let mut device = Device::default();
        let stag = device.region(16, 0, Access::LOCAL_WRITE, 0x100);
        let list = [(0, 2), (8, 4)].map(|(addr, length)| Sge {
            addr,
            length,
            lkey: stag.0,
        });
        let scope = Scope {
            pd: PD,
            qp: QpNumber(1),
        };
        assert_eq!(scatter(&list, 1, b"abc", scope, &mut device), Ok(()));
        assert_eq!(device.octets(stag)[..11], *b"\0a\0\0\0\0\0\0bc\0");
        device.unmapped.push(stag);
        let gone = scatter(&list, 4, b"d", scope, &mut device);
        assert_eq!(gone, Err(RegionFault::InvalidStag));
    }

    #[test]
    fn ranges_fall_on_the_right_elements() {
        let list = [sge(100, 4), sge(200, 0), sge(300, 8)];
        let walk = |offset, len| -> Vec<(u64, u32)> {
            pieces(&list, offset, len)
                .map(|p| (p.addr, p.length))
                .collect()
        };
        assert_eq!(walk(0, 12), [(100, 4), (300, 8)]);
        assert_eq!(walk(3, 2), [(103, 1), (300, 1)]);
        assert_eq!(walk(4, 8), [(300, 8)]);
        assert_eq!(walk(11, 1), [(307, 1)]);
        assert_eq!(walk(0, 0), []);
        assert_eq!(walk(12, 0), []);
    }
}
