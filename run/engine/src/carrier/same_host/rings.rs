//! The rings, as a queue pair sees them: how they come to be, what is in them, and the bells.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use weft_os::rings::{RingsToShare, SharedRings};

use super::protocol::{self, End, FOR_OCTETS, FOR_ROOM};
use super::shared::{ACCEPTED, OFFER, OFFERED, WITH_CRC};
use super::SameHost;
use crate::carrier::{Bell, Quiet, Rings};

fn for_what(octets: bool, room: bool) -> u64 {
    u64::from(octets) * FOR_OCTETS + u64::from(room) * FOR_ROOM
}

impl Rings for SameHost {
    fn offer(&self, wants_crc: bool) -> io::Result<RingsToShare> {
        let (rings, to_share) = SharedRings::create()?;
        let shared = self.share(rings, 0, wants_crc)?;
        // It learns by a bell that the other end took them.
        shared.own().bell.store(FOR_OCTETS, Ordering::SeqCst);
        Ok(to_share)
    }

    fn accept(&self, rings: SharedRings, wants_crc: bool) -> io::Result<bool> {
        if self.shared.get().is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let word = ACCEPTED | if wants_crc { WITH_CRC } else { 0 };
        let order = Ordering::SeqCst;
        let taken = rings.words()[OFFER].compare_exchange(OFFERED, word, order, order);
        if taken.is_err() {
            return Ok(false);
        }
        let shared = self.share(rings, 1, wants_crc)?;
        let mut state = self.state.borrow_mut();
        self.begin(shared, &mut state);
        state.reads_ring = true;
        self.ring(protocol::say(shared.own(), shared.other(), 0));
        Ok(true)
    }

    fn shared(&self) -> Option<bool> {
        let (shared, mut state) = self.in_use()?;
        if shared.is_foreign() || !Self::is_accepted(shared) {
            return None;
        }
        self.begin(shared, &mut state);
        state.reads_ring = true;
        let word = shared.offer_word().load(Ordering::SeqCst);
        Some(shared.wants_crc || word & WITH_CRC != 0)
    }

    #[inline]
    fn note_ready(&self) {
        self.state.borrow_mut().look = true;
    }

    #[inline]
    fn has_arrived(&self, octets: bool, room: bool) -> bool {
        let Some((shared, mut state)) = self.in_use() else {
            return false;
        };
        if shared.is_foreign() {
            return false;
        }
        let other = shared.other();
        // A lie is found by whoever reads or writes next.
        let readable = octets
            && !state.awaits_connection(shared)
            && (state.end.available(other) != Ok(0) || other.state.load(Ordering::Relaxed) != 0);
        readable || room && Self::has_room_now(shared, &mut state)
    }

    #[inline]
    fn note_quiet(&self) {
        if let Some((shared, mut state)) = self.in_use() {
            let is_empty = !shared.is_foreign() && state.end.available(shared.other()) == Ok(0);
            if is_empty {
                shared.note_quiet(state.end.taken());
            }
        }
    }

    fn quiet(&self) -> Option<Arc<dyn Quiet>> {
        let shared = self.shared.get()?;
        Some(shared.clone())
    }

    fn has_room(&self) -> bool {
        let Some((shared, mut state)) = self.in_use() else {
            return false;
        };
        if shared.is_foreign() || !state.sends_by_ring {
            return false;
        }
        if state.look && state.connection_read && state.over.is_none() {
            self.take_bells(&mut state);
        }
        Self::has_room_now(shared, &mut state)
    }

    fn has_read_connection(&self) -> bool {
        self.state.borrow().connection_read
    }

    #[inline]
    fn take_bell(&self) -> Option<Bell> {
        if !std::mem::take(&mut self.state.borrow_mut().bell_due) {
            return None;
        }
        let bell = self.connection.bell();
        // What cannot be used without the lock is used under it.
        self.ring(bell.is_none());
        bell
    }

    #[inline]
    fn is_armed(&self, octets: bool, room: bool) -> bool {
        let for_what = for_what(octets, room);
        self.shared
            .get()
            .is_none_or(|shared| shared.is_foreign() || End::is_armed(shared.own(), for_what))
    }

    fn disarm(&self) {
        if let Some(shared) = self.shared.get().filter(|shared| !shared.is_foreign()) {
            End::disarm(shared.own());
        }
    }

    fn arm(&self, octets: bool, room: bool) -> bool {
        let Some((shared, mut state)) = self.in_use() else {
            return true;
        };
        if shared.is_foreign() {
            return true;
        }
        // What stands in the ring behind octets of the connection is no reason to stay awake, and no bell is armed over
        // it: what comes by the connection begins a pass.
        let for_what = for_what(octets && !state.awaits_connection(shared), room);
        state.end.arm(shared.own(), shared.other(), for_what)
    }
}
