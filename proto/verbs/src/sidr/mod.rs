//! How the connection manager of one program asks that of another which queue pair serves datagrams at a port
//! (decision 0013). InfiniBand calls this SIDR, service ID resolution; here its messages are UDP datagrams.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`asking`] | the client's side: asks until it is answered or its time is over |
//! | [`answering`] | the listener's side: who may ask, what was asked already, what is answered |
//!
//! A message has 32 octets and the program's private data behind them, nothing else:
//!
//! | octets | what |
//! | --- | --- |
//! | 0..4 | `WSI` and the version, 1 |
//! | 4 | kind: 1 request, 2 challenge, 3 answer |
//! | 5 | status of an answer, InfiniBand's: 0 served, 2 rejected; otherwise 0 |
//! | 6..8 | octets of private data: at most 180 in a request, 136 in an answer, none in a challenge |
//! | 8..16 | the lookup: a random number of the client's, repeated in what it is sent |
//! | 16..24 | the cookie that a challenge gives and the next request repeats; 0 in a first request, which has no private data, and in an answer |
//! | 24..28 | the queue pair's number in an answer that is served; otherwise 0 |
//! | 28..32 | its Q_Key; likewise |
//!
//! Numbers are in network byte order. What differs from this table in any octet is no message.

pub mod requester;
pub mod responder;

use alloc::vec::Vec;

/// The Q_Key of queue pairs that the connection manager takes up (`RDMA_UDP_QKEY`).
pub const QKEY: u32 = 0x0123_4567;
/// Octets of private data in a request (`rdma_connect(3)`).
pub const REQUEST_OCTETS_MAX: usize = 180;
/// Octets of private data in an answer (`rdma_accept(3)`).
pub const REPLY_OCTETS_MAX: usize = 136;
/// Octets before the private data.
pub const HEADER_LEN: usize = 32;
/// Octets of the longest message.
pub const MESSAGE_MOST: usize = HEADER_LEN + REQUEST_OCTETS_MAX;

const MAGIC: [u8; 4] = *b"WSI\x01";
const REQUEST: u8 = 1;
const CHALLENGE: u8 = 2;
const ANSWER: u8 = 3;
const SERVED: u8 = 0;
const REJECTED: u8 = 2;
/// Queue pair numbers have 24 bits.
const NUMBER_MAX: u32 = 0x00FF_FFFF;

/// More private data than the message has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

/// What the listener's program decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Datagrams go to this queue pair.
    Served {
        /// Its number.
        number: u32,
        /// What senders have to know.
        qkey: u32,
    },
    /// It does not serve this client.
    Rejected,
}

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A client asks for the queue pair behind the port.
    Request {
        /// Names the request among those of its address.
        lookup: u64,
        /// The cookie of a challenge; 0 is none.
        cookie: u64,
        /// For the listener's program.
        private_data: &'a [u8],
    },
    /// The listener wants to see that the client is at the address it says.
    Challenge {
        /// The request's.
        lookup: u64,
        /// What the next request has to repeat.
        cookie: u64,
    },
    /// The listener's program has decided.
    Reply {
        /// The request's.
        lookup: u64,
        /// What it decided.
        verdict: Verdict,
        /// For the client's program.
        private_data: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Its octets.
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(MESSAGE_MOST);
        let (kind, status, lookup, words, private_data) = match *self {
            Message::Request {
                lookup,
                cookie,
                private_data,
            } => (REQUEST, 0, lookup, (cookie, 0, 0), private_data),
            Message::Challenge { lookup, cookie } => {
                (CHALLENGE, 0, lookup, (cookie, 0, 0), &[][..])
            }
            Message::Reply {
                lookup,
                verdict: Verdict::Served { number, qkey },
                private_data,
            } => (ANSWER, SERVED, lookup, (0, number, qkey), private_data),
            Message::Reply {
                lookup,
                verdict: Verdict::Rejected,
                private_data,
            } => (ANSWER, REJECTED, lookup, (0, 0, 0), private_data),
        };
        let (cookie, number, qkey): (u64, u32, u32) = words;
        octets.extend_from_slice(&MAGIC);
        octets.extend_from_slice(&[kind, status]);
        octets.extend_from_slice(&(private_data.len() as u16).to_be_bytes());
        octets.extend_from_slice(&lookup.to_be_bytes());
        octets.extend_from_slice(&cookie.to_be_bytes());
        octets.extend_from_slice(&number.to_be_bytes());
        octets.extend_from_slice(&qkey.to_be_bytes());
        octets.extend_from_slice(private_data);
        octets
    }

    /// The message that a datagram is; `None` when it is none.
    pub fn parse(octets: &'a [u8]) -> Option<Message<'a>> {
        let (header, private_data) = octets.split_first_chunk::<HEADER_LEN>()?;
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        let length = usize::from(u16::from_be_bytes([header[6], header[7]]));
        if header[..4] != MAGIC || length != private_data.len() {
            return None;
        }
        let (lookup, cookie, number, qkey) = (long(8), long(16), word(24), word(28));
        let unnamed = (number, qkey) == (0, 0);
        match (header[4], header[5]) {
            (REQUEST, 0)
                if unnamed && length <= REQUEST_OCTETS_MAX && (cookie != 0 || length == 0) =>
            {
                Some(Message::Request {
                    lookup,
                    cookie,
                    private_data,
                })
            }
            (CHALLENGE, 0) if unnamed && length == 0 && cookie != 0 => {
                Some(Message::Challenge { lookup, cookie })
            }
            (ANSWER, status @ (SERVED | REJECTED)) if cookie == 0 && length <= REPLY_OCTETS_MAX => {
                let verdict = match status {
                    SERVED if (1..=NUMBER_MAX).contains(&number) => {
                        Verdict::Served { number, qkey }
                    }
                    REJECTED if unnamed => Verdict::Rejected,
                    _ => return None,
                };
                Some(Message::Reply {
                    lookup,
                    verdict,
                    private_data,
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const LOOKUP: u64 = 0x0102_0304_0506_0708;
    const COOKIE: u64 = 0x1112_1314_1516_1718;
    const SERVED: Verdict = Verdict::Served {
        number: 0x00AB_CDEF,
        qkey: QKEY,
    };

    fn each_kind<'a>(private_data: &'a [u8]) -> [Message<'a>; 5] {
        let answer = |verdict| Message::Reply {
            lookup: LOOKUP,
            verdict,
            private_data,
        };
        [
            Message::Request {
                lookup: LOOKUP,
                cookie: 0,
                private_data: &[],
            },
            Message::Request {
                lookup: LOOKUP,
                cookie: COOKIE,
                private_data,
            },
            Message::Challenge {
                lookup: LOOKUP,
                cookie: COOKIE,
            },
            answer(SERVED),
            answer(Verdict::Rejected),
        ]
    }

    #[test]
    fn the_fields_stand_where_the_table_says() {
        let octets = each_kind(b"why")[1].encode();
        assert_eq!(octets[..8], [b'W', b'S', b'I', 1, 1, 0, 0, 3]);
        assert_eq!(octets[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(octets[16..24], [17, 18, 19, 20, 21, 22, 23, 24]);
        assert_eq!(octets[24..32], [0; 8]);
        assert_eq!(octets[32..], *b"why");
        let octets = each_kind(b"")[3].encode();
        assert_eq!(octets[4..8], [3, 0, 0, 0]);
        assert_eq!(octets[16..24], [0; 8]);
        assert_eq!(octets[24..], [0, 0xAB, 0xCD, 0xEF, 1, 0x23, 0x45, 0x67]);
        assert_eq!(each_kind(b"")[4].encode()[4..6], [3, 2]);
    }

    #[test]
    fn what_is_written_is_read() {
        for private_data in [vec![], vec![7; 1], vec![9; REPLY_OCTETS_MAX]] {
            for message in each_kind(&private_data) {
                assert_eq!(Message::parse(&message.encode()), Some(message));
            }
        }
    }

    #[test]
    fn a_message_is_as_long_as_it_says() {
        for message in each_kind(b"data") {
            let octets = message.encode();
            assert_eq!(Message::parse(&octets[..octets.len() - 1]), None);
            let longer = [&octets[..], &[0]].concat();
            assert_eq!(Message::parse(&longer), None);
        }
        let request = |octets| Message::Request {
            lookup: LOOKUP,
            cookie: COOKIE,
            private_data: octets,
        };
        let most = vec![1; REQUEST_OCTETS_MAX + 1];
        assert!(Message::parse(&request(&most[1..]).encode()).is_some());
        assert_eq!(Message::parse(&request(&most).encode()), None);
        let answer = each_kind(&most[..=REPLY_OCTETS_MAX])[3];
        assert_eq!(Message::parse(&answer.encode()), None);
    }

    #[test]
    fn a_challenge_is_a_cookie_and_no_more() {
        let challenge = |cookie| Message::Challenge {
            lookup: LOOKUP,
            cookie,
        };
        assert_eq!(Message::parse(&challenge(0).encode()), None);
        let mut octets = challenge(COOKIE).encode();
        octets.push(0);
        octets[7] = 1;
        assert_eq!(Message::parse(&octets), None);
    }

    /// Private data would be an answer to nobody's request: only a cookie shows that the client is where it says.
    #[test]
    fn a_first_request_has_no_private_data() {
        let request = Message::Request {
            lookup: LOOKUP,
            cookie: 0,
            private_data: b"x",
        };
        assert_eq!(Message::parse(&request.encode()), None);
    }

    /// Each octet of the header counts: whatever is set where the table has 0, or is out of its range, is no message.
    #[test]
    fn what_differs_from_the_table_is_no_message() {
        for message in each_kind(b"") {
            let octets = message.encode();
            for at in (0..8).chain(16..HEADER_LEN) {
                for bit in 0..8 {
                    let mut other = octets.clone();
                    other[at] ^= 1 << bit;
                    let Some(read) = Message::parse(&other) else {
                        continue;
                    };
                    // It is another message then, and written so.
                    assert_ne!(read, message);
                    assert_eq!(read.encode(), other, "octet {at} of {message:?}");
                }
            }
        }
        let number = |number| {
            let verdict = Verdict::Served { number, qkey: QKEY };
            Message::Reply {
                lookup: LOOKUP,
                verdict,
                private_data: &[],
            }
        };
        assert_eq!(Message::parse(&number(0).encode()), None);
        assert_eq!(Message::parse(&number(1 << 24).encode()), None);
    }
}
