//! Bringing a queue pair up from a GID and a queue pair number (decisions 0007 and 0012).
//!
//! A program without a connection manager tells each end the other's GID and number, and walks its queue pair INIT,
//! RTR, RTS. The GID is an address of the machine and the number says at which TCP port of it the process listens
//! ([`numbers`]), so that one end can dial: the one whose GID and number are the lower ([`dialing`]). It dials when
//! its program goes to RTS, or a little after RTR, and tries again until the other is there. The other end
//! ([`answering`]) lets every dial wait in silence ([`room`]) until it knows that it is the peer's ([`words`]).
//! Request and Reply say in their private data who speaks to whom ([`hello`]). Everything behind that is iWARP as
//! ever.

mod answering;
mod dialing;
mod hello;
mod itself;
mod numbers;
mod room;
mod words;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_verbs::iwarp::Role;
use weft_verbs::qp::Qp as QpMachine;
use weft_verbs::types::QpState;

use crate::cm::Id;
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::progress::Token;
use crate::qp::{Inner, Qp};

pub(crate) use answering::{crowd_out_one, dialed};
use hello::{Hello, Word};
pub(crate) use numbers::{port_of, Numbers};
use words::{Shown, Words};

/// How long an end at RTR waits for RTS before it dials: most programs are there at once, and an end in RTS can
/// show more.
const RTS_IS_NEAR: Duration = Duration::from_millis(1);
/// The first wait before dialing again; each further one is twice as long.
const REDIAL: Duration = Duration::from_millis(1);
/// The longest wait before dialing again.
const REDIAL_MOST: Duration = Duration::from_secs(1);

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
    words: Words,
    dial: Dial,
    /// A dial that was made before RTS and may still be answered, while another one is made.
    early: Option<Arc<Id>>,
    /// A dial of the peer's is being answered.
    accepting: bool,
    again_after: Duration,
    /// What the attached peer says that this end starts with, until that is known.
    claimed: Option<u32>,
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
    /// Under way, or connected. This end has said that much.
    Made { id: Arc<Id>, said: Word },
}

/// Somebody who spoke as the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    hello: Hello,
    from: Option<IpAddr>,
    /// What this end has said first, if it dialed.
    said: Option<Word>,
}

impl ByHand {
    /// Whether an end that speaks so, from that address, is the one the program named.
    fn check(&self, own: u32, peer: &Peer) -> Result<Shown, &'static str> {
        if peer.hello.to != own {
            return Err("it is for another queue pair");
        }
        if peer.hello.from != self.to.peer_qp {
            return Err("the program named another queue pair");
        }
        if peer.from != Some(self.to.peer) {
            return Err("it comes from an address that is not behind the peer's GID");
        }
        match peer.said {
            None => self.words.check(peer.hello.word),
            Some(said) => self.words.check_answer(said, peer.hello.word),
        }
    }

    /// The one that spoke so becomes the peer. What it was checked against may have changed since. The end that was
    /// dialed takes nobody who has not shown who it is; the end that dialed was answered by whoever holds the address
    /// and the port that its program named, and may have to wait for RTS to know more.
    pub(crate) fn meet(&mut self, own: u32, role: Role, peer: &Peer) -> Result<(), Error> {
        let shown = self.check(own, peer);
        self.claimed = match (shown, peer.hello.word) {
            (Ok(Shown::Peer), _) => None,
            (Ok(Shown::NothingYet), Word::Expects(psn)) if role == Role::Initiator => Some(psn),
            (Ok(Shown::NothingYet), _) if role == Role::Initiator => None,
            _ => return Err(Error::State("the peer that the program named")),
        };
        self.waiting_since = None;
        self.again_after = REDIAL;
        Ok(())
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
        {
            let mut inner = self.inner.lock();
            inner.machine.walk(QpState::Rtr)?;
            let token = engine.progress.reserve(Endpoint::Stream(self.clone()));
            let dial = if dials(self.number(), &to) {
                let at = engine.now() + RTS_IS_NEAR;
                engine.progress.add_timer(at, token);
                Dial::At(at)
            } else {
                Dial::Theirs
            };
            inner.by_hand = Some(Box::new(ByHand {
                to,
                token,
                words: Words {
                    rq_psn: to.rq_psn,
                    sq_psn: None,
                },
                dial,
                early: None,
                accepting: false,
                again_after: REDIAL,
                claimed: None,
                patience: None,
                waiting_since: None,
            }));
        }
        if self.is_itself(&to) {
            return self.connect_to_itself(to.local, &engine);
        }
        self.look_at_dials(&engine);
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
        {
            let mut inner = self.inner.lock();
            inner.machine.walk(QpState::Rts)?;
            let connected = inner.stream.is_some();
            let Some(by_hand) = &mut inner.by_hand else {
                return Err(Error::State("a queue pair in RTR"));
            };
            by_hand.patience = patience;
            by_hand.words.sq_psn = sq_psn.or(by_hand.words.sq_psn);
            let mistaken = match (by_hand.claimed, by_hand.words.sq_psn) {
                (Some(claimed), Some(own)) => claimed != own,
                _ => false,
            };
            if mistaken {
                by_hand.dial_later(&engine);
                crate::warn!(
                    "qp {}: the peer expects another packet sequence number than the program gives: dropped",
                    self.number()
                );
                self.drop_stream(&mut inner, &engine);
            } else if !connected {
                by_hand.dial_with_more(&engine);
            }
        }
        self.look_at_dials(&engine);
        self.dial_if_due(&engine);
        Ok(())
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
        let Some(by_hand) = self.inner.lock().by_hand.take() else {
            return;
        };
        engine.progress.release(by_hand.token);
        let made = match by_hand.dial {
            Dial::Made { id, .. } => Some(id),
            Dial::At(_) | Dial::Theirs => None,
        };
        for id in made.into_iter().chain(by_hand.early) {
            id.detach_qp();
            id.destroy();
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
