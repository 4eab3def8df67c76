//! Receives that the program posts, and messages that wait for them: what the program says of these, and how they go
//! on.

use std::sync::Weak;
use std::time::Duration;

use parking_lot::MutexGuard;
use weft_verbs::types::{PostError, RecvRequest};

use super::stream::Stream;
use super::{Inner, Qp};
use crate::engine::Engine;
use crate::host::EngineHost;
use crate::srq::AwaitsReceives;

impl Qp {
    /// Posts to the receive queue.
    ///
    /// # Errors
    /// See [`PostError`].
    #[inline]
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let engine = self.pd.engine();
        let mut inner = self.inner.lock();
        let held = inner.machine.holding().is_some();
        let posted = {
            let inner = &mut *inner;
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.post_recv(request, &mut host)
        };
        if held {
            self.after_holding(inner, engine);
        } else if !inner.results.is_empty() {
            self.publish(&mut inner, engine);
        }
        posted
    }

    /// Sets how long a message may wait for a receive; zero ends the connection at once.
    pub fn set_receive_wait(&self, wait: Duration) {
        self.inner.lock().machine.set_receive_wait(wait);
    }

    /// Sets the program's RNR retry count: how often its Sends may find no receive at the peer, 7 for without end.
    pub fn set_rnr_retry(&self, count: u8) {
        self.inner.lock().machine.set_rnr_retry(count);
    }

    /// Sets how long one retry of the peer's takes, as the code of `min_rnr_timer`; of it the lowest five bits count.
    pub fn set_min_rnr_timer(&self, code: u8) {
        self.inner.lock().machine.set_min_rnr_timer(code);
    }

    /// A message that waits for a receive of the shared queue goes on when there is one.
    pub(super) fn follow_holding(&self, inner: &mut Inner, engine: &Engine) {
        if inner.machine.holding().is_none() || inner.stream.is_none() {
            return;
        }
        let Some(srq) = &self.srq else {
            return;
        };
        let me: Weak<dyn AwaitsReceives> = self.me.clone();
        if srq.remember_waiting(me) {
            // Receives may have been posted before it was remembered.
            let mut host = EngineHost::begin(engine, &mut inner.results, Some(srq));
            inner.machine.on_receives(&mut host);
        }
    }

    /// What was held may have gone on, and may have to be answered. The socket is looked at only if it was left
    /// alone until now: a receiver that is behind posts for each message, and must not pay a system call each time.
    pub(super) fn after_holding(&self, guard: MutexGuard<'_, Inner>, engine: &Engine) {
        let waits = |s: &Stream| !s.interest.reads() && s.over.is_none();
        let left_alone = guard.stream.as_ref().is_some_and(waits);
        let takes_more = !guard.machine.is_full() && !guard.machine.pauses();
        // A ring shows by itself what it has: the next look finds the receives that are posted until then.
        let shows = guard.stream.as_ref().is_some_and(|stream| stream.shares);
        if left_alone && takes_more && !shows {
            self.serve_locked(guard, true);
        } else if guard.machine.wants_to_send() {
            self.transmit_locked(guard, engine);
        } else {
            self.finish(guard, None, engine);
        }
    }
}

impl AwaitsReceives for Qp {
    fn on_receives(&self) {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
        inner.machine.on_receives(&mut host);
        drop(host);
        self.after_holding(guard, engine);
    }
}
