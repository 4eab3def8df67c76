//! RDMA Writes of the peer: where they may go, and what Immediate Data behind the newest one tells.
//!
//! A queue pair of type UC loses a Write to where the peer may not write, with the Immediate Data behind it, where a
//! reliable one ends the connection. A peer that is told nothing could try STag after STag on one connection. So no
//! more than [`REFUSED_MAX`] Writes are refused in silence: the next one ends the connection as a reliable one's would.
//! Of a Write that was refused once nothing more is placed.

use weft_iwarp::{Fault, Header, PeerFault, Segment, Stag};

use super::attributes::Attributes;
use super::counters::QpCounters;
use crate::host::{AccessFault, Host, RegionFault, Scope, Span};
use crate::types::Access;

/// Writes to where the peer may not write that a connection outlives.
const REFUSED_MAX: u64 = 16;

/// The newest RDMA Write.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Its octets so far.
    octets: u32,
    /// It has segments to come.
    is_open: bool,
    /// It is lost, wholly or in part.
    is_lost: bool,
}

impl Writes {
    /// A segment came.
    #[inline]
    pub(super) fn count(&mut self, octets: u32, last: bool) {
        if !self.is_open {
            self.octets = 0;
            self.is_lost = false;
        }
        self.octets = self.octets.wrapping_add(octets);
        self.is_open = !last;
    }

    /// Whether a segment with octets is to be placed. The rest of a Write that is lost is lost too.
    ///
    /// # Errors
    /// The peer may not write there, and the connection has to end for it.
    #[inline]
    pub(super) fn admit(
        &mut self,
        (stag, to): (Stag, u64),
        segment: &Segment,
        attributes: &Attributes,
        counters: &mut QpCounters,
        host: &impl Host,
    ) -> Result<bool, Fault> {
        if self.is_lost {
            return Ok(false);
        }
        match check(stag, to, segment, attributes, host) {
            Ok(()) => Ok(true),
            Err(_) if self.lose(attributes, counters) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Loses a Write to where the peer may not write; false when the connection has to end for it.
    fn lose(&mut self, attributes: &Attributes, counters: &mut QpCounters) -> bool {
        let loses = attributes.is_unreliable() && counters.refused_accesses < REFUSED_MAX;
        if loses {
            self.is_lost = true;
            counters.refused_accesses += 1;
        }
        loses
    }

    /// Immediate Data came: the octets of the Write before it, or nothing where that one is lost.
    pub(super) fn take(&mut self) -> Option<u32> {
        let octets = core::mem::take(&mut self.octets);
        let is_lost = core::mem::take(&mut self.is_lost);
        (!is_lost).then_some(octets)
    }

    /// The stream is gone, maybe in the middle of a Write: the next one is of another stream.
    pub(super) fn clear(&mut self) {
        *self = Writes::default();
    }
}

/// Checks an RDMA Write segment (RFC 5041 section 7.1).
#[inline]
fn check(
    stag: Stag,
    to: u64,
    segment: &Segment,
    attributes: &Attributes,
    host: &impl Host,
) -> Result<(), Fault> {
    let len = segment.payload_len as u32;
    let checked = if attributes.access().contains(Access::REMOTE_WRITE) {
        span(stag, to, len, attributes.scope(), host).map(|_| ())
    } else {
        Err(RegionFault::Access)
    };
    checked.map_err(|fault| fault_of(fault, segment.ulpdu_len, segment.header))
}

/// The memory that octets of a Write go to.
#[inline]
pub(super) fn span(
    stag: Stag,
    to: u64,
    len: u32,
    scope: Scope,
    host: &impl Host,
) -> Result<Span, RegionFault> {
    let right = Access::REMOTE_WRITE;
    host.check(stag, to, len, right, scope)
}

/// Places octets of a Write segment.
#[inline]
pub(super) fn place(
    (stag, to): (Stag, u64),
    octets: &[u8],
    header: Header,
    scope: Scope,
    host: &mut impl Host,
) -> Result<(), Fault> {
    let len = octets.len();
    let span = span(stag, to, len as u32, scope, host);
    let written = span.and_then(|span| {
        host.write(span, octets)
            .map_err(|_| RegionFault::InvalidStag)
    });
    written.map_err(|fault| fault_of(fault, (header.wire_len() + len) as u16, header))
}

/// Places a Write that is one segment.
#[inline]
pub(super) fn place_whole(
    target: (Stag, u64),
    octets: &[u8],
    scope: Scope,
    host: &mut impl Host,
) -> Result<(), AccessFault> {
    host.write_checked(target, octets, Access::REMOTE_WRITE, scope)
}

#[cold]
fn fault_of(fault: RegionFault, ulpdu_len: u16, header: Header) -> Fault {
    let (fault, field) = match fault {
        RegionFault::InvalidStag => (PeerFault::TaggedStag, "RDMA Write: STag"),
        RegionFault::WrongPd => (PeerFault::TaggedStream, "RDMA Write: STag"),
        RegionFault::Bounds => (PeerFault::TaggedBounds, "RDMA Write: TO and length"),
        RegionFault::Wrap => (PeerFault::TaggedToWrap, "RDMA Write: TO"),
        RegionFault::Access => (PeerFault::WriteAccess, "RDMA Write: STag"),
    };
    Fault::new(fault, field).in_segment(ulpdu_len, header)
}

#[cfg(test)]
mod tests {
    use super::super::attributes::tests::attributes;
    use super::super::framing::tests::SCOPE;
    use super::*;
    use crate::simulated::Device;
    use weft_iwarp::ddp::Tagged;
    use weft_iwarp::Opcode;

    #[test]
    fn immediate_data_tells_the_octets_of_the_write_before_it_and_no_other() {
        let mut writes = Writes::default();
        writes.count(100, true);
        writes.count(30, false);
        writes.count(7, true);
        assert_eq!(writes.take(), Some(37));
        assert_eq!(writes.take(), Some(0), "no Write stands before it");
    }

    #[test]
    fn a_write_is_lost_as_a_whole_and_the_next_one_is_not() {
        let mut attributes = attributes(false);
        attributes.set_unreliable(true);
        let (mut writes, mut counters) = (Writes::default(), QpCounters::default());
        writes.count(10, false);
        assert!(writes.lose(&attributes, &mut counters));
        writes.count(10, true);
        assert!(writes.is_lost);
        assert_eq!(writes.take(), None);
        writes.count(5, true);
        assert!(!writes.is_lost);
        assert_eq!(writes.take(), Some(5));
    }

    #[test]
    fn a_write_that_its_stream_left_open_adds_nothing_to_one_of_the_next_stream() {
        let mut writes = Writes::default();
        writes.count(100, false);
        writes.clear();
        writes.count(5, true);
        assert_eq!(writes.take(), Some(5));
    }

    #[test]
    fn so_many_are_refused_in_silence_and_none_of_a_reliable_one() {
        let mut attributes = attributes(false);
        let (mut writes, mut counters) = (Writes::default(), QpCounters::default());
        assert!(!writes.lose(&attributes, &mut counters));
        attributes.set_unreliable(true);
        let lost = (0..20).filter(|_| writes.lose(&attributes, &mut counters));
        assert_eq!(lost.count(), 16);
        assert_eq!(counters.refused_accesses, 16);
    }

    #[test]
    fn octets_go_only_where_the_peer_may_write() {
        let mut device = Device::default();
        let stag = device.region(16, 0, Access::REMOTE_WRITE, 0x100);
        let closed = device.region(16, 0, Access::LOCAL_WRITE, 0x200);
        let header = Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag,
            to: 0,
        });
        let mut place = |at, octets: &[u8]| {
            place(at, octets, header, SCOPE, &mut device).map_err(|fault| fault.fault)
        };
        assert_eq!(place((stag, 12), b"four"), Ok(()));
        assert_eq!(place((stag, 13), b"four"), Err(PeerFault::TaggedBounds));
        assert_eq!(place((closed, 0), b"four"), Err(PeerFault::WriteAccess));
        assert_eq!(place((Stag(9), 0), b"four"), Err(PeerFault::TaggedStag));
        assert_eq!(device.octets(stag)[12..], *b"four");
        assert_eq!(device.octets(closed), [0; 16]);
    }
}
