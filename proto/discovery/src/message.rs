//! Question and answer as octets.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..4 | `Weft` |
//! | 4 | version: 1 |
//! | 5 | kind: 1 question, 2 yes |
//! | 6 | about: 1 a stream, 2 datagrams |
//! | 7 | 0; not looked at |
//! | 8..24 | 128 random bits of the client's, which the yes repeats |
//! | 24..42 | question only: the client's address (IPv4 as IPv4-mapped IPv6) and port |
//! | 42..60 | question only: the server's |
//! | 60..128 | question only: 0; not looked at |
//! | 24..26 | yes about datagrams only: the TCP port that takes carriers |
//! | 26..34 | yes about datagrams only: the instance, random bits of the process that has the socket |
//! | 34..52 | yes about datagrams only: the address and port of its adapter's that take carriers, or 0 |
//!
//! Numbers are in network order. A question has 128 octets at least, so that an answer which one day says more has room
//! and is still no longer than its question: what is asked in somebody else's name never grows on the way. Octets that
//! are not looked at are for later fields, and so is what follows the last one up to [`MESSAGE_OCTETS_MAX`]. What means
//! something else to those who do not know it has another version.

use crate::connection::{About, Connection, End, END_LEN};
use zerocopy::{FromBytes, IntoBytes};

/// Octets of a question, and the fewest that one has.
pub const QUESTION_LEN: usize = 128;
/// Octets of a yes, and the fewest that one has.
pub const YES_LEN: usize = HEADER_LEN;
/// Octets of a yes about datagrams.
pub const YES_TO_DATAGRAMS_LEN: usize = HEADER_LEN + TAKES_LEN;
/// Octets of [`TakesCarriers`].
pub const TAKES_LEN: usize = TAKES_LEN_MIN + END_LEN;
/// The fewest that it has: port and instance. What is not there is 0.
const TAKES_LEN_MIN: usize = 10;
/// Octets that a message has at most, later fields included.
pub const MESSAGE_OCTETS_MAX: usize = 512;
/// Octets of the random bits.
pub const NONCE_LEN: usize = 16;

const HEADER_LEN: usize = 24;
const MAGIC: [u8; 4] = *b"Weft";
const VERSION: u8 = 1;
const QUESTION: u8 = 1;
const YES: u8 = 2;
const NONCE_AT: usize = 8;

/// Random bits that nobody can guess who has not seen the question.
pub type Nonce = [u8; NONCE_LEN];

/// Where a process takes the connections that datagrams travel on (carriers, decision 0034), and which process it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakesCarriers {
    /// The TCP port; not 0.
    pub port: u16,
    /// Random bits that the process drew when it began: who has a carrier to it needs no other one.
    pub instance: u64,
    /// Where its adapter takes them, if it has one that does: an address that is not the kernel's.
    pub adapter: Option<End>,
}

impl TakesCarriers {
    /// The octets on the wire: port, instance, address and port of the adapter's.
    pub fn to_octets(&self) -> [u8; TAKES_LEN] {
        let mut octets = [0; TAKES_LEN];
        octets[..2].copy_from_slice(&self.port.to_be_bytes());
        octets[2..TAKES_LEN_MIN].copy_from_slice(&self.instance.to_be_bytes());
        let adapter = self.adapter.unwrap_or_default();
        octets[TAKES_LEN_MIN..].copy_from_slice(adapter.as_bytes());
        octets
    }

    /// Reads them, whatever follows; nothing where they name no port.
    pub fn from_octets(octets: &[u8]) -> Option<TakesCarriers> {
        let (port, rest) = octets.split_first_chunk()?;
        let (instance, rest) = rest.split_first_chunk()?;
        let adapter = end_at(rest, 0);
        let takes = TakesCarriers {
            port: u16::from_be_bytes(*port),
            instance: u64::from_be_bytes(*instance),
            adapter: adapter.is_one().then_some(adapter),
        };
        (takes.port != 0).then_some(takes)
    }
}

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To a question about a stream.
    Yes,
    /// To one about datagrams.
    TakesCarriers(TakesCarriers),
}

/// Is the other end Weft, and its socket one that may be asked for?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// What is asked about.
    pub connection: Connection,
    /// What the answer repeats.
    pub nonce: Nonce,
}

/// Why octets are no question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoQuestion {
    /// Too few octets, or too many.
    #[error("{0} octets, where a question has {QUESTION_LEN} to {MESSAGE_OCTETS_MAX}")]
    Length(usize),
    /// Something else than a message of Weft's.
    #[error("it does not begin as a message of Weft's")]
    Foreign,
    /// A version that this end does not know.
    #[error("version {0}, where this end knows {VERSION}")]
    Version(u8),
    /// A message of Weft's that is no question, or about nothing that this end knows.
    #[error("a message of kind {kind} about {about}")]
    Kind {
        /// Octet 5.
        kind: u8,
        /// Octet 6.
        about: u8,
    },
    /// Ends that no connection has.
    #[error("its two ends are not those of a connection")]
    Ends,
}

fn header(kind: u8, about: About, nonce: &Nonce) -> [u8; HEADER_LEN] {
    let mut octets = [0; HEADER_LEN];
    octets[..4].copy_from_slice(&MAGIC);
    octets[4..7].copy_from_slice(&[VERSION, kind, about.to_octet()]);
    octets[NONCE_AT..].copy_from_slice(nonce);
    octets
}

impl Question {
    /// The octets on the wire.
    pub fn to_octets(&self) -> [u8; QUESTION_LEN] {
        let Connection {
            about,
            client,
            server,
        } = self.connection;
        let mut octets = [0; QUESTION_LEN];
        octets[..HEADER_LEN].copy_from_slice(&header(QUESTION, about, &self.nonce));
        let (ends, _) = octets[HEADER_LEN..].split_at_mut(2 * END_LEN);
        ends[..END_LEN].copy_from_slice(client.as_bytes());
        ends[END_LEN..].copy_from_slice(server.as_bytes());
        octets
    }

    /// Reads a question.
    ///
    /// # Errors
    /// What is wrong with the octets.
    pub fn parse(octets: &[u8]) -> Result<Question, NoQuestion> {
        if !(QUESTION_LEN..=MESSAGE_OCTETS_MAX).contains(&octets.len()) {
            return Err(NoQuestion::Length(octets.len()));
        }
        if octets[..4] != MAGIC {
            return Err(NoQuestion::Foreign);
        }
        let [version, kind, about] = [octets[4], octets[5], octets[6]];
        if version != VERSION {
            return Err(NoQuestion::Version(version));
        }
        let (QUESTION, Some(known)) = (kind, About::from_octet(about)) else {
            return Err(NoQuestion::Kind { kind, about });
        };
        let connection = Connection {
            about: known,
            client: end_at(octets, HEADER_LEN),
            server: end_at(octets, HEADER_LEN + END_LEN),
        };
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&octets[NONCE_AT..HEADER_LEN]);
        let question = Question { connection, nonce };
        match connection.is_possible() {
            true => Ok(question),
            false => Err(NoQuestion::Ends),
        }
    }

    /// The octets of the answer to a question about a stream.
    pub fn yes(&self) -> [u8; YES_LEN] {
        header(YES, self.connection.about, &self.nonce)
    }

    /// The octets of the answer to a question about datagrams.
    pub fn yes_to_datagrams(&self, takes: &TakesCarriers) -> [u8; YES_TO_DATAGRAMS_LEN] {
        let mut octets = [0; YES_TO_DATAGRAMS_LEN];
        octets[..HEADER_LEN].copy_from_slice(&self.yes());
        octets[HEADER_LEN..].copy_from_slice(&takes.to_octets());
        octets
    }

    /// What these octets answer to this question; nothing where they are no answer to it. What follows the last field
    /// is for later versions.
    pub fn answer(&self, octets: &[u8]) -> Option<Answer> {
        // Octet 7 is not looked at.
        let yes = self.yes();
        let is_yes = octets.len() <= MESSAGE_OCTETS_MAX
            && octets.get(..7) == Some(&yes[..7])
            && octets.get(NONCE_AT..YES_LEN) == Some(&yes[NONCE_AT..]);
        match self.connection.about {
            About::Stream => is_yes.then_some(Answer::Yes),
            About::Datagrams => {
                let rest = octets.get(HEADER_LEN..).filter(|_| is_yes)?;
                let takes = TakesCarriers::from_octets(rest)?;
                Some(Answer::TakesCarriers(takes))
            }
        }
    }
}

/// The end at this place; one of zeros, which is none, where the octets are too few.
fn end_at(octets: &[u8], at: usize) -> End {
    let octets = octets.get(at..at + END_LEN).unwrap_or_default();
    End::read_from_bytes(octets).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use proptest::prelude::*;

    fn end(text: &str) -> End {
        text.parse::<SocketAddr>().unwrap().into()
    }

    fn question() -> Question {
        Question {
            connection: Connection {
                about: About::Stream,
                client: end("192.0.2.1:40000"),
                server: end("192.0.2.2:6379"),
            },
            nonce: *b"sixteen octets!!",
        }
    }

    #[test]
    fn the_octets_are_those_of_the_table() {
        let octets = question().to_octets();
        let mut wanted = std::vec::Vec::new();
        wanted.extend(b"Weft\x01\x01\x01\0sixteen octets!!");
        wanted.extend(b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\x9c\x40");
        wanted.extend(b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x02\x18\xeb");
        wanted.resize(QUESTION_LEN, 0);
        assert_eq!(&octets[..], wanted);
        assert_eq!(&question().yes(), b"Weft\x01\x02\x01\0sixteen octets!!");
        assert_eq!(Question::parse(&octets), Ok(question()));
    }

    #[test]
    fn an_answer_is_never_longer_than_its_question() {
        const { assert!(YES_LEN <= QUESTION_LEN && YES_TO_DATAGRAMS_LEN <= QUESTION_LEN) }
    }

    #[test]
    fn what_is_no_question_is_told_apart() {
        let octets = question().to_octets();
        let changed = |at: usize, octet: u8| {
            let mut octets = octets;
            octets[at] = octet;
            Question::parse(&octets).unwrap_err()
        };
        assert_eq!(
            Question::parse(&octets[..127]),
            Err(NoQuestion::Length(127))
        );
        assert_eq!(Question::parse(&[]), Err(NoQuestion::Length(0)));
        assert_eq!(Question::parse(&[0; 513]), Err(NoQuestion::Length(513)));
        assert_eq!(changed(0, b'w'), NoQuestion::Foreign);
        assert_eq!(changed(4, 2), NoQuestion::Version(2));
        assert_eq!(changed(5, 2), NoQuestion::Kind { kind: 2, about: 1 });
        assert_eq!(changed(6, 3), NoQuestion::Kind { kind: 1, about: 3 });
        assert_eq!(changed(34, 0), NoQuestion::Ends, "families differ");
        let mut no_port = octets;
        no_port[58..60].fill(0);
        assert_eq!(Question::parse(&no_port), Err(NoQuestion::Ends));
    }

    #[test]
    fn later_fields_are_no_obstacle() {
        let mut octets = [0xA5; MESSAGE_OCTETS_MAX];
        octets[..60].copy_from_slice(&question().to_octets()[..60]);
        octets[7] = 9;
        assert_eq!(Question::parse(&octets), Ok(question()));
        octets[..YES_LEN].copy_from_slice(&question().yes());
        octets[7] = 9;
        assert_eq!(question().answer(&octets), Some(Answer::Yes));
        assert_eq!(question().answer(&octets[..YES_LEN]), Some(Answer::Yes));
    }

    #[test]
    fn only_the_answer_answers() {
        let yes = question().yes();
        for at in [0, 3, 4, 5, 6, 8, 15, 23] {
            let mut other = yes;
            other[at] ^= 1;
            assert_eq!(question().answer(&other), None, "octet {at}");
        }
        assert_eq!(question().answer(&yes[..23]), None);
        assert_eq!(question().answer(&[0; 600]), None);
        assert_eq!(question().answer(&question().to_octets()), None);
    }

    #[test]
    fn a_yes_about_datagrams_says_who_takes_carriers_and_where() {
        let mut question = question();
        question.connection.about = About::Datagrams;
        let takes = TakesCarriers {
            port: 22342,
            instance: 0x0102_0304_0506_0708,
            adapter: None,
        };
        let yes = question.yes_to_datagrams(&takes);
        let wanted = b"Weft\x01\x02\x02\0sixteen octets!!\x57\x46\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!((&yes[..34], &yes[34..]), (&wanted[..], &[0; 18][..]));
        assert_eq!(
            question.answer(&yes[..34]),
            Some(Answer::TakesCarriers(takes))
        );
        assert_eq!(question.answer(&yes), Some(Answer::TakesCarriers(takes)));
        let longer = [&yes[..], &[9; 40]].concat();
        assert_eq!(question.answer(&longer), Some(Answer::TakesCarriers(takes)));
        assert_eq!(question.answer(&yes[..33]), None, "part of the instance");
        assert_eq!(
            question.answer(&question.yes()),
            None,
            "nowhere to connect to"
        );
        let with_adapter = TakesCarriers {
            adapter: Some(end("192.0.2.9:22342")),
            ..takes
        };
        let answered = question.yes_to_datagrams(&with_adapter);
        assert_eq!(
            &answered[34..],
            b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x09\x57\x46"
        );
        let read = question.answer(&answered);
        assert_eq!(read, Some(Answer::TakesCarriers(with_adapter)));
        let part = question.answer(&answered[..51]);
        assert_eq!(part, Some(Answer::TakesCarriers(takes)), "part of a port");
        let nowhere = TakesCarriers { port: 0, ..takes };
        assert_eq!(question.answer(&question.yes_to_datagrams(&nowhere)), None);
        let mut guessed = yes;
        guessed[20] ^= 1;
        assert_eq!(question.answer(&guessed), None, "other random bits");
    }

    proptest! {
        #[test]
        fn every_question_is_read_as_it_was_written(
            client: [u8; 4], server: [u8; 4], ports: (u16, u16), nonce: Nonce, datagrams: bool,
        ) {
            let about = if datagrams { About::Datagrams } else { About::Stream };
            let connection = Connection {
                about,
                client: End::new(client.into(), ports.0),
                server: End::new(server.into(), ports.1),
            };
            let question = Question { connection, nonce };
            let read = Question::parse(&question.to_octets());
            prop_assert_eq!(read.is_ok(), connection.is_possible());
            prop_assert!(read.is_err() || read == Ok(question));
        }
    }
}
