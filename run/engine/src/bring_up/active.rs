//! The active side: the end that connects.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_verbs::iwarp::Role;
use weft_verbs::types::MAX_RD_ATOMIC;

use super::message::{Message, Proof};
use super::{Attempt, Destination, Exchange, Peer, State, RETRY_DELAY_MAX};
use crate::cm::{ConnParam, Handler, Id};
use crate::numbers::port_of;
use crate::qp::Admission;

impl State {
    /// What this end has said on a connection that may be answered.
    fn said_by(&self, id: &Id) -> Option<Proof> {
        match &self.attempt {
            Attempt::Made { id: made, said } if is(made, id) => Some(*said),
            // It was made before this end knew more.
            _ if self.early.as_ref().is_some_and(|early| is(early, id)) => {
                Some(Proof::Expects(self.psns.rq_psn))
            }
            _ => None,
        }
    }
}

fn is(one: &Arc<Id>, id: &Id) -> bool {
    std::ptr::eq(Arc::as_ptr(one), id)
}

impl Exchange {
    /// At RTS this end can prove who it is to a peer that stays in RTR. A connect attempt that was made before that
    /// said less. It may be answered at this moment, so it is left alone and another one made.
    pub(super) fn connect_with_more(&self, state: &mut State) {
        match &state.attempt {
            Attempt::Made {
                id,
                said: Proof::Expects(_),
            } => state.early = Some(id.clone()),
            Attempt::At(_) => {}
            Attempt::Made { .. } | Attempt::Theirs => return,
        }
        state.attempt = Attempt::At(self.engine.now());
    }

    /// Connects again later: the attempt is over, or the stream that came of it.
    pub(super) fn retry_later(&self, state: &mut State) {
        let at = self.engine.now() + state.again_after;
        state.again_after = (state.again_after * 2).min(RETRY_DELAY_MAX);
        state.claimed = None;
        state.attempt = Attempt::At(at);
        self.call_at(at);
    }

    /// Who answered this end's connect attempt, if it is the right peer.
    fn peer_answered(
        &self,
        id: &Id,
        from: Option<SocketAddr>,
        private_data: &[u8],
    ) -> Result<Peer, &'static str> {
        let message =
            Message::parse(private_data).map_err(|_| "it is no bring-up of a queue pair")?;
        let state = self.state.lock();
        let said = state.said_by(id).ok_or("nobody waits for it any more")?;
        let peer = Peer {
            message,
            from: from.map(|from| from.ip().to_canonical()),
            said: Some(said),
        };
        state.check(self.own, &peer)?;
        Ok(peer)
    }

    /// Connects, where it is time to.
    pub(super) fn connect_if_due(self: &Arc<Self>) {
        let Some(qp) = self.qp.upgrade() else {
            return;
        };
        let due = {
            let inner = qp.lock();
            if inner.is_connected() || !inner.machine.takes_stream() {
                return;
            }
            self.begin_attempt(&mut self.state.lock())
        };
        let Some((id, to, message)) = due else {
            return;
        };
        let peer = SocketAddr::new(to.peer, port_of(to.peer_qp));
        let param = ConnParam {
            private_data: &message.encode(),
            responder_resources: MAX_RD_ATOMIC.min(255) as u8,
            initiator_depth: MAX_RD_ATOMIC.min(255) as u8,
        };
        let connected = id
            .attach_qp(&qp)
            .and_then(|()| id.resolve_addr(Some(SocketAddr::new(to.local, 0)), peer, None))
            .and_then(|()| id.connect(param));
        if let Err(error) = connected {
            crate::info!("qp {}: {peer} cannot be connected to: {error}", self.own);
            self.on_over(&id);
        }
    }

    fn begin_attempt(
        self: &Arc<Self>,
        state: &mut State,
    ) -> Option<(Arc<Id>, Destination, Message)> {
        match state.attempt {
            Attempt::At(at) if at <= self.engine.now() => {}
            _ => return None,
        }
        let id = Id::for_handler(&self.engine, self.clone());
        let said = state.psns.first();
        state.attempt = Attempt::Made {
            id: id.clone(),
            said,
        };
        let message = Message {
            to: state.to.peer_qp,
            from: self.own,
            proof: said,
        };
        Some((id, state.to, message))
    }
}

impl Handler for Exchange {
    fn on_reply(
        &self,
        id: &Id,
        from: Option<SocketAddr>,
        private_data: &[u8],
    ) -> Option<Admission> {
        match self.peer_answered(id, from, private_data) {
            Ok(peer) => {
                let asked = self.me.upgrade()?;
                Some(Box::new(move |role: Role| asked.set_peer(role, &peer)))
            }
            Err(why) => {
                crate::warn_of_peer!(
                    "qp {}: the answer to the bring-up is wrong: {why}",
                    self.own
                );
                None
            }
        }
    }

    /// An attempt has come through: another one that waits for an answer has none to expect.
    fn on_established(&self, through: &Arc<Id>) {
        let other = {
            let mut state = self.state.lock();
            let said = Proof::Expects(state.psns.rq_psn);
            match state.early.take() {
                Some(id) if Arc::ptr_eq(&id, through) => {
                    std::mem::replace(&mut state.attempt, Attempt::Made { id, said }).into_made()
                }
                early => early,
            }
        };
        if let Some(other) = other {
            other.detach_qp();
            other.destroy();
        }
    }

    /// This end's attempt failed, or the stream that came of one is over.
    fn on_over(&self, id: &Id) {
        let Some(qp) = self.qp.upgrade() else {
            return;
        };
        let inner = qp.lock();
        let mut state = self.state.lock();
        if state.early.as_ref().is_some_and(|early| is(early, id)) {
            state.early = None;
        } else if matches!(&state.attempt, Attempt::Made { id: made, .. } if is(made, id)) {
            self.retry_later(&mut state);
        }
        if !inner.is_connected() && inner.machine.has_sends_outstanding() {
            self.note_waiting(&mut state);
        }
    }
}
