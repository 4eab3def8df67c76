//! Memory that the ends of a connection map for each other, as rsockets have it: what is written there comes without a
//! message, and nobody receives it.
//!
//! Mapped memory is one process's. It takes what comes for it in any call that receives, and by a thread of its own
//! where it makes none; other processes that have the connection leave what comes for it in the socket until then.

use std::sync::atomic::Ordering;

use weft_os::parts::Receives;
use weft_os::process;
use weft_os::stream;
use weft_os::user::{UserBuffers, UserRange};
use weft_stream::frame::{write_header, WRITE_HEADER_LEN};
use weft_stream::{Map, Next};

use super::directions::{HeldReceiving, HeldSending};
use super::fitting::{end_of_segment, Fits};
use super::own_maps::OwnMaps;
use super::receiving::Received;
use super::rest::has_place_for_news;
use super::sending::{covered_trailer, COPIED_MAX};
use super::slot::{State, PAYLOAD_MAX};
use super::spans::Spans;
use super::{Connection, Slot};
use crate::Errno;

/// In place of a process: whoever had mapped memory has closed the connection.
const GIVEN_BACK: u32 = u32::MAX;

/// Where the octets of a Write of the peer's go.
enum Place {
    Here(UserRange),
    /// Memory of another process, which will take the Write.
    Elsewhere,
    /// Memory that its process has given back by a close.
    Nowhere,
}

impl Slot {
    /// Entries of this end's table of what the peer maps. To be set before the start says so.
    pub fn map_entries(&self) -> u16 {
        self.map_entries.load(Ordering::Relaxed) as u16
    }

    /// So many.
    pub fn set_map_entries(&self, entries: u16) {
        self.map_entries.store(entries.into(), Ordering::Relaxed);
    }

    /// The peer is not Weft.
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_foreign(&self, is_foreign: bool) {
        self.is_foreign.store(is_foreign.into(), Ordering::Relaxed);
    }

    /// Whether some process has mapped memory for the peer.
    #[inline]
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped_by.load(Ordering::Relaxed) != 0
    }

    /// Whether this process has.
    #[inline]
    pub fn is_mapped_here(&self) -> bool {
        self.is_mapped() && self.mapped_by.load(Ordering::Relaxed) == process::member()
    }

    /// Whether what the peer says means something alone: framing makes the socket readable.
    #[inline]
    pub(super) fn hears_framing(&self) -> bool {
        self.is_foreign() || self.map_entries() > 0 || self.is_mapped()
    }

    /// This process is the one that maps memory, if no other that lives has any.
    fn begin_to_map(&self) -> Result<(), Errno> {
        let own = process::member();
        let owner = self.mapped_by.load(Ordering::Acquire);
        if owner != own && self.is_mapped_elsewhere() {
            return Err(libc::EBUSY);
        }
        let claimed =
            self.mapped_by
                .compare_exchange(owner, own, Ordering::AcqRel, Ordering::Acquire);
        claimed.map(drop).map_err(|_| libc::EBUSY)
    }

    /// Whether another process has mapped memory, and lives: one that has ended and that nobody has asked about takes
    /// nothing any more.
    fn is_mapped_elsewhere(&self) -> bool {
        match self.mapped_by.load(Ordering::Acquire) {
            0 | GIVEN_BACK => false,
            owner => owner != process::member() && !process::has_ended(owner),
        }
    }

    /// Whether memory was mapped by a process that has closed the connection since.
    pub(super) fn has_given_back(&self) -> bool {
        self.mapped_by.load(Ordering::Relaxed) == GIVEN_BACK
    }

    /// This process closes the connection and has no memory mapped any more. A peer that writes cannot know: what comes
    /// for it is thrown away from now on.
    fn give_back(&self) {
        let own = process::member();
        let _ =
            self.mapped_by
                .compare_exchange(own, GIVEN_BACK, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl Connection<'_> {
    /// Maps memory for the peer, which calls its first octet `offset`.
    ///
    /// # Errors
    /// `EAGAIN` where the peer has not said enough, or there is no room to tell it; `ENOMEM` where it has no entry for
    /// more; `EBUSY` where another process has memory mapped; `EPIPE`; or the connection is over.
    pub fn map(&self, memory: UserRange, offset: u64) -> Result<(), Errno> {
        if self.lacks_credit()? {
            // Nobody else may take what the peer has said of it.
            self.take_what_was_said()?;
        }
        let (mut receiving, mut sending, maps) = self.take_to_map()?;
        if sending.sender.map_entries() == 0 {
            return Err(libc::ENOMEM);
        }
        if !self.flush(&mut sending, 0)? {
            return Err(libc::EAGAIN);
        }
        self.slot.begin_to_map()?;
        let (entry, map) = maps.insert(memory, offset, sending.sender.map_entries())?;
        let Some(told) = sending.sender.tell_of_map(entry, &map) else {
            maps.remove_entry(entry);
            return Err(libc::EAGAIN);
        };
        // The peer may write as soon as it is told.
        receiving.receiver.begin_mapping();
        self.set_mark(&mut receiving);
        self.tell_of_map(&mut sending, &told)
    }

    /// Whether the peer, of a connection that is open, has no buffer for a message about memory.
    ///
    /// # Errors
    /// `EAGAIN` where another call has the sending direction in hand; the connection is over.
    pub fn lacks_credit(&self) -> Result<bool, Errno> {
        Ok(self.slot.state() == State::Open && !self.take_sending()?.sender.may_tell_of_map())
    }

    /// Takes note of memory that the peer is not told of.
    ///
    /// # Errors
    /// As of [`Connection::map`].
    pub fn map_untold(&self, memory: UserRange) -> Result<(), Errno> {
        let (_receiving, _sending, maps) = self.take_to_map()?;
        maps.insert_untold(memory)
    }

    /// Both directions of a connection that goes on, and the table.
    fn take_to_map(&self) -> Result<(HeldReceiving<'_>, HeldSending<'_>, &'static OwnMaps), Errno> {
        match self.slot.state() {
            State::Open => {}
            State::Over(errno) => return Err(errno),
            _ => return Err(libc::EAGAIN),
        }
        let receiving = self.take_receiving()?;
        let sending = self.take_sending()?;
        if sending.shut_down > 0 {
            return Err(libc::EPIPE);
        }
        Ok((receiving, sending, self.maps.ok_or(libc::ENOMEM)?))
    }

    fn tell_of_map(&self, sending: &mut HeldSending<'_>, told: &[u8]) -> Result<(), Errno> {
        sending.count_framing(told.len());
        self.queue(sending, told)?;
        self.flush(sending, 0).map(drop)
    }

    /// Memory is mapped no longer: nothing is written there once this returns. The peer is told, unless it has no
    /// buffer for that, or has taken nothing of what many calls before this one had to tell.
    ///
    /// # Errors
    /// `EINVAL` where it is not mapped.
    pub fn unmap(&self, memory: &UserRange) -> Result<(), Errno> {
        let maps = self.maps.ok_or(libc::EINVAL)?;
        // Nobody is amid a receive into it. Of a connection that is over nobody will be.
        let _receiving = match self.take_receiving() {
            Err(libc::EINTR) => return Err(libc::EINTR),
            receiving => receiving,
        };
        let Some(entry) = maps.remove(memory)? else {
            return Ok(());
        };
        if self.slot.state() != State::Open {
            return Ok(());
        }
        // A peer that is not told writes to what is no memory, as it would if the news came late.
        if let Ok(mut sending) = self.take_sending() {
            // What a full socket has left may be an FPDU in part, which this goes behind.
            let has_place = self.flush(&mut sending, 0).is_ok() && has_place_for_news(&sending);
            if sending.shut_down == 0 && has_place {
                if let Some(told) = sending.sender.tell_of_map(entry, &Map::default()) {
                    let _ = self.tell_of_map(&mut sending, &told);
                }
            }
        }
        Ok(())
    }

    /// The program closes the connection: nothing is mapped by this process any more, once this returns.
    pub fn unmap_all(&self) {
        if self.slot.is_mapped_here() {
            // Nobody is amid a receive into it.
            let _receiving = self.take_receiving();
            self.slot.give_back();
        }
    }

    /// Writes octets, those of `data` from `from` on, to memory that the peer has mapped, where it calls the first of
    /// them `offset`; gives how many are on their way, in one Write: 0 where nothing is mapped there.
    ///
    /// # Errors
    /// `EAGAIN` where the socket has no room, or the peer has not answered the start; `EPIPE`; `EFAULT`; or the
    /// connection is over.
    pub fn write_mapped(
        &self,
        data: &UserBuffers,
        from: usize,
        offset: u64,
    ) -> Result<usize, Errno> {
        match self.slot.state() {
            State::Open => {}
            State::Over(errno) => return Err(errno),
            _ => return Err(libc::EAGAIN),
        }
        let find = || self.slot.told_maps.find(offset);
        let is_told = self.slot.map_entries() > 0;
        let mut found = is_told.then(find).flatten();
        if is_told && found.is_none() {
            // What the peer has mapped may stand in the socket.
            match self.take_what_was_said() {
                Ok(()) => found = find(),
                Err(errno) => return Err(errno),
            }
        }
        let mut sending = self.take_sending()?;
        if sending.shut_down > 0 {
            return Err(libc::EPIPE);
        }
        let Some((stag, to, left)) = found else {
            return Ok(0);
        };
        if !self.flush(&mut sending, 0)? {
            return Err(libc::EAGAIN);
        }
        let payload_max = match sending.sender.has_crc() {
            true => COPIED_MAX,
            false => PAYLOAD_MAX,
        };
        let most = (data.octets() - from).min(left as usize).min(payload_max);
        let readable = data.readable(from..from + most);
        if readable == 0 {
            return Err(libc::EFAULT);
        }
        let octets = match self.fits(&mut sending, readable)? {
            Fits::Whole(octets) | Fits::InPart(octets) => octets.min(readable),
            Fits::Nothing => return Err(libc::EAGAIN),
        };
        let header = write_header(stag, to, octets);
        self.send_written(&mut sending, &header, data, from..from + octets)?;
        Ok(octets)
    }

    /// Sends one Write from a copy, which outlives this process where the socket takes it in part.
    fn send_written(
        &self,
        sending: &mut HeldSending<'_>,
        header: &[u8; WRITE_HEADER_LEN],
        data: &UserBuffers,
        range: std::ops::Range<usize>,
    ) -> Result<(), Errno> {
        let (octets, crc) = (range.len(), sending.sender.has_crc());
        self.queue(sending, header)?;
        self.queue_user(sending, data, range)?;
        let (trailer, len) = {
            let rest = self.take_octets(&self.slot.rest)?;
            covered_trailer(&rest[..WRITE_HEADER_LEN + octets], octets, crc)
        };
        self.queue(sending, &trailer[..len])?;
        let wire = sending.rest_len as usize;
        sending.count_framing(wire);
        let flags = end_of_segment(sending);
        self.flush(sending, flags).map(drop)
    }

    /// Takes octets from the socket to memory that is mapped. [`Received::Octets`] of 0 says that there were some.
    pub(super) fn place(
        &self,
        receiving: &mut HeldReceiving<'_>,
        stag: u32,
        to: u64,
        left: u32,
    ) -> Result<Received, Errno> {
        let done = receiving.acted_on_from(0).min(left as usize);
        if done > 0 {
            return self.pass_over(receiving, done);
        }
        let memory = match self.memory(stag, to, left)? {
            Place::Here(memory) => memory,
            Place::Elsewhere => return Ok(Received::Nothing),
            Place::Nowhere => return self.pass_over(receiving, left as usize),
        };
        receiving.begin_to_take(Spans::of_payload(left as usize));
        let buffers = memory.buffers();
        let mut receives = Receives::new();
        let has_place = receives.user(&buffers, 0..left as usize);
        debug_assert!(has_place);
        match receives.receive(self.fd) {
            Ok(0) => self.at_end(&receiving.receiver),
            Ok(taken) => {
                receiving.count_taken(taken);
                receiving.receiver.take_mapped(taken as u32);
                Ok(Received::Octets(0))
            }
            Err(libc::EAGAIN) => Ok(Received::Nothing),
            Err(libc::EFAULT) => Err(self.memory_is_gone()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes octets from the socket that are not to be placed: somebody has who looked that far, and the program may
    /// have changed them since; or their memory was given back.
    fn pass_over(
        &self,
        receiving: &mut HeldReceiving<'_>,
        octets: usize,
    ) -> Result<Received, Errno> {
        receiving.begin_to_take(Spans::of_payload(octets));
        match stream::discard(self.fd, octets) {
            Ok(0) => self.at_end(&receiving.receiver),
            Ok(taken) => {
                receiving.count_taken(taken);
                receiving.receiver.take_mapped(taken as u32);
                Ok(Received::Octets(0))
            }
            Err(libc::EAGAIN) => Ok(Received::Nothing),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    pub(super) fn memory_is_gone(&self) -> Errno {
        self.break_off(&"memory that was mapped for the peer is there no longer")
    }

    /// Whether the next octets of the socket are for memory of another process, which has not taken them yet.
    pub fn waits_for_another_process(&self) -> bool {
        let next = || self.take_receiving().map(|it| it.receiver.next());
        self.slot.is_mapped_elsewhere() && matches!(next(), Ok(Next::Mapped { .. }))
    }

    /// The memory that a Write goes to.
    fn memory(&self, stag: u32, to: u64, len: u32) -> Result<Place, Errno> {
        if self.slot.has_given_back() {
            return Ok(Place::Nowhere);
        }
        if self.slot.is_mapped_elsewhere() {
            return Ok(Place::Elsewhere);
        }
        let maps = self.maps.filter(|_| self.slot.is_mapped_here());
        let memory = match maps {
            Some(maps) => maps.find(stag, to, len),
            None => Err(weft_stream::Fault::Stag(weft_iwarp::Stag(stag))),
        };
        memory
            .map(Place::Here)
            .map_err(|fault| self.break_off(&fault))
    }
}
