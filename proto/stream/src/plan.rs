//! One send as FPDUs, and what of it a socket took.
//!
//! A plan is a run of Writes, and the message that tells a peer of them which is not Weft. A socket may take any part
//! of its octets: an FPDU that it took in part has begun and must be finished, one that it did not touch has not, and
//! its octets stay the caller's.

use core::ops::Range;

use crate::frame::{trailer_len, write_len, MESSAGE_LEN, WRITE_HEADER_LEN};
use crate::sender::Sender;

/// What is to leave with one call.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    before: Sender,
    octets: usize,
    payload: usize,
}

/// One Write of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What stands before its payload.
    pub header: [u8; WRITE_HEADER_LEN],
    /// Which of the plan's octets are its payload.
    pub payload: Range<usize>,
}

impl Frame {
    /// Octets behind its payload: padding and CRC.
    pub fn trailer_len(&self) -> usize {
        trailer_len(self.payload.len())
    }

    fn wire_len(&self) -> usize {
        write_len(self.payload.len())
    }
}

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The sender from here on.
    pub sender: Sender,
    /// Octets of the stream that have left, or have to leave with what is unfinished.
    pub octets: usize,
    /// What was taken in part, and nothing else may leave before the rest of it.
    pub unfinished: Option<Unfinished>,
}

/// An FPDU that was taken in part. `taken` counts its octets that have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// A Write.
    Write {
        /// It.
        frame: Frame,
        /// Of its header, payload and trailer.
        taken: usize,
    },
    /// The message behind the Writes.
    Message {
        /// It.
        message: [u8; MESSAGE_LEN],
        /// Of it.
        taken: usize,
    },
}

impl Sender {
    /// The next octets of the stream as FPDUs: as many of `octets` as there is room for and go into `frames` FPDUs of
    /// `payload` octets each at most.
    pub fn plan(&self, octets: usize, payload: usize, frames: usize) -> Plan {
        let payload = payload.clamp(1, self.payload_max());
        let octets = octets
            .min(self.room() as usize)
            .min(payload.saturating_mul(frames));
        Plan {
            before: *self,
            octets,
            payload,
        }
    }
}

impl Plan {
    /// Octets of the stream in it.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Its Writes, in order.
    pub fn frames(&self) -> Frames {
        Frames {
            sender: self.before,
            at: 0,
            plan: *self,
        }
    }

    /// The message behind the Writes; `None` in a plan of nothing, and to a peer that is Weft.
    pub fn message(&self) -> Option<[u8; MESSAGE_LEN]> {
        let mut frames = self.frames();
        frames.by_ref().for_each(drop);
        frames.sender.announce()
    }

    /// What comes of it where a socket took its first `taken` octets.
    pub fn taken(&self, taken: usize) -> Progress {
        let mut left = taken;
        let mut frames = self.frames();
        loop {
            let sender = frames.sender;
            let octets = frames.at;
            let Some(frame) = frames.next().filter(|_| left > 0) else {
                return self.after_writes(sender, octets, left);
            };
            if left < frame.wire_len() {
                return Progress {
                    sender: frames.sender,
                    octets: frames.at,
                    unfinished: Some(Unfinished::Write { frame, taken: left }),
                };
            }
            left -= frame.wire_len();
        }
    }

    /// Whole Writes were taken, and `left` octets behind them.
    fn after_writes(&self, mut sender: Sender, octets: usize, left: usize) -> Progress {
        let mut unfinished = None;
        if left > 0 {
            debug_assert!(octets == self.octets && left <= MESSAGE_LEN);
            unfinished = sender
                .announce()
                .filter(|message| left < message.len())
                .map(|message| Unfinished::Message {
                    message,
                    taken: left,
                });
        }
        Progress {
            sender,
            octets,
            unfinished,
        }
    }
}

/// The Writes of a plan.
#[derive(Clone, Debug)]
pub struct Frames {
    sender: Sender,
    at: usize,
    plan: Plan,
}

impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let payload = self.at..self.plan.octets.min(self.at + self.plan.payload);
        if payload.is_empty() {
            return None;
        }
        self.at = payload.end;
        let header = self.sender.begin_write(payload.len());
        Some(Frame { header, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_data::{ConnectionData, Target};
    use crate::frame::trailer;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn sender() -> Sender {
        let peer = ConnectionData {
            big_endian: false,
            weft: true,
            maps: false,
            credits: 384,
            map_entries: 0,
            targets: Target {
                to: 0,
                stag: 3,
                len: 2,
            },
            data: Target {
                to: 0x1000,
                stag: 2,
                len: 1 << 30,
            },
        };
        Sender::new(&peer, 64_768, false)
    }

    fn octets_of(frame: &Frame, stream: &[u8]) -> Vec<u8> {
        let mut octets = frame.header.to_vec();
        octets.extend_from_slice(&stream[frame.payload.clone()]);
        let (trailer, len) = trailer(frame.payload.len(), 0);
        octets.extend_from_slice(&trailer[..len]);
        octets
    }

    fn wire(plan: &Plan, stream: &[u8]) -> Vec<u8> {
        let frames = plan.frames().flat_map(|frame| octets_of(&frame, stream));
        frames.chain(plan.message().into_iter().flatten()).collect()
    }

    proptest! {
        /// Wherever a socket stops, what is unfinished is the rest of one FPDU, and the sender goes on behind it.
        #[test]
        fn any_part_may_be_taken(len in 1usize..400, payload in 1usize..90, cut in 0.0..=1.0) {
            let stream: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let before = sender();
            let plan = before.plan(len, payload, 1000);
            let whole = wire(&plan, &stream);
            let cut = (whole.len() as f64 * cut) as usize;
            let mut progress = plan.taken(cut);
            let mut sent = whole[..cut].to_vec();
            match &progress.unfinished {
                None => {}
                Some(Unfinished::Message { message, taken }) => {
                    prop_assert!(*taken > 0 && *taken < message.len());
                    sent.extend_from_slice(&message[*taken..]);
                }
                Some(Unfinished::Write { frame, taken }) => {
                    prop_assert!(*taken > 0 && *taken < frame.wire_len());
                    prop_assert_eq!(frame.payload.end, progress.octets);
                    sent.extend_from_slice(&octets_of(frame, &stream)[*taken..]);
                }
            }
            // The rest of the stream as another send, of FPDUs of the same sizes: what the peer gets differs only in
            // the message that comes early.
            let early = progress.sender.announce();
            sent.extend(early.into_iter().flatten());
            let rest = progress.sender.plan(len - progress.octets, payload, 1000);
            let (begun, behind) = stream.split_at(progress.octets);
            prop_assert_eq!(begun.len() + behind.len(), len);
            sent.extend(wire(&rest, behind));
            let writes = |octets: &[u8]| -> Vec<u8> {
                let mut payloads = Vec::new();
                let mut at = 0;
                while at < octets.len() {
                    let ulpdu = usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
                    if octets[at + 2] & 0x80 != 0 {
                        payloads.extend_from_slice(&octets[at + 16..at + 2 + ulpdu]);
                    }
                    at += (2 + ulpdu).next_multiple_of(4) + 4;
                }
                payloads
            };
            prop_assert_eq!(writes(&sent), stream);
        }
    }

    #[test]
    fn nothing_taken_changes_nothing() {
        let before = sender();
        let progress = before.plan(100, 30, 9).taken(0);
        assert_eq!((progress.sender, progress.octets), (before, 0));
        assert_eq!(progress.unfinished, None);
    }

    #[test]
    fn all_taken_has_told_of_all() {
        let plan = sender().plan(100, 30, 9);
        let mut progress = plan.taken(wire(&plan, &[7; 100]).len());
        assert_eq!((progress.octets, progress.unfinished), (100, None));
        assert_eq!(progress.sender.announce(), None);
    }

    #[test]
    fn a_plan_has_as_many_frames_as_it_may() {
        assert_eq!(sender().plan(100, 30, 2).octets(), 60);
        assert_eq!(sender().plan(0, 30, 2).message(), None);
    }
}
