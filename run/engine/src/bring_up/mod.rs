//! Bringing a queue pair up from a GID and a queue pair number (decisions 0007 and 0012).
//!
//! A program without a connection manager exchanges GIDs and numbers out of band: it tells each end the other's, and
//! modifies its queue pair to INIT, RTR and RTS. The GID is an address of the machine, and the number says at which TCP
//! port of it the process listens ([`ports`]). So one end can connect: the one whose GID and number are the lower
//! ([`active`]). It does so when its program goes to RTS, or a little after RTR, and tries again until the other end is
//! there. The other end ([`passive`]) lets every connection wait in silence ([`pending`]) until it knows that it is the
//! peer's ([`sequence_numbers`]). MPA Request and Reply say in their private data who speaks to whom ([`message`]).
//! Everything behind that is iWARP as ever.

mod active;
mod itself;
mod message;
mod passive;
mod pending;
mod ports;
mod sequence_numbers;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weft_verbs::iwarp::Role;
use weft_verbs::types::QpState;

use crate::cm::Id;
use crate::engine::Engine;
use crate::error::Error;
use crate::progress::{Member, Served, Token};
use crate::qp::{Inner, Qp, Supplier};

use message::{Message, Proof};
use passive::judge_pending;
use ports::Ports;
use sequence_numbers::{SequenceNumbers, Shown};

/// How long an end at RTR waits for RTS before it connects: most programs are there at once, and an end in RTS can
/// prove more.
const RTS_DELAY_MAX: Duration = Duration::from_millis(1);
/// The first wait between two connect attempts; each further one is twice as long.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(1);
/// The longest wait between two connect attempts.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// The other end of a queue pair, as the program exchanged it out of band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The address behind the GID of this end.
    pub local: IpAddr,
    /// The address behind the GID of the other end.
    pub peer: IpAddr,
    /// The other end's queue pair number.
    pub peer_qp: u32,
    /// The first packet sequence number expected from it.
    pub rq_psn: u32,
}

/// The bring-up of one queue pair, from RTR on until it is reset or destroyed.
///
/// Its lock is taken behind the queue pair's.
#[derive(Debug)]
struct Exchange {
    me: Weak<Exchange>,
    engine: Arc<Engine>,
    qp: Weak<Qp>,
    /// The queue pair's number.
    own: u32,
    /// For its timers.
    token: OnceLock<Token>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    to: Destination,
    psns: SequenceNumbers,
    attempt: Attempt,
    /// A connect attempt that was made before RTS and may still be answered, while another one is made.
    early: Option<Arc<Id>>,
    /// A connection of the peer's is being accepted.
    accepting: bool,
    again_after: Duration,
    /// What the attached peer says that this end starts with, until that is known.
    claimed: Option<u32>,
    /// How long a send waits for the peer; `None` is for ever.
    timeout: Option<Duration>,
    /// Sends wait for a stream since then.
    waiting_since: Option<Duration>,
}

#[derive(Debug)]
enum Attempt {
    /// The other end connects.
    Theirs,
    /// Due at this time.
    At(Duration),
    /// Under way, or connected. This end has said that much.
    Made { id: Arc<Id>, said: Proof },
}

/// Somebody who spoke as the other end.
#[derive(Clone, Copy, Debug)]
struct Peer {
    message: Message,
    from: Option<IpAddr>,
    /// What this end has said first, if it connected.
    said: Option<Proof>,
}

impl State {
    /// Whether an end that speaks so, from that address, is the one the program named.
    fn check(&self, own: u32, peer: &Peer) -> Result<Shown, &'static str> {
        if peer.message.to != own {
            return Err("it is for another queue pair");
        }
        if peer.message.from != self.to.peer_qp {
            return Err("the program named another queue pair");
        }
        if peer.from != Some(self.to.peer) {
            return Err("it comes from an address that is not behind the peer's GID");
        }
        match peer.said {
            None => self.psns.check(peer.message.proof),
            Some(said) => self.psns.check_answer(said, peer.message.proof),
        }
    }

    /// Makes the one that spoke so the peer. What it was checked against may have changed since. The passive side takes
    /// nobody who has not proved who it is; the active side was answered by whoever holds the address and the port that
    /// its program named, and may have to wait for RTS to know more.
    fn set_peer(&mut self, own: u32, role: Role, peer: &Peer) -> Result<(), Error> {
        let shown = self.check(own, peer);
        self.claimed = match (shown, peer.message.proof) {
            (Ok(Shown::Peer), _) => None,
            (Ok(Shown::NothingYet), Proof::Expects(psn)) if role == Role::Initiator => Some(psn),
            (Ok(Shown::NothingYet), _) if role == Role::Initiator => None,
            _ => return Err(Error::State("the peer that the program named")),
        };
        self.waiting_since = None;
        self.again_after = RETRY_DELAY_MIN;
        Ok(())
    }
}

/// Whether this end connects: the lower one does, and both ends come to the same answer.
fn is_active(own: u32, to: &Destination) -> bool {
    let place = |address: IpAddr, number: u32| (address.is_ipv6(), address, number);
    place(to.local, own) < place(to.peer, to.peer_qp)
}

/// The bring-up of a queue pair, if there is one.
fn exchange_of(inner: &Inner) -> Option<Arc<Exchange>> {
    inner.supplier()
}

impl Qp {
    /// The program may bring the queue pair up out of band: peers find the process from now on.
    ///
    /// # Errors
    /// The kernel refuses to listen.
    pub fn listen_for_bring_up(&self) -> Result<(), Error> {
        let engine = self.pd().engine();
        engine.part::<Ports>().listen(engine)
    }

    /// Whether the program brings the queue pair up out of band.
    pub fn is_out_of_band(&self) -> bool {
        self.lock().machine.is_out_of_band()
    }

    /// To RTR: the other end is known, and is connected to or awaited.
    ///
    /// # Errors
    /// The queue pair is not in INIT.
    pub fn ready_to_receive(self: &Arc<Self>, to: Destination) -> Result<(), Error> {
        self.listen_for_bring_up()?;
        let engine = self.pd().engine();
        let to = Destination {
            local: to.local.to_canonical(),
            peer: to.peer.to_canonical(),
            ..to
        };
        {
            let mut inner = self.lock();
            inner.machine.bring_to(QpState::Rtr)?;
            inner.set_supplier(Exchange::begin(self, to));
        }
        if self.is_itself(&to) {
            return self.connect_to_itself(to.local);
        }
        judge_pending(self, engine);
        Ok(())
    }

    /// To RTS, or new values in RTS. `timeout` is how long a send waits for the other end before
    /// it fails; `None` is for ever.
    ///
    /// # Errors
    /// The queue pair was not brought to RTR by [`Qp::ready_to_receive`].
    pub fn ready_to_send(
        self: &Arc<Self>,
        sq_psn: Option<u32>,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let engine = self.pd().engine();
        let exchange = {
            let mut inner = self.lock();
            inner.machine.bring_to(QpState::Rts)?;
            let exchange = exchange_of(&inner).ok_or(Error::State("a queue pair in RTR"))?;
            if exchange.know_more(sq_psn, timeout, inner.is_connected()) {
                crate::warn!(
                    "qp {}: the peer expects another packet sequence number than the program gives: dropped",
                    self.number()
                );
                self.drop_stream(&mut inner, engine);
            }
            exchange
        };
        judge_pending(self, engine);
        exchange.connect_if_due();
        Ok(())
    }
}

impl Exchange {
    fn begin(qp: &Arc<Qp>, to: Destination) -> Arc<Exchange> {
        let engine = qp.pd().engine().clone();
        let connects_at = is_active(qp.number(), &to).then(|| engine.now() + RTS_DELAY_MAX);
        let exchange = Arc::new_cyclic(|me| Exchange {
            me: me.clone(),
            qp: Arc::downgrade(qp),
            own: qp.number(),
            token: OnceLock::new(),
            state: Mutex::new(State {
                to,
                psns: SequenceNumbers {
                    rq_psn: to.rq_psn,
                    sq_psn: None,
                },
                attempt: connects_at.map_or(Attempt::Theirs, Attempt::At),
                early: None,
                accepting: false,
                again_after: RETRY_DELAY_MIN,
                claimed: None,
                timeout: None,
                waiting_since: None,
            }),
            engine,
        });
        let token = exchange.engine.progress.reserve(exchange.clone());
        let _ = exchange.token.set(token);
        if let Some(at) = connects_at {
            exchange.call_at(at);
        }
        exchange
    }

    /// The program goes to RTS. True where the peer that is connected is not the one it names.
    fn know_more(&self, sq_psn: Option<u32>, timeout: Option<Duration>, connected: bool) -> bool {
        let mut state = self.state.lock();
        state.timeout = timeout;
        state.psns.sq_psn = sq_psn.or(state.psns.sq_psn);
        let mistaken = match (state.claimed, state.psns.sq_psn) {
            (Some(claimed), Some(own)) => claimed != own,
            _ => false,
        };
        if mistaken {
            self.retry_later(&mut state);
        } else if !connected {
            self.connect_with_more(&mut state);
        }
        mistaken
    }

    /// The one that spoke so becomes the peer of the queue pair, which is locked.
    fn set_peer(&self, role: Role, peer: &Peer) -> Result<(), Error> {
        self.state.lock().set_peer(self.own, role, peer)
    }

    fn call_at(&self, at: Duration) {
        if let Some(token) = self.token.get() {
            self.engine.progress.add_timer(at, *token);
        }
    }

    /// Sends wait for a stream, as long as the program's timeouts say.
    fn note_waiting(&self, state: &mut State) {
        let Some(timeout) = state.timeout else {
            return;
        };
        if state.waiting_since.is_none() {
            let now = self.engine.now();
            state.waiting_since = Some(now);
            self.call_at(now + timeout);
        }
    }

    /// The sends that wait have waited for too long.
    fn has_given_up(&self) -> bool {
        let state = self.state.lock();
        let waiting = state.waiting_since.zip(state.timeout);
        waiting.is_some_and(|(since, timeout)| since + timeout <= self.engine.now())
    }
}

impl Member for Exchange {
    /// It has no descriptor.
    fn serve(&self, _writable: bool) -> Served {
        Served::Setup
    }

    fn on_timer(&self) {
        let Some(qp) = self.qp.upgrade() else {
            return;
        };
        if qp.is_connected() {
            return;
        }
        if !self.has_given_up() {
            if let Some(me) = self.me.upgrade() {
                me.connect_if_due();
            }
            return;
        }
        crate::info!("qp {}: the peer does not answer", self.own);
        qp.give_up_peer();
    }
}

impl Supplier for Exchange {
    fn on_sends_waiting(&self) {
        self.note_waiting(&mut self.state.lock());
    }

    fn on_stream_ended(&self) {
        let Some(qp) = self.qp.upgrade() else {
            return;
        };
        {
            let inner = qp.lock();
            if !inner.is_connected() && inner.machine.has_sends_outstanding() {
                self.note_waiting(&mut self.state.lock());
            }
        }
        // Its peer may have connected again before the end of the stream was seen.
        judge_pending(&qp, &self.engine);
    }

    fn end(&self) {
        if let Some(token) = self.token.get() {
            self.engine.progress.release(*token);
        }
        let (made, early) = {
            let mut state = self.state.lock();
            let attempt = std::mem::replace(&mut state.attempt, Attempt::Theirs);
            (attempt.into_made(), state.early.take())
        };
        for id in made.into_iter().chain(early) {
            id.detach_qp();
            id.destroy();
        }
    }
}

impl Attempt {
    fn into_made(self) -> Option<Arc<Id>> {
        match self {
            Attempt::Made { id, .. } => Some(id),
            Attempt::At(_) | Attempt::Theirs => None,
        }
    }
}
