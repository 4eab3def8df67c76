//! Octets of the stream from a file or a pipe, and to a pipe, without the program's memory between.

use weft_os::parts::Receives;
use weft_stream::frame::{self, WRITE_HEADER_LEN};
use weft_stream::Next;

use super::fitting::{end_of_segment, Fits};
use super::receiving::Received;
use super::sending::covered_trailer;
use super::slot::PAYLOAD_MAX;
use super::spans::Spans;
use super::Connection;
use crate::Errno;

impl Connection<'_> {
    /// Sends octets that `read` puts into the room it is given, at most `most`; gives how many those were. `read` is
    /// called once, and only where the socket has room, and gives 0 at the end of what it reads.
    ///
    /// # Errors
    /// `EAGAIN` where neither socket nor peer has room; what `read` failed with; or the connection is over.
    pub fn send_read(
        &self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut sending = self.take_sending()?;
        if let Some(early) = self.kept_early()? {
            return self.send_early(&mut sending, early, most, read);
        }
        if sending.shut_down > 0 {
            return Err(libc::EPIPE);
        }
        if !self.flush(&mut sending, 0)? {
            return Err(libc::EAGAIN);
        }
        let most = match self.fits(&mut sending, most.min(PAYLOAD_MAX))? {
            Fits::Whole(octets) | Fits::InPart(octets) => octets,
            Fits::Nothing => 0,
        };
        let most = sending.sender.plan(most, PAYLOAD_MAX, 1).octets();
        if most == 0 {
            return Err(libc::EAGAIN);
        }
        let mut rest = self.take_octets(&self.slot.rest)?;
        let octets = read(&mut rest[WRITE_HEADER_LEN..WRITE_HEADER_LEN + most])?;
        let plan = sending.sender.plan(octets, PAYLOAD_MAX, 1);
        let Some(write) = plan.frames().next() else {
            return Ok(0);
        };
        let (crc, end) = (sending.sender.has_crc(), WRITE_HEADER_LEN + octets);
        rest[..WRITE_HEADER_LEN].copy_from_slice(&write.header);
        let (trailer, len) = covered_trailer(&rest[..end], octets, crc);
        rest[end..end + len].copy_from_slice(&trailer[..len]);
        drop(rest);
        (sending.rest_at, sending.rest_len) = (0, (end + len) as u32);
        self.slot.set_has_rest(true);
        sending.sender = plan.taken(frame::write_len(octets)).sender;
        let mut wire = end + len;
        if let Some(message) = sending.sender.announce() {
            self.queue(&mut sending, &message)?;
            wire += message.len();
        }
        sending.count(octets, wire);
        let flags = end_of_segment(&mut sending);
        sending.beside().surely = 0;
        self.flush(&mut sending, flags)?;
        Ok(octets)
    }

    /// Gives octets of the stream to `write`, at most `most`, and takes from the socket as many as that took.
    ///
    /// # Errors
    /// What `write` failed with; or the connection is over.
    pub fn receive_written(
        &self,
        most: usize,
        write: impl FnOnce(&[u8]) -> Result<usize, Errno>,
    ) -> Result<Received, Errno> {
        if !self.is_open() {
            return Ok(self.before_start());
        }
        let mut receiving = self.take_receiving()?;
        match self.begin_write(&mut receiving)? {
            Received::Octets(_) => {}
            other => return Ok(other),
        }
        let Next::Payload(left) = receiving.receiver.next() else {
            return Ok(Received::Nothing);
        };
        let mut area = self.take_octets(&self.slot.area)?;
        let room = area.len().min(left as usize).min(most);
        let seen = match self.seen(&mut area[..room])? {
            None => return Ok(Received::Nothing),
            Some(0) => return self.at_end(&receiving.receiver),
            Some(seen) => seen,
        };
        let octets = write(&area[..seen])?;
        let mut receives = Receives::new();
        let has_place = receives.own(&mut area[..octets]);
        debug_assert!(has_place);
        receiving.begin_to_take(Spans::of_payload(octets));
        let taken = receives.receive(self.fd);
        let taken = taken.map_err(|errno| self.failed(errno))?;
        self.take_payload(&mut receiving, taken);
        drop((area, receiving));
        // Framing that follows would be told as if it were more.
        let _ = self.look();
        Ok(Received::Octets(taken))
    }
}
