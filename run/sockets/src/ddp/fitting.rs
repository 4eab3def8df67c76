//! How much a socket takes at once: what it does not take of an FPDU stays in this process, and goes with it.

use weft_os::stream;
use weft_stream::frame::{MESSAGE_LEN, TRAILER_LEN_MAX, WRITE_HEADER_LEN};

use super::directions::{Held, Sending};
use super::Connection;

/// A socket that takes fewer octets of the stream than these is nearly full.
const NEARLY_FULL: usize = 2 << 10;
/// What the kernel needs beside the octets of a send.
pub(super) const BESIDE_A_SEND: usize = 2 << 10;
/// Room of a socket below which each send ends a segment: what is left behind it may be too little for a whole send.
const ENDS_SEGMENTS: usize = 2 * (NEARLY_FULL + BESIDE_A_SEND);
/// Octets of a segment: nearly every path has at least IPv6's least MTU (RFC 8200 section 5).
const SEGMENT: usize = 1280 - 60;
/// The most octets around the payload of one FPDU with a message behind it.
const AROUND_MAX: usize = WRITE_HEADER_LEN + TRAILER_LEN_MAX + MESSAGE_LEN;

/// What a socket takes of octets of the stream in one send.
pub(super) enum Fits {
    /// So many, all at once.
    Whole(usize),
    /// It is nearly full, and takes so many where a segment begins with them ([`end_of_segment`]); else any part.
    InPart(usize),
    /// It is full.
    Nothing,
}

impl Connection<'_> {
    /// How many of so many octets the socket takes now.
    pub(super) fn fits(&self, sending: &mut Held<'_, Sending>, octets: usize) -> Fits {
        let wire = octets + octets / 16 + BESIDE_A_SEND;
        if wire > sending.beside().surely as usize {
            let room = stream::send_room(self.fd);
            sending.beside().surely =
                room.map_or(u32::MAX, |room| u32::try_from(room).unwrap_or(u32::MAX));
        }
        let surely = sending.beside().surely as usize;
        if wire <= surely {
            sending.beside().surely -= wire as u32;
            return Fits::Whole(octets);
        }
        sending.beside().surely = 0;
        let whole = surely.saturating_sub(BESIDE_A_SEND) / 17 * 16;
        match whole {
            NEARLY_FULL.. => Fits::Whole(whole),
            _ if stream::is_full(self.fd) => Fits::Nothing,
            _ => Fits::InPart(octets.min(SEGMENT - AROUND_MAX)),
        }
    }
}

/// The flag of a send behind which the socket is nearly full: the next one begins a segment. The kernel asks for room
/// where a segment begins, and not as it fills one: of an FPDU that begins in the last segment and does not end in it,
/// it would take a part, and the rest would stay in this process. One that begins a segment and is no longer than it
/// leaves whole, or not at all.
pub(super) fn end_of_segment(sending: &mut Held<'_, Sending>) -> i32 {
    match sending.beside().surely as usize {
        ..ENDS_SEGMENTS => libc::MSG_EOR,
        _ => 0,
    }
}
