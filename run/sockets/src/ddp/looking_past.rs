//! What stands behind octets of the stream that nobody has received, and means something all the same: room that the
//! peer gives, memory that it has mapped, octets for memory that is mapped here.
//!
//! It stays in the socket as those do. What was acted on is known by its place, and passed over when it is received.

use weft_os::{pages, stream};
use weft_stream::Next;

use super::directions::HeldReceiving;
use super::slot::AREA_MAX;
use super::Connection;
use crate::Errno;

/// Octets of a socket that are looked through at most: all of them are, each time that a peer sends more.
const LOOKED_THROUGH_MAX: usize = 1 << 20;

impl Connection<'_> {
    /// Acts on what stands in the socket, however far behind within bounds.
    ///
    /// # Errors
    /// `EAGAIN` where another thread is at it; the connection is over.
    pub fn look_past(&self) -> Result<(), Errno> {
        let mut receiving = self.take_receiving()?;
        let unread = stream::unread(self.fd).min(LOOKED_THROUGH_MAX);
        let end = receiving.taken.wrapping_add(unread as u32);
        if unread == 0 || end == receiving.looked_to {
            // An earlier look may not have come to tell.
            return self.pass_on(&mut receiving);
        }
        if unread <= AREA_MAX {
            let mut area = self.take_octets(&self.slot.area)?;
            self.look_through(&mut receiving, &mut area[..])?;
        } else {
            let mut pages = pages::Temporary::new(unread).ok_or(libc::ENOMEM)?;
            self.look_through(&mut receiving, pages.octets())?;
        }
        receiving.looked_to = end;
        self.pass_on(&mut receiving)
    }

    fn look_through(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: &mut [u8],
    ) -> Result<(), Errno> {
        let seen = self.seen(room)?.unwrap_or(0);
        let good = self.checked(&receiving.receiver, &room[..seen])?;
        let (mut ahead, mut at) = (receiving.receiver, 0);
        while at < good {
            let next = &room[at..good];
            let of = |left: u32| next.len().min(left as usize);
            at += match ahead.next() {
                Next::Nothing => break,
                Next::Payload(left) => {
                    ahead.take_payload(of(left) as u32);
                    of(left)
                }
                Next::Mapped { stag, to, left } => {
                    if !self.place_copy(receiving, at, (stag, to, left), &next[..of(left)])? {
                        break;
                    }
                    ahead.take_mapped(of(left) as u32);
                    of(left)
                }
                Next::Framing(_) => match ahead.take_framing(next) {
                    Ok(framing) if framing.taken > 0 => {
                        let behind = receiving.place_of(at + framing.taken);
                        if let Some(event) = framing.event {
                            self.heed(receiving, event, behind);
                        }
                        framing.taken
                    }
                    // Whoever receives what stands before it meets the fault.
                    _ => break,
                },
            };
        }
        Ok(())
    }

    /// Puts octets of a Write, of which so many are left, into mapped memory; false where that is not to be done here.
    fn place_copy(
        &self,
        receiving: &mut HeldReceiving<'_>,
        at: usize,
        (stag, to, left): (u32, u64, u32),
        octets: &[u8],
    ) -> Result<bool, Errno> {
        let behind = receiving.place_of(at + octets.len());
        if receiving.was_acted_on(behind) {
            return Ok(true);
        }
        // What was acted on of it in an earlier look is not written again: the program may have changed it.
        let done = receiving.acted_on_from(at).min(octets.len());
        let maps = self.maps.filter(|_| self.slot.is_mapped_here());
        let Some(Ok(memory)) = maps.map(|maps| maps.find(stag, to, left)) else {
            return Ok(false);
        };
        let written = memory
            .buffers()
            .write_range(done..octets.len(), &octets[done..]);
        written.map_err(|_| self.memory_is_gone())?;
        receiving.acted_to = behind;
        Ok(true)
    }
}

impl HeldReceiving<'_> {
    /// Where the octet stands that has so many unread ones before it, in octets since counting began. Wraps.
    fn place_of(&self, unread: usize) -> u32 {
        self.taken.wrapping_add(unread as u32)
    }

    /// Whether what stands before this place was acted on.
    pub(super) fn was_acted_on(&self, place: u32) -> bool {
        place.wrapping_sub(self.acted_to).cast_signed() <= 0
    }

    /// Octets behind the first `unread` ones that were acted on.
    pub(super) fn acted_on_from(&self, unread: usize) -> usize {
        let ahead = self.acted_to.wrapping_sub(self.place_of(unread));
        usize::try_from(ahead.cast_signed()).unwrap_or(0)
    }

    /// So many octets were taken from the socket.
    pub(super) fn count_taken(&mut self, octets: usize) {
        self.taken = self.taken.wrapping_add(octets as u32);
        self.keep_up();
    }

    /// What was received was acted on: both counts go round together.
    pub(super) fn keep_up(&mut self) {
        if !self.was_acted_on(self.taken) {
            self.acted_to = self.taken;
        }
    }
}
