//! Octets of the stream that a program wants to be rid of.

use weft_os::stream;
use weft_stream::Next;

use super::spans::Spans;
use super::{Connection, Received};
use crate::Errno;

impl Connection<'_> {
    /// Throws octets of the stream away: as many as there are, and no more than `octets`.
    ///
    /// # Errors
    /// The connection is over.
    pub fn discard(&self, octets: usize) -> Result<Received, Errno> {
        if !self.is_open() {
            return Ok(Received::Nothing);
        }
        let mut gone = 0;
        while gone < octets {
            let mut receiving = self.take_receiving()?;
            match self.begin_write(&mut receiving) {
                Ok(Received::Octets(_)) => {}
                _ if gone > 0 => break,
                other => return other,
            }
            let Next::Payload(left) = receiving.receiver.next() else {
                break;
            };
            let now = (octets - gone).min(left as usize);
            receiving.begin_to_take(Spans::of_payload(now));
            match stream::discard(self.fd, now) {
                // It ended in the middle of a message.
                Ok(0) if gone == 0 => return self.at_end(&receiving.receiver),
                Ok(0) => break,
                Ok(now) => {
                    self.take_payload(&mut receiving, now);
                    gone += now;
                }
                Err(_) => break,
            }
        }
        // Framing that follows would be told as if it were more.
        let _ = self.look();
        Ok(if gone > 0 {
            Received::Octets(gone)
        } else {
            Received::Nothing
        })
    }
}
