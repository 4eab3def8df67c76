//! RDMA Reads, and atomics, of this side that await their response.
//!
//! A response is checked against the oldest outstanding Read instead of the sink's rights: a
//! sink needs only local write access, and no stray response is ever placed. The scatter list
//! is ours alone, the wire sees one sink STag and one run of tagged offsets.

use alloc::collections::VecDeque;

use weft_iwarp::{Fault, Header, PeerFault, ReadRequest, Stag};

use super::Qp;
use crate::host::Host;
use crate::types::SgList;

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
    pub(super) fn sink(&self) -> Option<(&SgList, u32)> {
        self.reads.front().map(|r| (&r.scatter, r.received))
    }

    pub(super) fn received(&mut self, octets: u32) {
        if let Some(read) = self.reads.front_mut() {
            read.received += octets;
        }
    }
}

impl Qp {
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
        let oldest = self.reads.reads.front();
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

    /// The last octet of a response is placed: the Read is done.
    pub(super) fn finish_read(&mut self, host: &mut impl Host) {
        let Some(read) = self.reads.reads.pop_front() else {
            return;
        };
        match read.kind {
            Kind::Internal => self.note_detection_response(),
            Kind::Acknowledgement(sequence) => {
                self.note_acknowledgement(sequence);
                self.complete_sends(host);
            }
            Kind::Read | Kind::Atomic(_) => self.answered(host),
        }
    }

    /// The oldest request that awaits a response has it; what was posted before it is placed.
    pub(super) fn answered(&mut self, host: &mut impl Host) {
        if let Some(sequence) = self.sq.finish_oldest_awaiting() {
            self.acknowledgements.note_acknowledged(sequence);
        }
        self.complete_sends(host);
    }
}
