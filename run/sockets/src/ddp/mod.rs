//! A connection whose octets go as DDP, on the program's own TCP socket.
//!
//! The descriptor is the kernel's and nothing is read ahead, so whoever waits for it waits right; what the connection
//! knows lies in memory that all processes of the family share (decision 0029). Nothing here waits and nothing
//! allocates: a call that cannot go on says `EAGAIN`, and the hooks wait as the C library does.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`slot`] | what a connection is, in shared memory |
//! | `state` | how far it is |
//! | `directions` | what it knows of each of its directions |
//! | [`slots`] | room for them |
//! | `rows`, [`shown`] | what others see of them and of other sockets |
//! | `users` | which processes have used one |
//! | `reclaiming` | slots of connections that nobody has any more |
//! | `refusing` | a peer for whose connection there is no room |
//! | `starting` | MPA's Request and Reply |
//! | `plain` | an end that hears no Request |
//! | `probing` | a peer that overlooks the first FPDU |
//! | `sending` | the program's octets as FPDUs |
//! | `fitting` | how much of them the socket takes at once |
//! | `room` | room that the peer has to give before a send goes on |
//! | `rest` | what has to leave before anything else: what a full socket left |
//! | `receiving` | FPDUs to the program's buffers |
//! | `looking` | whether octets of the stream come next, or the end |
//! | `peeking` | what lies in a socket, looked at and left there |
//! | `looking_past` | what stands behind octets of the stream and means something all the same |
//! | `marks` | from how many octets on the socket is readable |
//! | `files` | octets from a file or a pipe, and to a pipe |
//! | `mapping` | memory that the ends map for each other |
//! | `told_maps`, [`own_maps`] | what the peer has mapped; what this process has |
//! | `telling` | credit, targets and answers, from one direction to the other |
//! | `counting` | how much is under way |
//! | `ending` | the end of a direction, and what a program's close leaves to do |
//! | `taking_over` | parts whose holder died |
//! | `spans` | what lies next in a socket, framing and payload by turns |

mod counting;
mod directions;
mod discarding;
mod ending;
mod files;
mod fitting;
mod looking;
mod looking_past;
mod mapping;
mod marks;
pub mod own_maps;
mod peeking;
mod plain;
mod probing;
mod receiving;
mod reclaiming;
mod refusing;
mod rest;
mod room;
mod rows;
mod sending;
pub mod shown;
pub mod slot;
pub mod slots;
mod small;
mod spans;
mod starting;
mod state;
mod taking_over;
mod telling;
#[cfg(test)]
mod testing;
mod told_maps;
mod unseen;
mod users;

pub use ending::Left;
pub use receiving::Received;
pub use refusing::{begins_with, Beginning};
pub use slot::{Slot, State};
pub use slots::{Slots, SLOTS_MAX};
pub use starting::{begun, Settled};

use std::time::Duration;

use crate::discovering::Discovery;
use crate::Errno;
use own_maps::OwnMaps;
use weft_os::stream;

/// A connection, for the time of a call: what it is, and a descriptor of its socket.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    slot: &'a Slot,
    fd: i32,
    discovery: Option<&'static Discovery>,
    /// Memory of this process that is mapped on it.
    maps: Option<&'static OwnMaps>,
    /// The other end was asked whether it is Weft, and that is not known yet.
    is_held: bool,
    /// A part that another thread holds is left alone: the call says `EAGAIN`.
    leaves_alone: bool,
}

impl<'a> Connection<'a> {
    /// The connection of this slot, whose socket is `fd`.
    #[inline]
    pub fn new(slot: &'a Slot, fd: i32) -> Connection<'a> {
        Connection {
            slot,
            fd,
            discovery: None,
            maps: None,
            is_held: false,
            leaves_alone: false,
        }
    }

    /// The same, of a process that finds out what the other end is.
    #[inline]
    pub fn with_discovery(self, discovery: Option<&'static Discovery>) -> Connection<'a> {
        Connection { discovery, ..self }
    }

    /// The same, of a process that has memory mapped on it, or is about to.
    #[inline]
    pub fn with_maps(self, maps: Option<&'static OwnMaps>) -> Connection<'a> {
        Connection { maps, ..self }
    }

    /// The same by another descriptor of the socket.
    #[inline]
    pub fn with_fd(self, fd: i32) -> Connection<'a> {
        Connection { fd, ..self }
    }

    /// The same, once it is known what the other end is.
    #[inline]
    pub fn free(self) -> Connection<'a> {
        Connection {
            is_held: false,
            ..self
        }
    }

    /// The same, as long as it is not known what the other end is: nothing leaves on it.
    #[inline]
    pub fn held(self) -> Connection<'a> {
        Connection {
            is_held: true,
            ..self
        }
    }

    /// The same, for a thread that serves many and waits for nobody: what another thread holds is done by that, or with
    /// a later look, and the call says `EAGAIN`.
    pub fn without_waiting(self) -> Connection<'a> {
        Connection {
            leaves_alone: true,
            ..self
        }
    }

    /// Whether it is not known yet what the other end is.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether the connection stands, and it is not known yet what the other end is: what is sent is kept, and nothing
    /// is received.
    pub fn is_asking(&self) -> bool {
        self.is_held
            && self.slot.state() == State::Connecting
            && !self.slot.goes_plain()
            && stream::state(self.fd) == Some(stream::State::Connected)
            && stream::is_established(self.fd)
    }

    /// Whether the program has sent something that leaves with the peer's Reply.
    pub fn awaits_reply(&self) -> bool {
        self.slot.state() == State::Asked && self.slot.has_rest()
    }

    /// The descriptor.
    #[inline]
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Whether something is left to do that a call on it would do.
    #[inline]
    pub fn needs_service(&self) -> bool {
        let is_starting = || match self.slot.state() {
            State::Connecting | State::Asked => true,
            // A send was refused until a Request has come whole, or was waited for long enough.
            State::Answering => self.slot.is_short() || self.slot.has_part(),
            _ => false,
        };
        let is_open = self.slot.is_open();
        self.slot.has_rest() || self.slot.is_probing() || !is_open && is_starting()
    }

    /// How long nobody has to look whether the start goes on; nothing where something else is left to do. It takes the
    /// longer the longer it has taken, within bounds.
    pub fn pause(&self) -> Option<Duration> {
        const PART_OF_AGE: u32 = 64;
        const PAUSE_MS_MAX: u32 = 20;
        match self.slot.state() {
            State::Connecting | State::Asked => {
                let ms = (self.slot.age_ms() / PART_OF_AGE).min(PAUSE_MS_MAX);
                Some(Duration::from_millis(ms.into()))
            }
            State::Open if !self.slot.has_rest() && !self.slot.is_short() => {
                self.slot.is_probing().then(|| self.probe_pause())
            }
            _ => None,
        }
    }

    /// Whether the kernel may call the socket readable where there is nothing for the program: the start is framing,
    /// and so is what ends a message.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        if self.slot.is_open() {
            return self.slot.owes_message()
                || self.slot.has_crc()
                || self.slot.low_water() > 1
                || self.slot.is_short()
                || self.slot.hears_framing();
        }
        let state = self.slot.state();
        !matches!(state, State::Free | State::Plain | State::Over(_))
    }

    /// Both ends have said what they are.
    #[inline]
    fn is_open(&self) -> bool {
        self.slot.is_open() || self.slot.state() == State::Listening
    }

    /// The peer is Weft, as far as it has said anything.
    pub fn is_with_weft(&self) -> bool {
        let sending = self.take_sending();
        !self.is_open() || sending.map_or(true, |sending| sending.sender.is_to_weft())
    }

    /// Whether a part is there of what counts only as a whole: of the start, or of an FPDU with a CRC. Else a reader
    /// who found nothing has taken all that there was.
    pub fn awaits_whole(&self) -> bool {
        self.slot.fpdu_awaited() > 0
    }

    /// The receiving direction is about to be shut down: whatever has come in part is the end.
    pub fn stop_receiving(&self) {
        self.slot.stop_receiving();
    }

    /// What it is in shared memory.
    #[inline]
    pub fn slot(&self) -> &'a Slot {
        self.slot
    }

    /// Ends the connection because of what somebody did wrong, and gives the error for the call that found out.
    fn break_off(&self, why: &dyn std::fmt::Display) -> Errno {
        if self.slot.end(libc::ECONNRESET) {
            weft_settings::warn!("a DDP socket was reset: {why}");
            stream::reset(self.fd);
        }
        libc::ECONNRESET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_nobody_does_not_once_more_is_known() {
        let slot = &Slot::make(1).unwrap()[0];
        let connection = Connection::new(slot, 7).held().without_waiting();
        for known in [connection.free(), connection.with_fd(8).free()] {
            assert!(known.leaves_alone && !known.is_held());
        }
        assert_eq!(connection.with_fd(8).fd(), 8);
        assert!(connection.with_fd(8).is_held());
    }
}
