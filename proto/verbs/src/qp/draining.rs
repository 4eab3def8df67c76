//! The send queue at rest: SQD, as `ibv_modify_qp(3)` has it.
//!
//! What is begun ends, what is posted waits, receives and the peer's requests go on. On iWARP the state of that name is
//! a step of closing (`Closing` in the RDMA verbs), so only devices that show InfiniBand's states come here.

use super::Qp;
use crate::host::Host;
use crate::types::{AsyncEventKind, PostError, QpState};

impl Qp {
    /// From RTS: brings the send queue to rest. With `notify`, an event says when it is
    /// ([`AsyncEventKind::SqDrained`]).
    ///
    /// # Errors
    /// Not in RTS.
    pub fn drain(&mut self, notify: bool, host: &mut impl Host) -> Result<(), PostError> {
        if self.state != QpState::Rts || !self.ending.is_live() {
            return Err(PostError::InvalidState);
        }
        self.state = QpState::Sqd;
        self.notify_drained = notify;
        self.note_rest(host);
        Ok(())
    }

    /// From SQD back to RTS: what was posted goes on.
    ///
    /// # Errors
    /// Not in SQD.
    pub fn resume(&mut self) -> Result<(), PostError> {
        if self.state != QpState::Sqd {
            return Err(PostError::InvalidState);
        }
        self.state = QpState::Rts;
        self.notify_drained = false;
        Ok(())
    }

    /// Whether it is in SQD, and something that was begun is not complete.
    pub fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && (self.sq.under_way() || self.requester.in_message())
    }

    /// Whether the next request of the send queue may be framed.
    #[inline]
    pub(super) fn may_begin(&self) -> bool {
        self.state != QpState::Sqd || self.requester.in_message()
    }

    /// Tells the program, once, that the send queue is at rest.
    #[inline]
    pub(super) fn note_rest(&mut self, host: &mut impl Host) {
        if self.notify_drained && self.state == QpState::Sqd && !self.is_draining() {
            self.notify_drained = false;
            self.raise(AsyncEventKind::SqDrained, host);
        }
    }
}
