//! A connection whose address reached for memory it was not given too often waits here for its turn
//! (`crate::throttle`).
//!
//! It does so once its Request is there and before anybody is told of that. Until then it counts among the half-open
//! ones still, behind those that have said nothing.

use std::net::IpAddr;
use std::sync::Arc;

use super::id::{Id, Phase};
use super::newcomers::Places;
use crate::engine::Engine;
use crate::progress::Token;
use crate::throttle::{Admission, Standing, Ticket};

/// A connection's place in line and then its turn, which it leaves when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    engine: Arc<Engine>,
    address: IpAddr,
    ticket: Ticket,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Asked {
    /// Its address needs no turns.
    Free,
    InLine(Turn),
    Refused,
}

impl Turn {
    /// A connection from that address has sent its Request.
    pub(super) fn ask(engine: &Arc<Engine>, address: IpAddr, token: Token) -> Asked {
        match engine.refusals.ask_for_turn(address, token) {
            Admission::Free => Asked::Free,
            Admission::Never => Asked::Refused,
            Admission::InLine(ticket) => Asked::InLine(Turn {
                engine: engine.clone(),
                address,
                ticket,
            }),
        }
    }

    fn look(&self) -> Standing {
        let refusals = &self.engine.refusals;
        let (standing, other) = refusals.look_at_turn(self.address, self.ticket);
        self.wake(other);
        standing
    }

    /// It has its turn now.
    fn wake(&self, other: Option<Token>) {
        if let Some(other) = other {
            self.engine.progress.add_timer(self.engine.now(), other);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let refusals = &self.engine.refusals;
        let other = refusals.leave_turn(self.address, self.ticket);
        self.wake(other);
    }
}

impl Id {
    /// The Request is there. Whether it goes on at once.
    pub(super) fn may_go_on(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        let peer = inner.peer;
        let Phase::Starting {
            token,
            places: Some(places),
            ..
        } = &mut inner.phase
        else {
            return true;
        };
        let Some(peer) = peer else {
            return true;
        };
        match Turn::ask(&self.engine, peer.ip(), *token) {
            Asked::Free => {
                places.request_goes_on();
                true
            }
            Asked::InLine(turn) => {
                places.wait_in_line(turn);
                drop(inner);
                self.look_at_turn()
            }
            Asked::Refused => {
                drop(inner);
                self.turn_away();
                false
            }
        }
    }

    /// Whether the one in line has its turn now; what has waited for too long is over.
    fn look_at_turn(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        let Phase::Starting {
            token,
            places: Some(places),
            ..
        } = &mut inner.phase
        else {
            return false;
        };
        let Some(turn) = places.in_line() else {
            return false;
        };
        match turn.look() {
            Standing::Turn => {
                places.request_goes_on();
                true
            }
            Standing::Waits(until) => {
                self.engine.progress.add_timer(until, *token);
                false
            }
            Standing::Over => {
                drop(inner);
                self.turn_away();
                false
            }
        }
    }

    /// A timer of one that may be in line.
    pub(super) fn on_turn_timer(self: &Arc<Self>) {
        if self.look_at_turn() {
            self.go_on();
        }
    }

    fn turn_away(self: &Arc<Self>) {
        let peer = self.inner.lock().peer;
        if self.close_unanswered() {
            if let Some(peer) = peer {
                crate::info!("{peer}: refused, too many connections of its address wait already");
            }
        }
    }
}

impl Places {
    /// The turn of a connection that is in line.
    fn in_line(&self) -> Option<&Turn> {
        self.turn.as_ref().filter(|_| self.is_half_open())
    }
}
