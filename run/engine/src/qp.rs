//! Queue pairs on the host stack: made, attached to a stream, served, ended. Posting to the send
//! queue is in [`gathering`], what messages wait for in [`waiting`], what answers wait for in [`answers`], and what a
//! program's polls are left to do in [`left`].

pub(crate) mod answers;
mod gathering;
pub(crate) mod left;
mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use weft_os::net::TcpStream;
use weft_os::poll::Interest;
use weft_verbs::iwarp::{Established, Role};
use weft_verbs::qp::{Ending, FpduPolicy, Qp as QpMachine, QpConfig, QpEvent};
use weft_verbs::types::{
    Access, AsyncEventKind, PostError, QpCap, QpNumber, QpState, RecvRequest, MAX_INLINE, MAX_SGE,
    MAX_WR,
};

use crate::bring_up::{ByHand, Hello, Parked};
use crate::cm::Id;
use crate::context::{AsyncEvent, AsyncObject, Pd};
use crate::cq::Cq;
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::nudges::Nudges;
use crate::pass::{wait_for_placements, Pass, Results};
use crate::settings::FpduSize;
use crate::srq::Srq;
use crate::stats::{Published, Total};
use crate::stream::{Stream, StreamEnd};
use waiting::Waiting;

pub(crate) use gathering::Gathering;
pub use gathering::SendBatch;

/// A stream that is ending is closed after this time, whatever the peer does.
const LINGER: Duration = Duration::from_secs(3);
/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Where send completions go.
    pub send_cq: Arc<Cq>,
    /// Where receive completions go.
    pub recv_cq: Arc<Cq>,
    /// Receives come from here instead of the queue pair's own queue.
    pub srq: Option<Arc<Srq>>,
    /// Sizes of the queues.
    pub cap: QpCap,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// Names the queue pair in events.
    pub cookie: u64,
}

/// A reliable connected queue pair.
#[derive(Debug)]
pub struct Qp {
    number: QpNumber,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    cap: QpCap,
    cookie: u64,
    pub(crate) inner: Mutex<Inner>,
    gathering: Gathering,
    destroyed: AtomicBool,
    /// The peer was asked to answer for Writes, and has not.
    unanswered: AtomicBool,
    /// And the program waits for that one Write alone.
    waits_for_one: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) machine: QpMachine,
    pub(crate) stream: Option<Stream>,
    results: Results,
    /// The connection it belongs to.
    id: Weak<Id>,
    /// The program brings it up itself.
    pub(crate) by_hand: Option<Box<ByHand>>,
    /// Dials that came before it was ready.
    pub(crate) parked: Vec<Parked>,
    /// How long a message may wait for a receive.
    waiting: Waiting,
}

/// What the connection manager has to be told after a pass.
#[derive(Debug, Default)]
struct Notices {
    first_fpdu: bool,
    ended: bool,
    /// The stream that ended had its first FPDU, even if another thread is still to tell.
    was_up: bool,
}

impl Qp {
    pub(crate) fn new(pd: &Arc<Pd>, init: QpInit) -> Result<Arc<Qp>, Error> {
        let cap = checked_cap(init.cap, init.srq.is_some())?;
        let engine = pd.engine();
        let number = engine.new_qp_number()?;
        let mut machine = QpMachine::new(QpConfig {
            number,
            pd: pd.id(),
            cap,
            sq_sig_all: init.sq_sig_all,
            shared_receive: init.srq.is_some(),
        });
        machine.set_hold(!engine.settings.receive_wait.is_zero());
        machine.set_acknowledge(engine.settings.acknowledge);
        pd.add_user();
        init.send_cq.add_user();
        init.recv_cq.add_user();
        if let Some(srq) = &init.srq {
            srq.add_user();
        }
        let qp = Arc::new(Qp {
            number,
            pd: pd.clone(),
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap,
            cookie: init.cookie,
            inner: Mutex::new(Inner {
                machine,
                stream: None,
                results: Results::default(),
                id: Weak::new(),
                by_hand: None,
                parked: Vec::new(),
                waiting: Waiting::new(engine.settings.receive_wait),
            }),
            gathering: Gathering::default(),
            destroyed: AtomicBool::new(false),
            unanswered: AtomicBool::new(false),
            waits_for_one: AtomicBool::new(false),
        });
        qp.send_cq
            .add_sender(number, &qp.inner.lock().results.polled);
        engine.remember_qp(number, &qp);
        engine.stats.add(Total::QueuePairs, 1);
        Ok(qp)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.inner.lock().machine.state()
    }

    /// Outbound and inbound limits of outstanding Reads, once connected: `(ORD, IRD)`.
    pub fn read_limits(&self) -> Option<(u16, u16)> {
        self.inner.lock().machine.read_limits()
    }

    /// What the peer may do through it.
    pub fn access(&self) -> Access {
        self.inner.lock().machine.access()
    }

    /// Sets what the peer may do through it.
    pub fn modify_access(&self, access: Access) {
        self.inner.lock().machine.set_access(access);
    }

    /// Changes the state. RTR and RTS are entered by connecting, or by [`Qp::ready_to_receive`]
    /// and [`Qp::ready_to_send`].
    ///
    /// # Errors
    /// The transition does not exist or needs a connection.
    pub fn modify_state(self: &Arc<Self>, to: QpState) -> Result<(), Error> {
        let engine = self.pd.engine().clone();
        self.send_held_answer(&mut self.inner.lock(), &engine);
        if to == QpState::Reset {
            self.end_bring_up(&engine);
            let mut inner = self.inner.lock();
            if inner.machine.is_by_hand() {
                self.drop_stream(&mut inner, &engine);
            }
        }
        self.with_pass(&engine, |machine, _, pass| {
            machine.modify(to, pass)?;
            if to == QpState::Reset {
                // What completed before is forgotten, polled or not.
                self.send_cq.forget(self.number);
                self.recv_cq.forget(self.number);
                pass.results.polled.store(0, Ordering::Release);
            }
            Ok::<(), PostError>(())
        })?;
        Ok(())
    }

    /// Brings the send queue to rest (SQD): what is begun ends, what is posted waits. With `notify`, an asynchronous
    /// event says when it is at rest.
    ///
    /// # Errors
    /// Not in RTS.
    pub fn drain(self: &Arc<Self>, notify: bool) -> Result<(), Error> {
        let engine = self.pd.engine().clone();
        self.with_pass(&engine, |machine, _, pass| machine.drain(notify, pass))?;
        Ok(())
    }

    /// From SQD back to RTS.
    ///
    /// # Errors
    /// Not in SQD.
    pub fn resume(self: &Arc<Self>) -> Result<(), Error> {
        let engine = self.pd.engine().clone();
        self.with_pass(&engine, |machine, _, _| machine.resume())?;
        Ok(())
    }

    /// Whether it is in SQD and not at rest yet.
    pub fn is_draining(&self) -> bool {
        self.inner.lock().machine.is_draining()
    }

    /// Posts to the receive queue.
    ///
    /// # Errors
    /// See [`PostError`].
    #[inline]
    pub fn post_recv(self: &Arc<Self>, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let engine = self.pd.engine();
        let mut inner = self.inner.lock();
        let posted = {
            let inner = &mut *inner;
            let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.post_recv(request, &mut pass)
        };
        if inner.waiting.waits() {
            self.after_holding(inner, engine);
        } else if !inner.results.is_empty() {
            self.publish(&mut inner, engine);
        }
        posted
    }

    /// Makes it a queue pair of type UC: what finds no receive, or no memory it may write, is lost.
    pub fn set_unreliable(&self) {
        let mut inner = self.inner.lock();
        inner.waiting.lose_soon();
        inner.machine.set_unreliable(true);
    }

    /// Puts the queue pair on a connected socket whose MPA start-up is over; `token` waits for octets. The caller, who
    /// holds the connection's lock, tells the program and then calls [`Qp::serve_attached`]. `hello`: who a queue pair
    /// without a connection manager is to be connected with.
    pub(crate) fn attach(
        self: &Arc<Self>,
        socket: TcpStream,
        token: crate::progress::Token,
        established: &Established,
        leftover: &[u8],
        id: &Arc<Id>,
        hello: Option<&Hello>,
    ) -> Result<(), Error> {
        let engine = self.pd.engine();
        let mut inner = self.inner.lock();
        let admitted = self.admit(&mut inner, hello).and_then(|()| {
            let ends = (socket.local_addr()?, socket.peer_addr()?);
            Ok((socket.emss()?, ends))
        });
        let (emss, (local, peer)) = match admitted {
            Ok(facts) => facts,
            Err(error) => {
                engine.progress.remove(&socket, token);
                return Err(error);
            }
        };
        let policy = match engine.settings.fpdu {
            FpduSize::Auto => FpduPolicy::Auto,
            FpduSize::Emss => FpduPolicy::Emss,
            FpduSize::Large => FpduPolicy::Large,
        };
        engine
            .progress
            .hand_over(token, Endpoint::Stream(self.clone()));
        let slot = engine
            .stats
            .open(self.number.0, local, peer, established.crc);
        inner.machine.attach(established, emss, policy);
        if engine.settings.speak_first && established.rtr.is_none() {
            inner.machine.speak_first();
        }
        let mut stream = Stream::new(socket, token, peer, slot, leftover);
        stream.nudges = (established.role == Role::Initiator).then(Nudges::new);
        if established.role == Role::Responder && established.peer_to_peer {
            // The peer promised a message; a peer that keeps silent keeps no queue pair.
            let at = engine.now() + engine.settings.start_timeout;
            stream.ready_by = Some(at);
            engine.progress.add_timer(at, token);
        }
        inner.stream = Some(stream);
        inner.id = Arc::downgrade(id);
        engine.progress.note_active(self);
        Ok(())
    }

    /// Whether it may have a stream now, and from whoever speaks so.
    fn admit(&self, inner: &mut Inner, hello: Option<&Hello>) -> Result<(), Error> {
        if !inner.machine.takes_stream() {
            return Err(Error::State("a queue pair that waits to be connected"));
        }
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Error::State("a queue pair that exists"));
        }
        match (hello, &mut inner.by_hand) {
            (Some(hello), Some(by_hand)) => by_hand.meet(hello),
            _ => Ok(()),
        }
    }

    /// Takes what came behind the Reply, as no event will say that it is in the buffer already. Without that, what is due
    /// (the ready-to-receive message) leaves with the program's first message: programs that were told of a connection
    /// post or wait next, and either sends it.
    pub(crate) fn serve_attached(self: &Arc<Self>) {
        let engine = self.pd.engine();
        let inner = self.inner.lock();
        if inner.stream.as_ref().is_some_and(Stream::has_buffered) {
            self.serve_locked(inner, engine, true);
        } else if inner.machine.wants_to_send() {
            drop(inner);
            self.defer(engine);
        }
    }

    /// Whether the peer is to answer for Writes; a hint.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Whether the program waits for the answer for one Write, and for nothing else it posted; a hint.
    pub(crate) fn waits_for_one(&self) -> bool {
        self.waits_for_one.load(Ordering::Relaxed)
    }

    /// Receives, places, completes and sends what is due, unless another thread does it.
    pub(crate) fn serve_if_free(self: &Arc<Self>, engine: &Engine) {
        if let Some(guard) = self.inner.try_lock() {
            self.serve_locked(guard, engine, false);
        }
    }

    /// Receives, places, completes and sends what is due; `writable` says that a socket that was
    /// full has room again. Waits for its turn: readiness is level-triggered, and to come back
    /// at once would keep the thread that is at it from the core.
    /// Says whether octets came.
    pub(crate) fn serve_in_turn(self: &Arc<Self>, engine: &Engine, writable: bool) -> bool {
        self.serve_locked(self.inner.lock(), engine, writable)
    }

    fn serve_locked(
        self: &Arc<Self>,
        mut guard: MutexGuard<'_, Inner>,
        engine: &Engine,
        writable: bool,
    ) -> bool {
        let inner = &mut *guard;
        let Some(stream) = &mut inner.stream else {
            return false;
        };
        let (received, mut end) = {
            let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
            let (received, mut end) = stream.receive(&mut inner.machine, &mut pass);
            let mut due = inner.machine.wants_to_send() || needs_fin(&inner.machine);
            let answers = inner.by_hand.is_some() && inner.machine.owes_only_answers();
            if due && answers && inner.machine.sends_one_at_a_time() {
                due = !stream.holds_answers(engine);
            }
            if end.is_none() && due && (writable || !stream.blocked) {
                end = stream.transmit(&mut inner.machine, &mut pass);
            }
            (received, end)
        };
        if inner.machine.ending() == Ending::Closed {
            end = end.or(Some(StreamEnd::Broken));
        }
        self.finish(guard, end, engine);
        received
    }

    /// Sends what is due and ends the pass.
    fn transmit_locked(self: &Arc<Self>, mut guard: MutexGuard<'_, Inner>, engine: &Engine) {
        let inner = &mut *guard;
        let mut end = None;
        // A full socket is tried again when the epoll set says so, and what is posted gathers.
        if let Some(stream) = inner.stream.as_mut().filter(|s| !s.blocked) {
            let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
            end = stream.transmit(&mut inner.machine, &mut pass);
        }
        Self::note_waiting(inner, engine);
        self.finish(guard, end, engine);
    }

    /// Runs `act` as a pass of its own and sends what follows from it.
    pub(crate) fn with_pass<R>(
        self: &Arc<Self>,
        engine: &Engine,
        act: impl FnOnce(&mut QpMachine, Option<&mut Stream>, &mut Pass<'_>) -> R,
    ) -> R {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let result = {
            let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
            act(&mut inner.machine, inner.stream.as_mut(), &mut pass)
        };
        self.transmit_locked(guard, engine);
        result
    }

    /// Ends a pass: publishes completions, follows the stream's state, tells the connection.
    fn finish(
        self: &Arc<Self>,
        mut guard: MutexGuard<'_, Inner>,
        end: Option<StreamEnd>,
        engine: &Engine,
    ) {
        let mut notices = Notices::default();
        let inner = &mut *guard;
        let refused = inner.machine.counters().refused_accesses;
        if let Some(stream) = inner
            .stream
            .as_ref()
            .filter(|s| s.published.refused_accesses < refused)
        {
            let more = refused - stream.published.refused_accesses;
            engine.note_refused(stream.peer.ip(), more);
        }
        if let Some(end) = end {
            self.end_stream(inner, end, engine, &mut notices);
        }
        while let Some(event) = inner.machine.poll_event() {
            self.note_event(inner, event, &mut notices);
        }
        let unanswered = inner.machine.awaits_answer();
        self.unanswered.store(unanswered, Ordering::Relaxed);
        let one = unanswered && inner.machine.sends_one_at_a_time();
        self.waits_for_one.store(one, Ordering::Relaxed);
        Self::follow_stream(inner, engine);
        self.follow_waiting(inner, engine);
        if !inner.results.is_empty() || inner.results.invalidated {
            self.publish(inner, engine);
        }
        if !notices.first_fpdu && !notices.ended {
            return;
        }
        let id = inner.id.upgrade();
        drop(guard);
        if let Some(id) = id {
            if notices.first_fpdu {
                id.on_first_fpdu();
            }
            if notices.ended {
                id.on_stream_ended(notices.was_up);
            }
        }
    }

    fn end_stream(
        self: &Arc<Self>,
        inner: &mut Inner,
        end: StreamEnd,
        engine: &Engine,
        notices: &mut Notices,
    ) {
        let Some(stream) = inner.stream.take() else {
            return;
        };
        {
            let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.stream_ended(&mut pass);
        }
        crate::debug!("qp {}: stream ended ({end:?})", self.number.0);
        notices.ended = true;
        notices.was_up = inner.machine.may_send();
        engine.progress.forget_stream(self);
        engine.progress.remove(&stream.socket, stream.token);
        engine.stats.close(stream.slot);
    }

    /// Lets go of a stream that the queue pair does not want any more.
    pub(crate) fn drop_stream(self: &Arc<Self>, inner: &mut Inner, engine: &Engine) {
        if let Some(stream) = inner.stream.take() {
            inner.machine.forget_stream();
            engine.progress.forget_stream(self);
            engine.progress.remove(&stream.socket, stream.token);
            engine.stats.close(stream.slot);
        }
    }

    fn note_event(&self, inner: &Inner, event: QpEvent, notices: &mut Notices) {
        let peer = inner.stream.as_ref().map(|s| s.peer);
        let peer = peer.map_or_else(|| "peer".to_owned(), |p| p.to_string());
        match event {
            QpEvent::FirstFpdu => notices.first_fpdu = true,
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
        }
    }

    /// Keeps the epoll set, the timers and the statistics in step with the stream.
    fn follow_stream(inner: &mut Inner, engine: &Engine) {
        let Some(stream) = &mut inner.stream else {
            return;
        };
        stream.leaving.is_left &= inner.machine.awaits_answer();
        let reads = !inner.machine.is_full() && !stream.leaving.is_left;
        let interest = Interest::of(reads, stream.blocked);
        if interest != stream.interest {
            stream.interest = interest;
            let _ = engine
                .progress
                .change(&stream.socket, stream.token, interest);
        }
        if inner.machine.ending() == Ending::Draining && stream.close_at.is_none() {
            let at = engine.now() + LINGER;
            stream.close_at = Some(at);
            engine.progress.add_timer(at, stream.token);
        }
        if let Some(nudges) = &mut stream.nudges {
            if stream.octets_in > 0 {
                stream.nudges = None;
            } else if stream.octets_out > 0 && nudges.wants_timer() {
                let at = nudges.start_timer(engine.now());
                engine.progress.add_timer(at, stream.token);
            }
        }
        let counters = inner.machine.counters();
        let now = Published {
            octets_in: stream.octets_in,
            octets_out: stream.octets_out,
            sends: counters.sends_completed,
            recvs: counters.recvs_completed,
            segments_in: counters.segments_in,
            segments_out: counters.segments_out,
            errors: counters.errors,
            mulpdu: inner.machine.mulpdu().unwrap_or(0) as u64,
            refused_accesses: counters.refused_accesses,
        };
        engine.stats.publish(stream.slot, &stream.published, &now);
        stream.published = now;
    }

    fn publish(&self, inner: &mut Inner, engine: &Engine) {
        let results = &mut inner.results;
        if std::mem::take(&mut results.invalidated) {
            wait_for_placements(engine);
        }
        if self.destroyed.load(Ordering::Acquire) {
            results.sends.clear();
            results.recvs.clear();
            results.async_events.clear();
            return;
        }
        if !results.sends.is_empty() {
            self.send_cq.publish(&mut results.sends);
        }
        if !results.recvs.is_empty() {
            self.recv_cq.publish(&mut results.recvs);
        }
        for kind in results.async_events.drain(..) {
            self.raise(kind);
        }
    }

    fn raise(&self, kind: AsyncEventKind) {
        self.pd.context().raise(AsyncEvent {
            kind,
            object: AsyncObject::Qp(self.cookie),
        });
    }

    /// Ends the connection: what is framed still goes out, everything posted is flushed.
    pub(crate) fn disconnect(self: &Arc<Self>) {
        let engine = self.pd.engine().clone();
        self.with_pass(&engine, |machine, _, pass| machine.disconnect(pass));
    }

    /// A stream that was to be closed or to have spoken by now is closed, a message that waited too long is refused, and
    /// a nudge that is due is sent.
    pub(crate) fn on_timer(self: &Arc<Self>, engine: &Engine) {
        self.on_bring_up_timer(engine);
        let now = engine.now();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        Self::look_after_poller(inner, engine);
        if Self::answer_is_late(inner, engine) {
            return self.transmit_locked(guard, engine);
        }
        if inner.waiting.is_over(now) {
            let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.give_up_holding(&mut pass);
            drop(pass);
            return self.transmit_locked(guard, engine);
        }
        let Some(stream) = &mut inner.stream else {
            return;
        };
        let silent = stream.ready_by.is_some_and(|at| at <= now) && !inner.machine.may_send();
        if silent {
            crate::warn_of_peer!(
                "qp {}: {} sent no ready-to-receive message in time; the connection ends",
                self.number.0,
                stream.peer
            );
        }
        if silent || stream.close_at.is_some_and(|at| at <= now) {
            stream.socket.abort_on_close();
            self.finish(guard, Some(StreamEnd::Broken), engine);
        } else if stream.nudges.as_mut().is_some_and(|n| n.take_due(now)) {
            if stream.octets_in == 0 {
                inner.machine.nudge();
            }
            self.transmit_locked(guard, engine);
        }
    }

    /// Whether it has a stream.
    pub fn is_connected(&self) -> bool {
        self.inner.lock().stream.is_some()
    }

    /// Ends the queue pair. A stream it still has is closed behind what was framed; its
    /// completions are dropped.
    pub fn destroy(self: &Arc<Self>) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.pd.engine();
        self.send_held_answer(&mut self.inner.lock(), engine);
        self.end_bring_up(engine);
        self.disconnect();
        engine.forget_qp(self.number);
        engine.regions.read().release_windows(self.number);
        self.send_cq.forget(self.number);
        self.send_cq.remove_sender(self.number);
        self.recv_cq.forget(self.number);
        self.pd
            .context()
            .forget_events(AsyncObject::Qp(self.cookie));
        self.send_cq.drop_user();
        self.recv_cq.drop_user();
        self.pd.drop_user();
        if let Some(srq) = &self.srq {
            srq.drop_user();
        }
        engine.stats.subtract(Total::QueuePairs, 1);
    }
}

fn needs_fin(machine: &QpMachine) -> bool {
    machine.ending() == Ending::Draining
}

pub(crate) fn checked_cap(cap: QpCap, shared_receive: bool) -> Result<QpCap, Error> {
    let sizes_ok = cap.max_send_wr <= MAX_WR && cap.max_recv_wr <= MAX_WR;
    let lists_ok = cap.max_send_sge as usize <= MAX_SGE && cap.max_recv_sge as usize <= MAX_SGE;
    if !sizes_ok || !lists_ok || cap.max_inline_data as usize > MAX_INLINE {
        return Err(Error::Invalid("queue pair capacities beyond the device's"));
    }
    Ok(QpCap {
        max_send_wr: cap.max_send_wr.max(1),
        max_recv_wr: if shared_receive { 0 } else { cap.max_recv_wr },
        max_send_sge: cap.max_send_sge.max(1),
        max_recv_sge: if shared_receive {
            0
        } else {
            cap.max_recv_sge.max(1)
        },
        max_inline_data: cap.max_inline_data,
    })
}
