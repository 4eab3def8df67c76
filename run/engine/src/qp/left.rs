//! A stream that is left to the thread that polls.
//!
//! A program that polls for the completion of a Write which the peer has to answer for reads the socket itself. Once it has the
//! completion it may go on to spin on memory (`ib_write_lat`), where only the service thread serves it, so that one
//! stays in the epoll set (decision 0002). There it would be woken for each answer too, when the poller has read it
//! already, and on a machine whose cores all spin it then has no turn left when it is needed. So while the answer is
//! awaited and polled for, the set does not wait for what this one stream receives. A program that has many Writes under
//! way does not go on to spin on memory, and is left alone with this.
//!
//! The set waits for it again with the answer; when pollers read another stream first; when the program asks for an
//! event or waits for one; and [`LOOK_AFTER`] to twice that after the program has stopped to poll.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Inner, Qp};
use crate::engine::Engine;
use crate::progress::Token;

/// A thread that has polled so often and found nothing waits for it: what looks once or twice before it asks for an event
/// does not.
pub(crate) const WAITS: u32 = 6;
/// How often the service thread looks whether there still is somebody who polls.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// The queue pair whose stream is left to pollers, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// There may be one.
    any: AtomicBool,
    qp: Mutex<Weak<Qp>>,
}

impl Left {
    /// Whether there may be one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn is(&self, qp: &Arc<Qp>) -> bool {
        self.qp.lock().as_ptr() == Arc::as_ptr(qp)
    }

    fn take(&self) -> Option<Arc<Qp>> {
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.qp.lock()).upgrade()
    }

    /// The one that was, if it is another.
    fn replace(&self, qp: &Arc<Qp>) -> Option<Arc<Qp>> {
        let mut left = self.qp.lock();
        if left.as_ptr() == Arc::as_ptr(qp) {
            return None;
        }
        self.any.store(true, Ordering::Relaxed);
        std::mem::replace(&mut *left, Arc::downgrade(qp)).upgrade()
    }
}

/// Whether one stream is left to pollers.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    pub(crate) is_left: bool,
    /// Empty polls of the program when it was.
    polls: u64,
    /// When the service thread looks next.
    look_at: Option<Duration>,
}

impl Leaving {
    fn look_later(&mut self, engine: &Engine, token: Token) {
        self.polls = engine.progress.polls.empty();
        if self.look_at.is_none() {
            let at = engine.now() + LOOK_AFTER;
            self.look_at = Some(at);
            engine.progress.add_timer(at, token);
        }
    }
}

impl Qp {
    /// The calling thread polls, and reads this stream before it looks elsewhere.
    pub(crate) fn leave_to_poller(self: &Arc<Self>, engine: &Engine) {
        if let Some(other) = engine.progress.left.replace(self) {
            other.take_back(engine);
        }
        let Some(mut guard) = self.inner.try_lock() else {
            return;
        };
        let inner = &mut *guard;
        let Some(stream) = &mut inner.stream else {
            return;
        };
        let waits = inner.machine.awaits_answer() && inner.machine.sends_one_at_a_time();
        if stream.leaving.is_left || !waits {
            return;
        }
        stream.leaving.is_left = true;
        stream.leaving.look_later(engine, stream.token);
        Self::follow_stream(inner, engine);
    }

    /// The epoll set waits for everything again.
    fn take_back(self: &Arc<Self>, engine: &Engine) {
        let mut inner = self.inner.lock();
        if let Some(stream) = &mut inner.stream {
            stream.leaving.is_left = false;
            Self::follow_stream(&mut inner, engine);
        }
    }

    /// A timer: whether the thread that the stream was left to still polls.
    pub(super) fn look_after_poller(inner: &mut Inner, engine: &Engine) {
        let Some(stream) = &mut inner.stream else {
            return;
        };
        let leaving = &mut stream.leaving;
        if leaving.look_at.is_none_or(|at| at > engine.now()) {
            return;
        }
        leaving.look_at = None;
        if !leaving.is_left {
            return;
        }
        if leaving.polls == engine.progress.polls.empty() {
            leaving.is_left = false;
            Self::follow_stream(inner, engine);
        } else {
            leaving.look_later(engine, stream.token);
        }
    }
}

impl Engine {
    /// Takes a stream back that was left to a poller: it waits for something else now.
    #[inline]
    pub(crate) fn take_back_what_was_left(&self) {
        if self.progress.left.any() {
            if let Some(qp) = self.progress.left.take() {
                qp.take_back(self);
            }
        }
    }
}
