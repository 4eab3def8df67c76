//! What two ends of a bring-up say of themselves: the private data of the MPA Request and Reply.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..8 | `WEFTQP` and the version, 0x0002 |
//! | 8..12 | the queue pair spoken to |
//! | 12..16 | the queue pair that speaks |
//! | 16..20 | which proof follows: 0 none, 1 what the speaker starts with, 2 what it expects the other to |
//! | 20..24 | a packet sequence number: the proof; 0 without one |
//!
//! Numbers are in network byte order.

const NAME: &[u8; 6] = b"WEFTQP";
const VERSION: u16 = 2;
/// Octets of a message.
pub(super) const LEN: usize = 24;

/// One end's message to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// The queue pair spoken to.
    pub(super) to: u32,
    /// The queue pair that speaks.
    pub(super) from: u32,
    pub(super) proof: Proof,
}

/// A packet sequence number that shows who speaks: only who was told by the program knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    /// The speaker has none to say.
    Nothing,
    /// What the speaker starts with (its `sq_psn`), known to it from RTS on and to the other from RTR on.
    Starts(u32),
    /// What the speaker expects the other to start with (its `rq_psn`), known to it from RTR on and to the other from
    /// RTS on.
    Expects(u32),
}

/// Why octets are no message of a bring-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAMessage {
    /// Another version of Weft speaks another version of it.
    Version(u16),
    Other,
}

impl Message {
    pub(super) fn encode(&self) -> [u8; LEN] {
        let (kind, psn) = match self.proof {
            Proof::Nothing => (0, 0),
            Proof::Starts(psn) => (1, psn),
            Proof::Expects(psn) => (2, psn),
        };
        let mut octets = [0; LEN];
        octets[..6].copy_from_slice(NAME);
        octets[6..8].copy_from_slice(&VERSION.to_be_bytes());
        for (field, value) in [self.to, self.from, kind, psn].into_iter().enumerate() {
            octets[8 + 4 * field..12 + 4 * field].copy_from_slice(&value.to_be_bytes());
        }
        octets
    }

    pub(super) fn parse(octets: &[u8]) -> Result<Message, NotAMessage> {
        let version = match octets.strip_prefix(NAME) {
            Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
            _ => return Err(NotAMessage::Other),
        };
        if version != VERSION {
            return Err(NotAMessage::Version(version));
        }
        let octets: &[u8; LEN] = octets.try_into().map_err(|_| NotAMessage::Other)?;
        let number = |at: usize| {
            u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        Ok(Message {
            to: number(8),
            from: number(12),
            proof: match number(16) {
                0 => Proof::Nothing,
                1 => Proof::Starts(number(20)),
                2 => Proof::Expects(number(20)),
                _ => return Err(NotAMessage::Other),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Message = Message {
        to: 0x00AB_CDEF,
        from: 0x0012_3456,
        proof: Proof::Expects(0x00FE_DCBA),
    };

    #[test]
    fn the_words_stand_where_the_table_says() {
        let octets = MESSAGE.encode();
        assert_eq!(&octets[..8], b"WEFTQP\x00\x02");
        assert_eq!(octets[8..12], [0x00, 0xAB, 0xCD, 0xEF]);
        assert_eq!(octets[12..16], [0x00, 0x12, 0x34, 0x56]);
        assert_eq!(octets[16..20], [0, 0, 0, 2]);
        assert_eq!(octets[20..], [0x00, 0xFE, 0xDC, 0xBA]);
        for proof in [MESSAGE.proof, Proof::Starts(7), Proof::Nothing] {
            let message = Message { proof, ..MESSAGE };
            assert_eq!(Message::parse(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn anything_else_is_no_message() {
        let octets = MESSAGE.encode();
        assert_eq!(Message::parse(&octets[..LEN - 1]), Err(NotAMessage::Other));
        let longer = [&octets[..], &[0]].concat();
        assert_eq!(Message::parse(&longer), Err(NotAMessage::Other));
        for at in (0..6).chain(16..20) {
            let mut wrong = octets;
            wrong[at] ^= 0x41;
            assert_eq!(
                Message::parse(&wrong),
                Err(NotAMessage::Other),
                "octet {at}"
            );
        }
        let mut older = octets;
        older[7] = 1;
        assert_eq!(Message::parse(&older[..20]), Err(NotAMessage::Version(1)));
    }
}
