//! The client: a question about datagrams, for a thread that waits for descriptors itself.
//!
//! No call of the program waits for it, so that its answer may take a second; and nothing is remembered here, as who
//! asks keeps what it learnt about destinations for longer (decision 0034).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use weft_discovery_proto::asking::{Asking, Outcome};
use weft_discovery_proto::message::{Nonce, Question, MESSAGE_OCTETS_MAX};
use weft_discovery_proto::{About, Answer, Connection, End, TakesCarriers};
use weft_os::beside::{self, Beside, Heard};
use weft_os::guarded::Guarded;
use weft_os::random_u64;
use weft_settings::DiscoveryPort;

/// Datagrams that one look takes in: who is asked may send any number.
const DATAGRAMS_MAX: usize = 16;

/// What has come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learnt {
    /// Nothing yet; it is over at that time.
    Waits(Duration),
    /// The owner of the socket there takes connections for its datagrams.
    TakesCarriers(TakesCarriers),
    /// The port that was asked at is closed (ICMP). Whoever begins just now may have it a moment later.
    Refused,
    /// Nobody says so.
    No,
}

/// A question that was sent.
#[derive(Debug)]
pub struct Inquiry {
    question: Question,
    asking: Asking,
    is_refused: bool,
    socket: Guarded<Beside>,
}

impl Inquiry {
    /// Asks whether datagrams from the UDP socket behind `fd` to `to` may travel on connections. Nothing where that
    /// cannot be asked: the socket has no port yet, there is no way, or `to` is not one host.
    pub fn send(port: DiscoveryPort, fd: RawFd, to: SocketAddr, now: Duration) -> Option<Inquiry> {
        // Where the port asked at is that of the datagrams themselves, a plain server would get the question.
        let DiscoveryPort::Agreed(agreed) = port else {
            return None;
        };
        let server = End::from(to);
        let local = beside::local_end(fd)?;
        let mut asked_at = match server.address() {
            // Only an address with a scope has to stay as it is.
            IpAddr::V6(_) => to,
            address @ IpAddr::V4(_) => SocketAddr::new(address, 0),
        };
        asked_at.set_port(agreed);
        let socket = Beside::open(fd, bindable(local, asked_at), asked_at).ok()?;
        let client = SocketAddr::new(socket.local()?.ip(), local.port());
        let connection = Connection {
            about: About::Datagrams,
            client: client.into(),
            server,
        };
        if !connection.is_possible() {
            return None;
        }
        let question = Question {
            connection,
            nonce: nonce(),
        };
        socket.send(&question.to_octets()).ok()?;
        Some(Inquiry {
            question,
            asking: Asking::unhurried(question, now),
            is_refused: false,
            socket: Guarded::new(socket),
        })
    }

    /// Asks once more: the question or its answer was lost, or who could answer was not there yet.
    pub fn repeat(&mut self) {
        self.is_refused = false;
        if let Some(socket) = self.socket.get() {
            // One that does not leave is as one that is lost.
            let _ = socket.send(&self.question.to_octets());
        }
    }

    /// The number to wait for until something can be read.
    pub fn number(&self) -> RawFd {
        self.socket.number()
    }

    /// Takes in what has come, and says what it comes to.
    pub fn poll(&mut self, now: Duration) -> Learnt {
        let Some(socket) = self.socket.get() else {
            return Learnt::No;
        };
        // One octet more than a message has, so that a longer one shows.
        let mut octets = [0; MESSAGE_OCTETS_MAX + 1];
        for _ in 0..DATAGRAMS_MAX {
            match socket.receive(&mut octets) {
                Heard::Octets(len) => {
                    let datagram = octets.get(..len).unwrap_or(&octets);
                    self.asking.handle_datagram(datagram);
                }
                Heard::Unreachable => self.is_refused = true,
                Heard::Nothing => break,
            }
        }
        match (self.asking.poll_outcome(now), self.asking.answer()) {
            (Outcome::Waits(_), _) if self.is_refused => Learnt::Refused,
            (Outcome::Waits(over_at), _) => Learnt::Waits(over_at.unwrap_or(now)),
            (Outcome::Yes, Some(Answer::TakesCarriers(takes))) => Learnt::TakesCarriers(takes),
            (Outcome::Yes | Outcome::No, _) => Learnt::No,
        }
    }
}

/// The address to ask from: that of the program's socket, or any of the right family where that has any.
fn bindable(local: SocketAddr, to: SocketAddr) -> SocketAddr {
    if !local.ip().is_unspecified() {
        return local;
    }
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn nonce() -> Nonce {
    let [one, other] = [random_u64(), random_u64()];
    (u128::from(one) << 64 | u128::from(other)).to_ne_bytes()
}
