//! Sends of a few octets: a copy of them, with the framing around it, costs the kernel less than a list of parts.

use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::frame::{trailer, TRAILER_LEN_MAX, WRITE_HEADER_LEN};
use weft_stream::plan::Unfinished;

use super::directions::{Held, Sending};
use super::fitting::{end_of_segment, Fits, AROUND_MAX};
use super::slot::PAYLOAD_MAX;
use super::Connection;
use crate::Errno;

/// Octets of the program's that are copied at most.
pub(super) const SMALL_MAX: usize = 512;

impl Connection<'_> {
    /// Sends all octets of `data` from `from` on, no more than [`SMALL_MAX`], in one FPDU and from a copy; gives how many
    /// are on their way. Nothing where another way of sending has to see to them: they have a CRC, cannot all be read, or
    /// have no room.
    pub(super) fn send_small(
        &self,
        sending: &mut Held<'_, Sending>,
        data: &UserBuffers,
        from: usize,
        flags: i32,
    ) -> Result<Option<usize>, Errno> {
        let octets = data.octets() - from;
        if sending.sender.has_crc() || octets == 0 {
            return Ok(None);
        }
        let plan = sending.sender.plan(octets, PAYLOAD_MAX, 1);
        let Some(write) = plan.frames().next().filter(|_| plan.octets() == octets) else {
            return Ok(None);
        };
        let mut copy = [0; SMALL_MAX + AROUND_MAX];
        let (end, rest) = (WRITE_HEADER_LEN + octets, from..from + octets);
        copy[..WRITE_HEADER_LEN].copy_from_slice(&write.header);
        if data
            .read_range(rest, &mut copy[WRITE_HEADER_LEN..end])
            .is_err()
        {
            return Ok(None);
        }
        let (behind, behind_len) = trailer(octets, 0);
        copy[end..end + TRAILER_LEN_MAX].copy_from_slice(&behind);
        let write_len = end + behind_len;
        let message = plan.message();
        let message = message.as_ref().map_or(&[][..], |message| &message[..]);
        let len = write_len + message.len();
        copy[write_len..len].copy_from_slice(message);
        match self.fits(sending, octets) {
            Fits::Whole(whole) if whole == octets => {}
            _ => return Ok(None),
        }
        sending.planned = octets as u32;
        sending.commit();
        let sent = stream::give(self.fd, &copy[..len], flags | end_of_segment(sending));
        sending.planned = 0;
        let taken = match sent.map_err(|errno| self.send_failed(errno)) {
            Ok(taken) => taken,
            Err(libc::EAGAIN) => return Ok(Some(0)),
            Err(errno) => return Err(errno),
        };
        let progress = plan.taken(taken);
        sending.sender = progress.sender;
        match progress.unfinished {
            None => {}
            Some(Unfinished::Write { .. }) => self.queue(sending, &copy[taken..write_len])?,
            Some(Unfinished::Message { .. }) => self.queue(sending, &copy[taken..len])?,
        }
        self.announce(sending, progress.octets, taken)?;
        Ok(Some(progress.octets))
    }
}
