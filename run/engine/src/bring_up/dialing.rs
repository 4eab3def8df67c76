//! The end that dials.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_verbs::iwarp::Role;
use weft_verbs::types::MAX_RD_ATOMIC;

use super::hello::{Hello, Word};
use super::{Destination, Dial, Exchange, Peer, State, REDIAL_MOST};
use crate::cm::{Admission, ConnParam, Handler, Id};
use crate::numbers::port_of;

impl State {
    /// What this end has said by a dial that may be answered.
    fn said_by(&self, id: &Id) -> Option<Word> {
        match &self.dial {
            Dial::Made { id: made, said } if is(made, id) => Some(*said),
            // It was made before this end knew more.
            _ if self.early.as_ref().is_some_and(|early| is(early, id)) => {
                Some(Word::Expects(self.words.rq_psn))
            }
            _ => None,
        }
    }
}

fn is(one: &Arc<Id>, id: &Id) -> bool {
    std::ptr::eq(Arc::as_ptr(one), id)
}

impl Exchange {
    /// At RTS this end can show who it is to a peer that stays in RTR. A dial that was made before that said less;
    /// it may be answered at this moment, so it is left alone and another one made.
    pub(super) fn dial_with_more(&self, state: &mut State) {
        match &state.dial {
            Dial::Made {
                id,
                said: Word::Expects(_),
            } => state.early = Some(id.clone()),
            Dial::At(_) => {}
            Dial::Made { .. } | Dial::Theirs => return,
        }
        state.dial = Dial::At(self.engine.now());
    }

    /// The dial is over, or the stream that came of it: it is tried again later.
    pub(super) fn dial_later(&self, state: &mut State) {
        let at = self.engine.now() + state.again_after;
        state.again_after = (state.again_after * 2).min(REDIAL_MOST);
        state.claimed = None;
        state.dial = Dial::At(at);
        self.call_at(at);
    }

    /// Who answered this end's dial, if it is the right peer.
    fn peer_answered(
        &self,
        id: &Id,
        from: Option<SocketAddr>,
        private_data: &[u8],
    ) -> Result<Peer, &'static str> {
        let hello = Hello::parse(private_data).map_err(|_| "it is no bring-up of a queue pair")?;
        let state = self.state.lock();
        let said = state.said_by(id).ok_or("nobody waits for it any more")?;
        let peer = Peer {
            hello,
            from: from.map(|from| from.ip().to_canonical()),
            said: Some(said),
        };
        state.check(self.own, &peer)?;
        Ok(peer)
    }

    /// Dials, where it is time to.
    pub(super) fn dial_if_due(self: &Arc<Self>) {
        let Some(qp) = self.qp.upgrade() else {
            return;
        };
        let due = {
            let inner = qp.lock();
            if inner.is_connected() || !inner.machine.takes_stream() {
                return;
            }
            self.begin_dial(&mut self.state.lock())
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
            .attach_qp(&qp)
            .and_then(|()| id.resolve_addr(Some(SocketAddr::new(to.local, 0)), peer, None))
            .and_then(|()| id.connect(param));
        if let Err(error) = dialed {
            crate::info!("qp {}: {peer} cannot be dialed: {error}", self.own);
            self.on_over(&id);
        }
    }

    fn begin_dial(self: &Arc<Self>, state: &mut State) -> Option<(Arc<Id>, Destination, Hello)> {
        match state.dial {
            Dial::At(at) if at <= self.engine.now() => {}
            _ => return None,
        }
        let id = Id::for_handler(&self.engine, self.clone());
        let said = state.words.first();
        state.dial = Dial::Made {
            id: id.clone(),
            said,
        };
        let hello = Hello {
            to: state.to.peer_qp,
            from: self.own,
            word: said,
        };
        Some((id, state.to, hello))
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
                Some(Box::new(move |role: Role| asked.meet(role, &peer)))
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

    /// A dial has come through: another one that waits for an answer has none to expect.
    fn on_established(&self, through: &Arc<Id>) {
        let other = {
            let mut state = self.state.lock();
            let said = Word::Expects(state.words.rq_psn);
            match state.early.take() {
                Some(id) if Arc::ptr_eq(&id, through) => {
                    std::mem::replace(&mut state.dial, Dial::Made { id, said }).into_made()
                }
                early => early,
            }
        };
        if let Some(other) = other {
            other.detach_qp();
            other.destroy();
        }
    }

    /// This end's dial failed, or the stream that came of a dial is over.
    fn on_over(&self, id: &Id) {
        let Some(qp) = self.qp.upgrade() else {
            return;
        };
        let inner = qp.lock();
        let mut state = self.state.lock();
        if state.early.as_ref().is_some_and(|early| is(early, id)) {
            state.early = None;
        } else if matches!(&state.dial, Dial::Made { id: made, .. } if is(made, id)) {
            self.dial_later(&mut state);
        }
        if !inner.is_connected() && inner.machine.has_sends_outstanding() {
            self.note_waiting(&mut state);
        }
    }
}
