//! How the parts stop: who is told what when the stream ends (`crate::qp::ending` has the table).

use weft_iwarp::{Fault, PeerFault, Terminate, TerminateCode};

use super::Qp;
use crate::host::Host;
use crate::qp::control::Control;
use crate::qp::ending::{async_event_of, QpEvent};
use crate::qp::framing::Framer;
use crate::qp::terminated::Terminated;
use crate::qp::turn::Turn;
use crate::types::{AsyncEventKind, QpState, WcStatus};

impl Qp {
    /// The peer broke a rule: tell it, then end (RFC 5040 section 7.1).
    #[cold]
    pub(super) fn end_at_fault(&mut self, fault: Fault, host: &mut impl Host) {
        if !self.lifecycle.is_live() {
            return;
        }
        self.drain_with(fault.terminate(), host);
        host.async_event(async_event_of(fault.fault));
        self.counters.errors += 1;
        self.counters.refused_accesses += u64::from(fault.fault.is_refused_access());
        self.events.push_back(QpEvent::PeerFault(fault));
        self.enter_error(host);
    }

    /// A request or buffer of this side was at fault.
    #[cold]
    pub(super) fn end_locally(&mut self, host: &mut impl Host) {
        if !self.lifecycle.is_live() {
            return;
        }
        let terminate = Fault::new(PeerFault::SegmentTooShort, "").terminate();
        let local = terminate.map(|t| Terminate {
            code: TerminateCode::new(0, 0, 0),
            ddp: None,
            read_request: None,
            ..t
        });
        self.drain_with(local, host);
        self.events
            .push_back(QpEvent::LocalFault(WcStatus::LocalProtection));
        self.enter_error(host);
    }

    /// The peer's Terminate: never answered by another one.
    #[cold]
    pub(super) fn end_terminated(&mut self, terminated: &Terminated, host: &mut impl Host) {
        if let Some(sequence) = self.requester.fail_terminated(terminated) {
            // The peer came as far as this one.
            self.acknowledgements.note_acknowledged(sequence);
            self.complete_sends(host);
        }
        self.outgoing.clear();
        self.lifecycle.begin_draining();
        self.timers.linger(host.now());
        host.async_event(AsyncEventKind::QpFatal);
        self.events
            .push_back(QpEvent::Terminated(terminated.terminate()));
        self.enter_error(host);
    }

    /// The program wants the connection to end: what is framed still goes out.
    pub fn disconnect(&mut self, host: &mut impl Host) {
        if !self.lifecycle.is_live() || self.stream.is_none() {
            return;
        }
        self.drain_with(None, host);
        self.enter_error(host);
    }

    /// The transport ended: FIN, reset or a local failure. Whether the queue pair has done with it. It has not while
    /// messages that arrived wait for receives ([`crate::qp::Ending::HalfClosed`]): the driver calls again once none
    /// does ([`Qp::holding`]).
    ///
    /// Their sender has been told that they are complete, and comes to no other end if their receives are posted late.
    pub fn stream_ended(&mut self, host: &mut impl Host) -> bool {
        if self.lifecycle.state() == QpState::Reset {
            // It was reset before the end of its stream was seen.
            return true;
        }
        if self.goes_on_receiving(host) {
            self.lifecycle.half_close();
            self.follow_rnr(host);
            return false;
        }
        if self.survives_its_stream() {
            return true;
        }
        self.lifecycle.close();
        self.forget_time();
        self.outgoing.clear();
        self.enter_error(host);
        true
    }

    /// The stream of a queue pair brought up by hand ended without a fault. True when nothing was
    /// under way: the queue pair waits for another one. Otherwise the oldest send is marked as not
    /// answered, and the caller fails the queue pair.
    fn survives_its_stream(&mut self) -> bool {
        if !self.lifecycle.is_out_of_band() || !self.lifecycle.is_live() {
            return false;
        }
        if self.has_sends_outstanding() {
            self.requester.fail_unanswered();
            return false;
        }
        let in_message = self.receives.in_message()
            || self.arriving.open().is_some()
            || self.rnr_queue.is_cut_off();
        if in_message {
            return false;
        }
        self.forget_stream();
        true
    }

    /// The driver has dropped the stream: the queue pair waits for another one.
    pub fn forget_stream(&mut self) {
        self.stream = None;
        self.lifecycle.detach();
        self.outgoing.clear();
        self.reads.clear();
        self.responder.clear();
        self.forget_arriving();
        self.receives.take_back();
        self.requester.forget_message();
        self.forget_asking();
        self.forget_time();
    }

    /// Nobody answers where the peer should be: the oldest send ends in
    /// [`WcStatus::RetryExceeded`], everything else is flushed.
    pub fn peer_unreachable(&mut self, host: &mut impl Host) {
        self.requester.fail_unanswered();
        self.stream = None;
        self.forget_time();
        self.outgoing.clear();
        self.lifecycle.close();
        self.enter_error(host);
    }

    /// Lets go of the buffers that wait, appends `terminate` and begins to drain.
    fn drain_with(&mut self, terminate: Option<Terminate>, host: &mut impl Host) {
        if !self.may_send() || self.outgoing.detach(host).is_err() {
            // A stream that cannot go on at an FPDU boundary is cut.
            self.outgoing.clear();
            self.lifecycle.close();
            return;
        }
        self.lifecycle.begin_draining();
        self.timers.linger(host.now());
        let framer = Framer::new(
            &mut self.stream,
            &mut self.outgoing,
            &mut self.counters,
            self.attributes.scope(),
        );
        if let (Some(terminate), Some(mut framer)) = (terminate, framer) {
            framer.terminate(&terminate);
        }
    }

    /// Error state: everything posted is flushed, in order, send queue first.
    pub(super) fn enter_error(&mut self, host: &mut impl Host) {
        self.lifecycle.fail();
        self.flush_send_queue(host);
        self.reads.clear();
        self.responder.clear();
        self.forget_arriving();
        self.flush_recv_queue(host);
    }

    pub(super) fn flush_send_queue(&mut self, host: &mut impl Host) {
        self.release_withheld(host);
        let config = self.attributes.config();
        self.requester.flush(config, &mut self.counters, host);
        self.forget_asking();
    }

    pub(super) fn flush_recv_queue(&mut self, host: &mut impl Host) {
        let config = self.attributes.config();
        self.receives.flush(config, &mut self.counters, host);
    }

    /// What was arriving, and what waits for receives.
    fn forget_arriving(&mut self) {
        self.arriving.clear();
        self.writes.clear();
        self.rnr_queue.clear();
        self.rnr.forget_peer();
    }

    /// What this side was about to ask or to say.
    fn forget_asking(&mut self) {
        self.control = Control::default();
        self.turn = Turn::default();
        self.acknowledgements.forget_request();
    }
}
