//! The receiving direction of a stream: framing told from the stream's octets.
//!
//! A socket's octets are framing and payload by turns. [`Receiver::next`] says which comes next; framing is given to
//! [`Receiver::take_framing`], payload goes where the reader wants it and is only counted ([`Receiver::take_payload`]).
//! To look ahead, do the same with a copy.
//!
//! The octets of a Write are the stream's as they come: a Write that is not at the stream's next octet is a fault, so
//! nothing can come out of order. A peer that is not Weft tells of them in a message behind, and its count is checked
//! against what came.

mod check;
mod fpdus;
#[cfg(test)]
mod tests;

pub use check::Check;

use weft_iwarp::Msn;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::connection_data::{ConnectionData, Target, TARGETS};
use crate::fault::Fault;
use crate::frame::{MESSAGE_LEN, WRITE_HEADER_LEN};
use crate::map::Map;

/// Octets of the stream that a target of this end takes. It has no memory behind it: what was not read yet waits in
/// the socket.
pub const WINDOW: u32 = 1 << 30;
/// Messages that a peer may send beyond those that were read. They wait in the socket too.
pub const CREDITS: u16 = 1 << 15;

/// Octets of the longest FPDU that is read as a whole.
const HELD_MAX: usize = 56;

const IN_HEADER: u8 = 0;
const IN_PAYLOAD: u8 = 1;
const IN_TRAILER: u8 = 2;
const OVER: u8 = 3;
const IN_MAPPED: u8 = 4;

const WEFT: u8 = 1;
const CRC: u8 = 2;
const BIG_ENDIAN: u8 = 4;
const ENDED: u8 = 8;
const BEGUN: u8 = 16;
const MAPPED: u8 = 32;

/// One end's receiving direction. Plain data: any octets make one, and a copy is another receiver in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Receiver {
    /// Tagged offset of the stream's next octet, and of the end of what the peer was given.
    to: u64,
    end: u64,
    /// Where the peer believes this end's list of targets to be.
    list_to: u64,
    /// Where the next octet of a Write goes that is none of the stream, and in which memory.
    mapped_to: u64,
    mapped_stag: u32,
    stag: u32,
    list_stag: u32,
    msn: u32,
    /// Octets written that a peer which is not Weft has not told of.
    unannounced: u32,
    /// Octets of the Write at hand that were not taken.
    left: u32,
    /// Counted messages that came, and up to which number the peer has credit. Both wrap.
    messages: u16,
    limit: u16,
    /// Entries of this end's table of what the peer maps.
    map_entries: u16,
    phase: u8,
    flags: u8,
    /// Octets of the trailer that have not come.
    trailer: u8,
    held_len: u8,
    reserved: [u8; 6],
    /// The beginning of an FPDU that has not come whole.
    held: [u8; HELD_MAX],
}

/// What comes next in the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At least so many octets of framing.
    Framing(usize),
    /// So many octets of the stream, and framing behind them.
    Payload(u32),
    /// Octets for memory that this end has mapped, and framing behind them. Whoever takes them checks that they may go
    /// there ([`place_of_write`](crate::map::place_of_write)).
    Mapped {
        /// Names the memory.
        stag: u32,
        /// Where the first of them goes.
        to: u64,
        /// So many.
        left: u32,
    },
    /// Nothing that counts: the peer ended the connection.
    Nothing,
}

/// What a piece of framing said beyond where payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer gives credit up to this message: for [`Sender::set_limit`](crate::Sender::set_limit).
    Limit(u16),
    /// The peer gives a target: for [`Sender::set_target`](crate::Sender::set_target).
    Target(usize, Target),
    /// The peer has mapped memory, which is this entry of this end's table from now on.
    Map(u16, Map),
    /// The peer's ready-to-receive FPDU, which is a Read Request for nothing. It has to be answered
    /// ([`frame::empty_read_response`](crate::frame::empty_read_response)).
    ReadRequest {
        /// The STag for the answer.
        stag: u32,
        /// The tagged offset for it.
        to: u64,
    },
    /// No more octets of the stream will come.
    End,
    /// The peer closes the connection.
    Disconnect,
    /// The peer broke the connection off: layer and type, error code (RFC 5040 section 4.8).
    Terminate(u8, u8),
}

/// What [`Receiver::take_framing`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// Octets that were framing. Behind them is payload, or more framing behind the event.
    pub taken: usize,
    /// What they said.
    pub event: Option<Event>,
}

/// More room for the peer: what [`Sender::renew`](crate::Sender::renew) sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// Credit up to this message.
    pub limit: u16,
    /// A target more.
    pub target: Option<Target>,
}

impl Receiver {
    /// For an end that said `own` of itself, and a peer that said `peer`.
    pub fn new(own: &ConnectionData, peer: &ConnectionData, crc: bool) -> Receiver {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Receiver {
            to: own.data.to,
            end: own.data.to.wrapping_add(u64::from(own.data.len)),
            list_to: own.targets.to,
            mapped_to: 0,
            mapped_stag: 0,
            stag: own.data.stag,
            list_stag: own.targets.stag,
            msn: Msn::FIRST.0,
            unannounced: 0,
            left: 0,
            messages: 0,
            limit: own.credits,
            map_entries: own.map_entries,
            phase: IN_HEADER,
            flags: flag(peer.weft, WEFT) | flag(crc, CRC) | flag(peer.big_endian, BIG_ENDIAN),
            trailer: 0,
            held_len: 0,
            reserved: [0; 6],
            held: [0; HELD_MAX],
        }
    }

    /// What this end says of itself, with these numbers for its memory. STags and offsets only have to be hard to
    /// guess: whoever can put octets into the connection without them is found out.
    pub fn connection_data(stag: u32, to: u64, list_stag: u32, list_to: u64) -> ConnectionData {
        ConnectionData {
            big_endian: cfg!(target_endian = "big"),
            weft: true,
            maps: false,
            credits: CREDITS,
            map_entries: 0,
            targets: Target {
                to: list_to,
                stag: list_stag,
                len: TARGETS as u32,
            },
            data: Target {
                to,
                stag,
                len: WINDOW,
            },
        }
    }

    /// This end has mapped memory from now on: the peer may write elsewhere than to the stream.
    pub fn begin_mapping(&mut self) {
        self.flags |= MAPPED;
    }

    /// What comes next in the socket.
    #[inline]
    pub fn next(&self) -> Next {
        match self.phase {
            IN_PAYLOAD => Next::Payload(self.left),
            IN_MAPPED => Next::Mapped {
                stag: self.mapped_stag,
                to: self.mapped_to,
                left: self.left,
            },
            IN_TRAILER => Next::Framing(usize::from(self.trailer)),
            IN_HEADER => Next::Framing(self.unit_len() - usize::from(self.held_len)),
            _ => Next::Nothing,
        }
    }

    /// The socket may end here: nothing has come in part.
    #[inline]
    pub fn is_between_fpdus(&self) -> bool {
        match self.phase {
            IN_HEADER => self.held_len == 0,
            OVER => true,
            _ => false,
        }
    }

    /// Octets that were taken of an FPDU's header, or of a message, that has not come whole.
    #[inline]
    pub fn held(&self) -> usize {
        usize::from(self.held_len)
    }

    /// An FPDU has come. An end that answered a Request may send nothing before, except to Weft (RFC 5044 section 7.1).
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.flags & BEGUN != 0
    }

    /// Octets came that no message has told of, and one will: the peer is not Weft.
    #[inline]
    pub fn owes_message(&self) -> bool {
        self.unannounced > 0
    }

    /// The peer said that no more octets will come.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.flags & ENDED != 0
    }

    /// Octets of the socket from the payload at hand, of which `left` are left, to the end of what tells of it: of the
    /// Write itself, or of the message behind it where the peer is not Weft.
    #[inline]
    pub fn behind(&self, left: u32) -> u32 {
        let message = if self.is_from_weft() { 0 } else { MESSAGE_LEN };
        left + u32::from(self.trailer) + message as u32
    }

    /// The peer is Weft.
    #[inline]
    pub fn is_from_weft(&self) -> bool {
        self.flags & WEFT != 0
    }

    /// Octets of framing that surely follow the payload at hand before other payload does, and may be taken with it.
    pub fn framing_behind(&self) -> usize {
        let trailer = usize::from(self.trailer);
        // The next FPDU has a CRC of its own, which is looked at first.
        if self.flags & CRC != 0 {
            return trailer;
        }
        trailer + WRITE_HEADER_LEN
    }

    /// Octets of framing that surely come before the next payload; `None` where payload comes first, or nothing.
    #[inline]
    pub fn framing_ahead(&self) -> Option<usize> {
        match self.phase {
            IN_TRAILER => Some(usize::from(self.trailer) + WRITE_HEADER_LEN),
            // What is held may be the most of a longer header, and tells of no payload yet.
            IN_HEADER => Some(WRITE_HEADER_LEN.saturating_sub(self.held())),
            _ => None,
        }
    }

    /// So many octets of payload were taken from the socket.
    ///
    /// # Panics
    ///
    /// When there were not so many.
    #[inline]
    pub fn take_payload(&mut self, octets: u32) {
        assert!(self.phase == IN_PAYLOAD && octets <= self.left);
        self.left -= octets;
        if self.left == 0 {
            self.phase = IN_TRAILER;
        }
    }

    /// So many octets for mapped memory were taken from the socket.
    ///
    /// # Panics
    ///
    /// When there were not so many.
    pub fn take_mapped(&mut self, octets: u32) {
        assert!(self.phase == IN_MAPPED && octets <= self.left);
        self.left -= octets;
        self.mapped_to = self.mapped_to.wrapping_add(u64::from(octets));
        if self.left == 0 {
            self.phase = IN_TRAILER;
        }
    }

    /// Takes octets from the socket up to the next payload, or up to something that has to be told.
    ///
    /// # Errors
    /// The peer broke the protocol. The connection is over then.
    #[inline]
    pub fn take_framing(&mut self, octets: &[u8]) -> Result<Framing, Fault> {
        // Nearly all framing is the end of one Write and the beginning of the next.
        let mut taken = self.take_trailer(octets);
        if self.take_next_write(&octets[taken..]) {
            taken += WRITE_HEADER_LEN;
        } else if taken < octets.len() {
            return self.take_units(octets, taken);
        }
        Ok(Framing { taken, event: None })
    }

    /// Takes what has come of the padding and the CRC behind a payload; gives how many octets that is.
    #[inline]
    fn take_trailer(&mut self, octets: &[u8]) -> usize {
        if self.phase != IN_TRAILER {
            return 0;
        }
        let now = octets.len().min(usize::from(self.trailer));
        self.trailer -= now as u8;
        if self.trailer == 0 {
            self.phase = IN_HEADER;
        }
        now
    }

    /// Takes framing of every kind, behind the first `taken` of these octets.
    #[inline(never)]
    fn take_units(&mut self, octets: &[u8], mut taken: usize) -> Result<Framing, Fault> {
        while let Next::Framing(wanted) = self.next() {
            let octets = &octets[taken..];
            let now = wanted.min(octets.len());
            if now == 0 {
                break;
            }
            if self.phase == IN_TRAILER {
                taken += self.take_trailer(octets);
                continue;
            }
            taken += now;
            let held = usize::from(self.held_len);
            self.held[held..held + now].copy_from_slice(&octets[..now]);
            self.held_len += now as u8;
            if now == wanted && self.unit_len() == usize::from(self.held_len) {
                let result = self.complete();
                if result.is_err() {
                    self.phase = OVER;
                }
                if let Some(event) = result? {
                    let event = Some(event);
                    return Ok(Framing { taken, event });
                }
            }
        }
        Ok(Framing { taken, event: None })
    }

    /// What the peer has to be given, where half of its credit or of its window is used up. Weft peers need none.
    #[inline]
    pub fn renewal(&self) -> Option<Renewal> {
        if self.is_from_weft() || self.has_ended() {
            return None;
        }
        let target = (self.end.wrapping_sub(self.to) <= u64::from(WINDOW / 2)).then_some(Target {
            to: self.end,
            stag: self.stag,
            len: WINDOW,
        });
        let credit = self.limit.wrapping_sub(self.messages);
        let is_due = target.is_some() || credit <= CREDITS / 2;
        is_due.then_some(Renewal {
            limit: self.messages.wrapping_add(CREDITS),
            target,
        })
    }

    /// The peer was told.
    pub fn renewed(&mut self, renewal: &Renewal) {
        self.limit = renewal.limit;
        if let Some(target) = renewal.target {
            self.end = target.to.wrapping_add(u64::from(target.len));
        }
    }
}
