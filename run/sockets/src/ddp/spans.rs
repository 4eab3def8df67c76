//! What lies next in a socket: framing and payload by turns.

use weft_stream::frame::WRITE_HEADER_LEN;
use weft_stream::{Fault, Next, Receiver};
use zerocopy::FromBytes;

/// Spans that are looked at in one go.
pub(super) const SPANS_MAX: usize = 24;

/// Octets of framing that are looked at in one go.
pub(super) const FRAMING_MAX: usize = 512;

/// Of these, what may be guessed behind a payload.
const BEHIND_MAX: usize = 32;

/// A run of octets of one sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// No octets of the stream.
    Framing(usize),
    /// Octets of the stream.
    Payload(usize),
}

impl Span {
    /// How many they are.
    pub(super) fn octets(self) -> usize {
        match self {
            Span::Framing(octets) | Span::Payload(octets) => octets,
        }
    }
}

/// Runs of octets, in the order of the socket. Plain data: any octets make some.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes)]
pub(super) struct Spans {
    /// Their lengths, those of framing with [`FRAMING`].
    list: [u32; SPANS_MAX],
    count: u32,
    payload: u32,
    framing: u32,
}

/// Beside a length.
const FRAMING: u32 = 1 << 31;

impl Spans {
    /// What a receiver in this state has before it, as far as the octets `seen` tell and a reader has `room`. The last
    /// spans may lie beyond what is seen.
    pub(super) fn of(mut receiver: Receiver, seen: &[u8], room: usize) -> Result<Spans, Fault> {
        let mut spans = Spans::default();
        let mut at = 0;
        while spans.count as usize + 1 < SPANS_MAX && spans.framing() < FRAMING_MAX - BEHIND_MAX {
            match receiver.next() {
                // What is for mapped memory is taken alone.
                Next::Nothing | Next::Mapped { .. } => break,
                Next::Framing(_) => {
                    let end = seen
                        .len()
                        .min(at + FRAMING_MAX - BEHIND_MAX - spans.framing());
                    let taken = match receiver.take_framing(&seen[at.min(end)..end]) {
                        Ok(framing) => framing.taken,
                        // What stands before it is good; whoever takes that meets the fault next.
                        Err(fault) if spans.count == 0 => return Err(fault),
                        Err(_) => break,
                    };
                    if taken == 0 {
                        break;
                    }
                    if end < seen.len() && receiver.held() > 0 {
                        // What begins here and goes beyond these spans is taken whole another time: its CRC has been
                        // checked with what is seen, and could not be again.
                        spans.push_framing(taken - receiver.held());
                        break;
                    }
                    spans.push_framing(taken);
                    at += taken;
                }
                Next::Payload(left) => {
                    let now = (left as usize).min(room - spans.payload());
                    if now == 0 {
                        break;
                    }
                    let behind = receiver.framing_behind();
                    receiver.take_payload(now as u32);
                    spans.push_payload(now);
                    at += now;
                    if at >= seen.len() {
                        if now == left as usize {
                            spans.push_framing(behind);
                        }
                        break;
                    }
                }
            }
        }
        Ok(spans)
    }

    /// A run of payload alone.
    pub(super) fn of_payload(octets: usize) -> Spans {
        let mut spans = Spans::default();
        spans.push_payload(octets);
        spans
    }

    /// The framing before the header of the first Write; nothing where none is, or where a part of that header was
    /// taken before.
    pub(super) fn before_write(&self) -> Option<Spans> {
        let Some(Span::Framing(octets)) = self.iter().next() else {
            return None;
        };
        let before = octets.saturating_sub(WRITE_HEADER_LEN);
        let mut spans = Spans::default();
        spans.push_framing(before);
        (before > 0).then_some(spans)
    }

    /// Octets of payload in them.
    pub(super) fn payload(&self) -> usize {
        self.payload as usize
    }

    /// Octets of framing in them.
    pub(super) fn framing(&self) -> usize {
        self.framing as usize
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        let count = (self.count as usize).min(SPANS_MAX);
        self.list[..count].iter().map(|word| {
            let octets = (word & !FRAMING) as usize;
            match word & FRAMING {
                0 => Span::Payload(octets),
                _ => Span::Framing(octets),
            }
        })
    }

    fn push_payload(&mut self, octets: usize) {
        self.payload += octets as u32;
        self.push(octets as u32);
    }

    fn push(&mut self, word: u32) {
        self.list[self.count as usize] = word;
        self.count += 1;
    }

    fn push_framing(&mut self, octets: usize) {
        self.framing += octets as u32;
        let count = self.count as usize;
        match self.list[..count].last_mut() {
            Some(before) if *before & FRAMING != 0 => *before += octets as u32,
            _ => self.push(FRAMING | octets as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_stream::{frame, ConnectionData, Sender};

    fn ends() -> (Sender, Receiver) {
        let own = Receiver::connection_data(1, 0x1000, 2, 0x2000);
        let peer = ConnectionData { weft: false, ..own };
        (
            Sender::new(&peer, 64_768, false),
            Receiver::new(&own, &peer, false),
        )
    }

    /// The wire of some writes, one message each.
    fn wire(writes: &[usize]) -> Vec<u8> {
        let mut sender = ends().0;
        let mut octets = Vec::new();
        for write in writes {
            let plan = sender.plan(*write, 1 << 16, 1);
            for one in plan.frames() {
                octets.extend(one.header);
                octets.resize(octets.len() + one.payload.len(), 7);
                octets.extend(&frame::trailer(*write, 0).0[..one.trailer_len()]);
            }
            octets.extend(plan.message().unwrap());
            sender = plan.taken(octets.len()).sender;
            let _ = sender.announce();
        }
        octets
    }

    fn spans(seen: &[u8], room: usize) -> Vec<Span> {
        Spans::of(ends().1, seen, room).unwrap().iter().collect()
    }

    #[test]
    fn small_writes_are_seen_whole() {
        let one = wire(&[64]);
        let whole = [Span::Framing(16), Span::Payload(64), Span::Framing(32)];
        assert_eq!(spans(&one, 4096), whole);
        assert_eq!(spans(&one, 10), [Span::Framing(16), Span::Payload(10)]);
        assert_eq!(spans(&one[..9], 10), [Span::Framing(9)]);
    }

    #[test]
    fn beyond_what_is_seen_comes_what_surely_follows() {
        let large = wire(&[5000]);
        let guessed = [
            Span::Framing(16),
            Span::Payload(5000),
            Span::Framing(4 + 16),
        ];
        assert_eq!(spans(&large[..100], 6000), guessed);
        assert_eq!(
            spans(&large[..100], 4999),
            [Span::Framing(16), Span::Payload(4999)]
        );
    }

    #[test]
    fn a_fault_is_met_where_it_stands() {
        let mut octets = wire(&[64]);
        octets[84 + 27 - 8] ^= 0x40;
        let met = Spans::of(ends().1, &octets, 4096).unwrap();
        assert_eq!(met.payload(), 64);
        octets[4] ^= 1;
        assert!(Spans::of(ends().1, &octets, 4096).is_err());
    }
}
