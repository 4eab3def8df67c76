//! The program's octets as FPDUs, and the rest that a full socket left.

use weft_iwarp::mpa::crc::{Crc, CRC_LEN};
use weft_os::parts::Sends;
use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::frame::{self, trailer, MESSAGE_LEN, TRAILER_LEN_MAX, WRITE_HEADER_LEN};
use weft_stream::plan::{Frame, Plan, Unfinished};
use weft_stream::Word;

use super::directions::{shut_down, HeldSending};
use super::fitting::{end_of_segment, Fits, BESIDE_A_SEND};
use super::slot::{State, PAYLOAD_MAX};
use super::small::SMALL_MAX;
use super::Connection;
use crate::Errno;

/// FPDUs that one call makes at most.
pub(super) const FRAMES_MAX: usize = 8;
/// Octets of the stream in one FPDU that is copied: with a CRC it is looked at whole by whoever receives it.
pub(super) const COPIED_MAX: usize = 16 << 10;
/// Octets of the stream that are kept until the Reply is there.
const EARLY_MAX: usize = 8 << 10;
/// The most octets between two payloads: the end of the one FPDU and the beginning of the next.
const BETWEEN_MAX: usize = TRAILER_LEN_MAX + WRITE_HEADER_LEN;
impl Connection<'_> {
    /// Sends octets of the stream, those of `data` from `from` on; gives how many are on their way.
    ///
    /// # Errors
    /// `EAGAIN` where neither socket nor peer has room; the connection is over; or memory of the program's cannot be
    /// read.
    pub fn send(&self, data: &UserBuffers, from: usize, flags: i32) -> Result<usize, Errno> {
        let mut sending = self.take_sending()?;
        let whole = data.octets() - from;
        if let Some(most) = self.kept_early()? {
            return self.send_data_early(&mut sending, most, data, from);
        }
        let mut done = 0;
        while done < whole {
            match self.send_step(&mut sending, data, from + done, flags) {
                Ok(0) => break,
                Ok(octets) => done += octets,
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        if done == 0 && whole > 0 {
            return Err(libc::EAGAIN);
        }
        Ok(done)
    }

    #[cold]
    fn send_data_early(
        &self,
        sending: &mut HeldSending<'_>,
        most: usize,
        data: &UserBuffers,
        from: usize,
    ) -> Result<usize, Errno> {
        self.send_early(sending, most, data.octets() - from, |room| {
            let octets = from..from + room.len();
            let is_read = data.read_range(octets, room);
            is_read.map(|()| room.len()).map_err(|_| libc::EFAULT)
        })
    }

    /// Sends octets of a connection that turned out to be none of DDP while a call was under way, those of `data` from
    /// `from` on; gives how many the socket took.
    ///
    /// # Errors
    /// The errno of `sendmsg`.
    pub fn send_as_tcp(&self, data: &UserBuffers, from: usize, flags: i32) -> Result<usize, Errno> {
        let mut sends = Sends::new();
        let end = from + data.readable(from..data.octets());
        if end == from || !sends.user(data, from..end) {
            return Err(libc::EFAULT);
        }
        sends.send(self.fd, flags)
    }

    /// Sends what has to leave before anything else; whether all of it has left.
    ///
    /// # Errors
    /// The connection is over.
    pub fn finish(&self) -> Result<bool, Errno> {
        match self.slot.state() {
            State::Open | State::Plain | State::Late => {}
            // What is kept has to wait for the peer.
            _ => return Ok(!self.slot.has_rest()),
        }
        let mut sending = self.take_sending()?;
        self.flush(&mut sending, 0)
    }

    /// How many octets of the stream may be kept in all before the other end has said where they go; nothing once it
    /// has.
    ///
    /// # Errors
    /// `EAGAIN` where none may; or the connection is over.
    #[inline]
    pub(super) fn kept_early(&self) -> Result<Option<usize>, Errno> {
        match self.slot.is_open() {
            true => Ok(None),
            false => self.kept_before_open(),
        }
    }

    #[cold]
    fn kept_before_open(&self) -> Result<Option<usize>, Errno> {
        match self.slot.state() {
            State::Open => Ok(None),
            State::Asked | State::Accepted | State::Answering => Ok(Some(EARLY_MAX)),
            // What is kept leaves all at once if the other end is not Weft.
            State::Connecting if self.is_asking() => {
                let room = stream::send_room(self.fd).unwrap_or(0);
                Ok(Some(EARLY_MAX.min(room.saturating_sub(BESIDE_A_SEND))))
            }
            State::Over(errno) => Err(errno),
            _ => Err(libc::EAGAIN),
        }
    }

    /// Keeps `wanted` octets of the stream, no more than `most` in all, until the Reply says where they go, or the
    /// answer that there will be none: a program may write before the other has accepted. `read` puts them into the
    /// room it is given, or fewer, and says how many.
    pub(super) fn send_early(
        &self,
        sending: &mut HeldSending<'_>,
        most: usize,
        wanted: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        if sending.shut_down > 0 {
            return Err(libc::EPIPE);
        }
        let at = WRITE_HEADER_LEN + sending.early as usize;
        let now = wanted.min(most.saturating_sub(sending.early as usize));
        if now == 0 && wanted > 0 {
            return Err(libc::EAGAIN);
        }
        let mut rest = self.take_octets(&self.slot.rest)?;
        let octets = read(&mut rest[at..at + now])?;
        if octets > 0 {
            sending.early += octets as u32;
            self.slot.set_has_rest(true);
        }
        Ok(octets)
    }

    /// Makes an FPDU of what was kept: the Reply is there.
    pub(super) fn send_kept(&self, sending: &mut HeldSending<'_>) -> Result<(), Errno> {
        let early = std::mem::take(&mut sending.early) as usize;
        let (crc, end) = (sending.sender.has_crc(), WRITE_HEADER_LEN + early);
        let plan = sending.sender.plan(early, EARLY_MAX, 1);
        if plan.octets() < early {
            return Err(
                self.break_off(&"the peer has no room for what was written before it answered")
            );
        }
        if let Some(write) = plan.frames().next() {
            let mut rest = self.take_octets(&self.slot.rest)?;
            rest[..WRITE_HEADER_LEN].copy_from_slice(&write.header);
            let (octets, len) = covered_trailer(&rest[..end], early, crc);
            rest[end..end + len].copy_from_slice(&octets[..len]);
            (sending.rest_at, sending.rest_len) = (0, (end + len) as u32);
            self.slot.set_has_rest(true);
        }
        sending.sender = plan.taken(frame::write_len(early)).sender;
        if let Some(message) = sending.sender.announce() {
            self.queue(sending, &message)?;
        }
        let wire = sending.rest_len as usize;
        sending.count(early, wire);
        // A Weft peer gets a FIN as what was kept leaves.
        if sending.shut_down > 0 && !sending.sender.is_to_weft() {
            sending.shut_down = shut_down::TOLD;
            let word = sending.sender.control(Word::Shutdown);
            sending.count_framing(word.len());
            self.queue(sending, &word)?;
        }
        self.flush(sending, 0).map(drop)
    }

    #[inline]
    fn send_step(
        &self,
        sending: &mut HeldSending<'_>,
        data: &UserBuffers,
        from: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        if sending.shut_down > 0 {
            return Err(libc::EPIPE);
        }
        if !self.flush(sending, flags)? {
            return Ok(0);
        }
        if data.octets() - from <= SMALL_MAX {
            if let Some(sent) = self.send_small(sending, data, from, flags)? {
                return Ok(sent);
            }
        }
        self.send_large(sending, data, from, flags)
    }

    /// Sends octets by a list of parts, or by way of the rest where the socket may not take them whole.
    #[inline(never)]
    fn send_large(
        &self,
        sending: &mut HeldSending<'_>,
        data: &UserBuffers,
        from: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        let most = FRAMES_MAX * PAYLOAD_MAX;
        let end = data.octets().min(from + most);
        // An FPDU cannot stop where the program's memory does.
        let readable = data.readable(from..end);
        if readable == 0 {
            return Err(libc::EFAULT);
        }
        // A CRC covers what nobody may change any more.
        let is_copied = sending.sender.has_crc();
        let most = readable.min(if is_copied { COPIED_MAX } else { usize::MAX });
        // What the socket does not take stays with this process, and nobody else sends it if that is killed.
        let most = match self.fits(sending, most)? {
            Fits::Whole(octets) if !is_copied => octets,
            Fits::Whole(octets) | Fits::InPart(octets) => {
                let kept = self.keep_copied(sending, data, from, octets)?;
                let flags = flags | end_of_segment(sending);
                return self.flush(sending, flags).map(|_| kept);
            }
            Fits::Nothing => return Ok(0),
        };
        let plan = sending.sender.plan(most, PAYLOAD_MAX, FRAMES_MAX);
        if plan.octets() == 0 {
            return Ok(0);
        }
        sending.planned = plan.octets() as u32;
        sending.commit();
        let sent = self.send_plan(&plan, data, from, flags | end_of_segment(sending));
        sending.planned = 0;
        let taken = match sent {
            Ok(taken) => taken,
            Err(libc::EAGAIN) => return Ok(0),
            Err(errno) => return Err(errno),
        };
        let progress = plan.taken(taken);
        sending.sender = progress.sender;
        match progress.unfinished {
            Some(Unfinished::Write { frame, taken }) => {
                self.keep_write(sending, &frame, taken, data, from)?;
            }
            Some(Unfinished::Message { message, taken }) => {
                self.queue(sending, &message[taken..])?
            }
            None => {}
        }
        self.announce(sending, progress.octets, taken)?;
        Ok(progress.octets)
    }

    /// Ends a send of so many octets of the stream, of which the socket has taken `taken` octets and the rest has what
    /// it has not: where no message tells of them yet one does. A reader is woken by an FPDU's last octet only with
    /// that behind it.
    pub(super) fn announce(
        &self,
        sending: &mut HeldSending<'_>,
        octets: usize,
        taken: usize,
    ) -> Result<(), Errno> {
        if let Some(message) = sending.sender.announce() {
            self.queue(sending, &message)?;
        }
        let wire = taken + sending.rest_len as usize;
        sending.count(octets, wire);
        Ok(())
    }

    /// Gives a plan to the socket in one call.
    fn send_plan(
        &self,
        plan: &Plan,
        data: &UserBuffers,
        from: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut between = [([0; BETWEEN_MAX], 0); FRAMES_MAX];
        let mut last = [0; TRAILER_LEN_MAX + MESSAGE_LEN];
        let (mut tail, mut tail_len) = ([0; TRAILER_LEN_MAX], 0);
        for (frame, (octets, len)) in plan.frames().zip(&mut between) {
            octets[..tail_len].copy_from_slice(&tail[..tail_len]);
            *len = tail_len + WRITE_HEADER_LEN;
            octets[tail_len..*len].copy_from_slice(&frame.header);
            (tail, tail_len) = trailer(frame.payload.len(), 0);
        }
        last[..tail_len].copy_from_slice(&tail[..tail_len]);
        let mut last_len = tail_len;
        if let Some(message) = plan.message() {
            last_len += MESSAGE_LEN;
            last[tail_len..last_len].copy_from_slice(&message);
        }
        let mut sends = Sends::new();
        let mut has_place = true;
        for (frame, (octets, len)) in plan.frames().zip(&between) {
            let payload = from + frame.payload.start..from + frame.payload.end;
            has_place &= sends.own(&octets[..*len]) && sends.user(data, payload);
        }
        has_place &= sends.own(&last[..last_len]);
        debug_assert!(has_place, "a list of 16 ranges in 8 FPDUs");
        sends
            .send(self.fd, flags)
            .map_err(|errno| self.send_failed(errno))
    }

    /// A send failed. That ends the sending direction at most, and the kernel knows whether it does: what the peer sent
    /// before it reset the connection is there to be read.
    pub(super) fn send_failed(&self, errno: Errno) -> Errno {
        match errno {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM | libc::EPIPE => {}
            // The program's memory, or a number that stands for something else by now.
            libc::EFAULT | libc::EBADF | libc::ENOTSOCK => {}
            // Who is told of it may be another than who met it: the service thread, or a call that receives.
            other => self.slot.keep_send_error(other),
        }
        errno
    }

    /// Keeps what the socket did not take of a Write.
    fn keep_write(
        &self,
        sending: &mut HeldSending<'_>,
        write: &Frame,
        taken: usize,
        data: &UserBuffers,
        from: usize,
    ) -> Result<(), Errno> {
        let header = write.header.get(taken..).unwrap_or(&[]);
        self.queue(sending, header)?;
        let skip = taken.saturating_sub(WRITE_HEADER_LEN);
        let payload = write.payload.start + skip.min(write.payload.len())..write.payload.end;
        self.queue_user(sending, data, from + payload.start..from + payload.end)?;
        let skip = skip.saturating_sub(write.payload.len());
        let (octets, len) = trailer(write.payload.len(), 0);
        self.queue(sending, &octets[skip..len])
    }

    /// Keeps octets as the rest, in one FPDU, of a copy that nobody changes and that outlives this process: what has a
    /// CRC, and what the socket may take in part. There is no rest before.
    pub(super) fn keep_copied(
        &self,
        sending: &mut HeldSending<'_>,
        data: &UserBuffers,
        from: usize,
        octets: usize,
    ) -> Result<usize, Errno> {
        let (plan, crc) = (
            sending.sender.plan(octets, COPIED_MAX, 1),
            sending.sender.has_crc(),
        );
        let Some(write) = plan.frames().next() else {
            return Ok(0);
        };
        let len = write.payload.len();
        debug_assert_eq!((sending.rest_at, sending.rest_len), (0, 0));
        self.queue(sending, &write.header)?;
        let range = from + write.payload.start..from + write.payload.end;
        self.queue_user(sending, data, range)?;
        let (octets, trailer_len) = {
            let rest = self.take_octets(&self.slot.rest)?;
            covered_trailer(&rest[..WRITE_HEADER_LEN + len], len, crc)
        };
        self.queue(sending, &octets[..trailer_len])?;
        sending.sender = plan.taken(frame::write_len(len)).sender;
        if let Some(message) = sending.sender.announce() {
            self.queue(sending, &message)?;
        }
        let wire = sending.rest_len as usize;
        sending.count(len, wire);
        Ok(len)
    }
}

/// What stands behind the payload of a Write whose header and payload are `covered`.
pub(super) fn covered_trailer(
    covered: &[u8],
    payload: usize,
    crc: bool,
) -> ([u8; TRAILER_LEN_MAX], usize) {
    let padding = frame::trailer_len(payload) - CRC_LEN;
    let mut value = Crc::new();
    if crc {
        value.update(covered);
        value.update(&[0; 3][..padding]);
    }
    trailer(payload, value.finish())
}
