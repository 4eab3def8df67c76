//! The end that dials.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_verbs::types::MAX_RD_ATOMIC;

use super::hello::{Hello, Word};
use super::{note_waiting, plain, port_of, ByHand, Dial, Peer, REDIAL_MOST};
use crate::cm::{ConnParam, Id};
use crate::engine::Engine;
use crate::qp::Qp;

impl ByHand {
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

    /// At RTS this end can show who it is to a peer that stays in RTR. A dial that was made before that said less;
    /// it may be answered at this moment, so it is left alone and another one made.
    pub(super) fn dial_with_more(&mut self, engine: &Engine) {
        match &self.dial {
            Dial::Made {
                id,
                said: Word::Expects(_),
            } => self.early = Some(id.clone()),
            Dial::At(_) => {}
            Dial::Made { .. } | Dial::Theirs => return,
        }
        self.dial = Dial::At(engine.now());
    }

    /// The dial is over, or the stream that came of it: it is tried again later.
    pub(super) fn dial_later(&mut self, engine: &Engine) {
        let at = engine.now() + self.again_after;
        self.again_after = (self.again_after * 2).min(REDIAL_MOST);
        self.claimed = None;
        self.dial = Dial::At(at);
        engine.progress.add_timer(at, self.token);
    }
}

fn is(one: &Arc<Id>, id: &Id) -> bool {
    std::ptr::eq(Arc::as_ptr(one), id)
}

impl Qp {
    /// The Reply to this end's dial: who it is, if it is the right peer.
    pub(crate) fn peer_answered(
        &self,
        id: &Id,
        from: Option<SocketAddr>,
        private_data: &[u8],
    ) -> Option<Peer> {
        let from = from.map(|a| plain(a.ip()));
        let peer = Hello::parse(private_data)
            .map_err(|_| "it is no bring-up of a queue pair")
            .and_then(|hello| {
                let inner = self.inner.lock();
                let by_hand = inner.by_hand.as_ref();
                let known = by_hand.and_then(|by_hand| Some((by_hand, by_hand.said_by(id)?)));
                let (by_hand, said) = known.ok_or("nobody waits for it any more")?;
                let said = Some(said);
                let peer = Peer { hello, from, said };
                by_hand.check(self.number(), &peer).map(|_| peer)
            });
        if let Err(why) = peer {
            crate::warn_of_peer!(
                "qp {}: the answer to the bring-up is wrong: {why}",
                self.number()
            );
        }
        peer.ok()
    }

    /// This end's dial failed, or the stream that came of a dial is over. Called under the id's lock: takes no other
    /// id's.
    pub(crate) fn dial_over(&self, engine: &Engine, id: &Id) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(by_hand) = &mut inner.by_hand else {
            return;
        };
        if by_hand.early.as_ref().is_some_and(|early| is(early, id)) {
            by_hand.early = None;
        } else if matches!(&by_hand.dial, Dial::Made { id: made, .. } if is(made, id)) {
            by_hand.dial_later(engine);
        }
        note_waiting(&inner.machine, by_hand, engine);
    }

    /// That dial has come through: another one that waits for an answer has none to expect.
    pub(crate) fn end_other_dial(&self, through: &Arc<Id>) {
        let other = {
            let mut inner = self.inner.lock();
            let Some(by_hand) = &mut inner.by_hand else {
                return;
            };
            let said = Word::Expects(by_hand.words.rq_psn);
            match by_hand.early.take() {
                Some(id) if Arc::ptr_eq(&id, through) => {
                    match std::mem::replace(&mut by_hand.dial, Dial::Made { id, said }) {
                        Dial::Made { id, .. } => Some(id),
                        Dial::At(_) | Dial::Theirs => None,
                    }
                }
                early => early,
            }
        };
        if let Some(other) = other {
            other.detach_qp();
            other.destroy();
        }
    }

    pub(super) fn dial_if_due(self: &Arc<Self>, engine: &Arc<Engine>) {
        let due = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let waits = inner.stream.is_none() && inner.machine.takes_stream();
            match &mut inner.by_hand {
                Some(by_hand) if waits => match by_hand.dial {
                    Dial::At(at) if at <= engine.now() => {
                        let id = Id::for_bring_up(engine);
                        let said = by_hand.words.first();
                        by_hand.dial = Dial::Made {
                            id: id.clone(),
                            said,
                        };
                        let hello = Hello {
                            to: by_hand.to.peer_qp,
                            from: self.number(),
                            word: said,
                        };
                        Some((id, by_hand.to, hello))
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
            self.dial_over(engine, &id);
        }
    }
}
