//! How many octets of the stream are under way, without the framing that the kernel counts with them.

use weft_os::{pages, stream};
use weft_stream::frame::{MESSAGE_LEN, TRAILER_LEN_MAX, WRITE_HEADER_LEN};
use weft_stream::Receiver;
use zerocopy::FromBytes;

use super::peeking::walk;
use super::slot::AREA_MAX;
use super::Connection;
use crate::Errno;

/// Sends whose ends are remembered. A program that asks has rarely more under way; of older ones every other is
/// forgotten, and octets between two ends are told apart by what is usual.
const MARKS: usize = 64;
/// Octets that usually stand behind the payload of a send: a CRC.
const BEHIND: u32 = 4;
/// The same, to a peer that is not Weft: a CRC and a message.
const BEHIND_WITH_MESSAGE: u32 = BEHIND + MESSAGE_LEN as u32;
/// Octets of framing of one send at most: of eight Writes and a message.
const ONE_SEND_MAX: u32 = 8 * (WRITE_HEADER_LEN + TRAILER_LEN_MAX) as u32 + MESSAGE_LEN as u32;
/// Octets of the socket after which an end is forgotten: no send buffer has so many.
const FORGOTTEN_AFTER: u32 = 1 << 30;

/// Where sends ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes)]
pub(super) struct Marks {
    /// Ends of sends, in order; the first stands behind `forgotten`.
    list: [Mark; MARKS],
    forgotten: Mark,
    last: Mark,
    count: u32,
    padding: u32,
}

/// A place: octets of the socket and of the stream before it. Both wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes)]
struct Mark {
    wire: u32,
    stream: u32,
}

impl Marks {
    /// Octets of the socket that are none of the stream.
    #[inline]
    pub(super) fn add_framing(&mut self, wire: usize) {
        self.last.wire = self.last.wire.wrapping_add(wire as u32);
    }

    /// A send of so many octets of the stream makes so many of the socket.
    #[inline]
    pub(super) fn add(&mut self, stream: usize, wire: usize) {
        self.add_framing(wire);
        self.last.stream = self.last.stream.wrapping_add(stream as u32);
        if self.count as usize >= MARKS {
            self.thin_out();
        }
        self.list[self.count as usize] = self.last;
        self.count += 1;
    }

    /// Makes place: half of the older half goes, and what is too old to matter.
    fn thin_out(&mut self) {
        const OLDER: usize = MARKS / 2;
        let is_old = |mark: &Mark| self.last.wire.wrapping_sub(mark.wire) > FORGOTTEN_AFTER;
        let old = self.list.iter().take_while(|mark| is_old(mark)).count();
        if old > 0 {
            self.forgotten = self.list[old - 1];
            self.list.copy_within(old.., 0);
            self.count = (MARKS - old) as u32;
            return;
        }
        for at in 0..OLDER / 2 {
            self.list[at] = self.list[2 * at + 1];
        }
        self.list.copy_within(OLDER.., OLDER / 2);
        self.count = (MARKS - OLDER / 2) as u32;
    }

    /// Octets of the stream among the last `wire` of the socket, where so many usually stand behind those of a send.
    fn within(&self, wire: usize, behind: u32) -> usize {
        // What stands before this the peer has.
        let done = self.last.wire.wrapping_sub(wire as u32);
        let is_behind = |mark: &Mark| mark.wire.wrapping_sub(done).cast_signed() > 0;
        let marks = &self.list[..(self.count as usize).min(MARKS)];
        let Some(at) = marks.iter().position(is_behind) else {
            return 0;
        };
        let before = at.checked_sub(1).map_or(self.forgotten, |at| marks[at]);
        let left = marks[at].wire.wrapping_sub(done);
        let (wire, stream) = (
            marks[at].wire.wrapping_sub(before.wire),
            marks[at].stream.wrapping_sub(before.stream),
        );
        let left = match wire.saturating_sub(stream) {
            // One send: its octets stand before what tells of them.
            framing if framing <= ONE_SEND_MAX => left.saturating_sub(behind).min(stream),
            _ => (u64::from(left) * u64::from(stream) / u64::from(wire)) as u32,
        };
        (self.last.stream.wrapping_sub(marks[at].stream) + left) as usize
    }
}

impl Connection<'_> {
    /// Octets of the stream that can be received now: what `FIONREAD` gives.
    ///
    /// # Errors
    /// The connection is over.
    pub fn available(&self) -> Result<usize, Errno> {
        if !self.is_open() {
            return Ok(0);
        }
        let receiving = self.take_receiving()?;
        let unread = stream::unread(self.fd);
        if unread <= AREA_MAX {
            let mut area = self.take_octets(&self.slot.area)?;
            return self.payload_in(&receiving.receiver, &mut area[..]);
        }
        // What is framing is told by what stands before it: all of it is looked at.
        let mut pages = pages::Temporary::new(unread + AREA_MAX).ok_or(libc::ENOMEM)?;
        self.payload_in(&receiving.receiver, pages.octets())
    }

    fn payload_in(&self, receiver: &Receiver, room: &mut [u8]) -> Result<usize, Errno> {
        let seen = self.seen(room)?.unwrap_or(0);
        let good = self.checked(receiver, &room[..seen])?;
        let mut payload = 0;
        walk(receiver, &room[..good], |octets| {
            payload += octets.len();
            true
        });
        Ok(payload)
    }

    /// Octets of the stream that were sent and that the peer has not acknowledged: what `SIOCOUTQ` gives.
    ///
    /// # Errors
    /// The connection is over.
    pub fn unacknowledged(&self) -> Result<usize, Errno> {
        self.within(stream::unacknowledged(self.fd))
    }

    /// Those of them that have not left: what `SIOCOUTQNSD` gives.
    ///
    /// # Errors
    /// The connection is over.
    pub fn not_sent(&self) -> Result<usize, Errno> {
        self.within(stream::not_sent(self.fd))
    }

    /// Octets of the stream among so many of the socket, and what waits beside it.
    fn within(&self, wire: usize) -> Result<usize, Errno> {
        let mut sending = self.take_sending()?;
        let wire = wire + sending.rest_len as usize;
        let behind = match sending.sender.is_to_weft() {
            true => BEHIND,
            false => BEHIND_WITH_MESSAGE,
        };
        Ok(sending.early as usize + sending.beside().marks.within(wire, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, BEHIND_WITH_MESSAGE as BEHIND};
    use zerocopy::FromZeros;

    const FRAMING: usize = 16 + BEHIND as usize;

    #[test]
    fn octets_of_the_stream_are_told_from_those_of_the_socket() {
        let mut marks = Marks::new_zeroed();
        marks.add_framing(76);
        assert_eq!(marks.within(76, BEHIND), 0, "the Request");
        marks.add(100, 100 + FRAMING);
        marks.add(10, 12 + FRAMING);
        for (wire, stream) in [(0, 0), (BEHIND as usize, 0), (60, 10)] {
            assert_eq!(marks.within(wire, BEHIND), stream);
        }
        assert_eq!(marks.within(60 + BEHIND as usize + 40, BEHIND), 10 + 40);
        assert_eq!(marks.within(60 + 148, BEHIND), 110);
        assert_eq!(marks.within(60 + 148 + 76, BEHIND), 110);
    }

    #[test]
    fn of_many_sends_the_last_are_known_best() {
        let mut marks = Marks::new_zeroed();
        for _ in 0..1_000_000 {
            marks.add(12, 12 + FRAMING);
        }
        for sends in 1..32 {
            assert_eq!(marks.within(60 * sends, BEHIND), 12 * sends);
        }
        let roughly = marks.within(60 * 1000, BEHIND);
        assert!((12_000..=13_000).contains(&roughly), "{roughly}");
        // Both count round and round.
        for _ in 0..20_000 {
            marks.add(1 << 18, (1 << 18) + FRAMING);
        }
        assert_eq!(marks.within(2 * ((1 << 18) + FRAMING), BEHIND), 2 << 18);
    }
}
