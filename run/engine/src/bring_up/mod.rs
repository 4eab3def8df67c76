//! Bringing a queue pair up from a GID and a queue pair number (decision 0007).
//!
//! A program without a connection manager tells each end the other's GID and number, and walks its
//! queue pair INIT, RTR, RTS. The GID is an address of the machine and the number says at which
//! TCP port of it the process listens ([`numbers`]), so that one end can dial: the one whose GID and
//! number are the lower. It dials when its program goes to RTR and tries again until the other is
//! there; a dial that comes before the other end's RTR waits there. Request and Reply say in their
//! private data who speaks to whom ([`hello`]). Everything behind that is iWARP as ever.

mod hello;
mod itself;
mod numbers;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use weft_verbs::iwarp::PeerRequest;
use weft_verbs::qp::Qp as QpMachine;
use weft_verbs::types::{QpState, MAX_RD_ATOMIC};

use crate::cm::{ConnParam, Id};
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::progress::Token;
use crate::qp::{Inner, Qp};

pub(crate) use hello::Hello;
pub(crate) use numbers::{port_of, Numbers};

/// The first wait before dialing again; each further one is twice as long.
const REDIAL: Duration = Duration::from_millis(1);
/// The longest wait before dialing again.
const REDIAL_MOST: Duration = Duration::from_secs(1);
/// Dials that may wait for a queue pair whose program is not at RTR yet.
const PARKED: usize = 4;

/// The other end of a queue pair that is brought up by hand.
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

/// The bring-up of one queue pair, from RTR on.
#[derive(Debug)]
pub(crate) struct ByHand {
    to: Destination,
    /// For its timers.
    token: Token,
    dial: Dial,
    again_after: Duration,
    /// What this end starts with, once its program has said.
    sq_psn: Option<u32>,
    /// What the attached peer expects this end to start with.
    expected: Option<u32>,
    /// How long a send waits for an answer; `None` is for ever.
    patience: Option<Duration>,
    /// Sends wait for a stream since then.
    waiting_since: Option<Duration>,
}

#[derive(Debug)]
enum Dial {
    /// The other end dials.
    Theirs,
    /// Due at this time.
    At(Duration),
    /// Under way, or connected.
    Made(Arc<Id>),
}

/// A dial that came before the program was at RTR.
#[derive(Debug)]
pub(crate) struct Parked {
    id: Arc<Id>,
    hello: Hello,
    from: Option<IpAddr>,
}

/// What becomes of a dial.
enum Answer {
    Accept(Hello),
    Park,
    /// A stranger, or somebody in the wrong.
    Refuse(&'static str),
    /// The peer, too late.
    TurnAway(&'static str),
}

impl ByHand {
    /// Whether an end that speaks so, from that address, is the one the program named.
    fn check(&self, own: u32, hello: &Hello, from: Option<IpAddr>) -> Result<(), &'static str> {
        if hello.to != own {
            return Err("it is for another queue pair");
        }
        if hello.from != self.to.peer_qp {
            return Err("the program named another queue pair");
        }
        if from != Some(self.to.peer) {
            return Err("it comes from an address that is not behind the peer's GID");
        }
        if self.sq_psn.is_some_and(|own| own != hello.expects) {
            return Err("it expects another packet sequence number");
        }
        Ok(())
    }

    /// The one that spoke so becomes the peer. What its dial was checked against may have changed since: the program
    /// says what this end starts with when it likes.
    pub(crate) fn meet(&mut self, hello: &Hello) -> Result<(), Error> {
        if self.sq_psn.is_some_and(|own| own != hello.expects) {
            return Err(Error::State(
                "a peer that expects this end's packet sequence number",
            ));
        }
        self.expected = Some(hello.expects);
        self.waiting_since = None;
        self.again_after = REDIAL;
        Ok(())
    }

    fn hello(&self, own: u32) -> Hello {
        Hello {
            to: self.to.peer_qp,
            from: own,
            expects: self.to.rq_psn,
        }
    }
}

/// IPv4-mapped addresses are IPv4's.
pub(crate) fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The end that dials is the lower one; both come to the same answer.
fn dials(own: u32, to: &Destination) -> bool {
    let place = |address: IpAddr, number: u32| (address.is_ipv6(), address, number);
    place(to.local, own) < place(to.peer, to.peer_qp)
}

/// Somebody dialed a port of this process.
pub(crate) fn dialed(engine: &Engine, id: &Arc<Id>, request: &PeerRequest) {
    let from = id.peer_addr().map(|a| plain(a.ip()));
    let Some(hello) = Hello::parse(&request.private_data) else {
        return refuse(id, from, "it is no bring-up of a queue pair");
    };
    match engine.qp_by_number(hello.to) {
        Some(qp) => qp.answer(Parked {
            id: id.clone(),
            hello,
            from,
        }),
        // The end that dials does so again when its stream ends, which is how it hears that the other has gone.
        None if engine.numbers.was_given(hello.to) => turn_away(id, from, "the queue pair is gone"),
        None => refuse(id, from, "there is no such queue pair"),
    }
}

/// Refuses somebody who should not have come.
fn refuse(id: &Arc<Id>, from: Option<IpAddr>, why: &str) {
    crate::warn_of_peer!("bring-up from {} refused: {why}", name_of(from));
    reject(id);
}

/// Refuses somebody who comes too late: nothing is wrong with that.
fn turn_away(id: &Arc<Id>, from: Option<IpAddr>, why: &str) {
    crate::info!("bring-up from {} refused: {why}", name_of(from));
    reject(id);
}

fn name_of(from: Option<IpAddr>) -> String {
    from.map_or_else(|| "somebody".to_owned(), |a| a.to_string())
}

fn reject(id: &Arc<Id>) {
    let _ = id.reject(&[]);
    id.destroy();
}

impl Qp {
    /// The program may bring the queue pair up by hand: peers find the process from now on.
    ///
    /// # Errors
    /// The kernel refuses to listen.
    pub fn listen_for_bring_up(&self) -> Result<(), Error> {
        self.pd().engine().numbers.listen()
    }

    /// Whether the program brings the queue pair up by hand.
    pub fn is_by_hand(&self) -> bool {
        self.inner.lock().machine.is_by_hand()
    }

    /// To RTR: the other end is known, and is dialed or awaited.
    ///
    /// # Errors
    /// The queue pair is not in INIT.
    pub fn ready_to_receive(self: &Arc<Self>, to: Destination) -> Result<(), Error> {
        let engine = self.pd().engine().clone();
        engine.numbers.listen()?;
        let to = Destination {
            local: plain(to.local),
            peer: plain(to.peer),
            ..to
        };
        let parked = {
            let mut inner = self.inner.lock();
            inner.machine.walk(QpState::Rtr)?;
            let ours = dials(self.number(), &to);
            let token = engine.progress.reserve(Endpoint::Stream(self.clone()));
            inner.by_hand = Some(Box::new(ByHand {
                to,
                token,
                dial: if ours {
                    Dial::At(Duration::ZERO)
                } else {
                    Dial::Theirs
                },
                again_after: REDIAL,
                sq_psn: None,
                expected: None,
                patience: None,
                waiting_since: None,
            }));
            std::mem::take(&mut inner.parked)
        };
        if self.is_itself(&to) {
            return self.connect_to_itself(to.local, &engine);
        }
        for dial in parked {
            self.answer(dial);
        }
        self.dial_if_due(&engine);
        Ok(())
    }

    /// To RTS, or new values in RTS. `patience` is how long a send waits for the other end before
    /// it fails; `None` is for ever.
    ///
    /// # Errors
    /// The queue pair was not brought to RTR by [`Qp::ready_to_receive`].
    pub fn ready_to_send(
        self: &Arc<Self>,
        sq_psn: Option<u32>,
        patience: Option<Duration>,
    ) -> Result<(), Error> {
        let engine = self.pd().engine().clone();
        let mut inner = self.inner.lock();
        inner.machine.walk(QpState::Rts)?;
        let Some(by_hand) = &mut inner.by_hand else {
            return Err(Error::State("a queue pair in RTR"));
        };
        by_hand.patience = patience;
        by_hand.sq_psn = sq_psn.or(by_hand.sq_psn);
        let impostor = match (by_hand.expected, by_hand.sq_psn) {
            (Some(expected), Some(own)) => expected != own,
            _ => false,
        };
        if impostor {
            crate::warn!(
                "qp {}: the peer that came expects another packet sequence number: dropped",
                self.number()
            );
            self.drop_stream(&mut inner, &engine);
        }
        drop(inner);
        self.dial_if_due(&engine);
        Ok(())
    }

    /// A dial reached this queue pair.
    fn answer(self: &Arc<Self>, dial: Parked) {
        let Parked { id, hello, from } = dial;
        let answer = {
            let mut inner = self.inner.lock();
            let answer = self.judge(&inner, &hello, from);
            if matches!(answer, Answer::Park) {
                inner.parked.push(Parked {
                    id: id.clone(),
                    hello,
                    from,
                });
            }
            answer
        };
        match answer {
            Answer::Park => {}
            Answer::Refuse(why) => refuse(&id, from, why),
            Answer::TurnAway(why) => turn_away(&id, from, why),
            Answer::Accept(reply) => {
                let param = ConnParam {
                    private_data: &reply.encode(),
                    responder_resources: MAX_RD_ATOMIC.min(255) as u8,
                    initiator_depth: MAX_RD_ATOMIC.min(255) as u8,
                };
                let outcome = id
                    .attach_qp(self)
                    .and_then(|()| id.accept_dial(param, &hello));
                if let Err(error) = outcome {
                    crate::info!("qp {}: bring-up: {error}", self.number());
                }
            }
        }
    }

    fn judge(&self, inner: &Inner, hello: &Hello, from: Option<IpAddr>) -> Answer {
        let state = inner.machine.state();
        let Some(by_hand) = &inner.by_hand else {
            let early = matches!(state, QpState::Reset | QpState::Init);
            return if early && inner.parked.len() < PARKED {
                Answer::Park
            } else {
                Answer::Refuse("its program does not wait for anybody")
            };
        };
        if let Err(why) = by_hand.check(self.number(), hello, from) {
            return Answer::Refuse(why);
        }
        if !inner.machine.takes_stream() {
            return match state {
                QpState::Error => Answer::TurnAway("the queue pair has failed"),
                _ => Answer::Refuse("the queue pair has its peer already"),
            };
        }
        Answer::Accept(by_hand.hello(self.number()))
    }

    /// The Reply to this end's dial: what it says, if it is the right peer's.
    pub(crate) fn peer_answered(
        &self,
        private_data: &[u8],
        from: Option<SocketAddr>,
    ) -> Option<Hello> {
        let hello = Hello::parse(private_data)?;
        let from = from.map(|a| plain(a.ip()));
        let right = match &self.inner.lock().by_hand {
            Some(by_hand) => by_hand.check(self.number(), &hello, from),
            None => Err("nobody waits for it any more"),
        };
        if let Err(why) = right {
            crate::warn!(
                "qp {}: the answer to the bring-up is wrong: {why}",
                self.number()
            );
        }
        right.is_ok().then_some(hello)
    }

    /// This end's dial failed, or the stream that came of it is over: it is tried again later.
    /// Called under the id's lock: takes no other.
    pub(crate) fn dial_over(&self, engine: &Engine) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(by_hand) = &mut inner.by_hand else {
            return;
        };
        by_hand.expected = None;
        if matches!(by_hand.dial, Dial::Made(_)) {
            let at = engine.now() + by_hand.again_after;
            by_hand.again_after = (by_hand.again_after * 2).min(REDIAL_MOST);
            by_hand.dial = Dial::At(at);
            engine.progress.add_timer(at, by_hand.token);
        }
        note_waiting(&inner.machine, by_hand, engine);
    }

    fn dial_if_due(self: &Arc<Self>, engine: &Arc<Engine>) {
        let due = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let waits = inner.stream.is_none() && inner.machine.takes_stream();
            match &mut inner.by_hand {
                Some(by_hand) if waits => match by_hand.dial {
                    Dial::At(at) if at <= engine.now() => {
                        let id = Id::for_bring_up(engine);
                        by_hand.dial = Dial::Made(id.clone());
                        Some((id, by_hand.to, by_hand.hello(self.number())))
                    }
                    _ => None,
                },
                _ => None,
            }
        };
        let Some((id, to, hello)) = due else {
            return;
        };
        let peer = SocketAddr::new(to.peer, port_of(to.peer_qp));
        let param = ConnParam {
            private_data: &hello.encode(),
            responder_resources: MAX_RD_ATOMIC.min(255) as u8,
            initiator_depth: MAX_RD_ATOMIC.min(255) as u8,
        };
        let dialed = id
            .attach_qp(self)
            .and_then(|()| id.resolve_addr(Some(SocketAddr::new(to.local, 0)), peer, None))
            .and_then(|()| id.connect(param));
        if let Err(error) = dialed {
            crate::info!("qp {}: {peer} cannot be dialed: {error}", self.number());
            self.dial_over(engine);
        }
    }

    /// Sends that find no stream wait for one, as long as the program's timeouts say.
    pub(crate) fn note_waiting(inner: &mut Inner, engine: &Engine) {
        if let (None, Some(by_hand)) = (&inner.stream, &mut inner.by_hand) {
            note_waiting(&inner.machine, by_hand, engine);
        }
    }

    /// A timer of the bring-up.
    pub(crate) fn on_bring_up_timer(self: &Arc<Self>, engine: &Engine) {
        let guard = self.inner.lock();
        let Some(by_hand) = guard.by_hand.as_ref().filter(|_| guard.stream.is_none()) else {
            return;
        };
        let given_up = by_hand
            .waiting_since
            .zip(by_hand.patience)
            .is_some_and(|(since, patience)| since + patience <= engine.now());
        drop(guard);
        if given_up {
            crate::info!("qp {}: the peer does not answer", self.number());
            self.with_pass(engine, |machine, stream, pass| {
                if stream.is_none() {
                    machine.peer_unreachable(pass);
                }
            });
            return;
        }
        let engine = self.pd().engine().clone();
        self.dial_if_due(&engine);
    }

    /// Forgets the bring-up: for a queue pair that is reset or destroyed.
    pub(crate) fn end_bring_up(&self, engine: &Engine) {
        let (by_hand, parked) = {
            let mut inner = self.inner.lock();
            (inner.by_hand.take(), std::mem::take(&mut inner.parked))
        };
        for dial in parked {
            dial.id.destroy();
        }
        if let Some(by_hand) = by_hand {
            engine.progress.release(by_hand.token);
            if let Dial::Made(id) = by_hand.dial {
                id.detach_qp();
                id.destroy();
            }
        }
    }
}

fn note_waiting(machine: &QpMachine, by_hand: &mut ByHand, engine: &Engine) {
    let (true, Some(patience)) = (machine.has_sends_outstanding(), by_hand.patience) else {
        return;
    };
    if by_hand.waiting_since.is_none() {
        let now = engine.now();
        by_hand.waiting_since = Some(now);
        engine.progress.add_timer(now + patience, by_hand.token);
    }
}
