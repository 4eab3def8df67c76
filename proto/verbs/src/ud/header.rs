//! What stands before the payload of a datagram (decision 0008).
//!
//! | octets | what |
//! | --- | --- |
//! | 0..4 | `WUD` and the version, 1 |
//! | 4 | kind: 0 send, 1 send with immediate, 2 credit |
//! | 5 | flags: 1 solicited, 2 credit is wanted |
//! | 6..8 | 0, ignored |
//! | 8..12 | the queue pair spoken to; 0 in a credit message |
//! | 12..16 | the queue pair that speaks; 0 in a credit message |
//! | 16..20 | Q_Key; 0 in a credit message |
//! | 20..24 | the immediate value; in a credit message octets of the receive buffer |
//! | 24..28 | the mark: where in its flow the sender is; a credit message repeats it |
//!
//! Numbers are in network byte order.

use crate::types::QpNumber;

const MAGIC: [u8; 4] = *b"WUD\x01";
const SOLICITED: u8 = 1;
const ANSWER_WANTED: u8 = 2;

/// Octets of a header.
pub const HEADER_LEN: usize = 28;

/// What a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// A message.
    Message(Message),
    /// The other socket tells how far it has read.
    Credit {
        /// The mark that asked for it.
        mark: u32,
        /// Octets of the socket's receive buffer.
        room: u32,
    },
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The queue pair spoken to.
    pub to: QpNumber,
    /// The queue pair that speaks.
    pub from: QpNumber,
    /// What the receiver compares with its own.
    pub qkey: u32,
    /// The immediate value.
    pub imm: Option<u32>,
    /// The sender asks for a solicited event.
    pub solicited: bool,
    /// The sender wants this mark back.
    pub mark: Option<u32>,
}

impl Header {
    /// Its octets.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (kind, flags, words) = match self {
            Header::Message(message) => message.parts(),
            Header::Credit { mark, room } => (2, 0, [0, 0, 0, *room, *mark]),
        };
        let mut octets = [0; HEADER_LEN];
        octets[..4].copy_from_slice(&MAGIC);
        octets[4] = kind;
        octets[5] = flags;
        for (field, value) in words.into_iter().enumerate() {
            octets[8 + 4 * field..12 + 4 * field].copy_from_slice(&value.to_be_bytes());
        }
        octets
    }

    /// The header of a datagram and the payload behind it; `None` when it is none of ours.
    pub fn parse(octets: &[u8]) -> Option<(Header, &[u8])> {
        let (header, payload) = octets.split_first_chunk::<HEADER_LEN>()?;
        if header[..4] != MAGIC {
            return None;
        }
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let parsed = match header[4] {
            kind @ (0 | 1) => Header::Message(Message {
                to: QpNumber(word(8)),
                from: QpNumber(word(12)),
                qkey: word(16),
                imm: (kind == 1).then(|| word(20)),
                solicited: header[5] & SOLICITED != 0,
                mark: (header[5] & ANSWER_WANTED != 0).then(|| word(24)),
            }),
            2 => Header::Credit {
                mark: word(24),
                room: word(20),
            },
            _ => return None,
        };
        Some((parsed, payload))
    }
}

impl Message {
    fn parts(&self) -> (u8, u8, [u32; 5]) {
        let mut flags = 0;
        if self.solicited {
            flags |= SOLICITED;
        }
        if self.mark.is_some() {
            flags |= ANSWER_WANTED;
        }
        let words = [
            self.to.0,
            self.from.0,
            self.qkey,
            self.imm.unwrap_or(0),
            self.mark.unwrap_or(0),
        ];
        (u8::from(self.imm.is_some()), flags, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Message = Message {
        to: QpNumber(0x00AB_CDEF),
        from: QpNumber(0x0012_3456),
        qkey: 0x1111_2222,
        imm: Some(0x0102_0304),
        solicited: true,
        mark: Some(77),
    };

    #[test]
    fn the_words_stand_where_the_table_says() {
        let octets = Header::Message(MESSAGE).encode();
        assert_eq!(octets[..8], [b'W', b'U', b'D', 1, 1, 3, 0, 0]);
        assert_eq!(octets[8..12], [0, 0xAB, 0xCD, 0xEF]);
        assert_eq!(octets[12..16], [0, 0x12, 0x34, 0x56]);
        assert_eq!(octets[16..20], [0x11, 0x11, 0x22, 0x22]);
        assert_eq!(octets[20..24], [1, 2, 3, 4]);
        assert_eq!(octets[24..], [0, 0, 0, 77]);
    }

    #[test]
    fn what_is_written_is_read() {
        let plain = Message {
            imm: None,
            solicited: false,
            mark: None,
            ..MESSAGE
        };
        let credit = Header::Credit {
            mark: 5,
            room: 1 << 20,
        };
        for header in [Header::Message(MESSAGE), Header::Message(plain), credit] {
            let mut octets = header.encode().to_vec();
            octets.extend_from_slice(b"payload");
            assert_eq!(Header::parse(&octets), Some((header, &b"payload"[..])));
        }
    }

    #[test]
    fn anything_else_is_nobodys() {
        let octets = Header::Message(MESSAGE).encode();
        assert_eq!(Header::parse(&octets[..HEADER_LEN - 1]), None);
        for at in 0..5 {
            let mut wrong = octets;
            wrong[at] ^= 0x80;
            assert_eq!(Header::parse(&wrong), None, "octet {at}");
        }
    }
}
