//! How much a socket takes at once: what it does not take of an FPDU stays in this process, and goes with it.

use weft_os::stream;
use weft_stream::frame::{MESSAGE_LEN, TRAILER_LEN_MAX, WRITE_HEADER_LEN};

use super::directions::HeldSending;
use super::Connection;
use crate::Errno;

/// A socket that takes fewer octets of the stream than these is nearly full.
const NEARLY_FULL: usize = 2 << 10;
/// What the kernel needs beside the octets of a send.
pub(super) const BESIDE_A_SEND: usize = 2 << 10;
/// Room of a socket below which each send ends a segment: what is left behind it may be too little for a whole send.
const ENDS_SEGMENTS: usize = 2 * (NEARLY_FULL + BESIDE_A_SEND);
/// Octets of a segment: nearly every path has at least IPv6's least MTU (RFC 8200 section 5).
const SEGMENT: usize = 1280 - 60;
/// What the kernel needs beside the octets of a segment of its own.
const BESIDE_A_SEGMENT: usize = 1536;
/// The most octets around the payload of one FPDU with a message behind it.
pub(super) const AROUND_MAX: usize = WRITE_HEADER_LEN + TRAILER_LEN_MAX + MESSAGE_LEN;

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
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn fits(&self, sending: &mut HeldSending<'_>, octets: usize) -> Result<Fits, Errno> {
        let needed = |segment| {
            let octets = octets.min(most_at_once(segment));
            octets + beside(octets, segment) + BESIDE_A_SEND
        };
        let of = |octets: usize| u32::try_from(octets).unwrap_or(u32::MAX);
        if needed(sending.beside().segment) > sending.beside().surely as usize {
            sending.beside().surely = stream::send_room(self.fd).map_or(u32::MAX, of);
            sending.beside().segment = stream::short_segment(self.fd).map_or(0, of);
        }
        let (surely, segment) = (sending.beside().surely as usize, sending.beside().segment);
        if needed(segment) <= surely {
            sending.beside().surely -= needed(segment) as u32;
            return Ok(Fits::Whole(octets.min(most_at_once(segment))));
        }
        sending.beside().surely = 0;
        let room = surely.saturating_sub(BESIDE_A_SEND);
        let whole = room - beside(room, segment).min(room);
        if whole >= NEARLY_FULL {
            return Ok(Fits::Whole(whole.min(most_at_once(segment))));
        }
        let is_full = stream::is_full(self.fd).map_err(|errno| self.send_failed(errno))?;
        Ok(match is_full {
            true => Fits::Nothing,
            false => {
                let most = most_at_once(segment).min(least_segment(segment) - AROUND_MAX);
                Fits::InPart(octets.min(most))
            }
        })
    }
}

/// The most octets of the stream in one send, where segments are short, or any number.
///
/// They are short for a small window, and then no send is longer than half of one, and each is a segment of its own. A
/// receiver gives its window in multiples of the longest segment that it has seen, and a sender sends nothing that is
/// longer than the window: after one that is a little shorter than the sender's others each of those would wait 200 ms,
/// until the kernel probes the window (Linux; SWS avoidance at both ends, RFC 9293 section 3.8.6.2).
fn most_at_once(segment: u32) -> usize {
    match segment {
        0 => usize::MAX,
        segment => (segment as usize / 2)
            .saturating_sub(AROUND_MAX)
            .max(AROUND_MAX),
    }
}

/// What the kernel needs at most beside so many octets of one send. `segment` has the octets of one where segments are
/// short, or 0.
fn beside(octets: usize, segment: u32) -> usize {
    let short = match segment {
        0 => 0,
        segment => octets / segment as usize * BESIDE_A_SEGMENT,
    };
    octets / 16 + short
}

/// Octets that surely go into one segment. A window of a few octets makes it still shorter, and then FPDUs are cut.
fn least_segment(segment: u32) -> usize {
    match segment {
        0 => SEGMENT,
        segment => (segment as usize).clamp(2 * AROUND_MAX, SEGMENT),
    }
}

/// The flag of a send behind which the socket is nearly full, or whose segments are short: the next one begins a
/// segment. The kernel asks for room where a segment begins, and not as it fills one: of an FPDU that begins in the
/// last segment and does not end in it, it would take a part, and the rest would stay in this process. One that begins
/// a segment and is no longer than it leaves whole, or not at all.
pub(super) fn end_of_segment(sending: &mut HeldSending<'_>) -> i32 {
    let beside = sending.beside();
    match beside.segment != 0 || (beside.surely as usize) < ENDS_SEGMENTS {
        true => libc::MSG_EOR,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{open, pair_of};
    use super::super::Slot;
    use super::*;

    #[test]
    fn a_send_into_a_small_window_is_half_a_segment_and_ends_it() {
        const OCTETS: usize = 100_000;
        weft_os::process::watch();
        for (window, is_small) in [(Some(4 << 10), true), (Some(20 << 10), true), (None, false)] {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair_of(window));
            let [client, _server] = open(slots, &sockets);
            let mut sending = client.take_sending().unwrap();
            let Ok(Fits::Whole(octets)) = client.fits(&mut sending, OCTETS) else {
                panic!("the socket is empty");
            };
            let ends_segment = end_of_segment(&mut sending) == libc::MSG_EOR;
            assert_eq!((octets < OCTETS, ends_segment), (is_small, is_small));
            if is_small {
                let segment = stream::short_segment(client.fd()).unwrap();
                let on_wire = octets + AROUND_MAX;
                assert!(
                    (segment / 2 - 1..=segment / 2).contains(&on_wire),
                    "{on_wire} of {segment}"
                );
            }
        }
    }
}
