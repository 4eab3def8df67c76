//! What a program's close leaves to do.
//!
//! The kernel goes on for a program that has closed its socket: it sends what it took. What lies beside the socket is
//! ours to send, and a socket that is closed with octets unread resets the connection, framing or not. So a connection
//! that has something under way is kept a little longer than the program's descriptor.

use weft_stream::Next;

use super::slot::State;
use super::{Connection, Received};
use crate::Errno;

/// How a connection that the program has closed goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing is under way: the socket can be closed.
    Nothing,
    /// The end of a message has to come, or the other end's answer. The program's octets have all left.
    Framing,
    /// Octets of the program's have not left.
    Octets,
}

impl Connection<'_> {
    /// Goes on as far as it can at once with what a close would cut off; says what is left.
    pub fn wind_up(&self) -> Left {
        let try_to = || -> Result<Left, Errno> {
            // The end leaves as octets do: a client that says nothing is not waited for longer.
            self.settle_to_send()?;
            if !self.finish()? {
                return Ok(Left::Octets);
            }
            match self.slot.state() {
                State::Asked | State::Accepted | State::Answering => Ok(Left::Framing),
                State::Open | State::Listening => self.left_to_read(),
                _ => Ok(Left::Nothing),
            }
        };
        match try_to() {
            Ok(left) => left,
            // Another thread, of a process that shares the connection, is at it.
            Err(libc::EAGAIN) => Left::Octets,
            // Of a connection that is over nothing is left.
            Err(_) => Left::Nothing,
        }
    }

    fn left_to_read(&self) -> Result<Left, Errno> {
        // Octets of the stream that nobody reads make the close a reset, as they do with TCP; the end is the end.
        if self.look()? != Received::Nothing {
            return Ok(Left::Nothing);
        }
        let receiving = self.take_receiving()?;
        let receiver = &receiving.receiver;
        let is_in_payload = matches!(receiver.next(), Next::Payload(_));
        let owes_first = receiving.awaits_first != 0 && !receiver.has_begun();
        Ok(
            match owes_first || receiver.owes_message() && !is_in_payload {
                true => Left::Framing,
                false => Left::Nothing,
            },
        )
    }
}
