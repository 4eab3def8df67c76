//! The end that is connected to: who is taken, and that all others hear nothing.

use std::net::IpAddr;
use std::sync::Arc;

use weft_verbs::iwarp::{PeerRequest, Role};
use weft_verbs::types::{QpState, MAX_RD_ATOMIC};

use super::message::{Message, NotAMessage};
use super::pending::{Attempt, Ticket};
use super::ports::Ports;
use super::sequence_numbers::Shown;
use super::{exchange_of, Exchange, Peer};
use crate::cm::{ConnParam, Handler, Id};
use crate::engine::Engine;
use crate::numbers::port_of;
use crate::qp::Qp;

/// What becomes of a connection.
enum Verdict {
    /// It is the peer; this is what it is told.
    Accept(Arc<Exchange>, Message),
    /// It may be, or is and comes too early or too late.
    Wait,
    /// A stranger, or somebody in the wrong.
    Wrong(&'static str),
}

/// Takes the connections at the ports of this process.
#[derive(Debug)]
pub(super) struct PassiveSide;

impl Handler for PassiveSide {
    /// Somebody connected to a port of this process. What he hears does not depend on the number he named, but where it
    /// is his.
    fn on_request(&self, id: &Arc<Id>, request: &PeerRequest) {
        let engine = id.engine();
        let ends = id.peer_addr().zip(id.local_addr());
        let Some((from, local)) = ends else {
            return id.destroy();
        };
        let from = from.ip().to_canonical();
        let message = match Message::parse(&request.private_data) {
            Ok(message) if port_of(message.to) == local.port() => message,
            Ok(_) => return refuse(id, from, "it names another port"),
            Err(NotAMessage::Version(1)) => {
                let why = "it speaks as an earlier version of Weft does: both ends need the same";
                return refuse(id, from, why);
            }
            Err(_) => return refuse(id, from, "it is no bring-up of a queue pair"),
        };
        let ports: Arc<Ports> = engine.part();
        let Some(entered) = ports.wait(id, message, from, engine) else {
            return refuse(id, from, "nobody listens any more");
        };
        if let Some(oldest) = entered.crowded_out {
            crate::info!(
                "bring-up from {from}: one that waited is closed, to make room for others"
            );
            oldest.destroy();
        }
        let wrong = |why| wrong(engine, &message, entered.ticket, from, why);
        match Qp::by_number(engine, message.to) {
            Some(qp) => {
                if let Some(attempt) = ports.attempt(message.to, entered.ticket) {
                    judge(&qp, attempt, engine);
                }
            }
            // It may have been the peer of a queue pair that has gone.
            None if engine.numbers.was_given(message.to) => {}
            None => wrong("there is no such queue pair"),
        }
        if entered.is_one_too_many {
            wrong("it connects too often");
        }
    }
}

/// Refuses somebody who does not even speak as a peer does.
fn refuse(id: &Arc<Id>, from: IpAddr, why: &str) {
    crate::warn_of_peer!("bring-up from {from} refused: {why}");
    let _ = id.reject(&[]);
    id.destroy();
}

/// Counts who is wrong, and leaves him without an answer.
fn wrong(engine: &Engine, message: &Message, ticket: Ticket, from: IpAddr, why: &str) {
    if engine.part::<Ports>().is_wrong(message.to, ticket) {
        crate::warn_of_peer!("bring-up from {from} is not answered: {why}");
        engine.refusals.note_wrong_bring_up(from);
    }
}

/// Looks at all that wait for a queue pair: it knows more than before, or its peer has gone.
pub(super) fn judge_pending(qp: &Arc<Qp>, engine: &Engine) {
    for attempt in engine.part::<Ports>().attempts(qp.number()) {
        judge(qp, attempt, engine);
    }
}

fn judge(qp: &Arc<Qp>, attempt: Attempt<Arc<Id>>, engine: &Engine) {
    let peer = Peer {
        message: attempt.message,
        from: Some(attempt.from),
        said: None,
    };
    match verdict(qp, &peer) {
        Verdict::Wait => {}
        Verdict::Wrong(why) => wrong(engine, &attempt.message, attempt.ticket, attempt.from, why),
        Verdict::Accept(exchange, reply) => {
            let ports: Arc<Ports> = engine.part();
            if ports.stop_waiting(qp.number(), attempt.ticket) {
                accept(qp, &exchange, &attempt.what, peer, &reply);
            }
            exchange.state.lock().accepting = false;
            // Others were told to wait meanwhile, and this one may have come to nothing.
            judge_pending(qp, engine);
        }
    }
}

fn verdict(qp: &Qp, peer: &Peer) -> Verdict {
    let inner = qp.lock();
    let Some(exchange) = exchange_of(&inner) else {
        return match inner.machine.state() {
            QpState::Reset | QpState::Init => Verdict::Wait,
            _ => Verdict::Wrong("its program does not wait for anybody"),
        };
    };
    let mut state = exchange.state.lock();
    match state.check(qp.number(), peer) {
        Err(why) => Verdict::Wrong(why),
        Ok(Shown::NothingYet) => Verdict::Wait,
        Ok(Shown::Peer) if !inner.machine.takes_stream() => Verdict::Wait,
        // The peer may have made two attempts, and only one may be answered: it takes the one whose Reply comes first.
        Ok(Shown::Peer) if std::mem::replace(&mut state.accepting, true) => Verdict::Wait,
        Ok(Shown::Peer) => {
            let reply = Message {
                to: peer.message.from,
                from: qp.number(),
                proof: state.psns.answer(peer.message.proof),
            };
            drop(state);
            Verdict::Accept(exchange, reply)
        }
    }
}

fn accept(qp: &Arc<Qp>, exchange: &Arc<Exchange>, id: &Arc<Id>, peer: Peer, reply: &Message) {
    let param = ConnParam {
        private_data: &reply.encode(),
        responder_resources: MAX_RD_ATOMIC.min(255) as u8,
        initiator_depth: MAX_RD_ATOMIC.min(255) as u8,
    };
    let asked = exchange.clone();
    let admission = move |role: Role| asked.set_peer(role, &peer);
    let outcome = id
        .attach_qp(qp)
        .and_then(|()| id.accept_for(param, exchange.clone(), Box::new(admission)));
    if let Err(error) = outcome {
        crate::info!("qp {}: bring-up: {error}", qp.number());
        id.detach_qp();
        id.destroy();
    }
}
