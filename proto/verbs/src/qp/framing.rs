//! How messages become octets of the stream: what requester and responder frame with. Segments with a program's payload
//! are in [`segments`].

mod segments;

pub(super) use segments::{Source, BY_REFERENCE_OCTETS_MIN};

use weft_iwarp::ddp::{Header, Untagged};
use weft_iwarp::{Msn, Opcode, QueueNumber, Rtr, Terminate};

use super::counters::QpCounters;
use super::stream::Stream;
use crate::host::Scope;
use crate::outgoing::Outgoing;

/// The stream, what waits for its transport, and the counts: borrowed while something is framed.
pub(super) struct Framer<'a> {
    stream: &'a mut Stream,
    outgoing: &'a mut Outgoing,
    counters: &'a mut QpCounters,
    scope: Scope,
}

impl<'a> Framer<'a> {
    /// Nothing can be framed without a stream.
    #[inline]
    pub(super) fn new(
        stream: &'a mut Option<Stream>,
        outgoing: &'a mut Outgoing,
        counters: &'a mut QpCounters,
        scope: Scope,
    ) -> Option<Framer<'a>> {
        let stream = stream.as_mut()?;
        Some(Framer {
            stream,
            outgoing,
            counters,
            scope,
        })
    }

    /// What was agreed on about the stream, and what is known of the peer.
    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        self.stream
    }

    /// On whose behalf memory is reached.
    #[inline]
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Whether the transport has taken all that was framed.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.queued() == 0
    }

    /// Stream offset just behind everything framed.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.outgoing.end()
    }

    /// Octets of payload that a segment takes at most.
    #[inline]
    pub(super) fn max_payload(&mut self, tagged: bool) -> usize {
        self.stream.outbound().max_payload(tagged)
    }

    /// Takes the number of the next message on a queue.
    #[inline]
    pub(super) fn next_msn(&mut self, qn: QueueNumber) -> Msn {
        self.stream.outbound().next_msn(qn)
    }

    /// An untagged message of one segment, which has no payload of a program's.
    pub(super) fn message(&mut self, opcode: Opcode, qn: QueueNumber, msn: Msn, body: &[u8]) {
        let header = Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn,
            mo: 0,
        });
        let outbound = self.stream.outbound();
        self.outgoing.append(|out| {
            let start = outbound.begin(out, &header, body, 0);
            outbound.seal(out, start);
        });
        self.end_fpdu();
        self.counters.segments_out += 1;
    }

    /// A ready-to-receive message, or one that asks the peer what it is.
    pub(super) fn introduction(&mut self, kind: Rtr, to: u64) {
        self.stream.note_sent(kind, to);
        self.zero_length(kind, to);
    }

    /// A message without octets that says `to`.
    pub(super) fn zero_length(&mut self, kind: Rtr, to: u64) {
        let outbound = self.stream.outbound();
        self.outgoing.append(|out| outbound.rtr(kind, to, out));
        self.end_fpdu();
    }

    /// The last message of the stream.
    pub(super) fn terminate(&mut self, terminate: &Terminate) {
        let outbound = self.stream.outbound();
        self.outgoing
            .append(|out| outbound.terminate(terminate, out));
        self.end_fpdu();
    }

    /// What was framed ends with an FPDU. Who was promised whole FPDUs in each segment is told where that is.
    #[inline]
    fn end_fpdu(&mut self) {
        if self.stream.is_aligned() {
            self.outgoing.cut();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::peer::FpduPolicy;
    use super::super::stream::tests::established;
    use super::*;
    use crate::host::{AccessFault, RegionFault};
    use crate::outgoing::Piece;
    use crate::simulated::{Device, PD};
    use crate::types::{Access, QpNumber, Sge};
    use alloc::vec;
    use alloc::vec::Vec;
    use weft_iwarp::ddp::Tagged;
    use weft_iwarp::{Role, Stag};

    pub(in super::super) const SCOPE: Scope = Scope {
        pd: PD,
        qp: QpNumber(7),
    };

    /// What a framer borrows.
    pub(in super::super) struct Wire {
        pub(in super::super) stream: Option<Stream>,
        pub(in super::super) outgoing: Outgoing,
        pub(in super::super) counters: QpCounters,
    }

    impl Wire {
        /// Of an initiator that may have two Reads outstanding.
        pub(in super::super) fn new() -> Wire {
            let established = established(Role::Initiator, None);
            Wire {
                stream: Some(Stream::new(&established, 1448, FpduPolicy::Auto, false)),
                outgoing: Outgoing::default(),
                counters: QpCounters::default(),
            }
        }

        pub(in super::super) fn framer(&mut self) -> Framer<'_> {
            let Wire {
                stream,
                outgoing,
                counters,
            } = self;
            Framer::new(stream, outgoing, counters, SCOPE).expect("a stream")
        }
    }

    fn write() -> Header {
        Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag: Stag(5),
            to: 0,
        })
    }

    fn gather(sges: &[Sge]) -> Source<'_> {
        Source::Gather {
            sges,
            offset: 0,
            access: Access::NONE,
        }
    }

    fn element(stag: Stag, length: u32) -> Sge {
        Sge {
            addr: 0,
            length,
            lkey: stag.0,
        }
    }

    #[test]
    fn what_is_long_goes_by_reference_and_what_is_short_is_copied() {
        for (octets, pieces) in [
            (BY_REFERENCE_OCTETS_MIN - 1, 1),
            (BY_REFERENCE_OCTETS_MIN, 3),
        ] {
            let (mut wire, mut device) = (Wire::new(), Device::default());
            let stag = device.region(4096, 0, Access::NONE, 0x100);
            let sges = [element(stag, octets as u32)];
            let framed = wire
                .framer()
                .segment(&write(), gather(&sges), octets, &mut device);
            assert_eq!(framed, Ok(()));
            assert_eq!(wire.outgoing.pieces().count(), pieces);
            assert_eq!(wire.counters.octets_framed, octets as u64);
        }
    }

    #[test]
    fn a_segment_whose_octets_cannot_be_had_leaves_nothing() {
        for octets in [100, 2000] {
            let (mut wire, mut device) = (Wire::new(), Device::default());
            let there = device.region(4096, 0, Access::NONE, 0x100);
            wire.framer()
                .message(Opcode::IMMEDIATE, QueueNumber::SEND, Msn(1), &[0; 8]);
            let before: Vec<u8> = copied(&wire.outgoing);
            let sges = [element(there, octets / 2), element(Stag(0x999), octets / 2)];
            let framed =
                wire.framer()
                    .segment(&write(), gather(&sges), octets as usize, &mut device);
            assert_eq!(framed, Err(AccessFault::Region(RegionFault::InvalidStag)));
            assert_eq!(copied(&wire.outgoing), before);
            let counters = wire.counters;
            assert_eq!((counters.segments_out, counters.octets_framed), (1, 0));
        }
    }

    #[test]
    fn a_peer_that_was_promised_whole_fpdus_gets_a_cut_behind_each() {
        let mut wire = Wire::new();
        let mut device = Device::default();
        let stag = device.region(4096, 0, Access::NONE, 0x100);
        let established = established(Role::Initiator, None);
        for (aligned, cuts) in [(true, 5), (false, 0)] {
            wire.outgoing = Outgoing::default();
            wire.stream = Some(Stream::new(&established, 1448, FpduPolicy::Auto, aligned));
            let mut framer = wire.framer();
            framer.message(Opcode::IMMEDIATE, QueueNumber::SEND, Msn(1), &[0; 8]);
            framer.zero_length(Rtr::Write, 7);
            for octets in [100, BY_REFERENCE_OCTETS_MIN] {
                let sges = [element(stag, octets as u32)];
                let framed = framer.segment(&write(), gather(&sges), octets, &mut device);
                assert_eq!(framed, Ok(()));
            }
            let gone = [element(Stag(0x999), 100)];
            let failed = framer.segment(&write(), gather(&gone), 100, &mut device);
            assert!(failed.is_err());
            framer.zero_length(Rtr::Read, 7);
            assert_eq!(wire.outgoing.cuts().count(), cuts);
            let last = wire.outgoing.cuts().last();
            assert_eq!(last, aligned.then(|| wire.outgoing.queued()));
        }
    }

    #[test]
    fn inline_octets_need_no_memory() {
        let (mut wire, mut device) = (Wire::new(), Device::default());
        let framed = wire
            .framer()
            .segment(&write(), Source::Inline(b"inline"), 6, &mut device);
        assert_eq!(framed, Ok(()));
        let sent = copied(&wire.outgoing);
        assert!(sent.windows(6).any(|octets| octets == b"inline"));
    }

    /// What waits, all of which has to be copied.
    fn copied(outgoing: &Outgoing) -> Vec<u8> {
        let octets = |piece| match piece {
            Piece::Octets(octets) => octets.to_vec(),
            Piece::Memory(_) => vec![],
        };
        outgoing.pieces().flat_map(octets).collect()
    }
}
