//! Sends of a few octets: a copy of them, with the framing around it, costs the kernel less than a list of parts.

use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::frame::{trailer, TRAILER_LEN_MAX, WRITE_HEADER_LEN};
use weft_stream::plan::{Plan, Unfinished};

use super::directions::{Held, Sending};
use super::fitting::{end_of_segment, Fits, AROUND_MAX};
use super::slot::PAYLOAD_MAX;
use super::Connection;
use crate::Errno;

/// Octets of the program's that are copied at most.
pub(super) const SMALL_MAX: usize = 512;

/// The FPDUs of one small send, as they leave.
struct Copied {
    octets: [u8; SMALL_MAX + AROUND_MAX],
    /// Where the Write ends.
    write_end: usize,
    /// Where the message behind it does, which a peer that is Weft does not get.
    end: usize,
}

/// The FPDUs of a plan of one Write, of the program's octets from `from` on; nothing where not all of those can be
/// read.
fn copied(plan: &Plan, data: &UserBuffers, from: usize) -> Option<Copied> {
    let write = plan.frames().next()?;
    let payload_end = WRITE_HEADER_LEN + plan.octets();
    let mut octets = [0; SMALL_MAX + AROUND_MAX];
    octets[..WRITE_HEADER_LEN].copy_from_slice(&write.header);
    let payload = &mut octets[WRITE_HEADER_LEN..payload_end];
    data.read_range(from..from + plan.octets(), payload).ok()?;
    let (behind, behind_len) = trailer(plan.octets(), 0);
    octets[payload_end..payload_end + TRAILER_LEN_MAX].copy_from_slice(&behind);
    let write_end = payload_end + behind_len;
    let mut end = write_end;
    if let Some(message) = plan.message() {
        end += message.len();
        octets[write_end..end].copy_from_slice(&message);
    }
    Some(Copied {
        octets,
        write_end,
        end,
    })
}

impl Connection<'_> {
    /// Sends all octets of `data` from `from` on, no more than [`SMALL_MAX`], in one FPDU and from a copy; gives how
    /// many are on their way. Nothing where another way of sending has to see to them: they have a CRC, cannot all be
    /// read, or have no room.
    pub(super) fn send_small(
        &self,
        sending: &mut Held<'_, Sending>,
        data: &UserBuffers,
        from: usize,
        flags: i32,
    ) -> Result<Option<usize>, Errno> {
        let octets = data.octets() - from;
        let plan = sending.sender.plan(octets, PAYLOAD_MAX, 1);
        if sending.sender.has_crc() || octets == 0 || plan.octets() < octets {
            return Ok(None);
        }
        let Some(copy) = copied(&plan, data, from) else {
            return Ok(None);
        };
        match self.fits(sending, octets) {
            Fits::Whole(whole) if whole == octets => {}
            _ => return Ok(None),
        }
        sending.planned = octets as u32;
        sending.commit();
        let flags = flags | end_of_segment(sending);
        let sent = stream::give(self.fd, &copy.octets[..copy.end], flags);
        sending.planned = 0;
        let taken = match sent.map_err(|errno| self.send_failed(errno)) {
            Ok(taken) => taken,
            Err(libc::EAGAIN) => return Ok(Some(0)),
            Err(errno) => return Err(errno),
        };
        let progress = plan.taken(taken);
        sending.sender = progress.sender;
        let rest_end = match progress.unfinished {
            None => taken,
            Some(Unfinished::Write { .. }) => copy.write_end,
            Some(Unfinished::Message { .. }) => copy.end,
        };
        if rest_end > taken {
            self.queue(sending, &copy.octets[taken..rest_end])?;
        }
        self.announce(sending, progress.octets, taken)?;
        Ok(Some(progress.octets))
    }
}
