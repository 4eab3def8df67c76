//! Queue pairs that the program brings up itself, INIT, RTR, RTS, with a GID and a queue pair
//! number from the other side (decision 0007).
//!
//! Such a program knows nothing of streams. The stream may come before or after RTS; what is
//! posted before it is there waits. A stream that ends while nothing is outstanding leaves the queue
//! pair as it is, as an InfiniBand queue pair does not notice that its peer has gone; what is
//! outstanding, or posted later, ends in "retry exceeded".

use super::ending::Ending;
use super::Qp;
use crate::host::Host;
use crate::types::{PostError, QpState, WcStatus};

impl Qp {
    /// The program asks for RTR or RTS itself.
    ///
    /// # Errors
    /// The transition does not exist.
    pub fn bring_to(&mut self, to: QpState) -> Result<(), PostError> {
        match (self.state, to) {
            (QpState::Init, QpState::Rtr) => self.out_of_band = true,
            (QpState::Rtr | QpState::Rts, QpState::Rts) if self.out_of_band => {}
            _ => return Err(PostError::InvalidState),
        }
        self.state = to;
        Ok(())
    }

    /// Whether the program walks the states itself.
    pub fn is_out_of_band(&self) -> bool {
        self.out_of_band
    }

    /// Whether a stream may be attached now.
    pub fn takes_stream(&self) -> bool {
        let state_fits = match self.state {
            QpState::Reset | QpState::Init => !self.out_of_band,
            QpState::Rtr | QpState::Rts | QpState::Sqd => self.out_of_band,
            QpState::Sqe | QpState::Error => false,
        };
        state_fits && self.stream.is_none()
    }

    /// Whether work is posted to the send queue that is not done.
    pub fn has_sends_outstanding(&self) -> bool {
        self.sq.front().is_some()
    }

    /// Whether the program works through the send queue one request at a time: one at most is not done.
    pub fn sends_one_at_a_time(&self) -> bool {
        self.sq.len() <= 1
    }

    /// Nobody answers where the peer should be: the oldest send ends in
    /// [`WcStatus::RetryExceeded`], everything else is flushed.
    pub fn peer_unreachable(&mut self, host: &mut impl Host) {
        self.sq.blame(WcStatus::RetryExceeded, |_| true);
        self.stream = None;
        self.forget_time();
        self.outgoing.clear();
        self.ending = Ending::Closed;
        self.enter_error(host);
    }

    /// The stream of a queue pair brought up by hand ended without a fault. True when nothing was
    /// under way: the queue pair waits for another one. Otherwise the oldest send is marked as not
    /// answered, and the caller fails the queue pair.
    pub(super) fn survives_its_stream(&mut self) -> bool {
        if !self.out_of_band || !self.ending.is_live() {
            return false;
        }
        if self.has_sends_outstanding() {
            self.sq.blame(WcStatus::RetryExceeded, |_| true);
            return false;
        }
        if self.receiving.in_message() {
            return false;
        }
        self.forget_stream();
        true
    }

    /// The driver has dropped the stream: the queue pair waits for another one.
    pub fn forget_stream(&mut self) {
        self.stream = None;
        self.ending = Ending::Open;
        self.outgoing.clear();
        self.reads.clear();
        self.responder.clear();
        self.receiving.clear();
        self.take_receive_back();
        self.requester = super::requester::Requester::default();
        self.acknowledgements.forget_request();
        self.forget_time();
    }
}
