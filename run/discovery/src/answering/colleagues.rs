//! What processes of one user ask each other.
//!
//! A process that has a listener holds an abstract Unix name made of the user, the port and a small index: several may
//! have listeners for one port, each for an address of its own or all sharing one (`SO_REUSEPORT`, a binary that takes
//! over from its older self). Who got a question asks each of them; of those that share their promises, one. Names
//! belong to the network namespace, as ports do.

use std::io;
use std::time::Duration;

use weft_discovery_proto::answering::Inquiry;
use weft_discovery_proto::message::{Question, QUESTION_LEN, TAKES_LEN};
use weft_discovery_proto::{About, Connection, TakesCarriers};
use weft_os::guarded::Guarded;
use weft_os::seqpacket::{own_user, Listener, Packets};

/// Names that one port has at most.
pub(super) const INDEXES: u8 = 8;
/// How long a colleague has to answer, and to say what it wants once it has connected.
pub(super) const TIMEOUT: Duration = Duration::from_millis(20);
/// The same to answer a question about datagrams, whose asker has a second and leaves alone for long who says nothing.
const TIMEOUT_OF_DATAGRAMS: Duration = Duration::from_millis(400);

/// What a process says of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// It has a listener that takes it, and has written down that it is expected.
    Yes,
    /// It has a UDP socket that takes datagrams there, and takes the connections that they travel on.
    TakesCarriers(TakesCarriers),
    /// It has one, and no yes may be said.
    No,
    /// It has none.
    NotMine,
}

/// Octets of the longest answer.
const SAYS_LEN: usize = 1 + TAKES_LEN;

impl Says {
    /// Whether it is a yes.
    pub(super) fn is_yes(self) -> bool {
        matches!(self, Says::Yes | Says::TakesCarriers(_))
    }

    /// The octets, and how many they are.
    fn to_octets(self) -> ([u8; SAYS_LEN], usize) {
        let mut octets = [0; SAYS_LEN];
        octets[0] = match self {
            Says::Yes => b'y',
            Says::TakesCarriers(_) => b'c',
            Says::No => b'n',
            Says::NotMine => b'-',
        };
        let Says::TakesCarriers(takes) = self else {
            return (octets, 1);
        };
        octets[1..].copy_from_slice(&takes.to_octets());
        (octets, SAYS_LEN)
    }

    fn from_octets(octets: &[u8]) -> Option<Says> {
        match octets {
            b"y" => Some(Says::Yes),
            b"n" => Some(Says::No),
            b"-" => Some(Says::NotMine),
            [b'c', takes @ ..] => {
                let takes: &[u8; TAKES_LEN] = takes.try_into().ok()?;
                let takes = TakesCarriers::from_octets(takes)?;
                Some(Says::TakesCarriers(takes))
            }
            _ => None,
        }
    }
}

/// The name of a user's for a port.
fn name(user: u32, about: About, port: u16, index: u8) -> String {
    let about = match about {
        About::Stream => "stream",
        About::Datagrams => "datagrams",
    };
    format!("weft-discovery/1/{user}/{about}/{port}/{index}")
}

/// Takes the first name of this port that is free; nothing where all are taken.
pub(super) fn take_name(about: About, port: u16) -> io::Result<Option<(u8, Guarded<Listener>)>> {
    let user = own_user();
    for index in 0..INDEXES {
        match Listener::bind(name(user, about, port, index).as_bytes()) {
            Ok(listener) => return Ok(Some((index, Guarded::new(listener)))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A question that other processes are asked about.
#[derive(Debug)]
pub(super) struct Vote {
    pub(super) inquiry: Inquiry,
    /// Those that have not answered.
    pub(super) asked: Vec<Guarded<Packets>>,
    /// What the first one said that will take the connection.
    taker: Option<Says>,
    /// One must not, or does not say.
    is_objected: bool,
    pub(super) over_at: Duration,
}

/// Some process has to be asked, and cannot be.
#[derive(Debug)]
pub(super) struct Silent;

impl Vote {
    /// Asks every process but those that hold the names with the indexes that are bits of `own`. This one `says` what
    /// it does for all of them.
    pub(super) fn begin(
        inquiry: Inquiry,
        says: Says,
        own: u64,
        now: Duration,
    ) -> Result<Vote, Silent> {
        let connection = inquiry.question.connection;
        let (user, message) = (own_user(), message(connection));
        let timeout = match connection.about {
            About::Stream => TIMEOUT,
            About::Datagrams => TIMEOUT_OF_DATAGRAMS,
        };
        let mut asked = Vec::new();
        let mut free = None;
        for index in (0..INDEXES).filter(|index| own & 1 << index == 0) {
            let packets = match free.take() {
                Some(packets) => packets,
                None => Packets::open().map_err(|_| Silent)?,
            };
            let name = name(user, connection.about, connection.server.port(), index);
            match packets.connect(name.as_bytes()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    free = Some(packets);
                    continue;
                }
                Err(_) => return Err(Silent),
            }
            // Another user who took a name of ours has no say.
            if packets.peer_user() == Some(user) {
                packets.send(&message).map_err(|_| Silent)?;
                asked.push(Guarded::new(packets));
            }
        }
        Ok(Vote {
            inquiry,
            asked,
            taker: Some(says).filter(|says| says.is_yes()),
            is_objected: false,
            over_at: now + timeout,
        })
    }

    /// Takes in what has been answered. Gives what is to be said, once that is known: a yes, or nothing.
    pub(super) fn poll(&mut self, now: Duration) -> Option<Option<Says>> {
        let mut objected = false;
        let mut taker = self.taker;
        self.asked.retain_mut(|packets| {
            // One octet more than an answer has, so that a longer one shows.
            let mut answer = [0; SAYS_LEN + 1];
            let received = packets.get().map(|packets| packets.receive(&mut answer));
            match received {
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Some(Ok(len)) => match answer.get(..len).and_then(Says::from_octets) {
                    Some(Says::NotMine) => {}
                    // Who ends without an answer may have begun to send, for all that is known.
                    Some(Says::No) | None => objected = true,
                    Some(yes) => taker = taker.or(Some(yes)),
                },
                Some(_) | None => objected = true,
            }
            false
        });
        self.taker = taker;
        self.is_objected |= objected || (!self.asked.is_empty() && now >= self.over_at);
        if self.is_objected {
            return Some(None);
        }
        self.asked.is_empty().then_some(self.taker)
    }

    /// Whether somebody objected, or did not say.
    pub(super) fn is_objected(&self) -> bool {
        self.is_objected
    }
}

/// Another process that asks.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) packets: Guarded<Packets>,
    pub(super) over_at: Duration,
}

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// It has not said.
    Waits,
    /// What is said of this connection.
    ToKnow(Connection),
    /// Nothing, or nothing that can be understood.
    Nothing,
}

/// What came of a look for callers.
#[derive(Debug)]
pub(super) enum Accepted {
    /// One of this user.
    Caller(Caller),
    /// Another user, who is not dealt with.
    Stranger,
    /// There is none.
    Nobody,
    /// Descriptors or memory are short.
    Failed,
}

impl Caller {
    /// The next one at this name.
    pub(super) fn accept(listener: &Listener, now: Duration) -> Accepted {
        match listener.accept() {
            Ok(Some(packets)) if packets.peer_user() == Some(own_user()) => {
                Accepted::Caller(Caller {
                    packets: Guarded::new(packets),
                    over_at: now + TIMEOUT,
                })
            }
            Ok(Some(_)) => Accepted::Stranger,
            Ok(None) => Accepted::Nobody,
            Err(_) => Accepted::Failed,
        }
    }

    /// What it wants.
    pub(super) fn wants(&mut self, now: Duration) -> Wants {
        let mut octets = [0; QUESTION_LEN + 1];
        let received = self
            .packets
            .get()
            .map(|packets| packets.receive(&mut octets));
        match received {
            Some(Ok(len)) => {
                let question = octets.get(..len).map(Question::parse);
                match question {
                    Some(Ok(question)) => Wants::ToKnow(question.connection),
                    _ => Wants::Nothing,
                }
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock && now < self.over_at => {
                Wants::Waits
            }
            _ => Wants::Nothing,
        }
    }

    /// Answers it.
    pub(super) fn say(&mut self, says: Says) {
        if let Some(packets) = self.packets.get() {
            // Who does not listen any more has its answer.
            let (octets, len) = says.to_octets();
            let _ = packets.send(&octets[..len]);
        }
    }
}

/// The question of one process to another: that of the client, without the random bits that only the client knows.
fn message(connection: Connection) -> [u8; QUESTION_LEN] {
    let nonce = [0; 16];
    Question { connection, nonce }.to_octets()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_discovery_proto::End;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let takes = TakesCarriers {
            port: 22342,
            instance: u64::MAX,
            adapter: Some(End::new([192, 0, 2, 1].into(), 22342)),
        };
        for says in [
            Says::Yes,
            Says::No,
            Says::NotMine,
            Says::TakesCarriers(takes),
        ] {
            let (octets, len) = says.to_octets();
            assert_eq!(Says::from_octets(&octets[..len]), Some(says));
        }
        let mut nowhere = [1; SAYS_LEN];
        nowhere[..3].copy_from_slice(b"c\0\0");
        for octets in [&b""[..], b"?", b"yy", b"c", &nowhere, &[b'c'; 12]] {
            assert_eq!(Says::from_octets(octets), None, "{octets:?}");
        }
    }
}
