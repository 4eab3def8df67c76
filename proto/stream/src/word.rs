//! The message word: the four octets of each Send.
//!
//! Three bits of kind and 29 of value. It travels in the sender's own byte order, which its connection data tells.

/// Octets of the word.
pub const WORD_LEN: usize = 4;
/// The largest value beside a kind; so many octets one [`Word::Data`] can tell of.
pub const VALUE_MAX: u32 = (1 << KIND_SHIFT) - 1;

const KIND_SHIFT: u32 = 29;
const DATA: u32 = 0;
const CREDIT: u32 = 4;
const MAP: u32 = 6;
const CONTROL: u32 = 7;
const DISCONNECT: u32 = 0;
const KEEPALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// So many octets of the stream were written since the last of these.
    Data(u32),
    /// Messages up to the one with this sequence number may be sent, and a target written before it is good.
    Credit(u16),
    /// The entry with this index of the receiver's table of mapped memory was written.
    Map(u32),
    /// The connection ends.
    Disconnect,
    /// Nothing: a sign of life.
    Keepalive,
    /// No more octets of the stream will come.
    Shutdown,
}

impl Word {
    /// The word as a number. A value above [`VALUE_MAX`] is cut to its 29 bits.
    pub const fn to_u32(self) -> u32 {
        let (kind, value) = match self {
            Word::Data(octets) => (DATA, octets),
            Word::Credit(limit) => (CREDIT, limit as u32),
            Word::Map(index) => (MAP, index),
            Word::Disconnect => (CONTROL, DISCONNECT),
            Word::Keepalive => (CONTROL, KEEPALIVE),
            Word::Shutdown => (CONTROL, SHUTDOWN),
        };
        kind << KIND_SHIFT | value & VALUE_MAX
    }

    /// What a number says; `None` for the kinds and control values that have no meaning.
    pub const fn from_u32(word: u32) -> Option<Word> {
        let value = word & VALUE_MAX;
        Some(match (word >> KIND_SHIFT, value) {
            (DATA, octets) => Word::Data(octets),
            // The sequence number has 16 bits, and what stands above them is ignored as rsockets ignores it.
            (CREDIT, limit) => Word::Credit(limit as u16),
            (MAP, index) => Word::Map(index),
            (CONTROL, DISCONNECT) => Word::Disconnect,
            (CONTROL, KEEPALIVE) => Word::Keepalive,
            (CONTROL, SHUTDOWN) => Word::Shutdown,
            _ => return None,
        })
    }

    /// The octets in this machine's order.
    pub const fn to_octets(self) -> [u8; WORD_LEN] {
        self.to_u32().to_ne_bytes()
    }

    /// What octets say that a machine of this order sent.
    pub const fn from_octets(octets: [u8; WORD_LEN], big_endian: bool) -> Option<Word> {
        Word::from_u32(if big_endian {
            u32::from_be_bytes(octets)
        } else {
            u32::from_le_bytes(octets)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The values are those of librdmacm's rsocket.c.
    #[test]
    fn words_have_rsockets_values() {
        let table = [
            (Word::Data(5), 0x0000_0005),
            (Word::Credit(0x1234), 0x8000_1234),
            (Word::Map(3), 0xc000_0003),
            (Word::Disconnect, 0xe000_0000),
            (Word::Keepalive, 0xe000_0001),
            (Word::Shutdown, 0xe000_0002),
        ];
        for (word, number) in table {
            assert_eq!(word.to_u32(), number);
            assert_eq!(Word::from_u32(number), Some(word));
        }
        for nothing in [
            0x2000_0000,
            0x4000_0000,
            0x6000_0000,
            0xa000_0000,
            0xe000_0003,
        ] {
            assert_eq!(Word::from_u32(nothing), None, "{nothing:#x}");
        }
    }

    #[test]
    fn either_order_is_read() {
        assert_eq!(
            Word::from_octets([0xe0, 0, 0, 2], true),
            Some(Word::Shutdown)
        );
        assert_eq!(
            Word::from_octets([2, 0, 0, 0xe0], false),
            Some(Word::Shutdown)
        );
        let own = Word::Data(77).to_octets();
        assert_eq!(
            Word::from_octets(own, cfg!(target_endian = "big")),
            Some(Word::Data(77))
        );
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_again(number: u32) {
            if let Some(word) = Word::from_u32(number) {
                let ignored = if matches!(word, Word::Credit(_)) { 0x1fff_0000 } else { 0 };
                prop_assert_eq!(word.to_u32(), number & !ignored);
            }
        }
    }
}
