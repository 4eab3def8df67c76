//! What connections take up until a program is told of them, and what gives it back.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::half_open::{HalfOpen, Number};
use super::id::Id;
use super::shortage::Shortage;
use super::turn::Turn;
use crate::engine::Engine;
use crate::progress::Token;
use crate::stats::Total;

/// Something besides the half-open connections that can give a descriptor back.
pub(crate) trait Shed: std::fmt::Debug + Send + Sync {
    /// Closes one connection; false where there is none to close.
    fn shed_one(&self) -> bool;
}

/// The process's connections that were accepted and of which no program was told.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    pub(super) half_open: Mutex<HalfOpen<Weak<Id>>>,
    /// Held while one connection is taken, from the look for room to the entry in `half_open`.
    pub(super) shortage: Mutex<Shortage>,
    shed: Mutex<Option<Arc<dyn Shed>>>,
}

impl Newcomers {
    /// Where descriptors are short and no half-open connection may go, this is asked.
    pub(crate) fn on_shortage(&self, shed: Arc<dyn Shed>) {
        *self.shed.lock() = Some(shed);
    }

    /// That listener is closed.
    pub(super) fn forget_listener(&self, token: Token) {
        self.shortage.lock().leave(token.number());
    }

    /// Closes one connection of another kind; false where there is none to close.
    pub(super) fn shed_one(&self) -> bool {
        let shed = self.shed.lock().clone();
        shed.is_some_and(|shed| shed.shed_one())
    }
}

/// Connections of one listener that were accepted, up to the answer to their request.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    count: AtomicUsize,
    /// Newcomers wait in the kernel's queue until one of these is over.
    holds_back: AtomicBool,
}

impl Waiting {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// From now on the listener's timer is set when one of these is over, or no longer.
    pub(super) fn set_holds_back(&self, holds_back: bool) {
        self.holds_back.store(holds_back, Ordering::SeqCst);
    }
}

/// What an accepted connection takes up; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Places {
    engine: Arc<Engine>,
    /// The listener's.
    token: Token,
    waiting: Arc<Waiting>,
    half_open: Option<HalfOpenPlace>,
    pub(super) turn: Option<Turn>,
}

#[derive(Debug)]
struct HalfOpenPlace {
    engine: Arc<Engine>,
    newcomers: Arc<Newcomers>,
    number: Number,
}

impl Places {
    /// For a connection from that peer, which the listener has just taken and which is half open.
    pub(super) fn of_newcomer(
        engine: &Arc<Engine>,
        listener: Token,
        waiting: &Arc<Waiting>,
        newcomers: &Arc<Newcomers>,
        peer: SocketAddr,
        child: &Arc<Id>,
    ) -> Places {
        waiting.count.fetch_add(1, Ordering::SeqCst);
        let number = newcomers.half_open.lock().enter(
            listener.number(),
            engine.refusals.whom(peer.ip()),
            engine.now(),
            Arc::downgrade(child),
        );
        engine.stats.add(Total::HalfOpen, 1);
        Places {
            engine: engine.clone(),
            token: listener,
            waiting: waiting.clone(),
            half_open: Some(HalfOpenPlace {
                engine: engine.clone(),
                newcomers: newcomers.clone(),
                number,
            }),
            turn: None,
        }
    }

    /// The Request is there, and the program is told.
    pub(super) fn request_goes_on(&mut self) {
        self.half_open = None;
    }

    /// The Request is there, and has to wait for a turn.
    pub(super) fn wait_in_line(&mut self, turn: Turn) {
        self.turn = Some(turn);
        if let Some(place) = &self.half_open {
            place.newcomers.half_open.lock().has_spoken(place.number);
        }
    }

    /// Nobody has been told of it yet.
    pub(super) fn is_half_open(&self) -> bool {
        self.half_open.is_some()
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // In this order, and the other side the other way round: one of the two sees the other.
        self.waiting.count.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.holds_back.load(Ordering::SeqCst) {
            self.engine
                .progress
                .add_timer(self.engine.now(), self.token);
        }
    }
}

impl Drop for HalfOpenPlace {
    fn drop(&mut self) {
        // In this order, so that the count never shows more than there may be.
        self.engine.stats.subtract(Total::HalfOpen, 1);
        self.newcomers.half_open.lock().leave(self.number);
    }
}
