//! The eight octets before each datagram on a carrier.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..2 | octets that follow the header |
//! | 2..4 | channel; its highest bit says that a part of a datagram follows |
//! | 4..8 | check |
//!
//! Numbers are in network order. A *channel* stands for the two UDP ends that its datagrams go between; channel 0
//! carries control messages. The check is over the header's offset in the stream, the length and the channel, with a
//! key that only the two ends know. It says whether a header begins here: who does not know the key cannot put octets
//! into a datagram that pass for a header, wherever a box on the way cuts the stream.
//!
//! A part begins with eight octets of its own: which message it is of (4 octets), where it lies in it (2), and how long
//! the message is in all (2). What is marked as a part on channel 0 is a *time*: the sender's clock, in microseconds (4
//! octets), when the frames were put in that follow in the segment.
//!
//! On a carrier whose segments may come in any order the check is also over how many control messages were sent before
//! the frame ([`Key::behind`]): so its receiver knows whether one of those is missing.

/// Octets of a frame's header.
pub const HEADER_LEN: usize = 8;
/// Octets of a datagram at most: what IPv4 and UDP leave of 65,535.
pub const DATAGRAM_OCTETS_MAX: usize = 65_507;
/// Octets of a control message at most.
pub const CONTROL_OCTETS_MAX: usize = 128;
/// Octets that a part has before its octets of the datagram.
pub const PART_HEADER_LEN: usize = 8;
/// Octets of a time.
pub const TIME_LEN: usize = 4;
/// The highest number of a channel.
pub const CHANNEL_MAX: u16 = PART - 1;
/// The channel of control messages.
pub const CONTROL: u16 = 0;

const PART: u16 = 0x8000;

/// What the check of one direction of one carrier is keyed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key([u64; 2]);

/// Odd, without a pattern: digits of pi.
const MIX: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

/// Both halves of the product, folded into each other.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Key {
    /// The key of octets that the end with the nonce `sender` sends to the one with the nonce `receiver`.
    pub fn new(sender: &[u8; 16], receiver: &[u8; 16]) -> Key {
        let word = |nonce: &[u8; 16], at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&nonce[at..at + 8]);
            u64::from_be_bytes(octets)
        };
        let half = |at: usize| {
            let mixed = fold(word(sender, at) ^ MIX[0], MIX[1]);
            fold(mixed ^ word(receiver, at), MIX[0]) ^ mixed.rotate_left(29)
        };
        Key([half(0), half(8)])
    }

    /// The key of frames that so many control messages were sent before.
    pub fn behind(self, controls: u64) -> Key {
        Key([self.0[0] ^ controls.wrapping_mul(MIX[0]), self.0[1]])
    }

    #[inline]
    fn check(self, offset: u64, len: u16, channel: u16) -> u32 {
        let said = u64::from(len) << 16 | u64::from(channel);
        let mixed = fold(offset ^ self.0[0], said ^ self.0[1]);
        (fold(mixed ^ self.0[1], MIX[0]) >> 16) as u32
    }
}

/// Why octets are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoFrame {
    /// A frame is longer or shorter than any of its kind.
    #[error("a frame of {} octets on channel {}, which none has", .0.len, .0.channel)]
    Length(Head),
    /// A part that does not lie in its message.
    #[error("a part of a datagram that lies outside of it")]
    Part,
}

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Octets that follow.
    pub len: u16,
    /// The channel, at most [`CHANNEL_MAX`].
    pub channel: u16,
    /// A part of a datagram follows, with its own header.
    pub is_part: bool,
}

impl Head {
    /// The header of a whole datagram, or of a control message.
    pub fn whole(channel: u16, len: u16) -> Head {
        Head {
            len,
            channel,
            is_part: false,
        }
    }

    /// The header of a time.
    pub fn time() -> Head {
        Head {
            len: TIME_LEN as u16,
            channel: CONTROL,
            is_part: true,
        }
    }

    /// Whether a time follows.
    #[inline]
    pub fn is_time(&self) -> bool {
        self.is_part && self.channel == CONTROL
    }

    /// Octets of the frame, header and all.
    #[inline]
    pub fn frame_len(&self) -> usize {
        HEADER_LEN + usize::from(self.len)
    }

    /// The octets of a header that begins at `offset` of the stream.
    #[inline]
    pub fn to_octets(self, key: Key, offset: u64) -> [u8; HEADER_LEN] {
        debug_assert!(self.channel <= CHANNEL_MAX);
        let channel = self.channel | if self.is_part { PART } else { 0 };
        let check = key.check(offset, self.len, channel);
        let octets = u64::from(self.len) << 48 | u64::from(channel) << 32 | u64::from(check);
        octets.to_be_bytes()
    }

    /// Reads a header that begins at `offset` of the stream. Nothing where no header begins.
    #[inline]
    #[allow(unexpected_cfgs, reason = "the fuzzer's build sets it")]
    pub fn parse(octets: &[u8; HEADER_LEN], key: Key, offset: u64) -> Option<Head> {
        let head = Head::unchecked(octets);
        let word = u64::from_be_bytes(*octets);
        // The fuzzer has no key: to it every header is right, or it would reach nothing behind.
        let is_right =
            key.check(offset, head.len, (word >> 32) as u16) == word as u32 || cfg!(fuzzing);
        is_right.then_some(head)
    }

    /// What a header of this end's own says.
    #[inline]
    pub(crate) fn unchecked(octets: &[u8; HEADER_LEN]) -> Head {
        let word = u64::from_be_bytes(*octets);
        let channel = (word >> 32) as u16;
        Head {
            len: (word >> 48) as u16,
            channel: channel & CHANNEL_MAX,
            is_part: channel & PART != 0,
        }
    }

    /// The header that begins at `offset` of the stream, and how many control messages were sent before its frame:
    /// `fewest`, or so many `more`.
    pub fn find(
        octets: &[u8],
        key: Key,
        offset: u64,
        fewest: u64,
        more: u64,
    ) -> Option<(Head, u64)> {
        let header = octets.first_chunk::<HEADER_LEN>()?;
        let mut counts = fewest..=fewest.saturating_add(more);
        counts.find_map(|count| Some((Head::parse(header, key.behind(count), offset)?, count)))
    }

    /// Whether there may be such a frame.
    ///
    /// # Errors
    /// It is longer, or shorter, than any of its kind.
    #[inline]
    pub fn verify(self) -> Result<Head, NoFrame> {
        let len = usize::from(self.len);
        let may_be = match (self.channel, self.is_part) {
            (CONTROL, false) => (1..=CONTROL_OCTETS_MAX).contains(&len),
            (CONTROL, true) => len == TIME_LEN,
            (_, false) => len <= DATAGRAM_OCTETS_MAX,
            (_, true) => len > PART_HEADER_LEN,
        };
        match may_be {
            true => Ok(self),
            false => Err(NoFrame::Length(self)),
        }
    }
}

/// Where a part belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The message's number. Those of a channel count up from 0, and begin again at 0 after the last.
    pub message: u32,
    /// Where the part begins in it.
    pub offset: u16,
    /// Octets of the message.
    pub total: u16,
}

impl Part {
    /// Whether the message ends with `octets`, which this is the header of.
    pub(crate) fn is_last(self, octets: &[u8]) -> bool {
        usize::from(self.offset) + octets.len() == usize::from(self.total)
    }

    /// The octets before the datagram's.
    pub fn to_octets(self) -> [u8; PART_HEADER_LEN] {
        let word = u64::from(self.message) << 32 | u64::from(self.offset) << 16;
        (word | u64::from(self.total)).to_be_bytes()
    }

    /// Splits what follows the header of a part.
    ///
    /// # Errors
    /// The part does not lie in its message, is all of it, or the message is longer than a datagram.
    pub fn split(payload: &[u8]) -> Result<(Part, &[u8]), NoFrame> {
        let Some((header, octets)) = payload.split_first_chunk::<PART_HEADER_LEN>() else {
            return Err(NoFrame::Part);
        };
        let word = u64::from_be_bytes(*header);
        let part = Part {
            message: (word >> 32) as u32,
            offset: (word >> 16) as u16,
            total: word as u16,
        };
        let (total, end) = (
            usize::from(part.total),
            usize::from(part.offset) + octets.len(),
        );
        let lies_in_it = end <= total && total <= DATAGRAM_OCTETS_MAX;
        match lies_in_it && (1..total).contains(&octets.len()) {
            true => Ok((part, octets)),
            false => Err(NoFrame::Part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key() -> Key {
        Key::new(&[1; 16], &[2; 16])
    }

    #[test]
    fn the_octets_are_those_of_the_table() {
        let head = Head {
            len: 0x1234,
            channel: 0x0567,
            is_part: true,
        };
        let octets = head.to_octets(key(), 99);
        assert_eq!(octets[..4], [0x12, 0x34, 0x85, 0x67]);
        assert_eq!(Head::parse(&octets, key(), 99), Some(head));
        let part = Part {
            message: 0x0102_0304,
            offset: 0x0506,
            total: 0x0708,
        };
        assert_eq!(part.to_octets(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// What is on the wire stays what it is: another version would have to be agreed on.
    #[test]
    fn the_check_is_what_it_always_was() {
        let octets = Head::whole(5, 1448).to_octets(key(), 1 << 40);
        assert_eq!(octets[4..], CHECK);
    }

    /// Reckoned by another program.
    const CHECK: [u8; 4] = [174, 45, 248, 3];

    #[test]
    fn each_direction_and_each_pair_of_nonces_has_its_key() {
        let mut nonces = std::vec![([1; 16], [2; 16]), ([2; 16], [1; 16])];
        for at in 0..16 {
            let mut other = [1; 16];
            other[at] ^= 0x40;
            nonces.extend([(other, [2; 16]), ([2; 16], other)]);
        }
        let keys: BTreeSet<_> = nonces.iter().map(|(a, b)| Key::new(a, b).0).collect();
        assert_eq!(keys.len(), nonces.len());
    }

    #[test]
    fn frames_have_lengths_of_their_kind() {
        let is_right = |channel, len, is_part| {
            let head = Head {
                len,
                channel,
                is_part,
            };
            head.verify() == Ok(head)
        };
        for (channel, len, is_part, wanted) in [
            (0, 1, false, true),
            (0, 0, false, false),
            (0, 128, false, true),
            (0, 129, false, false),
            (0, 20, true, false),
            (1, 0, false, true),
            (1, 65_507, false, true),
            (1, 65_508, false, false),
            (CHANNEL_MAX, 9, true, true),
            (1, 8, true, false),
        ] {
            assert_eq!(
                is_right(channel, len, is_part),
                wanted,
                "{channel} {len} {is_part}"
            );
        }
    }

    #[test]
    fn a_part_lies_in_its_message_and_is_not_all_of_it() {
        let split = |offset, total, len: usize| {
            let part = Part {
                message: 7,
                offset,
                total,
            };
            let payload = [part.to_octets().to_vec(), std::vec![1; len]].concat();
            Part::split(&payload).map(|(read, octets)| {
                assert_eq!((read, octets.len()), (part, len));
            })
        };
        assert_eq!(split(0, 10, 9), Ok(()));
        assert_eq!(split(1, 10, 9), Ok(()));
        assert_eq!(split(65_506, 65_507, 1), Ok(()));
        for (offset, total, len) in [
            (0, 10, 10),
            (2, 10, 9),
            (10, 10, 0),
            (0, 65_508, 5),
            (0, 0, 0),
        ] {
            assert_eq!(split(offset, total, len), Err(NoFrame::Part));
        }
        assert_eq!(Part::split(&[0; 7]), Err(NoFrame::Part));
    }

    proptest! {
        /// Who changes anything that the check covers has to guess 32 bits. No seed may hit by chance.
        #[test]
        fn nothing_but_what_was_said_checks(
            nonces: ([u8; 16], [u8; 16]), offset: u64, len: u16, channel in 0..=CHANNEL_MAX, bit in 0u32..32, shift in 1u64..70_000
        ) {
            let key = Key::new(&nonces.0, &nonces.1);
            let octets = Head::whole(channel, len).to_octets(key, offset);
            prop_assert_eq!(Head::parse(&octets, key, offset), Some(Head::whole(channel, len)));
            prop_assert_eq!(Head::parse(&octets, key, offset.wrapping_add(shift)), None);
            let flipped = u64::from_be_bytes(octets) ^ 1 << (32 + bit);
            prop_assert_eq!(Head::parse(&flipped.to_be_bytes(), key, offset), None);
            let other = Key::new(&nonces.1, &nonces.0);
            prop_assume!(nonces.0 != nonces.1);
            prop_assert_eq!(Head::parse(&octets, other, offset), None);
        }
    }
}
