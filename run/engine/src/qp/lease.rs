//! The lease that a thread which polls may have of this queue pair's stream (see [`crate::progress`]'s `lease`):
//! meanwhile the epoll set does not wait for what the stream receives.

use std::time::Duration;

use super::{Inner, Qp};
use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::progress::Token;

/// How often the service thread looks whether there still is somebody who polls.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// So many leases in a row have to end with the acknowledgement before the next one begins with the post. Twice as many
/// after each one that began so and was given back: what the peer sends may have waited for the service thread's look.
const KEPT_MIN: u32 = 8;
const KEPT_MAX: u32 = 4096;

/// Whether one stream is leased to a thread that polls.
#[derive(Debug)]
pub(super) struct Leased {
    pub(super) is_leased: bool,
    /// What runs the stream's network is leased along.
    has_network: bool,
    /// Empty polls of the program when it was.
    polls: u64,
    /// When the service thread looks next.
    look_at: Option<Duration>,
    /// Leases in a row that ended with the acknowledgement.
    kept: u32,
    /// How many have to, for the next one to begin with the post.
    needed: u32,
    /// It began with the post, before anybody polled for it.
    is_expected: bool,
}

impl Default for Leased {
    fn default() -> Leased {
        Leased {
            is_leased: false,
            has_network: false,
            polls: 0,
            look_at: None,
            kept: 0,
            needed: KEPT_MIN,
            is_expected: false,
        }
    }
}

impl Leased {
    /// The acknowledgement is there: the thread that polled for it goes on to something else.
    #[inline]
    pub(super) fn note_acknowledged(&mut self) {
        if self.is_leased {
            self.is_leased = false;
            self.kept = (self.kept + 1).min(KEPT_MAX);
        }
    }

    /// Nobody polls for the acknowledgement any more.
    fn end(&mut self) {
        if self.is_leased && self.is_expected {
            self.needed = (self.needed * 2).min(KEPT_MAX);
        }
        self.is_leased = false;
        self.kept = 0;
    }

    /// Whether the program polled for the acknowledgement so often in a row that it is expected to do so again.
    #[inline]
    fn expects_polls(&self) -> bool {
        self.kept >= self.needed && !self.is_leased
    }

    pub(super) fn look_later(&mut self, engine: &Engine, token: Token) {
        // A look that an earlier lease asked for is soon enough, and goes by what was polled since then: this lease may
        // have begun a moment before it.
        if self.look_at.is_none() {
            self.polls = engine.progress.polls.empty();
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
        inner.leased.is_expected = false;
        inner.leased.look_later(engine, stream.token);
        self.follow_stream(inner, engine);
    }

    /// The program has posted, and polled for the acknowledgement every time lately: the lease begins at once. Until it
    /// has polled often enough to show that it does so again, the acknowledgement may be here, and with it what the
    /// peer wrote in answer; that would wake the service thread for what the program is about to read.
    #[inline]
    pub(super) fn lease_as_before(&self, inner: &mut Inner, engine: &Engine) {
        if inner.leased.expects_polls() {
            self.lease_with_post(inner, engine);
        }
    }

    fn lease_with_post(&self, inner: &mut Inner, engine: &Engine) {
        let Some(stream) = &inner.stream else {
            return;
        };
        let waits = inner.machine.awaits_acknowledgement() && inner.machine.sends_one_at_a_time();
        // The last lease was of this stream, and nothing else has come of it since.
        if waits && engine.progress.leases(self) {
            inner.leased.is_leased = true;
            inner.leased.is_expected = true;
            inner.leased.look_later(engine, stream.token);
        }
    }

    /// The epoll set waits for everything again.
    pub(super) fn give_lease_back(&self) {
        let mut inner = self.inner.lock();
        inner.leased.end();
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
            if inner.machine.withholds() {
                // It was withheld a moment ago: the next look finds it late, where nobody polls.
                leased.look_later(engine, stream.token);
            }
            return;
        }
        if leased.polls == engine.progress.polls.empty() {
            leased.end();
            self.follow_stream(inner, engine);
        } else {
            leased.look_later(engine, stream.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many leases that end with the acknowledgement.
    fn keep(leased: &mut Leased, times: u32) {
        for _ in 0..times {
            leased.is_leased = true;
            leased.note_acknowledged();
        }
    }

    #[test]
    fn a_lease_begins_with_the_post_once_enough_were_kept_in_a_row() {
        let mut leased = Leased::default();
        keep(&mut leased, KEPT_MIN - 1);
        assert!(!leased.expects_polls());
        leased.note_acknowledged();
        assert!(
            !leased.expects_polls(),
            "an acknowledgement without a lease"
        );
        keep(&mut leased, 1);
        assert!(leased.expects_polls());
        leased.is_leased = true;
        leased.end();
        keep(&mut leased, KEPT_MIN - 1);
        assert!(!leased.expects_polls(), "one was given back");
        keep(&mut leased, 1);
        assert!(leased.expects_polls(), "it had been polled for");
    }

    #[test]
    fn each_one_that_is_given_back_doubles_what_is_needed() {
        let mut leased = Leased::default();
        let mut needed = KEPT_MIN;
        while needed < 4 * KEPT_MAX {
            keep(&mut leased, needed.min(KEPT_MAX) - 1);
            assert!(!leased.expects_polls());
            keep(&mut leased, 1);
            assert!(leased.expects_polls());
            leased.is_leased = true;
            leased.is_expected = true;
            leased.end();
            needed *= 2;
        }
    }
}
