//! From how many octets on a socket is readable.
//!
//! The kernel counts framing with the octets of the stream, and `SO_RCVLOWAT` keeps framing alone from waking anybody.
//! What the program sets that option to counts octets of the stream.

use std::sync::atomic::{compiler_fence, Ordering};

use weft_os::dgram::{get_int, set_int};
use weft_os::stream;
use weft_stream::frame::{write_len, TRAILER_LEN_MAX, WRITE_HEADER_LEN};
use weft_stream::{Next, Receiver};

use super::directions::HeldReceiving;
use super::Connection;

/// Octets of the shortest FPDU that carries octets of the stream. Fewer may be framing alone: padding and CRC behind
/// the last octet that was delivered, and the header of a Write. That is so of a peer that is Weft, which sends no
/// message behind; framing of others is heard of.
pub(super) const SHORTEST_WRITE: u32 = write_len(1) as u32;
const _: () = assert!(SHORTEST_WRITE as usize > TRAILER_LEN_MAX + WRITE_HEADER_LEN);
/// Above every mark that the kernel is told.
const MARK_UNKNOWN: u32 = u32::MAX;
/// Octets of a receive buffer that keep the window open while an FPDU is there in part: on loopback a segment has 64
/// KiB, TCP wants room for one more, and the kernel counts up to five times the octets.
const ROOM_FOR_FPDUS: i32 = 400 << 10;
/// Octets of it that have to be free, as the kernel counts them, while an FPDU is there in part. A segment's memory is
/// free when its last octet is read, and the kernel joins what comes in segments of hundreds of KiB: a few octets of
/// one may take most of the buffer, and TCP leaves the window closed that has no room for a segment.
const ROOM_FOR_A_SEGMENT: usize = 320 << 10;
/// Octets that the buffer is enlarged to at most: the largest that the kernel joins and one segment more are half of
/// that. A peer fills a buffer with segments out of order, too, and would have it grow with each of them.
const ROOM_MAX: usize = 2 << 20;
/// Which sizes of buffers a program has fixed (socket(7)); the constant is missing in libc for some targets.
const SO_BUF_LOCK: i32 = 72;
/// Of these, that of the receive buffer (include/uapi/linux/socket.h).
const RECEIVE_BUFFER_LOCK: i32 = 2;

impl Connection<'_> {
    /// How many octets of the stream have to be there before the program is told of any. As many as that, of a peer
    /// that is Weft.
    ///
    /// # Errors
    /// None that matters to the program.
    pub fn set_low_water(&self, octets: u32) {
        self.slot.set_low_water(octets);
        if let Ok(mut receiving) = self.take_receiving() {
            if self.is_open() {
                self.set_mark(&mut receiving);
            }
        }
    }

    /// Whether as many octets are there as the program wants to be told of; or the end.
    pub fn has_low_water(&self) -> bool {
        let wanted = self.slot.low_water();
        if wanted == 1 || stream::has_ended(self.fd) {
            return true;
        }
        // Counted first: what comes meanwhile may be what is missing.
        let unread = stream::unread(self.fd);
        match self.available() {
            Ok(available) if available >= wanted => true,
            Ok(available) => {
                self.wait_for_octets(unread + wanted - available);
                false
            }
            Err(_) => false,
        }
    }

    /// The socket is readable from now on when it has so many octets: of those that are there some are framing between
    /// messages, and fewer would only wake the program for nothing.
    fn wait_for_octets(&self, octets: usize) {
        let Ok(mut receiving) = self.take_receiving() else {
            return;
        };
        let mark = u32::try_from(octets).unwrap_or(u32::MAX);
        if mark > receiving.beside().mark && !self.slot.is_mapped() {
            self.tell_mark(&mut receiving, mark);
        }
    }

    /// Sets the mark where something was taken since it was set. Amid a call that goes on taking it would change for
    /// what is there in part, and with each change the kernel wakes whoever waits for an edge.
    pub(super) fn keep_mark(&self, receiving: &mut HeldReceiving<'_>) {
        if receiving.beside().mark_is_due != 0 {
            self.set_mark(receiving);
        }
    }

    /// Tells the kernel from how many octets on the socket is readable, where that changes.
    fn tell_mark(&self, receiving: &mut HeldReceiving<'_>, mark: u32) {
        receiving.beside().mark_is_due = 0;
        let before = receiving.beside().mark;
        if mark == before {
            return;
        }
        // A process that is killed between the two leaves the kernel the lower one: that wakes somebody for nothing,
        // where the higher one would let octets lie.
        if mark > before {
            receiving.beside().mark = mark;
            compiler_fence(Ordering::SeqCst);
        }
        let told = i32::try_from(mark).unwrap_or(i32::MAX);
        let _ = set_int(self.fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, told);
        compiler_fence(Ordering::SeqCst);
        receiving.beside().mark = mark;
    }

    /// The holder died, and may have been about to tell the kernel from how many octets on the socket is readable.
    pub(super) fn tell_mark_again(&self, receiving: &mut HeldReceiving<'_>) {
        receiving.beside().mark = MARK_UNKNOWN;
        self.set_mark(receiving);
    }

    /// Tells the kernel from how many octets on the socket is readable, where that changes: framing alone is not to
    /// make it so, and the last few octets of a Write are.
    pub(super) fn set_mark(&self, receiving: &mut HeldReceiving<'_>) {
        let low_water = self.slot.low_water() as u32;
        let mark = match () {
            // Who looks at mapped memory waits for every octet of it, whatever the program waits for.
            () if self.slot.is_mapped() => 1,
            // A message may be all there is.
            () if self.slot.hears_framing() => low_water,
            () => mark_for(&receiving.receiver, low_water),
        };
        self.slot.set_fpdu_awaited(0);
        self.tell_mark(receiving, mark);
    }

    /// The socket is readable with the next octet of the stream, until some are taken: a call that has some waits for
    /// fewer than make it readable else.
    pub fn wait_for_any(&self) {
        if let Ok(mut receiving) = self.take_receiving() {
            if self.slot.fpdu_awaited() == 0 && !self.slot.is_mapped() {
                let mark = mark_for(&receiving.receiver, 1);
                self.tell_mark(&mut receiving, mark);
            }
        }
    }

    /// The socket is readable from now on when it has so many octets: an FPDU is taken whole, or its CRC could not be
    /// checked.
    pub(super) fn wait_for_fpdu(&self, receiving: &mut HeldReceiving<'_>, octets: usize) {
        self.make_room(receiving);
        self.open_window(receiving);
        self.wait_for_whole(receiving, octets);
    }

    /// The socket is readable from now on when it has so many octets, which count only as a whole.
    pub(super) fn wait_for_whole(&self, receiving: &mut HeldReceiving<'_>, octets: usize) {
        let mark = octets as u32;
        self.slot.set_fpdu_awaited(mark);
        self.tell_mark(receiving, mark);
    }

    /// Gives the receive buffer room for an FPDU that is there in part, where it has less: nothing of it is delivered
    /// before its CRC was checked, and TCP closes the window of a buffer that is far from full. The mark is to be told
    /// afterwards.
    pub(super) fn make_room(&self, receiving: &mut HeldReceiving<'_>) {
        let has = get_int(self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF);
        if has.is_ok_and(|has| has < ROOM_FOR_FPDUS) {
            self.enlarge_receive_buffer(receiving, ROOM_FOR_FPDUS);
        }
    }

    /// The same of a buffer that the few octets which are there fill: the peer is told of the window.
    fn open_window(&self, receiving: &mut HeldReceiving<'_>) {
        let Some((used, limit)) = stream::receive_memory(self.fd) else {
            return;
        };
        let wanted = (used + ROOM_FOR_A_SEGMENT).min(ROOM_MAX);
        if limit >= wanted {
            return;
        }
        self.enlarge_receive_buffer(receiving, i32::try_from(wanted).unwrap_or(i32::MAX));
        // TCP looks at the window whenever somebody has looked at octets. Else the peer asks, seconds later.
        let _ = self.seen(&mut [0]);
    }

    /// Lets the receive buffer hold so many octets, as the kernel counts them, or as many as the host allows.
    fn enlarge_receive_buffer(&self, receiving: &mut HeldReceiving<'_>, octets: i32) {
        let set = |option, value| {
            let _ = set_int(self.fd, libc::SOL_SOCKET, option, value);
        };
        let locks = get_int(self.fd, libc::SOL_SOCKET, SO_BUF_LOCK);
        if let Ok(locks) = locks {
            set(SO_BUF_LOCK, locks & !RECEIVE_BUFFER_LOCK);
        }
        // TCP gives a buffer room for as many octets as somebody waits for, up to a half of what it gives by itself
        // (`net.ipv4.tcp_rmem`). What a program may set is mostly far less (`net.core.rmem_max`).
        set(libc::SO_RCVLOWAT, octets);
        receiving.beside().mark = MARK_UNKNOWN;
        let has = get_int(self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF);
        if has.is_ok_and(|has| has < octets) {
            // The kernel doubles it.
            set(libc::SO_RCVBUF, octets / 2);
        }
        // A size that the kernel chose it goes on choosing.
        if let Ok(locks) = locks {
            set(SO_BUF_LOCK, locks);
        }
    }
}

/// From how many octets on a socket is readable where this comes next, for a program that is to be told of so many of
/// the stream: no more than surely come with them, or nobody would be woken. Where that is a few of what stands behind
/// others it is too early, and whoever is woken looks again.
fn mark_for(receiver: &Receiver, wanted: u32) -> u32 {
    let whole = u32::try_from(write_len(wanted as usize)).unwrap_or(u32::MAX);
    match receiver.next() {
        Next::Payload(left) if receiver.behind(left) < whole => wanted,
        Next::Framing(_) => whole - receiver.held().min(WRITE_HEADER_LEN) as u32,
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{open, pair};
    use super::super::{Received, Slot};
    use std::time::{Duration, Instant};
    use weft_os::dgram::ready;
    use weft_os::user::OwnBuffer;

    /// Segments of up to 64 KiB fill a buffer; what is read of them is whole FPDUs, and the few octets behind those may
    /// keep all of a segment's memory.
    #[test]
    fn a_window_that_closed_amid_an_fpdu_opens_again() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let (slots, sockets) = (Slot::make(2).unwrap(), pair());
        slots.iter().for_each(|slot| slot.set_wants_crc(true));
        let [client, server] = open(slots, &sockets);
        let (mut octets, mut room) = (vec![7; 256 << 10], vec![0; 1 << 20]);
        for round in 0..300usize {
            let (mut sent, mut received, begun) = (0, 0, Instant::now());
            // Of other sizes each time, so that the window closes at other octets.
            let len = 1 + round * 7919 % octets.len();
            while let Ok(some) = client.send(&OwnBuffer::from(&mut octets[..len]), 0, 0) {
                sent += some;
            }
            while received < sent {
                match server.receive(&OwnBuffer::from(&mut room[..]), 0).unwrap() {
                    Received::Octets(some) => received += some,
                    _ => {
                        let _ = client.finish();
                        ready(server.fd(), libc::POLLIN, 100);
                        let is_late = begun.elapsed() > Duration::from_secs(10);
                        assert!(!is_late, "round {round}: {received} of {sent} came");
                    }
                }
            }
        }
    }
}
