//! Passes over a queue pair and its stream: receive, place, complete, send, and tell whom it concerns.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;
use weft_verbs::qp::{Close, Ending, Qp as QpMachine, QpEvent, LINGER};

use super::lease::end_with_stream;
use super::rings::{ring, ring_without_lock};
use super::stream::{Stream, StreamEnd};
use super::{Inner, Qp};
use crate::context::{AsyncEvent, AsyncObject};
use crate::engine::Engine;
use crate::host::{wait_for_placements, EngineHost};
use crate::progress::{Hints, Looked, Member, Served};

/// What the kernel has of a stream that did not end in time ([`LINGER`]) is kept for as long as a message waits for a
/// receive while the peer takes nothing, and no longer than this (decision 0011).
const KEPT_MAX: Duration = Duration::from_secs(60);

/// What has to be told after a pass, and to whom.
#[derive(Debug, Default)]
struct Notices {
    first_fpdu: bool,
    ended: bool,
    /// The stream that ended had its first FPDU, even if another thread is still to tell.
    was_up: bool,
}

/// Who is at the other end, for the log.
struct Peer(Option<SocketAddr>);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("peer"),
        }
    }
}

impl Member for Qp {
    fn serve(&self, writable: bool) -> Served {
        let guard = self.inner.lock();
        if let Some(rings) = guard.stream.as_ref().and_then(|s| s.carrier.rings()) {
            rings.note_ready();
        }
        match self.serve_locked(guard, writable) {
            true => Served::Active,
            false => Served::Quiet,
        }
    }

    fn poll(&self) -> Hints {
        if let Some(guard) = self.inner.try_lock() {
            self.serve_locked(guard, false);
        }
        Hints {
            unacknowledged: self.unacknowledged.load(Ordering::Relaxed),
            waits_for_one: self.waits_for_one.load(Ordering::Relaxed),
        }
    }

    fn lease(&self) {
        self.begin_lease();
    }

    fn end_lease(&self) {
        self.give_lease_back();
    }

    fn on_timer(&self) {
        self.handle_timer();
    }

    fn arm(&self) -> bool {
        self.arm_bell()
    }

    fn look(&self) -> Looked {
        self.look_at_ring()
    }
}

impl Qp {
    /// Receives, places, completes and sends what is due; `writable` says that a socket that was full has room again.
    /// Says whether octets came.
    pub(super) fn serve_locked(&self, mut guard: MutexGuard<'_, Inner>, writable: bool) -> bool {
        let engine = self.pd.engine();
        let inner = &mut *guard;
        let Some(stream) = &mut inner.stream else {
            return false;
        };
        let (received, mut end) = {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            if let Some(emss) = stream.carrier.take_new_emss() {
                inner.machine.set_emss(emss);
            }
            stream.note_released(&mut inner.machine, &mut host);
            let (mut received, mut end) = stream.receive(&mut inner.machine, &mut host);
            if end.is_none() && stream.begin_sharing(&mut inner.machine) {
                let (more, over) = stream.receive(&mut inner.machine, &mut host);
                (received, end) = (received | more, over);
            }
            let due = inner.machine.is_due(&host);
            let may_send = writable || !stream.blocked || stream.has_room_in_ring();
            if end.is_none() && due && may_send {
                end = stream.transmit(&mut inner.machine, &mut host);
            }
            (received, end)
        };
        self.follow_answer(inner, received, engine);
        if inner.machine.ending() == Ending::Closed {
            end = end.or(Some(StreamEnd::Broken));
        }
        self.finish(guard, end, engine);
        received
    }

    /// Sends what is due and ends the pass.
    pub(super) fn transmit_locked(&self, mut guard: MutexGuard<'_, Inner>, engine: &Engine) {
        let inner = &mut *guard;
        let end = self.transmit(inner, engine);
        let waits = inner.stream.is_none() && inner.machine.has_sends_outstanding();
        if let Some(supplier) = inner.supplier.as_ref().filter(|_| waits) {
            supplier.on_sends_waiting();
        }
        self.lease_as_before(inner, engine);
        self.finish(guard, end, engine);
    }

    /// Sends what is due. A full socket is tried again when the epoll set says so, and what is posted gathers.
    #[inline]
    pub(super) fn transmit(&self, inner: &mut Inner, engine: &Engine) -> Option<StreamEnd> {
        inner.stream.as_ref().filter(|s| !s.blocked)?;
        self.transmit_all(inner, engine)
    }

    /// Sends what is due, as far as the socket takes it.
    #[inline]
    pub(super) fn transmit_all(&self, inner: &mut Inner, engine: &Engine) -> Option<StreamEnd> {
        let stream = inner.stream.as_mut()?;
        let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
        stream.transmit(&mut inner.machine, &mut host)
    }

    /// Runs `act` as a pass of its own and sends what follows from it.
    pub(crate) fn with_pass<R>(
        &self,
        engine: &Engine,
        act: impl FnOnce(&mut QpMachine, &mut EngineHost<'_>) -> R,
    ) -> R {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let result = {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            act(&mut inner.machine, &mut host)
        };
        self.transmit_locked(guard, engine);
        result
    }

    /// Ends a pass, lets go of the queue pair, and tells whom it concerns.
    pub(super) fn finish(
        &self,
        mut guard: MutexGuard<'_, Inner>,
        end: Option<StreamEnd>,
        engine: &Engine,
    ) {
        let inner = &mut *guard;
        let announced = inner.stream.as_ref().map_or(0, Stream::announced);
        let notices = self.end_pass(inner, end, engine);
        let sent_more = |stream: &Stream| stream.shares && stream.octets_out != announced;
        let announces = inner.stream.as_ref().is_some_and(sent_more);
        if !notices.first_fpdu && !notices.ended {
            if announces {
                ring_without_lock(guard);
            }
            return;
        }
        if announces {
            ring(inner);
        }
        let owner = match notices.ended {
            true => inner.owner.take(),
            false => inner.owner.clone(),
        };
        let supplier = inner.supplier.clone().filter(|_| notices.ended);
        // Both may call back.
        drop(guard);
        if let Some(owner) = owner {
            if notices.first_fpdu {
                owner.on_first_fpdu();
            }
            if notices.ended {
                owner.on_stream_ended(notices.was_up);
            }
        }
        if let Some(supplier) = supplier {
            supplier.on_stream_ended();
        }
    }

    /// Publishes completions and follows the stream's state.
    #[inline]
    fn end_pass(&self, inner: &mut Inner, end: Option<StreamEnd>, engine: &Engine) -> Notices {
        let mut notices = Notices::default();
        let refused = inner.machine.counters().refused_accesses;
        if let Some(stream) = inner
            .stream
            .as_ref()
            .filter(|s| s.counted.refused_accesses < refused)
        {
            let more = refused - stream.counted.refused_accesses;
            engine.refusals.note_accesses(stream.peer.ip(), more);
        }
        if let Some(end) = end.or_else(|| emptied(inner)) {
            self.end_stream(inner, end, engine, &mut notices);
        }
        while let Some(event) = inner.machine.poll_event() {
            self.note_event(inner, event, engine, &mut notices);
        }
        let unacknowledged = inner.machine.awaits_acknowledgement();
        self.unacknowledged.store(unacknowledged, Ordering::Relaxed);
        let one = unacknowledged && inner.machine.sends_one_at_a_time();
        self.waits_for_one.store(one, Ordering::Relaxed);
        self.follow_holding(inner, engine);
        if !inner.machine.ending().is_live() || inner.results.invalidated {
            // The program is about to learn that memory is its own again.
            if let Some(stream) = &inner.stream {
                stream.keep_copies(&inner.machine);
            }
        }
        self.follow_stream(inner, engine);
        if !inner.results.is_empty() || inner.results.invalidated {
            self.publish(inner, engine);
        }
        notices
    }

    fn end_stream(
        &self,
        inner: &mut Inner,
        end: StreamEnd,
        engine: &Engine,
        notices: &mut Notices,
    ) {
        let Some(stream) = &mut inner.stream else {
            return;
        };
        let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
        if !inner.machine.stream_ended(&mut host) {
            drop(host);
            stream.note_over(end);
            // What is due leaves all the same, if it can.
            if !stream.blocked {
                self.transmit_all(inner, engine);
            }
            return;
        }
        drop(host);
        let Some(stream) = inner.stream.take() else {
            return;
        };
        crate::debug!("qp {}: stream ended ({end:?})", self.number.0);
        notices.ended = true;
        notices.was_up = inner.machine.may_send();
        engine.progress.forget(self);
        engine
            .progress
            .remove_source(&*stream.carrier, stream.token);
        end_with_stream(&mut inner.leased, &*stream.carrier, engine);
        stream.carrier.show(None);
        engine.stats.close(stream.slot);
    }

    /// Lets go of a stream that the queue pair does not want any more.
    pub(crate) fn drop_stream(&self, inner: &mut Inner, engine: &Engine) {
        if let Some(stream) = inner.stream.take() {
            inner.machine.forget_stream();
            engine.progress.forget(self);
            engine
                .progress
                .remove_source(&*stream.carrier, stream.token);
            end_with_stream(&mut inner.leased, &*stream.carrier, engine);
            stream.carrier.show(None);
            engine.stats.close(stream.slot);
        }
    }

    fn note_event(&self, inner: &Inner, event: QpEvent, engine: &Engine, notices: &mut Notices) {
        let peer = Peer(inner.stream.as_ref().map(|stream| stream.peer));
        match event {
            QpEvent::FirstFpdu => notices.first_fpdu = true,
            QpEvent::Meeting(number) => Self::meet(inner, number, engine),
            QpEvent::PeerFault(fault) => {
                crate::warn_of_peer!(
                    "qp {}: {peer} sent {fault}; the connection ends",
                    self.number.0
                );
            }
            QpEvent::LocalFault(status) => {
                crate::warn!(
                    "qp {}: a local work request failed ({status:?}); the connection ends",
                    self.number.0
                );
            }
            QpEvent::Terminated(terminate) => {
                crate::warn_of_peer!(
                    "qp {}: {peer} terminated the connection: {}",
                    self.number.0,
                    terminate.code
                );
            }
            QpEvent::Unreceived(messages) => {
                crate::warn_of_peer!(
                    "qp {}: {peer} has gone, and no receives were posted for {messages} messages that it sent before: \
                     they are lost. Post receives sooner, or raise receive-wait-ms",
                    self.number.0
                );
            }
        }
    }

    /// The stream is about to end, and an acknowledgement that waits leaves before that.
    pub(super) fn send_delayed(&self, inner: &mut Inner, engine: &Engine) {
        if inner.machine.delays_acknowledgement() {
            // Where that fails the stream ends anyway.
            let _ = self.transmit_all(inner, engine);
            ring(inner);
        }
    }

    pub(super) fn publish(&self, inner: &mut Inner, engine: &Engine) {
        let results = &mut inner.results;
        if std::mem::take(&mut results.invalidated) {
            wait_for_placements(engine);
        }
        let destroyed = self.destroyed.load(Ordering::Acquire);
        results.publish(destroyed, (&self.send_cq, &self.recv_cq), |kind| {
            let object = AsyncObject::Qp(self.cookie);
            self.pd.context().raise(AsyncEvent { kind, object });
        });
    }

    /// A deadline of the machine's may have passed, or a lease has to be looked after.
    fn handle_timer(&self) {
        let engine = self.pd.engine();
        let now = engine.now();
        let mut guard = self.lock_behind_answer(now);
        let inner = &mut *guard;
        self.look_after_lease(inner, engine);
        if let Some(stream) = &mut inner.stream {
            if stream.room_looked_for_at.take_if(|at| *at <= now).is_some() {
                self.serve_locked(guard, true);
                return;
            }
        }
        inner.armed = inner.armed.filter(|armed| *armed > now);
        if inner.machine.deadline().is_none_or(|at| at > now) {
            return Self::follow_deadline(inner, engine);
        }
        let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
        let paused = inner.machine.pauses();
        let close = inner.machine.handle_timeout(&mut host);
        drop(host);
        let (Some(close), Some(stream)) = (close, &inner.stream) else {
            if paused {
                self.serve_locked(guard, true);
                return;
            }
            return self.transmit_locked(guard, engine);
        };
        match close {
            Close::Abort => {
                crate::warn_of_peer!(
                    "qp {}: {} sent no ready-to-receive message in time; the connection ends",
                    self.number.0,
                    stream.peer
                );
                stream.carrier.abort_on_close();
            }
            Close::Linger => {
                let wait = engine.settings.receive_wait.min(KEPT_MAX);
                stream.carrier.keep_after_close(LINGER + wait);
            }
        }
        self.finish(guard, Some(StreamEnd::Broken), engine);
    }
}

/// How the stream ended, where the last of what it left has its receive now.
fn emptied(inner: &Inner) -> Option<StreamEnd> {
    let waits = inner.machine.ending() != Ending::HalfClosed || inner.machine.holding().is_some();
    inner.stream.as_ref()?.over.filter(|_| !waits)
}
