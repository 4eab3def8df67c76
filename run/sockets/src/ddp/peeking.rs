//! What lies in a socket, looked at and left there.

use weft_os::user::UserBuffers;
use weft_os::{pages, stream};
use weft_stream::{Next, Receiver};

use super::receiving::Received;
use super::slot::AREA_MAX;
use super::Connection;
use crate::Errno;

impl Connection<'_> {
    /// Copies octets of the stream to `room` and leaves them in the socket.
    ///
    /// # Errors
    /// The connection is over, or memory of the program's cannot be written.
    pub fn peek(&self, room: &UserBuffers) -> Result<Received, Errno> {
        // Framing alone is taken away, so that nobody is told of it again.
        match self.look()? {
            Received::Octets(_) => {}
            other => return Ok(other),
        }
        let receiving = self.take_receiving()?;
        let mut area = self.take_octets(&self.slot.area)?;
        let first = self.peek_by(&receiving.receiver, &mut area[..], room)?;
        let unread = stream::unread(self.fd);
        if unread <= AREA_MAX || matches!(first, Received::Octets(got) if got == room.octets()) {
            return Ok(first);
        }
        // Who waits until there is as much as is wanted has to see all that there is.
        match pages::Temporary::new(unread) {
            Some(mut pages) => self.peek_by(&receiving.receiver, pages.octets(), room),
            None => Ok(first),
        }
    }

    /// The same by way of `area`: no more than what the socket has in so many octets.
    fn peek_by(
        &self,
        receiver: &Receiver,
        area: &mut [u8],
        room: &UserBuffers,
    ) -> Result<Received, Errno> {
        let seen = match self.seen(area)? {
            // Amid a message of which no more has come yet.
            None => return Ok(Received::Nothing),
            Some(0) => return self.at_end(receiver),
            Some(seen) => seen,
        };
        let good = self.checked(receiver, &area[..seen])?;
        let (mut got, mut written) = (0, Ok(()));
        walk(receiver, &area[..good], |octets| {
            let now = octets.len().min(room.octets() - got);
            written = room.write_range(got..got + now, &octets[..now]);
            got += now;
            written.is_ok() && got < room.octets()
        });
        written.map_err(|_| libc::EFAULT)?;
        Ok(match got {
            // Nothing of it is whole yet, and no octets would be the end.
            0 if room.octets() > 0 => Received::Nothing,
            got => Received::Octets(got),
        })
    }
}

/// Gives each run of the stream's octets to `each`, of octets that a receiver in this state has before it, until that
/// says false. A fault ends it: whoever receives what stands before that meets it next.
pub(super) fn walk(receiver: &Receiver, octets: &[u8], mut each: impl FnMut(&[u8]) -> bool) {
    let (mut receiver, mut at) = (*receiver, 0);
    while at < octets.len() {
        let next = &octets[at..];
        let of = |left: u32| next.len().min(left as usize);
        at += match receiver.next() {
            Next::Nothing => return,
            Next::Payload(left) => {
                receiver.take_payload(of(left) as u32);
                if !each(&next[..of(left)]) {
                    return;
                }
                of(left)
            }
            Next::Mapped { left, .. } => {
                receiver.take_mapped(of(left) as u32);
                of(left)
            }
            Next::Framing(_) => match receiver.take_framing(next) {
                Ok(framing) if framing.taken > 0 => framing.taken,
                _ => return,
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_stream::frame::{self, write_header};
    use weft_stream::{ConnectionData, Word};

    fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
        let (trailer, len) = frame::trailer(payload.len(), 0);
        [
            &write_header(stag, to, payload.len()),
            payload,
            &trailer[..len],
        ]
        .concat()
    }

    #[test]
    fn the_streams_octets_are_seen_past_those_for_mapped_memory() {
        let own = Receiver::connection_data(1, 0x1000, 2, 0x2000);
        let peer = ConnectionData { weft: false, ..own };
        let mut receiver = Receiver::new(&own, &peer, false);
        receiver.begin_mapping();
        let mut octets = write(1, 0x1000, b"stream");
        octets.extend(write(9, 0x7000, b"mapped"));
        octets.extend(frame::message(weft_iwarp::Msn(1), Word::Data(6), false));
        octets.extend(write(1, 0x1006, b" goes on"));
        let mut seen = Vec::new();
        walk(&receiver, &octets, |some| {
            seen.extend_from_slice(some);
            true
        });
        assert_eq!(seen, b"stream goes on");
        let mut runs = 0;
        walk(&receiver, &octets, |_| {
            runs += 1;
            false
        });
        assert_eq!(runs, 1);
        // A fault ends it.
        octets[16 + 6 + 6 + 4] ^= 0xff;
        seen.clear();
        receiver = Receiver::new(&own, &peer, false);
        walk(&receiver, &octets, |some| {
            seen.extend_from_slice(some);
            true
        });
        assert_eq!(seen, b"stream");
    }
}
