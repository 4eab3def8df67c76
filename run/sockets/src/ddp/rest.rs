//! Octets that have to leave before any others: what a full socket did not take, and what the connection itself says.

use weft_os::parts::Sends;
use weft_os::shared::{give_back, Holding};
use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::sender::MAP_TOLD_LEN;

use super::directions::{shut_down, HeldSending};
use super::slot::REST_MAX;
use super::Connection;
use crate::Errno;

/// A rest below this is kept in memory that the connection has anyway.
const GIVE_BACK_FROM: usize = 4096;

/// Octets of the rest that are left to what has to be said to a peer, whoever calls: answers and credit.
const KEPT_FOR_ANSWERS: usize = 512;

/// Whether what a peer is told of mapped memory goes behind the rest, and leaves room for what it has to be told.
pub(super) fn has_place_for_news(sending: &HeldSending<'_>) -> bool {
    let (at, len) = (sending.rest_at as usize, sending.rest_len as usize);
    // The rest can be moved to the front where it does not overlap itself there.
    let from = if at >= len { 0 } else { at };
    from + len + MAP_TOLD_LEN + KEPT_FOR_ANSWERS <= REST_MAX
}

impl Connection<'_> {
    /// Puts octets behind what has to leave first.
    pub(super) fn queue(&self, sending: &mut HeldSending<'_>, octets: &[u8]) -> Result<(), Errno> {
        let (mut rest, end) = self.rest(sending, octets.len())?;
        rest[end..end + octets.len()].copy_from_slice(octets);
        sending.rest_len += octets.len() as u32;
        self.slot.set_has_rest(true);
        Ok(())
    }

    /// The same with octets of the program's.
    pub(super) fn queue_user(
        &self,
        sending: &mut HeldSending<'_>,
        data: &UserBuffers,
        range: std::ops::Range<usize>,
    ) -> Result<(), Errno> {
        let len = range.len();
        let (mut rest, end) = self.rest(sending, len)?;
        let read = data.read_range(range, &mut rest[end..end + len]);
        // Somebody unmapped it during the call: the FPDU that has begun cannot be finished.
        read.map_err(|_| self.break_off(&"memory that was being sent went away"))?;
        sending.rest_len += len as u32;
        self.slot.set_has_rest(true);
        Ok(())
    }

    /// The rest, and where it ends: there is place for so many octets behind.
    fn rest(
        &self,
        sending: &mut HeldSending<'_>,
        octets: usize,
    ) -> Result<(Holding<'_, [u8; REST_MAX]>, usize), Errno> {
        let mut rest = self.take_octets(&self.slot.rest)?;
        let (mut at, len) = (sending.rest_at as usize, sending.rest_len as usize);
        // What is moved has to be whole where it was until it is where it goes.
        if at + len + octets > REST_MAX && at >= len {
            rest.copy_within(at..at + len, 0);
            sending.rest_at = 0;
            sending.commit();
            at = 0;
        }
        if at + len + octets > REST_MAX {
            return Err(self.break_off(&"a peer takes nothing and asks for more"));
        }
        Ok((rest, sending.rest_at as usize + len))
    }

    /// The rest could not leave; false where it still may.
    fn flush_failed(&self, sending: &mut HeldSending<'_>, errno: Errno) -> Result<bool, Errno> {
        let errno = self.send_failed(errno);
        match errno {
            libc::EBADF | libc::ENOTSOCK => return Err(errno),
            libc::EPIPE => {}
            // The connection goes on, and the rest with it: an error here would have its octets sent a second time.
            _ if stream::state(self.fd) == Some(stream::State::Connected) => return Ok(false),
            _ => {}
        }
        // Nothing leaves any more, and nobody need try.
        (sending.rest_at, sending.rest_len) = (0, 0);
        self.slot.set_has_rest(false);
        Err(errno)
    }

    /// Sends the rest; whether there is none any more.
    #[inline]
    pub(super) fn flush(&self, sending: &mut HeldSending<'_>, flags: i32) -> Result<bool, Errno> {
        let is_to_end = sending.shut_down == shut_down::WANTED;
        match sending.rest_len > 0 || sending.early > 0 || is_to_end || self.slot.has_rest() {
            true => self.flush_rest(sending, flags),
            false => Ok(true),
        }
    }

    #[inline(never)]
    fn flush_rest(&self, sending: &mut HeldSending<'_>, flags: i32) -> Result<bool, Errno> {
        if sending.rest_len > 0 {
            let mut rest = self.take_octets(&self.slot.rest)?;
            let (at, len) = (sending.rest_at as usize, sending.rest_len as usize);
            let mut sends = Sends::new();
            let has_place = sends.own(&rest[at..at + len]);
            debug_assert!(has_place);
            sending.commit();
            let taken = match sends.send(self.fd, flags) {
                Ok(taken) => taken,
                Err(libc::EAGAIN) => return Ok(false),
                Err(errno) => return self.flush_failed(sending, errno),
            };
            sending.rest_at += taken as u32;
            sending.rest_len -= taken as u32;
            if sending.rest_len > 0 {
                return Ok(false);
            }
            sending.rest_at = 0;
            sending.commit();
            if at + len > GIVE_BACK_FROM {
                give_back(&mut rest[..]);
            }
        }
        if sending.early > 0 {
            return Ok(false);
        }
        if sending.shut_down == shut_down::WANTED {
            sending.shut_down = shut_down::DONE;
            stream::shut_down(self.fd);
        }
        self.slot.set_has_rest(false);
        Ok(true)
    }
}
