//! FPDUs ahead of order: found in a TCP segment that arrived before what precedes it.
//!
//! Three steps make octets a delivered segment. *Frame*: length, CRC and markers of one FPDU, for which its octets and
//! their place in the stream are enough. *Place*: the payload goes where STag or queue say, which is the verbs layer's.
//! *Deliver*: the segment is the next one of its message and its queue. In order they follow each other at once
//! ([`Inbound::parse`]). Ahead of order [`FpdusAhead`] frames, what is placed is kept in a [`Ledger`] as an
//! [`Envelope`], and [`Inbound::deliver`] takes that when order has come to it.
//!
//! Where an FPDU begins is a guess until something proves it (RFC 5044 section 5.2): the CRC, or the word of a peer
//! that puts whole FPDUs into each segment. A guess that fails is no fault: the octets wait for order, which has the
//! last word on all of them.
//!
//! [`Inbound::parse`]: crate::Inbound::parse
//! [`Inbound::deliver`]: crate::Inbound::deliver
//! [`Ledger`]: crate::Ledger

mod envelope;
#[cfg(test)]
pub(crate) mod tests;

pub use envelope::Envelope;

use crate::ddp::{Header, Versions};
use crate::mpa::fpdu::LENGTH_LEN;
use crate::mpa::marker;
use crate::mpa::whole::{crc_matches, Lengths};
use crate::num::Opcode;
use crate::wire::u16_at;
use alloc::vec::Vec;
use core::ops::Range;

/// Which FPDUs are placed ahead of order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PlacePolicy {
    /// None.
    InOrder,
    /// All but the last segments of messages, so that a program that waits for the last octet of a message to change,
    /// or for a flag that is written behind the data, never sees it first.
    #[default]
    Safe,
    /// Last segments too, as RFC 5041 section 5.4 allows.
    Eager,
}

/// Why octets ahead of order were not made a placed FPDU. They wait for order; none of this is a fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unplaced {
    /// What begins here, if anything does, goes on behind these octets: an FPDU longer than a segment, or one that was
    /// cut anew on its way.
    NotWhole,
    /// No FPDU begins here: the CRC does not match, or a marker points elsewhere.
    NoFpdu,
    /// The last segment of its message.
    LastSegment,
    /// A message that acts instead of carrying octets to memory: a request, an answer to an atomic, Immediate Data, a
    /// Terminate, or anything empty.
    Control,
}

/// One FPDU that arrived whole and ahead of order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FpduAhead {
    /// Which of the octets it takes.
    pub octets: Range<usize>,
    /// Its DDP header.
    pub header: Header,
    /// Octets of its payload.
    pub payload_len: usize,
    /// All of it but its payload.
    pub envelope: Envelope,
}

impl FpduAhead {
    /// Why it may not be placed ahead of order under this policy, whatever its target is.
    pub fn unplaced(&self, policy: PlacePolicy) -> Option<Unplaced> {
        let carries_octets = match self.header.opcode() {
            Opcode::WRITE | Opcode::READ_RESPONSE => matches!(self.header, Header::Tagged(_)),
            Opcode::SEND
            | Opcode::SEND_INVALIDATE
            | Opcode::SEND_SOLICITED
            | Opcode::SEND_SOLICITED_INVALIDATE => matches!(self.header, Header::Untagged(_)),
            _ => false,
        };
        if !carries_octets || self.payload_len == 0 {
            Some(Unplaced::Control)
        } else if self.header.last() && policy != PlacePolicy::Eager {
            Some(Unplaced::LastSegment)
        } else {
            None
        }
    }
}

/// The whole FPDUs in octets that arrived ahead of order.
///
/// The first is looked for where the octets begin, as senders begin their segments with FPDUs, each other one behind
/// the one before. With markers the search goes on where that fails: each of them points to the front of the FPDU that
/// it stands in.
#[derive(Clone, Debug)]
pub struct FpdusAhead<'a> {
    octets: &'a [u8],
    at: u64,
    crc: bool,
    markers: bool,
    /// Where the next one is looked for.
    next: usize,
    /// FPDUs fill the octets from `next` to the last one, as far as lengths say so: found once, this goes for the front
    /// of each FPDU behind it.
    fills: bool,
    /// The first marker that was not asked for an FPDU.
    next_marker: usize,
    /// The last one found without its markers, where there are any.
    content: Vec<u8>,
    /// Its payload: of `content` with markers, else of `octets`.
    payload: Range<usize>,
    /// Lengths that `fill_the_rest` asked for.
    #[cfg(test)]
    lengths_asked: usize,
}

impl<'a> FpdusAhead<'a> {
    pub(crate) fn new(crc: bool, markers: bool, at: u64, octets: &'a [u8]) -> FpdusAhead<'a> {
        let into_spacing = position(at, 0);
        let next_marker = match into_spacing {
            0 => 0,
            into_spacing => marker::SPACING - into_spacing,
        };
        FpdusAhead {
            octets,
            at,
            crc,
            markers,
            next: 0,
            fills: false,
            next_marker,
            content: Vec::new(),
            payload: 0..0,
            #[cfg(test)]
            lengths_asked: 0,
        }
    }

    /// The next whole FPDU, or why the octets here are none. `None` at the end of the octets.
    ///
    /// Not an iterator, as the payload of what it gives may be here ([`FpdusAhead::payload`]).
    pub fn next_fpdu(&mut self) -> Option<Result<FpduAhead, Unplaced>> {
        if self.next >= self.octets.len() {
            return None;
        }
        self.fills = self.crc || self.fills || self.fill_the_rest();
        let found = match self.fills {
            true => self.frame(),
            false => Err(Unplaced::NotWhole),
        };
        self.next = match &found {
            Ok(fpdu) => fpdu.octets.end,
            Err(_) => {
                // A marker may lead away from the fronts that were walked over.
                self.fills = false;
                self.next_marked().unwrap_or(self.octets.len())
            }
        };
        Some(found)
    }

    /// The payload of the FPDU that was found last.
    pub fn payload(&self) -> &[u8] {
        match self.markers {
            true => &self.content[self.payload.clone()],
            false => &self.octets[self.payload.clone()],
        }
    }

    /// The FPDU at `next`.
    fn frame(&mut self) -> Result<FpduAhead, Unplaced> {
        let position = position(self.at, self.next);
        let rest = &self.octets[self.next..];
        let lengths = Lengths::of(self.markers, position, rest).map_err(|_| Unplaced::NotWhole)?;
        let ulpdu_len = usize::from(lengths.ulpdu_len);
        if ulpdu_len < Header::TAGGED_LEN {
            return Err(Unplaced::NoFpdu);
        }
        let wire = rest.get(..lengths.wire_len).ok_or(Unplaced::NotWhole)?;
        // Markers first: they cost little, and who sends many that point nowhere does not get many CRCs for it.
        let (leading, fpdu) = wire.split_at(lengths.leading);
        let begins = position + lengths.leading;
        let markers_agree = !self.markers
            || (leading.iter().all(|octet| *octet == 0) && marker::agree(fpdu, begins));
        if !markers_agree || (self.crc && !crc_matches(wire)) {
            return Err(Unplaced::NoFpdu);
        }
        let (content, offset) = if self.markers {
            self.content.clear();
            for run in marker::runs(begins, fpdu.len()) {
                self.content.extend_from_slice(&fpdu[run]);
            }
            (&self.content[..], 0)
        } else {
            (fpdu, self.next)
        };
        let (header, versions) =
            Header::decode(&content[LENGTH_LEN..][..ulpdu_len]).ok_or(Unplaced::NoFpdu)?;
        if versions != Versions::IETF {
            return Err(Unplaced::NoFpdu);
        }
        let payload = LENGTH_LEN + header.wire_len()..LENGTH_LEN + ulpdu_len;
        self.payload = offset + payload.start..offset + payload.end;
        Ok(FpduAhead {
            octets: self.next..self.next + lengths.wire_len,
            header,
            payload_len: payload.len(),
            envelope: Envelope::new(content, &payload, lengths.wire_len),
        })
    }

    /// Without a CRC the peer's word is believed, which is about whole segments: FPDUs fill what is left of these
    /// octets to the last one.
    fn fill_the_rest(&mut self) -> bool {
        let mut at = self.next;
        while at < self.octets.len() {
            #[cfg(test)]
            {
                self.lengths_asked += 1;
            }
            match Lengths::of(self.markers, position(self.at, at), &self.octets[at..]) {
                Ok(lengths) => at += lengths.wire_len,
                Err(_) => return false,
            }
        }
        at == self.octets.len()
    }

    /// The next place behind `next` that a marker points to as the front of an FPDU.
    fn next_marked(&mut self) -> Option<usize> {
        while self.markers && self.next_marker + marker::LEN <= self.octets.len() {
            let at = self.next_marker;
            self.next_marker += marker::SPACING;
            let back = usize::from(u16_at(self.octets, at + 2));
            if let Some(start) = self.front(at, back).filter(|start| *start > self.next) {
                return Some(start);
            }
        }
        None
    }

    /// The front of the FPDU that a marker at `at` says to be `back` octets before it. The marker between two FPDUs is
    /// the second one's, and points to itself.
    fn front(&self, at: usize, back: usize) -> Option<usize> {
        let length_field = at.checked_sub(back)?;
        let is_behind_marker = position(self.at, length_field) == marker::LEN;
        match is_behind_marker {
            true => length_field.checked_sub(marker::LEN),
            false => Some(length_field),
        }
    }
}

/// The position modulo the marker spacing of an octet `octets` behind the offset `at`.
fn position(at: u64, octets: usize) -> usize {
    ((at + octets as u64) % marker::SPACING as u64) as usize
}
