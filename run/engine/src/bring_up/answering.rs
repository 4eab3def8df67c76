//! The end that is dialed: who is taken, and that all others hear nothing.

use std::net::IpAddr;
use std::sync::Arc;

use weft_verbs::iwarp::PeerRequest;
use weft_verbs::types::{QpState, MAX_RD_ATOMIC};

use super::hello::{Hello, NoHello};
use super::room::{Dial, Ticket};
use super::words::Shown;
use super::{plain, port_of, Peer};
use crate::cm::{ConnParam, Id};
use crate::engine::Engine;
use crate::qp::{Inner, Qp};

/// What becomes of a dial.
enum Verdict {
    /// It is the peer; this is what it is told.
    Accept(Hello),
    /// It may be, or is and comes too early or too late.
    Wait,
    /// A stranger, or somebody in the wrong.
    Wrong(&'static str),
}

/// Somebody dialed a port of this process. What he hears does not depend on the number he named, but where it is his.
pub(crate) fn dialed(engine: &Arc<Engine>, id: &Arc<Id>, request: &PeerRequest) {
    let ends = id.peer_addr().zip(id.local_addr());
    let Some((from, local)) = ends else {
        return id.destroy();
    };
    let from = plain(from.ip());
    let hello = match Hello::parse(&request.private_data) {
        Ok(hello) if port_of(hello.to) == local.port() => hello,
        Ok(_) => return refuse(id, from, "it names another port"),
        Err(NoHello::Version(1)) => {
            let why = "it speaks as an earlier version of Weft does: both ends need the same";
            return refuse(id, from, why);
        }
        Err(_) => return refuse(id, from, "it is no bring-up of a queue pair"),
    };
    let Some(entered) = engine.numbers.wait(id, hello, from, engine) else {
        return refuse(id, from, "nobody listens any more");
    };
    if let Some(oldest) = entered.crowded_out {
        crate::info!("bring-up from {from}: one that waited is closed, to make room for others");
        oldest.destroy();
    }
    let wrong = |why| wrong(engine, &hello, entered.ticket, from, why);
    match engine.qp_by_number(hello.to) {
        Some(qp) => qp.look_at_dial(entered.ticket, engine),
        // It may have been the peer of a queue pair that has gone.
        None if engine.numbers.was_given(hello.to) => {}
        None => wrong("there is no such queue pair"),
    }
    if entered.is_one_too_many {
        wrong("it dials too often");
    }
}

/// Closes a dial that waits, because a descriptor is needed; false when none waits.
pub(crate) fn crowd_out_one(engine: &Engine) -> bool {
    let first = engine.numbers.crowd_out_one();
    if let Some(first) = &first {
        first.destroy();
    }
    first.is_some()
}

/// Refuses somebody who does not even speak as a peer does.
fn refuse(id: &Arc<Id>, from: IpAddr, why: &str) {
    crate::warn_of_peer!("bring-up from {from} refused: {why}");
    let _ = id.reject(&[]);
    id.destroy();
}

/// Counts who is wrong, and leaves him without an answer.
fn wrong(engine: &Engine, hello: &Hello, ticket: Ticket, from: IpAddr, why: &str) {
    if engine.numbers.is_wrong(hello.to, ticket) {
        crate::warn_of_peer!("bring-up from {from} is not answered: {why}");
        engine.note_wrong_dial(from);
    }
}

impl Qp {
    /// Looks at a dial for this queue pair that has just come.
    fn look_at_dial(self: &Arc<Self>, ticket: Ticket, engine: &Engine) {
        if let Some(dial) = engine.numbers.dial(self.number(), ticket) {
            self.judge(dial, engine);
        }
    }

    /// Looks at all that wait: the queue pair knows more than before, or its peer has gone.
    pub(crate) fn look_at_dials(self: &Arc<Self>, engine: &Engine) {
        for dial in engine.numbers.dials(self.number()) {
            self.judge(dial, engine);
        }
    }

    fn judge(self: &Arc<Self>, dial: Dial<Arc<Id>>, engine: &Engine) {
        let peer = Peer {
            hello: dial.hello,
            from: Some(dial.from),
            said: None,
        };
        let verdict = self.verdict(&mut self.inner.lock(), &peer);
        match verdict {
            Verdict::Wait => {}
            Verdict::Wrong(why) => wrong(engine, &dial.hello, dial.ticket, dial.from, why),
            Verdict::Accept(reply) => {
                if engine.numbers.stop_waiting(self.number(), dial.ticket) {
                    self.accept(&dial.what, &peer, &reply);
                }
                if let Some(by_hand) = &mut self.inner.lock().by_hand {
                    by_hand.accepting = false;
                }
                // Others were told to wait meanwhile, and this one may have come to nothing.
                self.look_at_dials(engine);
            }
        }
    }

    fn verdict(&self, inner: &mut Inner, peer: &Peer) -> Verdict {
        let Some(by_hand) = &mut inner.by_hand else {
            return match inner.machine.state() {
                QpState::Reset | QpState::Init => Verdict::Wait,
                _ => Verdict::Wrong("its program does not wait for anybody"),
            };
        };
        match by_hand.check(self.number(), peer) {
            Err(why) => Verdict::Wrong(why),
            Ok(Shown::NothingYet) => Verdict::Wait,
            Ok(Shown::Peer) if !inner.machine.takes_stream() => Verdict::Wait,
            // The peer may have made two dials, and only one may be answered: it takes the one whose Reply comes first.
            Ok(Shown::Peer) if std::mem::replace(&mut by_hand.accepting, true) => Verdict::Wait,
            Ok(Shown::Peer) => Verdict::Accept(Hello {
                to: peer.hello.from,
                from: self.number(),
                word: by_hand.words.answer(peer.hello.word),
            }),
        }
    }

    fn accept(self: &Arc<Self>, id: &Arc<Id>, peer: &Peer, reply: &Hello) {
        let param = ConnParam {
            private_data: &reply.encode(),
            responder_resources: MAX_RD_ATOMIC.min(255) as u8,
            initiator_depth: MAX_RD_ATOMIC.min(255) as u8,
        };
        let outcome = id
            .attach_qp(self)
            .and_then(|()| id.accept_dial(param, peer));
        if let Err(error) = outcome {
            crate::info!("qp {}: bring-up: {error}", self.number());
            id.detach_qp();
            id.destroy();
        }
    }
}
