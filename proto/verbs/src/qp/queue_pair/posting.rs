//! What the program posts.

use super::Qp;
use crate::host::Host;
use crate::qp::framing::Framer;
use crate::qp::peer::Peer;
use crate::types::{PostError, QpState, RecvRequest, SendOp, SendRequest};

/// Requests are framed as they are posted while fewer octets than this wait for the transport.
const FRAMED_AT_ONCE_OCTETS_MAX: usize = 64 * 1024;

impl Qp {
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
        if self.frames_at_once(request) {
            return self.post_at_once(request, host);
        }
        match self.lifecycle.state() {
            QpState::Rts | QpState::Sqd if self.refuses(&request.op) => Err(PostError::Unsupported),
            QpState::Rts | QpState::Sqd => {
                self.requester.post(request, || host.polled_slots())?;
                self.delayed.note_post(|| host.now());
                Ok(())
            }
            QpState::Error | QpState::Sqe => {
                self.requester.post(request, || host.polled_slots())?;
                self.flush_send_queue(host);
                Ok(())
            }
            QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::InvalidState),
        }
    }

    /// Whether a request, if it is short, is framed as it is posted: nothing has to leave before it, and little waits
    /// for the transport.
    #[inline]
    fn frames_at_once(&self, request: &SendRequest<'_>) -> bool {
        matches!(request.op, SendOp::Write { .. } | SendOp::Send)
            && !request.flags.fence
            && self.lifecycle.state() == QpState::Rts
            && self.lifecycle.is_live()
            && !self.requester.is_due()
            && !self.responder.is_pending()
            && !self.control.is_pending()
            && self.outgoing.queued() < FRAMED_AT_ONCE_OCTETS_MAX
            && self.may_send()
    }

    #[inline]
    fn post_at_once(
        &mut self,
        request: &SendRequest<'_>,
        host: &mut impl Host,
    ) -> Result<(), PostError> {
        let Some(mut framer) = Framer::new(
            &mut self.stream,
            &mut self.outgoing,
            &mut self.counters,
            self.attributes.scope(),
        ) else {
            // Not seen: without a stream nothing may be sent.
            return Err(PostError::InvalidState);
        };
        let finished = self.requester.post_at_once(request, &mut framer, host)?;
        self.delayed.note_post(|| host.now());
        if let Some(finished) = finished {
            self.note_framed(finished);
        }
        Ok(())
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
        match self.lifecycle.state() {
            QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::InvalidState),
            QpState::Rts | QpState::Sqd if self.refuses(&request.op) => Err(PostError::Unsupported),
            QpState::Rts | QpState::Error | QpState::Sqd | QpState::Sqe => {
                self.requester
                    .check(request, earlier, || host.polled_slots())
            }
        }
    }

    /// Whether a request is known to be beyond the peer, or the queue pair's type.
    fn refuses(&self, op: &SendOp) -> bool {
        let joined = matches!(op, SendOp::SendWithImm { .. });
        let is_foreign = || {
            self.stream
                .as_ref()
                .is_some_and(|s| s.peer() == Peer::Foreign)
        };
        joined && is_foreign() || self.attributes.type_lacks(op)
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
        let is_reset = self.lifecycle.state() == QpState::Reset;
        if self.attributes.config().shared_receive || is_reset {
            return Err(PostError::InvalidState);
        }
        self.receives.post(request)?;
        if !self.rnr_queue.is_empty() {
            self.on_receives(host);
        }
        if self.lifecycle.flushes() {
            self.flush_recv_queue(host);
        }
        Ok(())
    }

    /// Whether work is posted to the send queue that is not done.
    pub fn has_sends_outstanding(&self) -> bool {
        self.requester.outstanding() > 0
    }

    /// Whether the program works through the send queue one request at a time: one at most is not done.
    pub fn sends_one_at_a_time(&self) -> bool {
        self.requester.outstanding() <= 1
    }
}
