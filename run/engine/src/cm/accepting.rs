//! How a listener takes connections, and what bounds them.
//!
//! Up to the program's answer a connection counts on its listener's backlog, of which twice as many are taken; up to its
//! MPA Request it counts among the half-open ones of the process ([`super::half_open`]). A connection whose address
//! reached for memory it was not given too often waits before its start-up begins (`crate::suspects`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use weft_os::net::{TcpListener, TcpStream};
use weft_os::poll::Interest;

use super::half_open::{Number, Room};
use super::id::{Id, Phase};
use super::startup::Startup;
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::progress::Token;
use crate::stats::Total;
use crate::suspects::Admission;

/// This many connections are taken from the kernel's queue in one go.
const ACCEPT_AT_ONCE: usize = 64;
/// How long a listener leaves connections in the kernel's queue when there is no room for them.
const NO_ROOM: Duration = Duration::from_millis(20);
/// The same when the machine has no descriptor or memory for them.
const NO_MEANS: Duration = Duration::from_millis(100);

/// What an accepted connection takes up; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Places {
    waiting: Arc<AtomicUsize>,
    half_open: Option<HalfOpenPlace>,
}

#[derive(Debug)]
struct HalfOpenPlace {
    engine: Arc<Engine>,
    number: Number,
}

impl Places {
    /// The Request is there.
    pub(super) fn request_came(&mut self) {
        self.half_open = None;
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for HalfOpenPlace {
    fn drop(&mut self) {
        // In this order, so that the count never shows more than there may be.
        self.engine.stats.subtract(Total::HalfOpen, 1);
        self.engine.half_open.lock().leave(self.number);
    }
}

/// What a listener is, for the time of taking connections.
struct Gate {
    token: Token,
    waiting: Arc<AtomicUsize>,
    is_full: bool,
}

impl Id {
    /// Takes new connections; each becomes an id of its own that runs MPA start-up.
    pub(super) fn accept_connections(self: &Arc<Self>) {
        for _ in 0..ACCEPT_AT_ONCE {
            // Two threads may be here at once, and what one of them finds free the other may not take.
            let turn = self.engine.accepting.lock();
            let Some(gate) = self.gate() else {
                return;
            };
            if !self.make_room(&gate) {
                return;
            }
            let accepted = match &self.inner.lock().phase {
                Phase::Listening { listener, .. } => listener.accept(),
                _ => return,
            };
            match accepted {
                Ok(Some((socket, peer))) => self.take_connection(socket, peer, &gate, turn),
                Ok(None) => return,
                Err(error) => {
                    crate::error::explain(&error);
                    crate::warn_of_peer!("a connection could not be accepted: {error}");
                    // It would be tried again at once, and for ever.
                    self.pause_accepting(NO_MEANS);
                    return;
                }
            }
        }
    }

    fn gate(&self) -> Option<Gate> {
        match &self.inner.lock().phase {
            Phase::Listening {
                token,
                waiting,
                backlog,
                ..
            } => Some(Gate {
                token: *token,
                waiting: waiting.clone(),
                is_full: waiting.load(Ordering::Acquire) >= (*backlog).max(1) * 2,
            }),
            _ => None,
        }
    }

    /// Sees that one more connection can be taken; false when it cannot, or need not.
    fn make_room(&self, gate: &Gate) -> bool {
        let listener = gate.token.number();
        if gate.is_full && self.engine.half_open.lock().at(listener) == 0 {
            if let Phase::Listening { listener, .. } = &self.inner.lock().phase {
                refuse_one(listener);
            }
            return false;
        }
        let full = gate.is_full.then_some(Some(listener));
        full.into_iter()
            .chain([None])
            .all(|full| self.make_room_among(full))
    }

    /// The same among all half-open connections, or among those of one listener, which is full.
    fn make_room_among(&self, full: Option<u64>) -> bool {
        let room = self.engine.half_open.lock().room(full, self.engine.now());
        if matches!(room, Room::Free) {
            return true;
        }
        let comes = match &self.inner.lock().phase {
            Phase::Listening { listener, .. } => listener.has_waiting(),
            _ => false,
        };
        match room {
            _ if !comes => false,
            Room::Instead(oldest) => {
                if let Some(oldest) = oldest.upgrade() {
                    oldest.crowd_out();
                }
                true
            }
            _ => {
                self.pause_accepting(NO_ROOM);
                false
            }
        }
    }

    fn pause_accepting(&self, pause: Duration) {
        let until = self.engine.now() + pause;
        if let Phase::Listening {
            listener,
            token,
            pause_until,
            ..
        } = &mut self.inner.lock().phase
        {
            *pause_until = Some(until);
            let _ = self.engine.progress.change(listener, *token, Interest::End);
            self.engine.progress.add_timer(until, *token);
        }
    }

    /// The pause is over.
    pub(super) fn go_on_accepting(&self) {
        let now = self.engine.now();
        if let Phase::Listening {
            listener,
            token,
            pause_until,
            ..
        } = &mut self.inner.lock().phase
        {
            if pause_until.is_some_and(|until| until <= now) {
                *pause_until = None;
                let _ = self
                    .engine
                    .progress
                    .change(listener, *token, Interest::Read);
            }
        }
    }

    fn take_connection(
        self: &Arc<Self>,
        socket: TcpStream,
        peer: std::net::SocketAddr,
        gate: &Gate,
        turn: MutexGuard<'_, ()>,
    ) {
        let admission = self.engine.admit(peer.ip());
        if admission == Admission::Never {
            crate::info!("{peer}: refused, too many connections of its address wait already");
            return socket.abort_on_close();
        }
        gate.waiting.fetch_add(1, Ordering::AcqRel);
        let child = Id::make(self.engine.clone(), None, 0, Arc::downgrade(self));
        let number = self.engine.half_open.lock().enter(
            gate.token.number(),
            peer.ip(),
            self.engine.now(),
            Arc::downgrade(&child),
        );
        self.engine.stats.add(Total::HalfOpen, 1);
        let places = Places {
            waiting: gate.waiting.clone(),
            half_open: Some(HalfOpenPlace {
                engine: self.engine.clone(),
                number,
            }),
        };
        {
            let mut own = self.inner.lock();
            let mut inner = child.inner.lock();
            inner.options = own.options;
            inner.by_hand = own.by_hand;
            inner.local = socket.local_addr().ok();
            inner.peer = Some(peer);
            if let (Phase::Listening { order, .. }, false) = (&mut own.phase, inner.by_hand) {
                inner.ticket = Some(order.accepted(peer.ip(), self.engine.now()));
            }
        }
        // It has its place.
        drop(turn);
        match admission {
            Admission::At(until) => child.delay(socket, until, places),
            _ => child.begin(socket, places),
        }
    }

    /// Start-up begins later.
    fn delay(self: &Arc<Self>, socket: TcpStream, until: Duration, places: Places) {
        let endpoint = Endpoint::Connecting(self.clone());
        let token = self.engine.progress.reserve(endpoint);
        self.inner.lock().phase = Phase::Delayed {
            socket,
            token,
            until,
            places,
        };
        self.engine.progress.add_timer(until, token);
    }

    /// It is later.
    pub(super) fn start_delayed(self: &Arc<Self>) {
        let phase = std::mem::replace(&mut self.inner.lock().phase, Phase::Disconnected);
        match phase {
            Phase::Delayed {
                socket,
                token,
                places,
                ..
            } => {
                self.engine.progress.release(token);
                self.begin(socket, places);
            }
            other => self.inner.lock().phase = other,
        }
    }

    fn begin(self: &Arc<Self>, socket: TcpStream, places: Places) {
        if let Err(error) = self.start_responding(socket, places) {
            crate::warn_of_peer!("MPA start-up could not begin: {error}");
            self.untold();
        }
    }

    fn start_responding(self: &Arc<Self>, socket: TcpStream, places: Places) -> Result<(), Error> {
        let now = self.engine.now();
        let startup = Startup::responder(&self.engine.settings, now);
        let deadline = startup.deadline();
        let endpoint = Endpoint::Connecting(self.clone());
        let mut inner = self.inner.lock();
        let token = self
            .engine
            .progress
            .add(&socket, endpoint, Interest::Read)?;
        inner.phase = Phase::Starting {
            socket,
            token,
            startup,
            request: None,
            places: Some(places),
        };
        drop(inner);
        if let Some(deadline) = deadline {
            self.engine.progress.add_timer(deadline, token);
        }
        self.serve(&self.engine);
        Ok(())
    }

    /// There is no place for it any more.
    fn crowd_out(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        match &inner.phase {
            Phase::Delayed { socket, .. }
            | Phase::Starting {
                socket,
                request: None,
                ..
            } => socket.abort_on_close(),
            // Its Request came meanwhile.
            _ => return,
        }
        if let Some(peer) = inner.peer {
            crate::info!("{peer}: closed before its MPA Request came, to make room for others");
        }
        self.engine.stats.add(Total::CrowdedOut, 1);
        match std::mem::replace(&mut inner.phase, Phase::Disconnected) {
            Phase::Delayed { token, .. } => self.engine.progress.release(token),
            Phase::Starting { socket, token, .. } => self.engine.progress.remove(&socket, token),
            _ => {}
        }
        drop(inner);
        self.untold();
    }

    /// The listener need not wait for its request any more; whether it was still to be told.
    pub(super) fn untold(&self) -> Option<bool> {
        let (listener, ticket) = {
            let inner = self.inner.lock();
            (inner.listener.upgrade(), inner.ticket)
        };
        let (listener, ticket) = listener.zip(ticket)?;
        listener.tell_requests(|order| order.gone(ticket))
    }
}

/// The backlog is full of requests that the program has not answered: one more is reset.
fn refuse_one(listener: &TcpListener) {
    if let Ok(Some((socket, peer))) = listener.accept() {
        crate::info!("{peer}: refused, the backlog is full");
        socket.abort_on_close();
    }
}
