//! How two ends on one machine come to share memory (decision 0035).
//!
//! The responder tells a Weft peer a random number, and listens on a socket that one half of it names. A peer that is
//! on this machine finds the socket; it makes the memory and hands it over with the whole number. The kernel says whose
//! process it is. Where anything of that fails the connection carries the octets, as it does until then.

use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weft_os::local::{Accepted, LocalSocket, MESSAGE_OCTETS_MAX};
use weft_os::poll::Interest;
use weft_os::random_u64;
use weft_verbs::qp::MeetingNumber;

use super::meeting_names::{self, Listening};
use super::{Inner, Qp};
use crate::carrier::{Carrier, SharedRings};
use crate::engine::Engine;
use crate::progress::{Member, Served, Token};

/// Members of the process beyond which connections stay on TCP: as many as pollers look at without a bell. Others had a
/// call at either end for each bell, as TCP has for its octets, and the ring's own memory beside it.
const MEMBERS_THAT_SHARE: usize = 256;
/// Bits of a number that name the socket; the others are known to the peer alone.
const NAME_BITS: u32 = 24;
/// Names that are tried, where somebody has the first ones.
const NAMES_MAX: usize = 8;
/// Connections that are taken, or refused, in one go.
const ACCEPTS_IN_A_ROW_MAX: usize = 16;
/// How long visitors wait when no descriptor is left for them.
const PAUSE_WITHOUT_MEANS: Duration = Duration::from_millis(100);
/// Visitors at most that have connected and not said anything.
const VISITORS_MAX: usize = 16;
/// Numbers at which those are looked for that nobody waits for any more.
const NUMBERS_BEFORE_PURGE: usize = 256;

/// What begins a message, with the version of the memory's layout.
const GREETING: &[u8; 8] = b"WEFTRNG1";
/// Octets of a message: the greeting, the number, and what the sender wants.
const MESSAGE_OCTETS: usize = 17;

/// The process's meetings.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    /// Nothing where the system allows no such socket.
    desk: OnceLock<Option<Arc<Desk>>>,
}

/// Where the peers come to.
#[derive(Debug)]
struct Desk {
    me: Weak<Desk>,
    engine: Weak<Engine>,
    listening: Listening,
    name: u64,
    token: OnceLock<Token>,
    expected: Mutex<HashMap<MeetingNumber, Weak<Qp>>>,
    visitors: Mutex<Vec<Arc<Visitor>>>,
}

/// A peer that has connected.
#[derive(Debug)]
struct Visitor {
    desk: Weak<Desk>,
    socket: LocalSocket,
    token: OnceLock<Token>,
}

fn message(number: MeetingNumber, wants_crc: bool) -> [u8; MESSAGE_OCTETS] {
    let mut message = [0; MESSAGE_OCTETS];
    message[..8].copy_from_slice(GREETING);
    message[8..16].copy_from_slice(&number.get().to_be_bytes());
    message[16] = u8::from(wants_crc);
    message
}

/// The number, and whether the sender wants CRCs.
fn parse(message: &[u8]) -> Option<(MeetingNumber, bool)> {
    let rest: &[u8; 9] = message.strip_prefix(GREETING)?.try_into().ok()?;
    let [number @ .., wants_crc] = rest;
    Some((
        MeetingNumber::new(u64::from_be_bytes(*number)),
        *wants_crc != 0,
    ))
}

impl Meetings {
    /// The process is about to end: nobody finds it any more.
    pub(super) fn leave(&self) {
        if let Some(Some(desk)) = self.desk.get() {
            desk.listening.remove_file();
        }
    }
}

impl Desk {
    #[cold]
    fn open(engine: &Arc<Engine>) -> io::Result<Arc<Desk>> {
        let folder = engine.settings.same_host_dir.as_deref();
        let opened = Desk::listen(folder);
        let (listening, name) = match (opened, folder) {
            (Err(error), Some(folder)) => {
                crate::warn!(
                    "same-host-dir: in {} no socket can be made ({error}): ends in other network namespaces stay on \
                     TCP",
                    folder.display()
                );
                Desk::listen(None)?
            }
            (opened, _) => opened?,
        };
        let desk = Arc::new_cyclic(|me| Desk {
            me: me.clone(),
            engine: Arc::downgrade(engine),
            listening,
            name,
            token: OnceLock::new(),
            expected: Mutex::default(),
            visitors: Mutex::default(),
        });
        let token = engine
            .progress
            .add(&desk.listening.socket, desk.clone(), Interest::Read)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        let _ = desk.token.set(token);
        Ok(desk)
    }

    /// Listens under a number that nobody else has, and says which.
    fn listen(folder: Option<&Path>) -> io::Result<(Listening, u64)> {
        let mut tried = 0;
        loop {
            let name = random_u64() >> (u64::BITS - NAME_BITS);
            match Listening::begin(name, folder) {
                Ok(listening) => return Ok((listening, name)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tried < NAMES_MAX => {
                    tried += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn expect(&self, qp: Weak<Qp>) -> MeetingNumber {
        let low_bits = 48 - NAME_BITS;
        let mut expected = self.expected.lock();
        if expected.len() >= NUMBERS_BEFORE_PURGE && expected.len().is_power_of_two() {
            expected.retain(|number, qp| qp.upgrade().is_some_and(|qp| qp.may_expect(*number)));
        }
        loop {
            let secret = random_u64() >> (u64::BITS - low_bits);
            let number = MeetingNumber::new(self.name << low_bits | secret);
            if let Entry::Vacant(place) = expected.entry(number) {
                place.insert(qp);
                return number;
            }
        }
    }

    /// A visitor has said what it wants, or goes.
    fn hear(&self, visitor: &LocalSocket) -> io::Result<()> {
        let mut octets = [0; MESSAGE_OCTETS_MAX];
        let (len, descriptor) = visitor.receive(&mut octets)?;
        let qp = parse(&octets[..len]).and_then(|(number, wants_crc)| {
            let qp = self.expected.lock().remove(&number)?.upgrade()?;
            Some((qp, number, wants_crc))
        });
        if let (Some((qp, number, wants_crc)), Some(descriptor)) = (qp, descriptor) {
            qp.share(number, descriptor, wants_crc);
        }
        Ok(())
    }

    fn admit(&self, engine: &Engine, socket: LocalSocket) {
        let silent = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if !self.hear(&socket).is_err_and(|error| silent(&error)) {
            return;
        }
        let visitor = Arc::new(Visitor {
            desk: self.me.clone(),
            socket,
            token: OnceLock::new(),
        });
        let first = {
            let mut visitors = self.visitors.lock();
            visitors.push(visitor.clone());
            (visitors.len() > VISITORS_MAX).then(|| visitors.remove(0))
        };
        if let Some(first) = first {
            first.go(engine);
        }
        let socket = &visitor.socket;
        match engine.progress.add(socket, visitor.clone(), Interest::Read) {
            Ok(token) => {
                let _ = visitor.token.set(token);
            }
            Err(_) => self.forget(&visitor),
        }
    }

    /// Leaves visitors in the kernel's queue for a while: there is no descriptor for them, and the listener would be
    /// ready all the time.
    fn pause(&self, engine: &Engine) {
        if let Some(token) = self.token.get() {
            // It is in the set.
            let _ = engine
                .progress
                .change(&self.listening.socket, *token, Interest::End);
            engine
                .progress
                .add_timer(engine.now() + PAUSE_WITHOUT_MEANS, *token);
        }
    }

    fn forget(&self, visitor: &Visitor) {
        let mut visitors = self.visitors.lock();
        visitors.retain(|other| !std::ptr::eq(&**other, visitor));
    }
}

impl Member for Desk {
    fn serve(&self, _writable: bool) -> Served {
        let Some(engine) = self.engine.upgrade() else {
            return Served::Setup;
        };
        // Whoever connects without end, of whatever user, keeps this thread no longer than this.
        for _ in 0..ACCEPTS_IN_A_ROW_MAX {
            match self.listening.socket.accept() {
                Ok(Accepted::Own(socket)) => self.admit(&engine, socket),
                Ok(Accepted::Others) => {}
                Ok(Accepted::Nobody) => break,
                Err(_) => {
                    self.pause(&engine);
                    break;
                }
            }
        }
        Served::Setup
    }

    /// The pause is over.
    fn on_timer(&self) {
        if let (Some(engine), Some(token)) = (self.engine.upgrade(), self.token.get()) {
            // It was in the set before.
            let _ = engine
                .progress
                .change(&self.listening.socket, *token, Interest::Read);
        }
    }
}

impl Visitor {
    fn go(&self, engine: &Engine) {
        if let Some(token) = self.token.get() {
            engine.progress.remove(&self.socket, *token);
        }
    }
}

impl Member for Visitor {
    fn serve(&self, _writable: bool) -> Served {
        let Some(desk) = self.desk.upgrade() else {
            return Served::Setup;
        };
        let heard = desk.hear(&self.socket);
        if !heard.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            if let Some(engine) = desk.engine.upgrade() {
                self.go(&engine);
            }
            desk.forget(self);
        }
        Served::Setup
    }

    fn on_timer(&self) {}
}

impl Qp {
    /// Whether the other end of a connection may be on this machine, and share memory. That of the connection with
    /// itself may not. Where two network namespaces share a folder no address tells.
    pub(super) fn may_share(
        &self,
        carrier: &dyn Carrier,
        (local, peer): (SocketAddr, SocketAddr),
        engine: &Engine,
    ) -> bool {
        let (here, there) = (local.ip().to_canonical(), peer.ip().to_canonical());
        let is_near = here == there || here.is_loopback() && there.is_loopback();
        let is_near = is_near || engine.settings.same_host_dir.is_some();
        let may = engine.settings.same_host && is_near && local != peer;
        may && engine.progress.members() <= MEMBERS_THAT_SHARE && carrier.descriptor().is_some()
    }

    /// What to tell the peer, so that it can find this process.
    pub(super) fn expect_peer(&self) -> Option<MeetingNumber> {
        let engine = crate::engine::started()?;
        let meetings = engine.part::<Meetings>();
        let desk = meetings.desk.get_or_init(|| {
            Desk::open(&engine)
                .inspect_err(|error| {
                    crate::info!("two ends on this machine use TCP, as there is no socket to meet at: {error}");
                })
                .ok()
        });
        Some(desk.as_ref()?.expect(self.me.clone()))
    }

    /// Whether it may still wait for who was told this number.
    fn may_expect(&self, number: MeetingNumber) -> bool {
        // Whoever has the lock may be about to attach it.
        self.inner.try_lock().is_none_or(|inner| {
            let stream = inner.stream.as_ref();
            stream.is_some_and(|stream| stream.meeting == Some(number))
        })
    }

    /// The peer said where it is to be met: if that is on this machine, it is offered memory.
    pub(super) fn meet(inner: &Inner, number: MeetingNumber, engine: &Engine) {
        let live = inner.machine.ending().is_live();
        let Some(stream) = inner.stream.as_ref().filter(|s| s.has_rings && live) else {
            return;
        };
        let Some(rings) = stream.carrier.rings() else {
            return;
        };
        let wants_crc = engine.settings.same_host_crc;
        let name = number.get() >> (48 - NAME_BITS);
        let folder = engine.settings.same_host_dir.as_deref();
        let outcome = meeting_names::connect(name, folder).and_then(|socket| {
            let memory = rings.offer(wants_crc)?;
            socket.send(&message(number, wants_crc), memory)
        });
        match outcome {
            Ok(()) => crate::debug!("{}: is offered rings", stream.peer),
            Err(error) => crate::debug!("{}: TCP carries the octets: {error}", stream.peer),
        }
    }

    /// The peer that was told this number has come, with memory.
    fn share(&self, number: MeetingNumber, descriptor: OwnedFd, wants_crc: bool) {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let live = inner.machine.ending().is_live();
        let stream = inner.stream.as_mut();
        let Some(stream) = stream.filter(|s| s.meeting == Some(number) && live) else {
            return;
        };
        stream.meeting = None;
        let wants_crc = wants_crc || engine.settings.same_host_crc;
        let accepted = SharedRings::open(descriptor).and_then(|memory| {
            let rings = stream.carrier.rings().ok_or(io::ErrorKind::Unsupported)?;
            rings.accept(memory, wants_crc)
        });
        match accepted {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                crate::warn_of_peer!("{}: its memory is not taken: {error}", stream.peer);
                return;
            }
        }
        if stream.begin_sharing(&mut inner.machine) {
            crate::debug!("qp {}: shares memory with {}", self.number.0, stream.peer);
        }
        self.serve_locked(guard, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_number_and_wish_and_nothing_else_is_one() {
        for (number, wants_crc) in [(0, false), (u64::MAX, true), (0x1234_5678_9ABC, false)] {
            let number = MeetingNumber::new(number);
            let said = message(number, wants_crc);
            assert_eq!(parse(&said), Some((number, wants_crc)));
            assert_eq!(parse(&said[..MESSAGE_OCTETS - 1]), None);
            assert_eq!(parse(&[&said[..], &[0]].concat()), None);
        }
        let mut older = message(MeetingNumber::new(1), false);
        older[7] = b'0';
        assert_eq!(parse(&older), None, "another layout of the memory");
    }
}
