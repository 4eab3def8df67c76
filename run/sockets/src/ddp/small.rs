//! Sends of a few octets: a copy of them, with the framing around it, costs the kernel less than a list of parts.

use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::frame::{write_len, WRITE_HEADER_LEN};
use weft_stream::plan::{Plan, Unfinished};
use weft_stream::Sender;

use super::directions::HeldSending;
use super::fitting::{end_of_segment, Fits, AROUND_MAX};
use super::slot::PAYLOAD_MAX;
use super::Connection;
use crate::Errno;

/// Octets of the program's that are copied at most.
pub(super) const SMALL_MAX: usize = 512;

/// Room for the FPDUs of one small send.
type Copied = [u8; SMALL_MAX + AROUND_MAX];

impl Connection<'_> {
    /// Sends all octets of `data` from `from` on, no more than [`SMALL_MAX`], in one FPDU and from a copy; gives how
    /// many are on their way. Nothing where another way of sending has to see to them: they have a CRC, cannot all be
    /// read, or have no room.
    #[inline]
    pub(super) fn send_small(
        &self,
        sending: &mut HeldSending<'_>,
        data: &UserBuffers,
        from: usize,
        flags: i32,
    ) -> Result<Option<usize>, Errno> {
        let octets = data.octets() - from;
        if sending.sender.has_crc() || octets == 0 || octets > sending.sender.at_once() {
            return Ok(None);
        }
        // Padding and CRC stay zeros.
        let mut copied: Copied = [0; SMALL_MAX + AROUND_MAX];
        copied[..WRITE_HEADER_LEN].copy_from_slice(&sending.sender.write_header(octets));
        let payload = &mut copied[WRITE_HEADER_LEN..][..octets];
        if data.read_range(from..from + octets, payload).is_err() {
            return Ok(None);
        }
        let write_end = write_len(octets);
        let mut end = write_end;
        if !sending.sender.is_to_weft() {
            end += put_message(&sending.sender, octets, &mut copied[write_end..]);
        }
        match self.fits(sending, octets)? {
            Fits::Whole(whole) if whole == octets => {}
            _ => return Ok(None),
        }
        sending.planned = octets as u32;
        sending.commit();
        let flags = flags | end_of_segment(sending);
        let sent = stream::give(self.fd, &copied[..end], flags);
        sending.planned = 0;
        let taken = match sent.map_err(|errno| self.send_failed(errno)) {
            Ok(taken) => taken,
            Err(libc::EAGAIN) => return Ok(Some(0)),
            Err(errno) => return Err(errno),
        };
        if taken == end && end == write_end {
            // Nothing is to be told of it.
            sending.sender.written(octets);
            sending.count(octets, taken);
            return Ok(Some(octets));
        }
        self.keep_what_is_left(sending, octets, &copied[..end], taken)
    }

    /// Ends a small send of so many octets of the stream, of whose FPDUs the socket took the first `taken` octets.
    #[inline(never)]
    fn keep_what_is_left(
        &self,
        sending: &mut HeldSending<'_>,
        octets: usize,
        fpdus: &[u8],
        taken: usize,
    ) -> Result<Option<usize>, Errno> {
        let progress = whole(&sending.sender, octets).taken(taken);
        sending.sender = progress.sender;
        let begun = match progress.unfinished {
            None => taken,
            Some(Unfinished::Write { .. }) => write_len(octets),
            Some(Unfinished::Message { .. }) => fpdus.len(),
        };
        if begun > taken {
            self.queue(sending, &fpdus[taken..begun])?;
        }
        self.announce(sending, progress.octets, taken)?;
        Ok(Some(progress.octets))
    }
}

/// So many octets as one Write.
fn whole(sender: &Sender, octets: usize) -> Plan {
    sender.plan(octets, PAYLOAD_MAX, 1)
}

/// Puts the message that tells of so many octets to the front of `place`; gives its length.
fn put_message(sender: &Sender, octets: usize, place: &mut [u8]) -> usize {
    let message = whole(sender, octets).message();
    let message = message.as_ref().map_or(&[][..], |message| message);
    place[..message.len()].copy_from_slice(message);
    message.len()
}
