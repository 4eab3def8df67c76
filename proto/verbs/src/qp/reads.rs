//! RDMA Reads, and atomics, of this side that await their response.
//!
//! A response is checked against the oldest outstanding Read instead of the sink's rights: a
//! sink needs only local write access, and no stray response is ever placed. The scatter list
//! is ours alone, the wire sees one sink STag and one run of tagged offsets.

use alloc::collections::VecDeque;

use weft_iwarp::{Fault, Header, PeerFault, ReadRequest, Stag};

use crate::types::{SgList, Sge};

/// Outstanding Reads in order.
#[derive(Debug, Default)]
pub(super) struct OutstandingReads {
    reads: VecDeque<Outstanding>,
}

#[derive(Debug)]
struct Outstanding {
    sink_stag: Stag,
    sink_to: u64,
    len: u32,
    received: u32,
    scatter: SgList,
    kind: Kind,
}

/// What an outstanding request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A Read of the program's.
    Read,
    /// A Read without size that no work request waits for: ready to receive, or peer detection.
    Internal,
    /// A Read without size whose response says that the peer has what was posted before this request.
    Acknowledgement(u64),
    /// An Atomic Request with this identifier.
    Atomic(u32),
}

/// What the response to the oldest request was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// A work request, which is done.
    Request,
    /// A Read of this side's own, without a work request.
    Internal,
    /// An acknowledgement request: everything before the request of this number is there.
    Acknowledgement(u64),
}

impl OutstandingReads {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    pub(super) fn push(&mut self, request: &ReadRequest, scatter: SgList, len: u32) {
        self.reads.push_back(Outstanding {
            sink_stag: request.sink_stag,
            sink_to: request.sink_to,
            len,
            received: 0,
            scatter,
            kind: Kind::Read,
        });
    }

    pub(super) fn expect_rtr_response(&mut self, to: u64) {
        self.reads.push_back(Outstanding {
            sink_stag: Stag::RTR,
            sink_to: to,
            len: 0,
            received: 0,
            scatter: SgList::default(),
            kind: Kind::Internal,
        });
    }

    pub(super) fn expect_acknowledgement(&mut self, sequence: u64) {
        self.expect_rtr_response(0);
        if let Some(read) = self.reads.back_mut() {
            read.kind = Kind::Acknowledgement(sequence);
        }
    }

    pub(super) fn push_atomic(&mut self, identifier: u32, scatter: SgList) {
        self.reads.push_back(Outstanding {
            sink_stag: Stag(0),
            sink_to: 0,
            len: 8,
            received: 0,
            scatter,
            kind: Kind::Atomic(identifier),
        });
    }

    /// Takes the oldest request if it is the atomic of this identifier: its scatter list.
    pub(super) fn take_atomic(&mut self, identifier: u32) -> Option<SgList> {
        let oldest = self.reads.front()?;
        if oldest.kind != Kind::Atomic(identifier) {
            return None;
        }
        Some(self.reads.pop_front()?.scatter)
    }

    pub(super) fn clear(&mut self) {
        self.reads.clear();
    }

    /// The scatter list of the oldest Read and how much of it is filled.
    #[inline]
    pub(super) fn sink(&self) -> Option<(&[Sge], u32)> {
        self.reads
            .front()
            .map(|r| (r.scatter.as_slice(), r.received))
    }

    /// The scatter list of the Read whose response has octets for this sink, and how much of it is before them: of a
    /// segment that arrives ahead of order. `None` unless there is one such Read only.
    pub(super) fn sink_ahead(&self, stag: Stag, to: u64, len: u32) -> Option<(&[Sge], u32)> {
        let mut fitting = self.reads.iter().filter_map(|read| {
            let done = u32::try_from(to.wrapping_sub(read.sink_to)).ok()?;
            let end = u64::from(done) + u64::from(len);
            let is_its = read.kind == Kind::Read
                && stag == read.sink_stag
                && end <= u64::from(read.len)
                && done >= read.received;
            is_its.then(|| (read.scatter.as_slice(), done))
        });
        let found = fitting.next()?;
        fitting.next().is_none().then_some(found)
    }

    /// Octets of the oldest Read's response are placed.
    pub(super) fn received(&mut self, octets: u32) {
        if let Some(read) = self.reads.front_mut() {
            read.received += octets;
            debug_assert!(read.received <= read.len, "more than was asked for");
        }
    }

    /// The last octet of the oldest Read's response is placed.
    pub(super) fn finish(&mut self) -> Option<Answered> {
        let read = self.reads.pop_front()?;
        debug_assert_eq!(read.received, read.len, "a Read that is short of octets");
        Some(match read.kind {
            Kind::Internal => Answered::Internal,
            Kind::Acknowledgement(sequence) => Answered::Acknowledgement(sequence),
            Kind::Read | Kind::Atomic(_) => Answered::Request,
        })
    }

    /// Checks a Read Response segment before anything of it is placed.
    pub(super) fn check_read_response(
        &self,
        stag: Stag,
        to: u64,
        len: usize,
        last: bool,
        header: Header,
    ) -> Result<(), Fault> {
        let ulpdu_len = (len + header.wire_len()) as u16;
        let fault = |fault, field| Fault::new(fault, field).in_segment(ulpdu_len, header);
        let oldest = self.reads.front();
        let Some(read) = oldest.filter(|r| !matches!(r.kind, Kind::Atomic(_))) else {
            return Err(fault(
                PeerFault::UnexpectedReadResponse,
                "Read Response: the oldest outstanding request is no Read",
            ));
        };
        let end = u64::from(read.received) + len as u64;
        // Zero-length tagged segments carry any STag and TO (RFC 5041 section 5.2).
        if len > 0 && stag != read.sink_stag {
            return Err(fault(PeerFault::TaggedStag, "Read Response: STag"));
        }
        if len > 0 && to != read.sink_to.wrapping_add(u64::from(read.received)) {
            return Err(fault(PeerFault::TaggedBounds, "Read Response: TO"));
        }
        if end > u64::from(read.len) || (last && end != u64::from(read.len)) {
            return Err(fault(
                PeerFault::TaggedBounds,
                "Read Response: length differs from what was asked for",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_iwarp::ddp::Tagged;
    use weft_iwarp::Opcode;

    const STAG: Stag = Stag(0x500);

    /// A Read of so many octets to tagged offset 1000.
    fn read(reads: &mut OutstandingReads, size: u32) {
        let request = ReadRequest {
            sink_stag: STAG,
            sink_to: 1000,
            size,
            source_stag: Stag(1),
            source_to: 0,
        };
        reads.push(&request, SgList::default(), size);
    }

    fn check(
        reads: &OutstandingReads,
        (stag, to, len, last): (Stag, u64, usize, bool),
    ) -> Result<(), PeerFault> {
        let header = Header::Tagged(Tagged {
            last,
            opcode: Opcode::READ_RESPONSE,
            stag,
            to,
        });
        let checked = reads.check_read_response(stag, to, len, last, header);
        checked.map_err(|fault| fault.fault)
    }

    #[test]
    fn a_response_goes_where_the_oldest_read_asked_for_it() {
        let mut reads = OutstandingReads::default();
        let unasked = check(&reads, (STAG, 1000, 10, true));
        assert_eq!(unasked, Err(PeerFault::UnexpectedReadResponse));
        read(&mut reads, 10);
        read(&mut reads, 99);
        assert_eq!(check(&reads, (STAG, 1000, 6, false)), Ok(()));
        for (segment, fault) in [
            ((Stag(0x501), 1000, 6, false), PeerFault::TaggedStag),
            ((STAG, 1001, 6, false), PeerFault::TaggedBounds),
            ((STAG, 1000, 11, false), PeerFault::TaggedBounds),
            ((STAG, 1000, 9, true), PeerFault::TaggedBounds),
        ] {
            assert_eq!(check(&reads, segment), Err(fault), "{segment:?}");
        }
        reads.received(6);
        assert_eq!(reads.sink().map(|(_, done)| done), Some(6));
        assert_eq!(check(&reads, (STAG, 1006, 4, true)), Ok(()));
        assert_eq!(
            check(&reads, (STAG, 1000, 4, true)),
            Err(PeerFault::TaggedBounds)
        );
        reads.received(4);
        assert_eq!(reads.finish(), Some(Answered::Request));
        assert_eq!(reads.len(), 1);
    }

    #[test]
    fn ahead_of_order_a_response_goes_to_the_one_read_that_it_can_be_of() {
        let mut reads = OutstandingReads::default();
        read(&mut reads, 10);
        let done = |reads: &OutstandingReads, to, len| {
            let sink = reads.sink_ahead(STAG, to, len);
            sink.map(|(_, done)| done)
        };
        assert_eq!(done(&reads, 1004, 6), Some(4));
        assert_eq!(done(&reads, 1004, 7), None, "longer than what is left");
        assert_eq!(done(&reads, 999, 1), None);
        assert!(reads.sink_ahead(Stag(1), 1004, 6).is_none());
        reads.received(5);
        assert_eq!(done(&reads, 1004, 6), None, "it has come");
        assert_eq!(done(&reads, 1005, 5), Some(5), "the next one of it");
        read(&mut reads, 10);
        assert_eq!(
            done(&reads, 1006, 4),
            None,
            "the first one's or the second's"
        );
        reads.received(5);
        reads.finish();
        assert_eq!(done(&reads, 1006, 4), Some(6));
    }

    /// An atomic has no sink on the wire, and its answer is no Read Response.
    #[test]
    fn ahead_of_order_no_response_goes_to_the_memory_of_an_atomic() {
        let mut reads = OutstandingReads::default();
        reads.push_atomic(3, SgList::default());
        assert!(reads.sink_ahead(Stag(0), 0, 8).is_none());
    }

    #[test]
    fn an_empty_response_may_name_any_place() {
        let mut reads = OutstandingReads::default();
        reads.expect_rtr_response(77);
        assert_eq!(check(&reads, (Stag(9), 1, 0, true)), Ok(()));
        assert_eq!(reads.finish(), Some(Answered::Internal));
        reads.expect_acknowledgement(5);
        assert_eq!(reads.finish(), Some(Answered::Acknowledgement(5)));
        assert_eq!(reads.finish(), None);
    }

    #[test]
    fn an_atomic_is_answered_by_its_identifier_and_in_its_turn() {
        let mut reads = OutstandingReads::default();
        reads.push_atomic(3, SgList::default());
        reads.push_atomic(4, SgList::default());
        let as_read = check(&reads, (STAG, 1000, 8, true));
        assert_eq!(as_read, Err(PeerFault::UnexpectedReadResponse));
        assert!(reads.take_atomic(4).is_none(), "not the oldest");
        assert!(reads.take_atomic(3).is_some() && reads.take_atomic(4).is_some());
        read(&mut reads, 8);
        assert!(reads.take_atomic(5).is_none(), "no atomic");
        assert_eq!(reads.len(), 1);
    }
}
