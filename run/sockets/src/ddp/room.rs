//! Room that the peer, or the start, has to give before a send goes on.
//!
//! The kernel calls a socket writable that has room itself. So a sender that was refused for want of the other room
//! looks at what the peer says, as nobody else may, and is not told by readiness that it could go on.

use super::receiving::Received;
use super::slot::State;
use super::Connection;
use crate::Errno;

impl Connection<'_> {
    /// A send was told `EAGAIN`. Takes what the peer has said, where that may be of room; whether there is some now,
    /// and the send is to be tried again.
    ///
    /// # Errors
    /// The connection is over.
    pub fn hears_of_room(&self) -> Result<bool, Errno> {
        if !self.is_short() {
            self.slot.set_short(false);
            return Ok(false);
        }
        self.slot.set_short(true);
        if self.is_open() {
            self.take_what_was_said()?;
        }
        let is_short = self.is_short();
        self.slot.set_short(is_short);
        Ok(!is_short)
    }

    /// Whether a send would be refused for want of such room, of a peer that has to give some; it counts as refused
    /// then.
    pub fn wants_room(&self) -> bool {
        if !self.slot.is_foreign() || self.slot.state() != State::Open {
            return false;
        }
        let is_short = self.is_short();
        if is_short {
            self.slot.set_short(true);
        }
        is_short
    }

    /// Whether a send that was refused for want of such room would be refused now. What the peer has said by now is
    /// taken.
    ///
    /// # Errors
    /// The connection is over.
    pub fn is_still_short(&self) -> Result<bool, Errno> {
        match self.settle() {
            Ok(_) => {}
            Err(libc::EAGAIN | libc::EINTR) => return Ok(true),
            Err(errno) => return Err(errno),
        }
        if self.is_open() && self.is_short() {
            self.take_what_was_said()?;
        }
        Ok(self.is_short())
    }

    /// Whether a send waits for the peer: for its answer to the start, its first FPDU, its window or its credit.
    fn is_short(&self) -> bool {
        match self.slot.state() {
            State::Asked | State::Accepted | State::Answering | State::Listening => true,
            State::Connecting => self.is_asking(),
            State::Open => self.take_sending().is_ok_and(|sending| {
                sending.rest_len == 0 && sending.sender.plan(1, 1, 1).octets() == 0
            }),
            _ => false,
        }
    }

    /// What the peer has said, behind octets of the stream as well that nobody has received.
    pub(super) fn take_what_was_said(&self) -> Result<(), Errno> {
        let taken = match self.look() {
            Ok(Received::Octets(_)) => self.look_past(),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        };
        match taken {
            // Another call is at it.
            Err(libc::EAGAIN | libc::EINTR) => Ok(()),
            taken => taken,
        }
    }
}
