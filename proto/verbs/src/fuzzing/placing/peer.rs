//! The peer: what it sends, as octets tell it.

use alloc::vec::Vec;
use core::ops::Range;

use weft_iwarp::{
    AtomicOperation, AtomicRequest, Header, Opcode, Outbound, QueueNumber, ReadRequest, Tagged,
    Untagged,
};

use super::super::Source;
use super::receiver::{CLOSED, OPEN, OWN, RECEIVES};
use crate::types::Stag;

/// Octets of a segment's payload at most, so that FPDUs fit the segments of any path.
const PAYLOAD_MAX: u32 = 500;
/// A Send of a peer that keeps to the rules ends with the segment that begins behind these. Receives have room for 900.
const SEND_OCTETS_MAX: u32 = 500;
/// Requests that the peer may have outstanding.
const IRD: u16 = 2;

/// A segment of a Write to the open region.
#[derive(Clone, Debug)]
pub(super) struct WriteSegment {
    /// The FPDU in the stream.
    pub(super) fpdu: Range<usize>,
    /// What it writes, as octets of the region.
    pub(super) target: Range<usize>,
    pub(super) last: bool,
}

/// The peer.
pub(super) struct Writer<'a> {
    pub(super) source: Source<'a>,
    pub(super) stags: Vec<Stag>,
    /// Reads that it has not answered, the oldest first.
    pub(super) reads: Vec<ReadRequest>,
    pub(super) peer: Outbound,
    pub(super) markers: bool,
    pub(super) calm: bool,
    /// Messages that took a receive.
    pub(super) messages: u64,
    /// Requests that await an answer.
    pub(super) requests: u16,
    /// A Send that has segments to come: the next one's header.
    pub(super) open: Option<Untagged>,
    pub(super) stream: Vec<u8>,
    pub(super) cuts: Vec<usize>,
    pub(super) writes: Vec<WriteSegment>,
}

impl Writer<'_> {
    pub(super) fn step(&mut self) {
        let may_begin = !self.calm || self.messages < RECEIVES;
        let may_ask = !self.calm || self.requests < IRD;
        match self.source.octet() % 32 {
            12..=21 if may_begin || self.open.is_some() => self.send(),
            22..=24 => self.answer_read(),
            25 if may_ask => self.ask(),
            26 if may_begin => self.immediate(),
            27 if may_ask => self.atomic(),
            28 => self.write_segment(Stag(9), 7, true, 0),
            29 if !self.calm => self.hide_an_fpdu(),
            30 => self.cut_anew(),
            31 if !self.calm => self.damage(),
            _ => self.write(),
        }
    }

    /// Mostly the region that is open to it.
    fn stag(&mut self) -> Stag {
        let pick = usize::from(self.source.octet());
        self.stags[if self.calm || pick < 224 {
            OPEN
        } else {
            pick % self.stags.len()
        }]
    }

    fn payload(&mut self, len: u32) -> Vec<u8> {
        let seed = self.stream.len() as u32;
        (0..len)
            .map(|i| ((seed + i).wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect()
    }

    fn fpdu(&mut self, header: &Header, body: &[u8], payload: &[u8]) {
        let start = self
            .peer
            .begin(&mut self.stream, header, body, payload.len());
        self.stream.extend_from_slice(payload);
        self.peer.seal(&mut self.stream, start);
        self.note_write(header, start..self.stream.len(), payload.len());
        // Most segments hold one FPDU, some hold more.
        if self.source.octet() < 200 {
            self.cuts.push(self.stream.len());
        }
    }

    fn note_write(&mut self, header: &Header, fpdu: Range<usize>, len: usize) {
        let Header::Tagged(write) = header else {
            return;
        };
        if write.opcode == Opcode::WRITE && write.stag == self.stags[OPEN] {
            let at = (write.to - 0x1000) as usize;
            self.writes.push(WriteSegment {
                fpdu,
                target: at..at + len,
                last: write.last,
            });
        }
    }

    pub(super) fn write_segment(&mut self, stag: Stag, to: u64, last: bool, len: u32) {
        let header = Header::Tagged(Tagged {
            last,
            opcode: Opcode::WRITE,
            stag,
            to,
        });
        let payload = self.payload(len);
        self.fpdu(&header, &[], &payload);
    }

    fn write(&mut self) {
        let stag = self.stag();
        let mut to = 0x1000 + u64::from(self.source.word() % 2800);
        let segments = self.source.octet() % 6;
        for n in 0..=segments {
            let len = 1 + self.source.length() % PAYLOAD_MAX.min(400);
            self.write_segment(stag, to, n == segments, len);
            to += u64::from(len);
        }
    }

    /// One segment of a Send: between them others come.
    fn send(&mut self) {
        let shape = self.source.octet();
        let is_long = self.open.is_some_and(|open| open.mo >= SEND_OCTETS_MAX);
        let last = shape & 3 == 0 || (is_long && self.calm);
        let header = match self.open.take() {
            Some(open) => Untagged { last, ..open },
            None => {
                let invalidate = shape & 0xC0 == 0xC0;
                let stag = match self.calm {
                    true => self.stags[CLOSED],
                    false => self.stag(),
                };
                self.messages += 1;
                Untagged {
                    last,
                    opcode: Opcode::send(shape & 4 != 0, invalidate),
                    invalidate: if invalidate { stag.0 } else { 0 },
                    qn: QueueNumber::SEND,
                    msn: self.peer.next_msn(QueueNumber::SEND),
                    // Seldom a wrong one.
                    mo: u32::from(shape == 0x3B && !self.calm),
                }
            }
        };
        let len = self.source.length() % 200;
        let payload = self.payload(len);
        self.open = (!last).then_some(Untagged {
            mo: header.mo + len,
            ..header
        });
        self.fpdu(&Header::Untagged(header), &[], &payload);
    }

    fn answer_read(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let request = self.reads.remove(0);
        let mut done = 0;
        while done < request.size {
            let len = (1 + self.source.length() % PAYLOAD_MAX).min(request.size - done);
            let header = Header::Tagged(Tagged {
                last: done + len == request.size,
                opcode: Opcode::READ_RESPONSE,
                stag: request.sink_stag,
                to: request.sink_to + u64::from(done),
            });
            let payload = self.payload(len);
            self.fpdu(&header, &[], &payload);
            done += len;
        }
    }

    fn single(&mut self, opcode: Opcode, qn: QueueNumber) -> Header {
        Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn: self.peer.next_msn(qn),
            mo: 0,
        })
    }

    fn ask(&mut self) {
        self.requests += 1;
        let request = ReadRequest {
            sink_stag: Stag(0x77),
            sink_to: 0,
            size: 0,
            source_stag: Stag(1),
            source_to: 0,
        };
        let header = self.single(Opcode::READ_REQUEST, QueueNumber::READ_REQUEST);
        self.fpdu(&header, &request.to_octets(), &[]);
    }

    fn immediate(&mut self) {
        if self.open.is_none() {
            self.messages += 1;
            let header = self.single(Opcode::IMMEDIATE, QueueNumber::SEND);
            self.fpdu(&header, &[7; 8], &[]);
        }
    }

    fn atomic(&mut self) {
        self.requests += 1;
        let request = AtomicRequest {
            operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
            identifier: 1,
            stag: self.stags[OWN],
            to: 0x1FF0,
        };
        let header = self.single(Opcode::ATOMIC_REQUEST, QueueNumber::READ_REQUEST);
        self.fpdu(&header, &request.to_octets(), &[]);
    }

    /// A Write whose payload has all of an FPDU in it, at the front of a segment.
    fn hide_an_fpdu(&mut self) {
        if self.markers {
            return;
        }
        let hidden = Header::Tagged(Tagged {
            last: false,
            opcode: Opcode::WRITE,
            stag: self.stags[OPEN],
            to: 0x1000 + u64::from(self.source.octet()),
        });
        let inner = self.payload(100);
        let mut payload = self.payload(50);
        let start = self.peer.begin(&mut payload, &hidden, &[], inner.len());
        payload.extend_from_slice(&inner);
        self.peer.seal(&mut payload, start);
        let end = payload.len();
        payload.extend_from_slice(&inner);
        let header = Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag: self.stags[OPEN],
            to: 0x1800,
        });
        let front = self.stream.len() + 2 + header.wire_len();
        self.cuts.extend([front + start, front + end]);
        self.note_write(&hidden, front + start..front + end, inner.len());
        self.fpdu(&header, &[], &payload);
    }

    /// A segment ends where no FPDU does.
    fn cut_anew(&mut self) {
        let back = usize::from(self.source.word()) % 600;
        self.cuts.push(self.stream.len().saturating_sub(back));
    }

    /// One bit of what was sent last is another.
    fn damage(&mut self) {
        let back = 1 + usize::from(self.source.word()) % 300;
        if let Some(at) = self.stream.len().checked_sub(back) {
            self.stream[at] ^= 1 << (self.source.octet() % 8);
        }
    }
}
