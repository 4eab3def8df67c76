//! The lease that a thread which polls may have of this queue pair's stream (see [`crate::progress`]'s `lease`):
//! meanwhile the epoll set does not wait for what the stream receives.

use std::time::Duration;

use super::{Inner, Qp};
use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::progress::Token;

/// How often the service thread looks whether there still is somebody who polls.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whether one stream is leased to a thread that polls.
#[derive(Debug, Default)]
pub(super) struct Leased {
    pub(super) is_leased: bool,
    /// What runs the stream's network is leased along.
    has_network: bool,
    /// Empty polls of the program when it was.
    polls: u64,
    /// When the service thread looks next.
    look_at: Option<Duration>,
}

impl Leased {
    fn look_later(&mut self, engine: &Engine, token: Token) {
        self.polls = engine.progress.polls.empty();
        if self.look_at.is_none() {
            let at = engine.now() + LOOK_EVERY;
            self.look_at = Some(at);
            engine.progress.add_timer(at, token);
        }
    }
}

/// The set waits for what a stream's network receives as long as the stream is not leased.
pub(super) fn follow_network(leased: &mut Leased, carrier: &dyn Carrier, engine: &Engine) {
    if leased.has_network != leased.is_leased {
        leased.has_network = leased.is_leased;
        let watched = !leased.is_leased;
        engine.progress.watch_network_of(carrier, watched);
    }
}

/// The stream is about to go, and its lease with it.
pub(super) fn end_with_stream(leased: &mut Leased, carrier: &dyn Carrier, engine: &Engine) {
    leased.is_leased = false;
    follow_network(leased, carrier, engine);
}

impl Qp {
    /// The calling thread polls, and reads this stream before it looks elsewhere.
    pub(super) fn begin_lease(&self) {
        let engine = self.pd.engine();
        let Some(mut guard) = self.inner.try_lock() else {
            return;
        };
        let inner = &mut *guard;
        let Some(stream) = &inner.stream else {
            return;
        };
        let waits = inner.machine.awaits_acknowledgement() && inner.machine.sends_one_at_a_time();
        if inner.leased.is_leased || !waits {
            return;
        }
        inner.leased.is_leased = true;
        inner.leased.look_later(engine, stream.token);
        self.follow_stream(inner, engine);
    }

    /// The epoll set waits for everything again.
    pub(super) fn give_lease_back(&self) {
        let mut inner = self.inner.lock();
        inner.leased.is_leased = false;
        self.follow_stream(&mut inner, self.pd.engine());
    }

    /// A timer: whether the thread that has the lease still polls.
    pub(super) fn look_after_lease(&self, inner: &mut Inner, engine: &Engine) {
        let Some(stream) = &inner.stream else {
            return;
        };
        let leased = &mut inner.leased;
        if leased.look_at.is_none_or(|at| at > engine.now()) {
            return;
        }
        leased.look_at = None;
        if !leased.is_leased {
            return;
        }
        if leased.polls == engine.progress.polls.empty() {
            leased.is_leased = false;
            self.follow_stream(inner, engine);
        } else {
            leased.look_later(engine, stream.token);
        }
    }
}
