//! The client: questions that are under way, and what was learnt of servers.
//!
//! A question belongs to one connect of one process, and whoever looks after that connect keeps its [`Ticket`]. What
//! was learnt lies in memory that forked processes share: a program that forks for each connection asks once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use weft_discovery_proto::asking::{Asking, Outcome};
use weft_discovery_proto::message::{Question, MESSAGE_OCTETS_MAX};
use weft_discovery_proto::{About, Connection, End, Known, Memory};
use weft_os::beside::{self, Beside, Heard};
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::shared::{self, Holding, Shared, Taken};
use weft_os::{process, random_u64};
use weft_settings::DiscoveryPort;
use zerocopy::FromZeros;

use crate::now;

/// Questions of a process that can be under way at a time; connects beyond are TCP.
pub const QUESTIONS_MAX: usize = 1024;
const BITS: usize = u64::BITS as usize;
/// Longest wait in one go, so that a clock which stands still holds nobody up for long.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Datagrams that one look takes in: the server that is asked may send any number.
const DATAGRAMS_MAX: usize = 16;

/// Names a question that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

impl Ticket {
    /// As a word that is not 0.
    pub fn to_word(self) -> u32 {
        self.0
    }

    /// The ticket that the word was made of.
    pub fn from_word(word: u32) -> Option<Ticket> {
        (word != 0).then_some(Ticket(word))
    }

    fn place(self) -> usize {
        (self.0 as usize).wrapping_sub(1) % QUESTIONS_MAX
    }
}

/// Why a question is not there.
#[derive(Debug)]
enum Absent {
    /// It is settled, or of another process.
    Gone,
    /// The calling thread is at it already: a signal handler came in between.
    Busy,
}

/// A question, with the socket that it went by.
#[derive(Debug)]
struct Asked {
    ticket: Ticket,
    asking: Asking,
    socket: Beside,
}

#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
struct Page {
    memory: Shared<Memory>,
}

/// What asks, for one process and those forked from it.
#[derive(Debug)]
pub struct Asker {
    port: DiscoveryPort,
    page: &'static Page,
    /// The process that the questions are of.
    process: AtomicU32,
    /// Which places are taken, a bit each.
    taken: [AtomicU64; QUESTIONS_MAX / BITS],
    questions: Box<[Lock<Option<Asked>>]>,
    /// Distinguishes the questions that one place has had.
    count: AtomicU32,
}

impl Asker {
    /// Nothing asked yet; nothing where the kernel has no room for what is remembered. Allocates.
    pub fn new(port: DiscoveryPort) -> Option<Asker> {
        weft_os::fork::watch();
        let page = shared::values::<Page>(1)?.first()?;
        let asker = Asker {
            port,
            page,
            process: AtomicU32::new(0),
            taken: [const { AtomicU64::new(0) }; QUESTIONS_MAX / BITS],
            questions: (0..QUESTIONS_MAX).map(|_| Lock::new(None)).collect(),
            count: AtomicU32::new(0),
        };
        asker.memory()?.set_seed(random_u64());
        Some(asker)
    }

    /// What is known of the server at this address and port.
    pub fn known(&self, about: About, server: SocketAddr) -> Known {
        let known = self
            .memory()
            .map(|mut memory| memory.known(about, server.into(), now()));
        known.unwrap_or(Known::Nothing)
    }

    /// Asks `server` whether it is Weft, from the address of the TCP socket behind `fd`, whose SYN to it has just left.
    /// Gives nothing where that cannot be asked: the connection is TCP, and nothing is learnt.
    pub fn ask(&self, about: About, fd: i32, server: SocketAddr) -> Option<Ticket> {
        let local = beside::local_end(fd)?;
        let connection = Connection {
            about,
            client: local.into(),
            server: server.into(),
        };
        if !connection.is_possible() {
            return None;
        }
        let mut to = canonical(server);
        to.set_port(self.port.of(server.port()));
        let socket = Beside::open(fd, local, to).ok()?;
        let [one, other] = [random_u64().to_ne_bytes(), random_u64().to_ne_bytes()];
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&one);
        nonce[8..].copy_from_slice(&other);
        let question = Question { connection, nonce };
        let sent_at = now();
        let mut asking = Asking::new(question, sent_at);
        if socket.send(&question.to_octets()).is_err() {
            asking.handle_unreachable();
        }
        self.enter(asking, socket)
    }

    /// The connection stands: from now on the answer is waited for no longer than one more round trip.
    pub fn connected(&self, ticket: Ticket) {
        if let Ok(mut place) = self.asked(ticket) {
            if let Some(asked) = place.as_mut() {
                asked.asking.handle_connected(now());
            }
        }
    }

    /// What has become of the question. Who is told yes or no is told so once: the ticket is none any more, and what
    /// was learnt is remembered. A ticket that is none, or another process's, is a no.
    pub fn poll(&self, ticket: Ticket) -> Outcome {
        match self.asked(ticket) {
            Ok(place) => self.look(place),
            Err(Absent::Gone) => Outcome::No,
            Err(Absent::Busy) => Outcome::Waits(None),
        }
    }

    /// The same, once it is known: the connection stands, so that the wait has an end. [`Outcome::Waits`] is only for a
    /// signal handler that came in between a look of its own thread: it waits for nobody.
    pub fn wait(&self, ticket: Ticket) -> Outcome {
        self.connected(ticket);
        loop {
            let over_at = match self.poll(ticket) {
                Outcome::Waits(Some(over_at)) => over_at,
                outcome => return outcome,
            };
            let Ok(place) = self.asked(ticket) else {
                continue;
            };
            if let Some(asked) = place.as_ref() {
                let left = over_at.saturating_sub(now());
                asked.socket.wait(left.min(WAIT_MAX));
            }
        }
    }

    /// The connect has failed, or the socket is closed: the answer is nobody's, and nothing is learnt.
    pub fn give_up(&self, ticket: Ticket) {
        if let Ok(place) = self.asked(ticket) {
            self.release(place);
        }
    }

    /// The server at this address said yes, and what came of it was not Weft: TCP for as long as things are remembered.
    pub fn learn_that_it_lied(&self, about: About, server: SocketAddr) {
        if let Some(mut memory) = self.memory() {
            memory.learn_that_it_lied(about, server.into(), now());
        }
    }

    /// Questions that are under way in this process.
    pub fn under_way(&self) -> u32 {
        let words = self.taken.iter();
        words
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum()
    }

    /// Takes a place for a question that was sent.
    fn enter(&self, asking: Asking, socket: Beside) -> Option<Ticket> {
        if !self.begin_in_child() {
            return None;
        }
        let place = self.taken.iter().enumerate().find_map(take_bit)?;
        let count = self.count.fetch_add(1, Ordering::Relaxed) % (1 << 21);
        // Never 0: the lowest place is 1.
        let ticket = Ticket((count * QUESTIONS_MAX as u32).wrapping_add(place as u32 + 1));
        match self.questions[place].lock() {
            Locked::Held(mut free) | Locked::Orphaned(mut free) => {
                *free = Some(Asked {
                    ticket,
                    asking,
                    socket,
                });
                Some(ticket)
            }
            Locked::Again => None,
        }
    }

    /// A forked child has none of its parent's questions; whether this process may ask.
    fn begin_in_child(&self) -> bool {
        let (own, before) = (process::id(), self.process.load(Ordering::Acquire));
        if before == own {
            return true;
        }
        if process::is_borrowed() {
            return false;
        }
        // The first call of a child clears what it inherited before others of its threads may ask.
        self.taken
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let claimed =
            self.process
                .compare_exchange(before, own, Ordering::AcqRel, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// The place of a question of this process, held.
    fn asked(&self, ticket: Ticket) -> Result<Guard<'_, Option<Asked>>, Absent> {
        if self.process.load(Ordering::Acquire) != process::id() {
            return Err(Absent::Gone);
        }
        let place = match self.questions[ticket.place()].lock() {
            Locked::Held(place) | Locked::Orphaned(place) => place,
            Locked::Again => return Err(Absent::Busy),
        };
        match place.as_ref().is_some_and(|asked| asked.ticket == ticket) {
            true => Ok(place),
            false => Err(Absent::Gone),
        }
    }

    /// Takes in what has come; remembers what was learnt, and ends the question, if it is settled.
    fn look(&self, mut place: Guard<'_, Option<Asked>>) -> Outcome {
        let Some(asked) = place.as_mut() else {
            return Outcome::No;
        };
        let outcome = asked.poll();
        if let Outcome::Yes | Outcome::No = outcome {
            let Connection { about, server, .. } = asked.asking.question().connection;
            if let Some(mut memory) = self.memory() {
                memory.learn(about, server, outcome == Outcome::Yes, now());
            }
            self.release(place);
        }
        outcome
    }

    fn release(&self, mut place: Guard<'_, Option<Asked>>) {
        let Some(asked) = place.take() else { return };
        let at = asked.ticket.place();
        drop((asked, place));
        self.taken[at / BITS].fetch_and(!(1 << (at % BITS)), Ordering::Release);
    }

    fn memory(&self) -> Option<Holding<'static, Memory>> {
        match self.page.memory.take() {
            // What somebody left half written is forgotten within a minute.
            Taken::Held(held) | Taken::Inherited(held) => Some(held),
            Taken::Again => None,
        }
    }
}

impl Asked {
    /// Takes in what has come.
    fn poll(&mut self) -> Outcome {
        // One octet more than a message has, so that a longer one shows.
        let mut octets = [0; MESSAGE_OCTETS_MAX + 1];
        for _ in 0..DATAGRAMS_MAX {
            match self.socket.receive(&mut octets) {
                Heard::Octets(len) => {
                    let datagram = octets.get(..len).unwrap_or(&octets);
                    self.asking.handle_datagram(datagram);
                }
                Heard::Unreachable => self.asking.handle_unreachable(),
                Heard::Nothing => break,
            }
        }
        self.asking.poll_outcome(now())
    }
}

/// An IPv4-mapped address as the IPv4 address in it.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            End::from(addr).to_socket_addr()
        }
        other => other,
    }
}

/// Sets the lowest bit of a word that is not set; its number among all.
fn take_bit((at, word): (usize, &AtomicU64)) -> Option<usize> {
    let mut bits = word.load(Ordering::Relaxed);
    while bits != u64::MAX {
        let bit = !bits & (bits + 1);
        bits = word.fetch_or(bit, Ordering::AcqRel);
        if bits & bit == 0 {
            return Some(at * BITS + bit.trailing_zeros() as usize);
        }
    }
    None
}
