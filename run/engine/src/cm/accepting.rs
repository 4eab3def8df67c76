//! How a listener takes connections, and what bounds them.
//!
//! Up to the program's answer a connection counts on its listener's backlog, of which twice as many are taken; up to
//! its MPA Request it counts among the half-open ones of the process ([`super::half_open`]). Where there is no place
//! for it a newcomer waits in the kernel's queue, as long as it likes: whoever connects meets no refusal that another
//! try a moment later would not have met. Listeners that wait for room in the process get it in the order in which
//! they met its lack ([`super::shortage`]). A connection whose address reached for memory it was not given too often
//! then waits for its turn ([`super::turn`]).

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::poll::Interest;

use super::id::{Id, Phase};
use super::newcomers::{Newcomers, Places, Waiting};
use super::shortage::Shortage;
use super::startup::Startup;
use crate::carrier::Carrier;
use crate::error::Error;
use crate::progress::Token;
use crate::stats::Total;

/// This many connections are taken from the kernel's queue in one go.
const ACCEPTS_IN_A_ROW_MAX: usize = 64;
/// How long a listener leaves connections in the kernel's queue when there is no room for them.
const RETRY_WITHOUT_ROOM: Duration = Duration::from_millis(20);
/// The same when the machine has no descriptor or memory for them.
const RETRY_WITHOUT_MEANS: Duration = Duration::from_millis(100);

/// Of the descriptors the process may have, the half-open connections take one in so many at most.
const SHARE_OF_HALF_OPEN: u64 = 4;
/// The same of one listener's connections up to the program's answer.
const SHARE_OF_LISTENER: u64 = 2;

/// What a listener is, for the time of taking connections.
struct Gate {
    token: Token,
    waiting: Arc<Waiting>,
    /// Connections of this listener that the program has not answered.
    most: usize,
    /// Half-open ones of the whole process.
    most_half_open: usize,
}

impl Gate {
    fn is_full(&self) -> bool {
        self.waiting.count() >= self.most
    }
}

/// What came of the attempt to take one connection.
enum Attempt {
    Taken(Box<dyn Carrier>, SocketAddr),
    /// Another connection was closed for it.
    MadeRoom,
    /// Not yet: to be tried again after that time.
    NoRoom(Duration),
    NobodyComes,
}

/// How many connections may be there that nobody has answered, by what the process may have of descriptors.
#[derive(Clone, Copy)]
struct Shares {
    half_open: usize,
    listener: usize,
}

impl Shares {
    fn now() -> Shares {
        let (_, hard) = weft_os::descriptors::limits();
        let one_in = |so_many: u64| (hard / so_many).max(1) as usize;
        Shares {
            half_open: one_in(SHARE_OF_HALF_OPEN),
            listener: one_in(SHARE_OF_LISTENER),
        }
    }
}

impl Id {
    /// Takes new connections; each becomes an id of its own that runs MPA start-up.
    pub(super) fn accept_connections(self: &Arc<Self>) {
        let newcomers: Arc<Newcomers> = self.engine.part();
        let shares = Shares::now();
        for _ in 0..ACCEPTS_IN_A_ROW_MAX {
            // Two threads may be here at once, and what one of them finds free the other may not take.
            let mut shortage = newcomers.shortage.lock();
            let Some(gate) = self.gate(shares) else {
                return;
            };
            let listener = gate.token.number();
            if !self.has_place_at_listener(&gate, &newcomers) {
                // It waits for its own connections to go on, and keeps nobody from what the process has.
                shortage.leave(listener);
                return;
            }
            match self.take_connection(&gate, &newcomers, &shortage) {
                Attempt::Taken(carrier, peer) => {
                    shortage.leave(listener);
                    let (child, places) = self.make_child(&*carrier, peer, &gate, &newcomers);
                    // It has its place.
                    drop(shortage);
                    child.begin(carrier, places);
                }
                Attempt::MadeRoom => shortage.wait(listener),
                Attempt::NoRoom(pause) => {
                    shortage.wait(listener);
                    self.pause_accepting(pause);
                    return;
                }
                Attempt::NobodyComes => {
                    shortage.leave(listener);
                    return;
                }
            }
        }
    }

    /// Takes one connection, or makes room for it among what the process has.
    fn take_connection(&self, gate: &Gate, newcomers: &Newcomers, shortage: &Shortage) -> Attempt {
        let another_is_first = shortage.has_another_before(gate.token.number());
        let most = self.engine.settings.half_open_limit;
        let most = most.min(gate.most_half_open);
        if another_is_first || newcomers.half_open.lock().count() >= most {
            if !self.has_newcomer() {
                return Attempt::NobodyComes;
            }
            if another_is_first || !self.crowd_out_one(None, newcomers) {
                return Attempt::NoRoom(RETRY_WITHOUT_ROOM);
            }
        }
        let accepted = match &self.inner.lock().phase {
            Phase::Listening { listener, .. } => listener.accept(),
            _ => return Attempt::NobodyComes,
        };
        match accepted {
            Ok(Some((carrier, peer))) => Attempt::Taken(carrier, peer),
            Ok(None) => Attempt::NobodyComes,
            Err(error)
                if is_lack_of_descriptors(&error)
                    && (self.crowd_out_one(None, newcomers) || newcomers.shed_one()) =>
            {
                Attempt::MadeRoom
            }
            Err(error) => {
                crate::error::explain(&error);
                crate::warn_of_peer!("a connection could not be accepted: {error}");
                // It would be tried again at once, and for ever.
                Attempt::NoRoom(RETRY_WITHOUT_MEANS)
            }
        }
    }

    fn gate(&self, shares: Shares) -> Option<Gate> {
        match &self.inner.lock().phase {
            Phase::Listening {
                token,
                waiting,
                backlog,
                ..
            } => Some(Gate {
                token: *token,
                waiting: waiting.clone(),
                most: ((*backlog).max(1) * 2).min(shares.listener),
                most_half_open: shares.half_open,
            }),
            _ => None,
        }
    }

    /// Sees that the listener has a place for one more connection; false when it has none, or needs none.
    fn has_place_at_listener(&self, gate: &Gate, newcomers: &Newcomers) -> bool {
        if !gate.is_full() {
            return true;
        }
        let listener = gate.token.number();
        if newcomers.half_open.lock().at(listener) == 0 {
            self.hold_back(gate);
            return false;
        }
        if !self.has_newcomer() {
            return false;
        }
        let made = self.crowd_out_one(Some(listener), newcomers);
        if !made {
            self.pause_accepting(RETRY_WITHOUT_ROOM);
        }
        made
    }

    /// A connection waits in the kernel's queue.
    fn has_newcomer(&self) -> bool {
        match &self.inner.lock().phase {
            Phase::Listening { listener, .. } => listener.has_waiting(),
            _ => false,
        }
    }

    /// Closes the half-open connection that has to go first, if one may go now.
    fn crowd_out_one(&self, listener: Option<u64>, newcomers: &Newcomers) -> bool {
        let now = self.engine.now();
        let first = newcomers.half_open.lock().first_to_go(listener, now);
        if let Some(first) = first.as_ref().and_then(Weak::upgrade) {
            first.crowd_out();
        }
        first.is_some()
    }

    /// The backlog is full of requests that the program has not answered: whoever comes next waits in the kernel's
    /// queue until one of these is over.
    fn hold_back(&self, gate: &Gate) {
        self.pause_accepting(Duration::ZERO);
        gate.waiting.set_holds_back(true);
        if !gate.is_full() {
            self.go_on_accepting();
        }
    }

    /// Leaves newcomers in the kernel's queue for that time, or, for none, until a timer of this listener.
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
            let _ = self
                .engine
                .progress
                .change_source(&**listener, *token, Interest::End);
            if !pause.is_zero() {
                self.engine.progress.add_timer(until, *token);
            }
        }
    }

    /// The pause is over.
    pub(super) fn go_on_accepting(&self) {
        let now = self.engine.now();
        if let Phase::Listening {
            listener,
            token,
            pause_until,
            waiting,
            ..
        } = &mut self.inner.lock().phase
        {
            if pause_until.is_some_and(|until| until <= now) {
                *pause_until = None;
                waiting.set_holds_back(false);
                let _ = self
                    .engine
                    .progress
                    .change_source(&**listener, *token, Interest::Read);
            }
        }
    }

    /// An id for a connection that was taken, and what it takes up.
    fn make_child(
        self: &Arc<Self>,
        carrier: &dyn Carrier,
        peer: SocketAddr,
        gate: &Gate,
        newcomers: &Arc<Newcomers>,
    ) -> (Arc<Id>, Places) {
        let child = Id::make(self.engine.clone(), None, 0, Arc::downgrade(self));
        let (token, waiting) = (gate.token, &gate.waiting);
        let places = Places::of_newcomer(&self.engine, token, waiting, newcomers, peer, &child);
        let mut own = self.inner.lock();
        let mut inner = child.inner.lock();
        inner.options = own.options;
        inner.policy = own.policy.clone();
        inner.follow_policy(carrier);
        inner.handler = own.handler.clone();
        inner.local = carrier.local_addr().ok();
        inner.peer = Some(peer);
        if let (Phase::Listening { order, .. }, None) = (&mut own.phase, &inner.handler) {
            inner.ticket = Some(order.accepted(peer.ip(), self.engine.now()));
        }
        drop(inner);
        (child, places)
    }

    fn begin(self: &Arc<Self>, carrier: Box<dyn Carrier>, places: Places) {
        if let Err(error) = self.start_responding(carrier, places) {
            crate::warn_of_peer!("MPA start-up could not begin: {error}");
            self.untold();
        }
    }

    fn start_responding(
        self: &Arc<Self>,
        carrier: Box<dyn Carrier>,
        places: Places,
    ) -> Result<(), Error> {
        let now = self.engine.now();
        let startup = Startup::responder(&self.engine.settings, now);
        let deadline = startup.deadline();
        let mut inner = self.inner.lock();
        let token = self
            .engine
            .progress
            .add_source(&*carrier, self.clone(), Interest::Read)?;
        inner.phase = Phase::Starting {
            carrier,
            token,
            startup: Box::new(startup),
            request: None,
            places: Some(places),
        };
        drop(inner);
        if let Some(deadline) = deadline {
            self.engine.progress.add_timer(deadline, token);
        }
        self.serve_socket();
        Ok(())
    }

    /// There is no place for it any more.
    fn crowd_out(self: &Arc<Self>) {
        let peer = self.inner.lock().peer;
        if self.close_unanswered() {
            self.engine.stats.add(Total::CrowdedOut, 1);
            if let Some(peer) = peer {
                crate::info!(
                    "{peer}: closed to make room for others, before the program was told of it"
                );
            }
        }
    }

    /// Resets a connection of which nobody has been told. False where somebody has meanwhile.
    pub(super) fn close_unanswered(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        match &inner.phase {
            Phase::Starting {
                carrier,
                places: Some(places),
                ..
            } if places.is_half_open() => carrier.abort_on_close(),
            _ => return false,
        }
        if let Phase::Starting { carrier, token, .. } =
            std::mem::replace(&mut inner.phase, Phase::Disconnected)
        {
            self.engine.progress.remove_source(&*carrier, token);
        }
        drop(inner);
        self.untold();
        true
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

/// Whether a descriptor that is given up would let the next connection in.
fn is_lack_of_descriptors(error: &std::io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
