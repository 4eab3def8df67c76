//! A reliable connected queue pair over one iWARP stream.
//!
//! The driver's calls come in four kinds. **Commands** from the program: `post_send`, `post_recv`, `disconnect`,
//! `modify`. **From the stream**: [`Qp::attach`] once MPA start-up is over, [`Qp::receive`] with octets, [`Qp::placed`]
//! for octets it read straight to their target, [`Qp::sent`], [`Qp::stream_ended`]. **From the clock**:
//! [`Qp::handle_timeout`], no later than [`Qp::deadline`]; the time itself the driver gives as [`Host::now`]. **Towards
//! the stream**: [`Qp::fill`] frames what is due into [`Qp::outgoing`], [`Qp::poll_event`] tells what happened. After
//! any of the first three kinds the driver calls `fill`, sends, drains the events, and looks at the deadline.
//!
//! Divided by concern: `requester` turns the send queue into messages, `responder` answers Read
//! Requests, `receive` takes segments apart, `untagged` fills receive buffers, `reads` matches
//! Read Responses, `immediate` and `atomics` hold both sides of RFC 7306, `large` what two Weft
//! peers tell each other, `out_of_band` serves programs without a connection manager, `acknowledged` when their
//! requests are complete, `draining` is SQD, `holding` what
//! waits for a receive, `unreliable` what UC loses, `ending` Terminates, flushing and the states.

mod acknowledged;
mod atomics;
mod delayed;
mod draining;
mod ending;
mod first_fpdu_probe;
mod immediate;
mod out_of_band;
mod peer;
mod reads;
mod receive;
mod requester;
mod responder;
mod rnr;
mod rnr_queue;
mod timers;
mod unreliable;
mod untagged;

use alloc::collections::VecDeque;
use core::time::Duration;

use weft_iwarp::{Established, Inbound, Outbound, Role};

use crate::host::{Host, Scope};
use crate::outgoing::Outgoing;
use crate::types::{
    Access, AsyncEventKind, Completion, PdId, PostError, QpCap, QpNumber, QpState, RecvRequest,
    SendRequest, WcStatus,
};
use crate::wqe::{Progress, RecvQueue, SendQueue};

pub use ending::{Ending, QpEvent};
pub use receive::{DirectTarget, Received};
pub use timers::{Close, LINGER};

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Its number.
    pub number: QpNumber,
    /// Its protection domain.
    pub pd: PdId,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// Receives come from a shared receive queue.
    pub shared_receive: bool,
}

/// How long a peer that promised a message first may keep silent, where nobody says otherwise.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How large FPDUs may become (decision 0004).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FpduPolicy {
    /// To the EMSS, larger with a peer that has shown to be Weft.
    #[default]
    Auto,
    /// Never larger than the EMSS.
    Emss,
    /// As large as MPA allows, whoever the peer is.
    Large,
}

/// Counts since the queue pair was connected.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpCounters {
    /// Send work requests completed, by success.
    pub sends_completed: u64,
    /// Receives completed.
    pub recvs_completed: u64,
    /// Octets of payload placed.
    pub octets_placed: u64,
    /// Octets of payload framed for sending.
    pub octets_framed: u64,
    /// DDP segments received.
    pub segments_in: u64,
    /// DDP segments framed.
    pub segments_out: u64,
    /// Work requests that ended in an error other than a flush.
    pub errors: u64,
    /// Times the peer reached for memory that it was not given.
    pub refused_accesses: u64,
}

/// What the other end of a stream is known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Peer {
    /// It has shown neither.
    #[default]
    Unknown,
    /// It has announced itself; it knows what no RFC says.
    Weft,
    /// It answered without announcing itself.
    Foreign,
}

/// The stream under a connected queue pair.
#[derive(Debug)]
struct Stream {
    inbound: Inbound,
    outbound: Outbound,
    /// RFC 5044 section 7.1.2: the responder sends nothing before the first FPDU arrived.
    may_send: bool,
    /// The responder still swallows a Send that is the ready-to-receive message.
    swallow_rtr_send: bool,
    fpdu_policy: FpduPolicy,
    /// FPDUs are made to fit the EMSS.
    follows_emss: bool,
    /// What is known of the peer.
    peer: Peer,
    /// This side has told the peer that it is Weft, or is about to.
    announced: bool,
    /// The peer was asked what it is.
    detection_sent: bool,
    /// Reads this side may have outstanding.
    ord: u16,
    /// Reads the peer may have outstanding here.
    ird: u16,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    number: QpNumber,
    pd: PdId,
    cap: QpCap,
    sq_sig_all: bool,
    shared_receive: bool,
    state: QpState,
    access: Access,
    rnr: rnr::Rnr,
    start_timeout: Duration,
    /// It is of type UC.
    unreliable: bool,
    sq: SendQueue,
    rq: RecvQueue,
    stream: Option<Stream>,
    outgoing: Outgoing,
    requester: requester::Requester,
    responder: responder::Responder,
    reads: reads::OutstandingReads,
    receiving: receive::Receiving,
    ending: Ending,
    /// The program walks it through its states itself: the stream comes and goes underneath.
    out_of_band: bool,
    acknowledge: bool,
    acknowledgements: acknowledged::Acknowledgements,
    delayed: delayed::Delayed,
    /// Of an initiator that has heard nothing from its peer.
    probes: Option<first_fpdu_probe::Probes>,
    timers: timers::Timers,
    /// In SQD: the program is to be told when the send queue is at rest.
    notify_drained: bool,
    events: VecDeque<QpEvent>,
    counters: QpCounters,
}

impl Qp {
    /// A queue pair in RESET.
    pub fn new(config: QpConfig) -> Qp {
        Qp {
            number: config.number,
            pd: config.pd,
            cap: config.cap,
            sq_sig_all: config.sq_sig_all,
            shared_receive: config.shared_receive,
            state: QpState::Reset,
            access: Access::REMOTE_READ
                .union(Access::REMOTE_WRITE)
                .union(Access::REMOTE_ATOMIC),
            rnr: rnr::Rnr::default(),
            start_timeout: START_TIMEOUT,
            unreliable: false,
            sq: SendQueue::new(&config.cap),
            rq: RecvQueue::new(&config.cap),
            stream: None,
            outgoing: Outgoing::default(),
            requester: requester::Requester::default(),
            responder: responder::Responder::default(),
            reads: reads::OutstandingReads::default(),
            receiving: receive::Receiving::default(),
            ending: Ending::Open,
            out_of_band: false,
            acknowledge: true,
            acknowledgements: acknowledged::Acknowledgements::default(),
            delayed: delayed::Delayed::default(),
            probes: None,
            timers: timers::Timers::default(),
            notify_drained: false,
            events: VecDeque::new(),
            counters: QpCounters::default(),
        }
    }

    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// On whose behalf it reaches memory.
    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            pd: self.pd,
            qp: self.number,
        }
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// What the peer may do through it, as `qp_access_flags`.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Sets what the peer may do through it.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// Counts since it was connected.
    pub fn counters(&self) -> &QpCounters {
        &self.counters
    }

    /// Outbound and inbound read limits of the stream: `(ORD, IRD)`.
    pub fn read_limits(&self) -> Option<(u16, u16)> {
        self.stream.as_ref().map(|s| (s.ord, s.ird))
    }

    /// Largest ULPDU this side frames at the moment, octets.
    pub fn mulpdu(&self) -> Option<usize> {
        self.stream.as_ref().map(|s| s.outbound.mulpdu())
    }

    /// Whether large payloads are sent from where the program has them.
    pub fn sends_by_reference(&self) -> bool {
        self.stream
            .as_ref()
            .is_some_and(|s| s.outbound.by_reference())
    }

    /// Whether the stream is one on which this side may send: for a responder that the peer's
    /// first FPDU has arrived.
    pub fn may_send(&self) -> bool {
        self.stream.as_ref().is_some_and(|s| s.may_send)
    }

    /// Lets a responder send although the peer's first FPDU has not arrived, which RFC 5044 section 7.1.2 forbids: for
    /// a program whose server speaks first and an initiator that promises no ready-to-receive message.
    pub fn speak_first(&mut self) {
        self.note_first_segment();
    }

    /// Puts the queue pair on a stream whose MPA start-up is over: RTS, unless the program walks
    /// the states itself.
    ///
    /// `emss` is TCP's effective maximum segment size, octets; `now` the host's time.
    pub fn attach(
        &mut self,
        established: &Established,
        emss: usize,
        policy: FpduPolicy,
        now: Duration,
    ) {
        let mut stream = Stream {
            inbound: Inbound::new(established),
            outbound: Outbound::new(established, emss),
            may_send: established.role == Role::Initiator,
            swallow_rtr_send: false,
            fpdu_policy: policy,
            follows_emss: policy != FpduPolicy::Large,
            peer: Peer::Unknown,
            announced: false,
            detection_sent: false,
            ord: established.ord,
            ird: established.ird,
        };
        if policy == FpduPolicy::Large {
            stream.outbound.set_mulpdu(weft_iwarp::mpa::fpdu::MAX_ULPDU);
        }
        if !self.out_of_band {
            self.state = QpState::Rts;
        }
        self.stream = Some(stream);
        // What an earlier stream's transport held has gone with it.
        self.outgoing.note_unreleased(0);
        self.counters = QpCounters::default();
        self.forget_time();
        match established.role {
            Role::Initiator => self.probes = Some(first_fpdu_probe::Probes::new()),
            Role::Responder if established.peer_to_peer => {
                // The peer promised a message; a peer that keeps silent keeps no queue pair.
                let at = now + self.start_timeout;
                self.timers.set(timers::Timer::FirstFpdu, at);
            }
            Role::Responder => {}
        }
        self.start_stream(established);
    }

    /// TCP's effective maximum segment size changed, to so many octets. FPDUs that are made from now on fit it, unless
    /// they are larger anyway (decision 0004).
    pub fn set_emss(&mut self, emss: usize) {
        if let Some(stream) = self.stream.as_mut().filter(|s| s.follows_emss) {
            stream.outbound.set_emss(emss);
        }
    }

    /// Sets how long a peer that promised a message first may keep silent on streams that are attached from now on.
    pub fn set_start_timeout(&mut self, timeout: Duration) {
        self.start_timeout = timeout;
    }

    /// What was timed on an earlier stream is over.
    fn forget_time(&mut self) {
        self.timers = timers::Timers::default();
        self.delayed = delayed::Delayed::default();
        self.probes = None;
        self.rnr = self.rnr.reset();
    }

    /// Posts to the send queue. Nothing is sent before [`Qp::fill`].
    ///
    /// # Errors
    /// See [`PostError`]. In the error state the request is taken and flushed at once.
    #[inline]
    pub fn post_send(
        &mut self,
        request: &SendRequest<'_>,
        host: &mut impl Host,
    ) -> Result<(), PostError> {
        match self.state {
            QpState::Rts | QpState::Sqd if self.refuses(&request.op) => Err(PostError::Unsupported),
            QpState::Rts | QpState::Sqd => {
                self.sq.push(request, || host.polled_slots())?;
                self.delayed.note_post(|| host.now());
                Ok(())
            }
            QpState::Error | QpState::Sqe => {
                self.sq.push(request, || host.polled_slots())?;
                self.flush_send_queue(host);
                Ok(())
            }
            QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::InvalidState),
        }
    }

    /// Whether [`Qp::post_send`] would take a request if `earlier` others went before it.
    ///
    /// # Errors
    /// Those that posting it would give.
    pub fn check_send(
        &mut self,
        request: &SendRequest<'_>,
        earlier: u32,
        host: &impl Host,
    ) -> Result<(), PostError> {
        match self.state {
            QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::InvalidState),
            QpState::Rts | QpState::Sqd if self.refuses(&request.op) => Err(PostError::Unsupported),
            QpState::Rts | QpState::Error | QpState::Sqd | QpState::Sqe => self
                .sq
                .check(request, earlier, || host.polled_slots())
                .map(|_| ()),
        }
    }

    /// Posts to the receive queue.
    ///
    /// # Errors
    /// See [`PostError`]. In the error state the request is taken and flushed at once.
    #[inline]
    pub fn post_recv(
        &mut self,
        request: &RecvRequest<'_>,
        host: &mut impl Host,
    ) -> Result<(), PostError> {
        if self.shared_receive || self.state == QpState::Reset {
            return Err(PostError::InvalidState);
        }
        self.rq.push(request)?;
        self.receiving.losses.note_receive();
        if self.must_hold() {
            self.on_receives(host);
        }
        if matches!(self.state, QpState::Error | QpState::Sqe) {
            self.flush_recv_queue(host);
        }
        Ok(())
    }

    /// Octets that wait for the transport.
    #[inline]
    pub fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Whether [`Qp::fill`] would frame something.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        let due = self.has_requests_due() || self.responder.pending();
        self.outgoing.queued() > 0 || (due && self.ending.is_live())
    }

    /// Whether there is something to frame of this side's own, beside responses.
    #[inline]
    fn has_requests_due(&self) -> bool {
        (self.sq.unencoded() > 0 && self.may_begin())
            || self.requester.control_pending()
            || self.acknowledgement_request_due()
    }

    /// Whether all that [`Qp::fill`] would frame is acknowledgements, of no octets, to a peer that asks whether its
    /// Writes are placed.
    #[inline]
    pub fn owes_only_acknowledgements(&self) -> bool {
        self.responder.only_acknowledgements()
            && !self.has_requests_due()
            && self.outgoing.queued() == 0
            && self.ending.is_live()
    }

    /// The transport took `octets` of [`Qp::outgoing`] and has copied them.
    #[inline]
    pub fn sent(&mut self, octets: usize, host: &mut impl Host) {
        self.taken(octets, 0, host);
    }

    /// The transport took `octets` of [`Qp::outgoing`]; it refers to the memory of the last `unreleased` octets of all
    /// that it has taken. A work request is not complete before its octets are released: the program may write over
    /// them then.
    #[inline]
    pub fn taken(&mut self, octets: usize, unreleased: usize, host: &mut impl Host) {
        self.outgoing.take(octets);
        self.outgoing.note_unreleased(unreleased);
        self.note_spoken(host);
        self.complete_sends(host);
    }

    /// The transport now refers to the memory of no more than the last `unreleased` octets that it has taken.
    pub fn released(&mut self, unreleased: usize, host: &mut impl Host) {
        self.outgoing.note_unreleased(unreleased);
        self.complete_sends(host);
    }

    /// What happened since the last call.
    #[inline]
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front()
    }

    /// Reports finished send work requests in posting order (RFC 5040 section 5.5, rule 15).
    fn complete_sends(&mut self, host: &mut impl Host) {
        let released = self.outgoing.released();
        while let Some(front) = self.sq.front() {
            match front.progress {
                Progress::Done => {}
                Progress::SentAt(at) if at <= released && self.is_acknowledged(front) => {}
                _ => break,
            }
            let Some(wqe) = self.sq.pop_front() else {
                break;
            };
            self.counters.sends_completed += 1;
            if wqe.flags.signaled || self.sq_sig_all {
                host.complete_send(Completion {
                    wr_id: wqe.wr_id,
                    status: WcStatus::Success,
                    opcode: wqe.opcode(),
                    byte_len: wqe.len,
                    qp: self.number,
                    slots: self.sq.take_slots(),
                    invalidated: None,
                    imm: None,
                    solicited: false,
                    source: None,
                });
            }
        }
        self.note_rest(host);
    }

    fn raise(&mut self, kind: AsyncEventKind, host: &mut impl Host) {
        host.async_event(kind);
    }
}
