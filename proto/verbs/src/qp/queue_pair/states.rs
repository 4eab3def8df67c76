//! Changes of state that the program asks for.

use super::Qp;
use crate::host::Host;
use crate::qp::lifecycle::Change;
use crate::types::{PostError, QpState};

#[cfg(doc)]
use crate::types::AsyncEventKind;

impl Qp {
    /// The program asks for RTR or RTS itself.
    ///
    /// # Errors
    /// The transition does not exist.
    pub fn bring_to(&mut self, to: QpState) -> Result<(), PostError> {
        self.lifecycle.bring_to(to)
    }

    /// Whether the program walks the states itself.
    pub fn is_out_of_band(&self) -> bool {
        self.lifecycle.is_out_of_band()
    }

    /// Whether a stream may be attached now.
    pub fn takes_stream(&self) -> bool {
        self.lifecycle.awaits_stream() && self.stream.is_none()
    }

    /// A state change that the program asks for. RTR and RTS are entered by [`Qp::attach`].
    ///
    /// # Errors
    /// The transition does not exist, or needs a connection.
    pub fn modify(&mut self, to: QpState, host: &mut impl Host) -> Result<(), PostError> {
        match self.lifecycle.change(to, self.stream.is_some())? {
            Change::Made => {}
            Change::Disconnect => self.disconnect(host),
            Change::Fail => {
                self.disconnect(host);
                self.enter_error(host);
            }
            // Queues empty, no completion for what was posted.
            Change::Reset => {
                *self = Qp {
                    attributes: self.attributes,
                    rnr: self.rnr.reset(),
                    ..Qp::new(*self.attributes.config())
                };
            }
        }
        Ok(())
    }

    /// From RTS: brings the send queue to rest. With `notify`, an event says when it is
    /// ([`AsyncEventKind::SqDrained`]).
    ///
    /// # Errors
    /// Not in RTS.
    pub fn drain(&mut self, notify: bool, host: &mut impl Host) -> Result<(), PostError> {
        self.lifecycle.drain(notify)?;
        self.note_rest(host);
        Ok(())
    }

    /// From SQD back to RTS: what was posted goes on.
    ///
    /// # Errors
    /// Not in SQD.
    pub fn resume(&mut self) -> Result<(), PostError> {
        self.lifecycle.resume()
    }

    /// Whether it is in SQD, and something that was begun is not complete.
    pub fn is_draining(&self) -> bool {
        self.lifecycle.state() == QpState::Sqd && self.requester.is_under_way()
    }
}
