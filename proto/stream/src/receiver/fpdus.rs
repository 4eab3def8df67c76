//! What the FPDUs of a peer say: each is checked before anything comes of it.

use weft_iwarp::ddp::{Header, Tagged, Untagged, Versions};
use weft_iwarp::mpa::fpdu::{fpdu_len, LENGTH_LEN};
use weft_iwarp::rdmap::ReadRequest;
use weft_iwarp::{Msn, Opcode, QueueNumber, Stag};

use super::{
    Event, Receiver, BEGUN, BIG_ENDIAN, ENDED, HELD_MAX, IN_HEADER, IN_MAPPED, IN_PAYLOAD,
    IN_TRAILER, MAPPED, OVER, WEFT,
};
use crate::connection_data::{Target, TARGETS, TARGET_LEN};
use crate::fault::Fault;
use crate::frame::{trailer_len, write_header, WRITE_HEADER_LEN};
use crate::map::{Map, ENTRY_LEN};
use crate::word::{Word, WORD_LEN};

/// Octets of an FPDU that tell which header follows.
const KIND_LEN: usize = LENGTH_LEN + 1;
const TAGGED: u8 = 0x80;
const UNTAGGED_HEADER_LEN: usize = LENGTH_LEN + Header::UNTAGGED_LEN;
/// Of a Terminate only its control field is read: layer, type and code.
const TERMINATE_READ: usize = UNTAGGED_HEADER_LEN + 4;

impl Receiver {
    /// How many octets of the FPDU at hand have to be held before anything can be done with it, as far as those that
    /// are held tell.
    #[inline]
    pub(super) fn unit_len(&self) -> usize {
        match usize::from(self.held_len) {
            ..KIND_LEN => KIND_LEN,
            held => self.unit_len_by_header(&self.held[..held]),
        }
    }

    /// The same of an FPDU whose kind is held.
    #[inline(never)]
    fn unit_len_by_header(&self, held: &[u8]) -> usize {
        let control = held[LENGTH_LEN];
        let ulpdu_len = usize::from(u16::from_be_bytes([held[0], held[1]]));
        if control & TAGGED != 0 {
            let Some(header) = held.get(..WRITE_HEADER_LEN) else {
                return WRITE_HEADER_LEN;
            };
            let is_to_list = header[4..8] == self.list_stag.to_be_bytes();
            if is_to_list && ulpdu_len > Header::TAGGED_LEN {
                return fpdu_len(ulpdu_len).min(HELD_MAX);
            }
            return WRITE_HEADER_LEN;
        }
        let Some(header) = held.get(..UNTAGGED_HEADER_LEN) else {
            return UNTAGGED_HEADER_LEN;
        };
        if Opcode(header[3] & 0x0f) == Opcode::TERMINATE {
            return TERMINATE_READ;
        }
        fpdu_len(ulpdu_len).clamp(UNTAGGED_HEADER_LEN, HELD_MAX)
    }

    /// Takes the header of a Write of the stream's next octets from a peer that is Weft, where these octets begin with
    /// all of one; whether they do. Nearly all framing is that, and [`Receiver::complete`] would come to the same.
    #[inline]
    pub(super) fn take_next_write(&mut self, octets: &[u8]) -> bool {
        let Some(header) = octets.first_chunk::<WRITE_HEADER_LEN>() else {
            return false;
        };
        let is_between = self.phase == IN_HEADER && self.held_len == 0;
        let ulpdu_len = usize::from(u16::from_be_bytes([header[0], header[1]]));
        if !is_between || self.flags & (WEFT | ENDED) != WEFT || ulpdu_len <= Header::TAGGED_LEN {
            return false;
        }
        let len = ulpdu_len - Header::TAGGED_LEN;
        let is_next = *header == write_header(self.stag, self.to, len);
        if is_next {
            self.flags |= BEGUN;
            self.begin_payload(len);
        }
        is_next
    }

    /// A unit is there.
    pub(super) fn complete(&mut self) -> Result<Option<Event>, Fault> {
        self.flags |= BEGUN;
        let len = usize::from(core::mem::take(&mut self.held_len));
        let held = self.held;
        let held = &held[..len];
        let ulpdu_len = u16::from_be_bytes([held[0], held[1]]);
        let Some((header, versions)) = Header::decode(&held[LENGTH_LEN..]) else {
            return Err(Fault::TooShort(ulpdu_len));
        };
        if versions != Versions::IETF {
            let Versions { ddp, rdmap } = versions;
            return Err(Fault::Version { ddp, rdmap });
        }
        let behind = usize::from(ulpdu_len)
            .checked_sub(header.wire_len())
            .ok_or(Fault::TooShort(ulpdu_len))?;
        let content = held.get(LENGTH_LEN + header.wire_len()..).unwrap_or(&[]);
        match header {
            Header::Tagged(header) => self.tagged(&header, behind, content),
            Header::Untagged(header) => self.untagged(&header, behind, content),
        }
    }

    fn tagged(
        &mut self,
        header: &Tagged,
        len: usize,
        content: &[u8],
    ) -> Result<Option<Event>, Fault> {
        let is_write = header.opcode == Opcode::WRITE;
        // Where nothing would go is nobody's business: a Write is a sign of life or the ready-to-receive FPDU, a Read
        // Response the answer to that of this end.
        if len == 0 && (is_write || header.opcode == Opcode::READ_RESPONSE) {
            self.expect_trailer(0);
            return Ok(None);
        }
        if !is_write {
            let opcode = header.opcode.0;
            return Err(Fault::Message { opcode, queue: 0 });
        }
        if header.stag == Stag(self.list_stag) {
            return self.list_written(header.to, len, content).map(Some);
        }
        if header.stag != Stag(self.stag) {
            return self.begin_mapped(header, len).map(|()| None);
        }
        self.check_write(header.to, len)?;
        if !self.is_from_weft() {
            self.unannounced = self.unannounced.saturating_add(len as u32);
        }
        self.begin_payload(len);
        Ok(None)
    }

    /// So many octets of the stream come next.
    #[inline]
    fn begin_payload(&mut self, len: usize) {
        self.to = self.to.wrapping_add(len as u64);
        self.left = len as u32;
        self.expect_trailer(len);
        self.phase = IN_PAYLOAD;
    }

    /// A Write to memory that is not the stream's.
    fn begin_mapped(&mut self, header: &Tagged, len: usize) -> Result<(), Fault> {
        if self.flags & MAPPED == 0 {
            return Err(Fault::Stag(header.stag));
        }
        if self.has_ended() {
            return Err(Fault::BehindTheEnd);
        }
        (self.mapped_stag, self.mapped_to) = (header.stag.0, header.to);
        self.left = len as u32;
        self.expect_trailer(len);
        self.phase = IN_MAPPED;
        Ok(())
    }

    fn check_write(&self, to: u64, len: usize) -> Result<(), Fault> {
        if self.has_ended() {
            return Err(Fault::BehindTheEnd);
        }
        if to != self.to {
            let expected = self.to;
            return Err(Fault::Offset { to, expected });
        }
        let beyond = (len as u64).saturating_sub(self.end.wrapping_sub(self.to));
        if beyond > 0 && !self.is_from_weft() {
            return Err(Fault::Window { beyond });
        }
        Ok(())
    }

    fn expect_trailer(&mut self, payload: usize) {
        self.trailer = trailer_len(payload) as u8;
        self.phase = IN_TRAILER;
    }

    /// Something was written into what this end keeps for the peer to write. The whole FPDU is held.
    fn list_written(&mut self, to: u64, len: usize, content: &[u8]) -> Result<Event, Fault> {
        const TARGETS_END: u64 = (TARGETS * TARGET_LEN) as u64;
        let offset = to.wrapping_sub(self.list_to);
        match offset.checked_sub(TARGETS_END) {
            Some(at) if at < u64::from(self.map_entries) * ENTRY_LEN as u64 => {
                self.entry_written(at, offset, len, content)
            }
            _ => self.target_written(to, len, content),
        }
    }

    /// The whole FPDU of a Write `at` this octet of the table of mapped memory is held.
    fn entry_written(
        &mut self,
        at: u64,
        offset: u64,
        len: usize,
        content: &[u8],
    ) -> Result<Event, Fault> {
        let fault = Fault::Targets { offset, len };
        if len != ENTRY_LEN || !at.is_multiple_of(ENTRY_LEN as u64) {
            return Err(fault);
        }
        let octets = content.first_chunk().ok_or(fault)?;
        let map = Map::from_octets(*octets, cfg!(target_endian = "big"));
        map.target.end().ok_or(Fault::Target)?;
        Ok(Event::Map((at / ENTRY_LEN as u64) as u16, map))
    }

    /// The whole FPDU is held.
    fn target_written(&mut self, to: u64, len: usize, content: &[u8]) -> Result<Event, Fault> {
        let offset = to.wrapping_sub(self.list_to);
        let fault = Fault::Targets { offset, len };
        let index = offset / TARGET_LEN as u64;
        if len != TARGET_LEN || !offset.is_multiple_of(TARGET_LEN as u64) || index >= TARGETS as u64
        {
            return Err(fault);
        }
        let octets = content.first_chunk().ok_or(fault)?;
        // Whoever writes into memory of this end writes in its order.
        let target = Target::from_octets(*octets, cfg!(target_endian = "big"));
        target.end().ok_or(Fault::Target)?;
        Ok(Event::Target(index as usize, target))
    }

    fn untagged(
        &mut self,
        header: &Untagged,
        len: usize,
        content: &[u8],
    ) -> Result<Option<Event>, Fault> {
        match (header.opcode, header.qn) {
            (Opcode::TERMINATE, QueueNumber::TERMINATE) => {
                self.phase = OVER;
                let [layer_and_type, code] = content.first_chunk().copied().unwrap_or_default();
                Ok(Some(Event::Terminate(layer_and_type, code)))
            }
            (Opcode::READ_REQUEST, QueueNumber::READ_REQUEST) => {
                let request = ReadRequest::decode(content).filter(|_| len == ReadRequest::WIRE_LEN);
                let request = request.ok_or(Fault::TooShort(len as u16))?;
                if request.size > 0 {
                    return Err(Fault::Read(request.size));
                }
                let (stag, to) = (request.sink_stag.0, request.sink_to);
                Ok(Some(Event::ReadRequest { stag, to }))
            }
            (Opcode::SEND | Opcode::SEND_SOLICITED, QueueNumber::SEND) => {
                self.sent(header, len, content)
            }
            (opcode, queue) => Err(Fault::Message {
                opcode: opcode.0,
                queue: queue.0,
            }),
        }
    }

    /// The whole FPDU of a Send is held.
    fn sent(
        &mut self,
        header: &Untagged,
        len: usize,
        content: &[u8],
    ) -> Result<Option<Event>, Fault> {
        if header.msn != Msn(self.msn) {
            let (msn, expected) = (header.msn.0, self.msn);
            return Err(Fault::Sequence { msn, expected });
        }
        self.msn = header.msn.next().0;
        // The ready-to-receive FPDU may be a Send, and only the first can be that.
        if len == 0 && header.msn == Msn::FIRST {
            return Ok(None);
        }
        let word = content
            .first_chunk()
            .filter(|_| len == WORD_LEN && header.last && header.mo == 0);
        let octets = *word.ok_or(Fault::WordLength(len))?;
        let big_endian = self.flags & BIG_ENDIAN != 0;
        let Some(word) = Word::from_octets(octets, big_endian) else {
            return Err(Fault::Word(u32::from_be_bytes(octets)));
        };
        self.said(word)
    }

    fn said(&mut self, word: Word) -> Result<Option<Event>, Fault> {
        Ok(match word {
            Word::Data(told) => {
                let written = core::mem::take(&mut self.unannounced);
                if told != written {
                    return Err(Fault::Count { told, written });
                }
                self.count()?;
                None
            }
            // The entry counts from the Write on.
            Word::Map(_) => {
                self.count()?;
                None
            }
            Word::Credit(limit) => Some(Event::Limit(limit)),
            Word::Keepalive => None,
            Word::Shutdown => {
                self.flags |= ENDED;
                Some(Event::End)
            }
            Word::Disconnect => {
                self.flags |= ENDED;
                self.phase = OVER;
                Some(Event::Disconnect)
            }
        })
    }

    fn count(&mut self) -> Result<(), Fault> {
        if self.messages == self.limit && !self.is_from_weft() {
            return Err(Fault::Credit);
        }
        self.messages = self.messages.wrapping_add(1);
        Ok(())
    }
}
