//! The queue pair: what a driver calls, and how its parts are joined.
//!
//! The driver's calls come in four kinds. **Commands** from the program: `post_send`, `post_recv`, `disconnect`,
//! `modify`. **From the stream**: [`Qp::attach`] once MPA start-up is over, [`Qp::receive`] with octets, [`Qp::placed`]
//! for octets it read straight to their target, [`Qp::sent`], [`Qp::stream_ended`]. **From the clock**:
//! [`Qp::handle_timeout`], no later than [`Qp::deadline`]; the time itself the driver gives as [`Host::now`]. **Towards
//! the stream**: [`Qp::fill`] frames what is due into [`Qp::outgoing`], [`Qp::poll_event`] tells what happened. After
//! any of the first three kinds the driver calls `fill`, sends, drains the events, and looks at the deadline.
//!
//! Divided by what is joined: `posting` is the program's side, `sending` requester, responder and transport,
//! `receiving` the stream and what a segment is for, `placing` what arrives ahead of order, `requests` the peer's
//! requests and the answers to this side's, `delivering` and `holding` receives and the messages that take or await
//! them, `finding_out` what two Weft peers tell each other, `ending` how all of it stops, `states` the changes of
//! state, `timeouts` the deadlines.

mod delivering;
mod ending;
mod finding_out;
mod holding;
mod placing;
mod posting;
mod receiving;
mod requests;
mod sending;
mod states;
mod timeouts;

use alloc::collections::VecDeque;
use core::time::Duration;

use weft_iwarp::{Established, Role};

use super::acknowledgements::Acknowledgements;
use super::arriving::Arriving;
use super::attributes::{Attributes, QpConfig};
use super::control::Control;
use super::counters::QpCounters;
use super::delayed::Delayed;
use super::ending::{Ending, QpEvent};
use super::first_fpdu_probe::Probes;
use super::lifecycle::Lifecycle;
use super::pause::Pause;
use super::peer::FpduPolicy;
use super::reads::OutstandingReads;
use super::receives::Receives;
use super::requester::Requester;
use super::responder::Responder;
use super::rnr::Rnr;
use super::rnr_queue::RnrQueue;
use super::stream::Stream;
use super::timers::{Timer, Timers};
use super::turn::Turn;
use super::writes::Writes;
use crate::outgoing::Outgoing;
use crate::types::{Access, PdId, QpCap, QpNumber, QpState};

#[cfg(doc)]
use crate::host::Host;

/// A queue pair.
///
/// Its parts stand in memory in this order: those that every message touches come first, and of the others what every
/// message looks at lies together. A process with a thousand queue pairs finds none of them in its caches, and waits
/// for each line of memory that it looks at (docs/scale.md).
#[derive(Debug)]
#[repr(C)]
pub struct Qp {
    lifecycle: Lifecycle,
    turn: Turn,
    control: Control,
    outgoing: Outgoing,
    acknowledgements: Acknowledgements,
    requester: Requester,
    stream: Option<Stream>,
    arriving: Arriving,
    receives: Receives,
    rnr_queue: RnrQueue,
    events: VecDeque<QpEvent>,
    counters: QpCounters,
    writes: Writes,
    delayed: Delayed,
    reads: OutstandingReads,
    responder: Responder,
    attributes: Attributes,
    timers: Timers,
    probes: Probes,
    rnr: Rnr,
    pause: Pause,
}

impl Qp {
    /// A queue pair in RESET.
    pub fn new(config: QpConfig) -> Qp {
        Qp {
            attributes: Attributes::new(config),
            lifecycle: Lifecycle::default(),
            stream: None,
            outgoing: Outgoing::default(),
            control: Control::default(),
            turn: Turn::default(),
            requester: Requester::new(&config.cap),
            reads: OutstandingReads::default(),
            acknowledgements: Acknowledgements::default(),
            responder: Responder::default(),
            delayed: Delayed::default(),
            probes: Probes::default(),
            arriving: Arriving::default(),
            writes: Writes::default(),
            receives: Receives::new(&config.cap),
            rnr_queue: RnrQueue::default(),
            rnr: Rnr::default(),
            pause: Pause::default(),
            timers: Timers::default(),
            events: VecDeque::new(),
            counters: QpCounters::default(),
        }
    }

    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.attributes.config().number
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        self.attributes.config().pd
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> QpState {
        self.lifecycle.state()
    }

    /// How far the end of the stream has come. When it is [`Ending::Draining`] and nothing is
    /// outgoing, the driver sends FIN; when it is [`Ending::Closed`], it closes.
    #[inline]
    pub fn ending(&self) -> Ending {
        self.lifecycle.ending()
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        self.attributes.config().cap
    }

    /// What the peer may do through it, as `qp_access_flags`.
    pub fn access(&self) -> Access {
        self.attributes.access()
    }

    /// Sets what the peer may do through it.
    pub fn set_access(&mut self, access: Access) {
        self.attributes.set_access(access);
    }

    /// Makes it a queue pair of type UC, or of type RC again.
    ///
    /// What a reliable one would end the connection for is then lost, and the connection stays: Sends and Immediate
    /// Data that find no receive, and Writes to where the peer may not write, with the Immediate Data behind them. A
    /// receive queue that ran empty is waited for as a reliable one's is, for a shorter time; one that never had a
    /// receive is not.
    pub fn set_unreliable(&mut self, unreliable: bool) {
        self.attributes.set_unreliable(unreliable);
        if unreliable {
            self.rnr.shorten();
        }
    }

    /// Whether requests of a queue pair that the program brings up itself complete when the peer has them, which is
    /// how it begins.
    pub fn set_acknowledge(&mut self, acknowledge: bool) {
        self.attributes.set_acknowledge(acknowledge);
    }

    /// Sets how long a peer that promised a message first may keep silent on streams that are attached from now on.
    pub fn set_start_timeout(&mut self, timeout: Duration) {
        self.attributes.set_start_timeout(timeout);
    }

    /// Promises the peers of streams that are attached from now on that each TCP segment holds whole FPDUs, so that
    /// they can place them ahead of order without a CRC. FPDUs then fit the EMSS, whatever longer ones the peer takes.
    pub fn set_aligned(&mut self, aligned: bool) {
        self.attributes.set_aligned(aligned);
    }

    /// How often the peer is to be asked to receive a Send of this side's before it fails with
    /// [`crate::types::WcStatus::RnrRetryExceeded`]; `None` for as often as it takes. For queue pairs that the program
    /// brings up itself.
    pub fn set_rnr_retries(&mut self, retries: Option<u8>) {
        self.acknowledgements.set_retries(retries);
    }

    /// Sets the program's RNR retry count: how often its Sends may find no receive at the peer, 7 for without end.
    pub fn set_rnr_retry(&mut self, count: u8) {
        let bounded = self.rnr.set_retry(count);
        self.acknowledgements.set_retries(bounded);
    }

    /// Sets how long a message may wait for a receive; zero ends the connection at once.
    pub fn set_receive_wait(&mut self, wait: Duration) {
        self.rnr.set_wait(wait);
    }

    /// Sets how long one retry of the peer's takes, as the code of `min_rnr_timer`; of it the lowest five bits count.
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        self.rnr.set_min_timer(code);
    }

    /// Counts since it was connected.
    pub fn counters(&self) -> &QpCounters {
        &self.counters
    }

    /// Outbound and inbound read limits of the stream: `(ORD, IRD)`.
    pub fn read_limits(&self) -> Option<(u16, u16)> {
        self.stream.as_ref().map(Stream::read_limits)
    }

    /// Largest ULPDU this side frames at the moment, octets.
    pub fn mulpdu(&self) -> Option<usize> {
        self.stream.as_ref().map(Stream::mulpdu)
    }

    /// Whether large payloads are sent from where the program has them.
    pub fn sends_by_reference(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::by_reference)
    }

    /// Whether the stream is one on which this side may send: for a responder that the peer's
    /// first FPDU has arrived.
    pub fn may_send(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::may_send)
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
        self.lifecycle.attach();
        let aligned = self.attributes.is_aligned();
        self.stream = Some(Stream::new(established, emss, policy, aligned));
        // What an earlier stream's transport held has gone with it.
        self.outgoing.note_unreleased(0);
        self.counters = QpCounters::default();
        self.forget_time();
        match established.role {
            Role::Initiator => {
                self.probes = Probes::of_initiator();
                self.say_ready_to_receive(established.rtr);
            }
            Role::Responder if established.peer_to_peer => {
                // The peer promised a message; a peer that keeps silent keeps no queue pair.
                let at = now + self.attributes.start_timeout();
                self.timers.set(Timer::FirstFpdu, at);
            }
            Role::Responder => {}
        }
    }

    /// TCP's effective maximum segment size changed, to so many octets. FPDUs that are made from now on fit it, unless
    /// they are larger anyway (decision 0004).
    pub fn set_emss(&mut self, emss: usize) {
        if let Some(stream) = &mut self.stream {
            stream.set_emss(emss);
        }
    }

    /// What was timed on an earlier stream is over.
    fn forget_time(&mut self) {
        self.timers = Timers::default();
        self.delayed = Delayed::default();
        self.probes = Probes::default();
        self.rnr = self.rnr.reset();
        self.pause = Pause::default();
    }

    /// What happened since the last call.
    #[inline]
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front()
    }
}
