//! The memory that both ends have: which word and which octets are whose.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_os::rings::{Area, SharedRings};

use super::protocol::Side;
use crate::carrier::Quiet;

/// Words of one end; a cache line, and the one that the processor fetches with it, are one writer's.
pub(super) const SIDE_WORDS: usize = 64;
pub(super) const WRITTEN: usize = 0;
pub(super) const TAKEN: usize = 16;
pub(super) const BELL_WORD: usize = 32;
pub(super) const STATE: usize = 33;
/// One more than how many octets went by the connection, once no more do.
pub(super) const SWITCHED: usize = 34;
/// The word by which memory that is offered is taken: by both ends.
pub(super) const OFFER: usize = 2 * SIDE_WORDS;

/// Nobody has taken the memory.
pub(super) const OFFERED: u64 = 0;
/// The other end has, and uses it.
pub(super) const ACCEPTED: u64 = 1;
/// Beside [`ACCEPTED`]: CRCs are computed and checked.
pub(super) const WITH_CRC: u64 = 2;
/// This end does not offer it any more.
pub(super) const WITHDRAWN: u64 = 4;

/// Memory that both ends have.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rings: SharedRings,
    /// 0: this end made it.
    pub(super) own: usize,
    /// This end has CRCs whatever the other one wants.
    pub(super) wants_crc: bool,
    /// Octets that this end had taken when a look found nothing more; [`UNQUIET`] where only a look can tell.
    quiet_at: AtomicU64,
}

/// No honest count of octets is this.
const UNQUIET: u64 = u64::MAX;

impl Quiet for Shared {
    /// Relaxed loads do: a look that finds something loads again, in order.
    #[inline]
    fn is_quiet(&self) -> bool {
        if self.is_foreign() {
            return false;
        }
        let (other, at) = (self.other(), self.quiet_at.load(Ordering::Relaxed));
        // The other end may write any number, this one too.
        at != UNQUIET
            && other.written.load(Ordering::Relaxed) == at
            && other.state.load(Ordering::Relaxed) == 0
    }
}

impl Shared {
    pub(super) fn new(rings: SharedRings, own: usize, wants_crc: bool) -> Shared {
        Shared {
            rings,
            own,
            wants_crc,
            quiet_at: AtomicU64::new(UNQUIET),
        }
    }

    /// A look found nothing behind so many octets.
    #[inline]
    pub(super) fn note_quiet(&self, taken: u64) {
        self.quiet_at.store(taken, Ordering::Relaxed);
    }

    /// Something else than octets may be waited for from now on: room, or the time until which a completion waits for
    /// an answer.
    #[inline]
    pub(super) fn end_quiet(&self) {
        self.quiet_at.store(UNQUIET, Ordering::Relaxed);
    }

    pub(super) fn words(&self, of: usize) -> &[AtomicU64] {
        &self.rings.words()[of * SIDE_WORDS..(of + 1) * SIDE_WORDS]
    }

    #[inline]
    pub(super) fn side(&self, of: usize) -> Side<'_> {
        let words = self.words(of);
        Side {
            written: &words[WRITTEN],
            taken: &words[TAKEN],
            bell: &words[BELL_WORD],
            state: &words[STATE],
        }
    }

    #[inline]
    pub(super) fn own(&self) -> Side<'_> {
        self.side(self.own)
    }

    #[inline]
    pub(super) fn other(&self) -> Side<'_> {
        self.side(1 - self.own)
    }

    pub(super) fn offer_word(&self) -> &AtomicU64 {
        &self.rings.words()[OFFER]
    }

    /// Which area an end writes.
    #[inline]
    pub(super) fn area(&self, of: usize) -> Area {
        match of {
            0 => Area::First,
            _ => Area::Second,
        }
    }

    /// Where the other end's octets in the connection end, once it is known.
    pub(super) fn switched_at(&self) -> Option<u64> {
        self.words(1 - self.own)[SWITCHED]
            .load(Ordering::SeqCst)
            .checked_sub(1)
    }

    #[inline]
    pub(super) fn state_of_other(&self) -> u64 {
        self.other().state.load(Ordering::SeqCst)
    }

    /// A forked child has its parent's carriers and must not use them.
    #[inline]
    pub(super) fn is_foreign(&self) -> bool {
        self.rings.is_foreign()
    }
}
