//! What two ends of a bring-up say of themselves: the private data of the MPA Request and Reply.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..8 | `WEFTQP` and the version, 0x0002 |
//! | 8..12 | the queue pair spoken to |
//! | 12..16 | the queue pair that speaks |
//! | 16..20 | which word follows: 0 none, 1 what the speaker starts with, 2 what it expects the other to |
//! | 20..24 | a packet sequence number: the word; 0 without one |
//!
//! Numbers are in network byte order.

const NAME: &[u8; 6] = b"WEFTQP";
const VERSION: u16 = 2;
/// Octets of a hello.
pub(super) const LEN: usize = 24;

/// One end's hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// The queue pair spoken to.
    pub(super) to: u32,
    /// The queue pair that speaks.
    pub(super) from: u32,
    pub(super) word: Word,
}

/// A packet sequence number that shows who speaks: only who was told by the program knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// The speaker has none to say.
    Nothing,
    /// What the speaker starts with (its `sq_psn`), known to it from RTS on and to the other from RTR on.
    Starts(u32),
    /// What the speaker expects the other to start with (its `rq_psn`), known to it from RTR on and to the other from
    /// RTS on.
    Expects(u32),
}

/// Why octets are no hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoHello {
    /// Another version of Weft speaks another version of it.
    Version(u16),
    Other,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; LEN] {
        let (kind, psn) = match self.word {
            Word::Nothing => (0, 0),
            Word::Starts(psn) => (1, psn),
            Word::Expects(psn) => (2, psn),
        };
        let mut octets = [0; LEN];
        octets[..6].copy_from_slice(NAME);
        octets[6..8].copy_from_slice(&VERSION.to_be_bytes());
        for (field, value) in [self.to, self.from, kind, psn].into_iter().enumerate() {
            octets[8 + 4 * field..12 + 4 * field].copy_from_slice(&value.to_be_bytes());
        }
        octets
    }

    pub(super) fn parse(octets: &[u8]) -> Result<Hello, NoHello> {
        let version = match octets.strip_prefix(NAME) {
            Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
            _ => return Err(NoHello::Other),
        };
        if version != VERSION {
            return Err(NoHello::Version(version));
        }
        let octets: &[u8; LEN] = octets.try_into().map_err(|_| NoHello::Other)?;
        let word = |at: usize| {
            u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        Ok(Hello {
            to: word(8),
            from: word(12),
            word: match word(16) {
                0 => Word::Nothing,
                1 => Word::Starts(word(20)),
                2 => Word::Expects(word(20)),
                _ => return Err(NoHello::Other),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        to: 0x00AB_CDEF,
        from: 0x0012_3456,
        word: Word::Expects(0x00FE_DCBA),
    };

    #[test]
    fn the_words_stand_where_the_table_says() {
        let octets = HELLO.encode();
        assert_eq!(&octets[..8], b"WEFTQP\x00\x02");
        assert_eq!(octets[8..12], [0x00, 0xAB, 0xCD, 0xEF]);
        assert_eq!(octets[12..16], [0x00, 0x12, 0x34, 0x56]);
        assert_eq!(octets[16..20], [0, 0, 0, 2]);
        assert_eq!(octets[20..], [0x00, 0xFE, 0xDC, 0xBA]);
        for word in [HELLO.word, Word::Starts(7), Word::Nothing] {
            let hello = Hello { word, ..HELLO };
            assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn anything_else_is_nobodys_hello() {
        let octets = HELLO.encode();
        assert_eq!(Hello::parse(&octets[..LEN - 1]), Err(NoHello::Other));
        let longer = [&octets[..], &[0]].concat();
        assert_eq!(Hello::parse(&longer), Err(NoHello::Other));
        for at in (0..6).chain(16..20) {
            let mut wrong = octets;
            wrong[at] ^= 0x41;
            assert_eq!(Hello::parse(&wrong), Err(NoHello::Other), "octet {at}");
        }
        let mut older = octets;
        older[7] = 1;
        assert_eq!(Hello::parse(&older[..20]), Err(NoHello::Version(1)));
    }
}
