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
            return Ok(self.before_start());
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
                Err(libc::EAGAIN) => break,
                // The kernel tells it once: a program that waits for an edge would never hear of it.
                Err(errno) => {
                    let errno = self.failed(errno);
                    if gone == 0 {
                        return Err(errno);
                    }
                    break;
                }
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use weft_os::dgram::ready;
    use weft_os::stream;
    use weft_os::user::OwnBuffer;

    use super::super::testing::{open, pair};
    use super::super::{Received, Slot};

    /// The kernel tells of a reset once. Where a call that throws octets away meets it, that call tells it.
    #[test]
    fn a_reset_amid_a_message_is_told() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        for first in [0, 1, 500] {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair());
            let [client, server] = open(slots, &sockets);
            let [peer, socket] = sockets;
            let own = server.take_receiving().unwrap().beside().own;
            let header = weft_stream::frame::write_header(own.stag, own.to, 3000);
            (&peer).write_all(&header).unwrap();
            (&peer).write_all(&[7; 500]).unwrap();
            while stream::unread(server.fd()) < header.len() + 500 {}
            // Some are received, so that the message has begun, and the rest of what is there is thrown away.
            let mut room = vec![0; first];
            if first > 0 {
                let received = server.receive(&OwnBuffer::from(&mut room[..]), 0);
                assert_eq!(received, Ok(Received::Octets(first)));
            }
            if first < 500 {
                assert_eq!(server.discard(3000), Ok(Received::Octets(500 - first)));
            }
            assert_eq!(server.discard(3000), Ok(Received::Nothing));
            stream::reset(client.fd());
            assert_ne!(ready(server.fd(), libc::POLLERR, 1000), 0);
            assert_eq!(server.discard(3000), Err(libc::ECONNRESET));
            drop((peer, socket));
        }
    }
}
