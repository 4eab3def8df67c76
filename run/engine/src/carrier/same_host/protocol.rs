//! Two rings of octets between two ends, as numbers: where each has come to, and who rings whose bell.
//!
//! Each end counts the octets that it has *written* to its ring and those that it has *taken* out of the other's, ever;
//! an octet's place is its count modulo the ring's size. Each end writes its own counts alone. So nothing is ever torn
//! or lost if one of them stops at any instruction: what is not counted is not there.
//!
//! An end that is about to sleep *arms* its bell, for octets, for room or for both, and then looks once more. The other
//! end counts first and looks at the bell then, and takes it away as it rings: one ring for each arming. These four
//! accesses are sequentially consistent, so that one of the two sees the other. An end that polls arms nothing, and
//! nobody rings.
//!
//! The other end is not trusted. Every word of its own is read once for each use, and a count that cannot be is a
//! [`Lie`]. What it does to this end's bell costs nobody but itself its ring.
//!
//! `tests/loom` runs this very file under a model checker.

use crate::sync::{AtomicU64, Ordering};

/// The bell rings for octets to read, or for the end of them.
pub(crate) const FOR_OCTETS: u64 = 1;
/// The bell rings for room to write.
pub(crate) const FOR_ROOM: u64 = 2;

/// This end writes nothing more.
pub(crate) const FINISHED: u64 = 1;
/// This end is closed: what is written for it reaches nobody.
pub(crate) const GONE: u64 = 2;
/// This end was closed in the middle of something: the connection is cut.
pub(crate) const RESET: u64 = 4;

/// What one end shows the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    /// Octets it has put into its ring.
    pub(crate) written: &'a AtomicU64,
    /// Octets it has taken out of the other's ring.
    pub(crate) taken: &'a AtomicU64,
    /// What its bell rings for. The one word that the other end writes, too.
    pub(crate) bell: &'a AtomicU64,
    /// [`FINISHED`], [`GONE`], [`RESET`].
    pub(crate) state: &'a AtomicU64,
}

/// The other end's words cannot be: it is broken, or means harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lie;

/// What one end knows of the connection by itself: nobody else can change it.
#[derive(Debug)]
pub(crate) struct End {
    /// Octets of a ring.
    size: u64,
    written: u64,
    taken: u64,
    /// So far the other end had taken when it was looked at last.
    other_taken: u64,
    /// Octets given back since the other end's bell for room was looked at.
    unlooked: u64,
}

impl End {
    /// Of a connection whose rings have `size` octets.
    pub(crate) fn new(size: usize) -> End {
        End {
            size: size as u64,
            written: 0,
            taken: 0,
            other_taken: 0,
            unlooked: 0,
        }
    }

    /// Where the next octet is written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Where the next octet is read.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Octets that may be written now. The other end is looked at where it would be fewer than `wanted` otherwise.
    #[inline]
    pub(crate) fn room(&mut self, other: Side<'_>, wanted: usize) -> Result<usize, Lie> {
        let room = self.size - (self.written - self.other_taken);
        if room >= wanted as u64 {
            return Ok(room as usize);
        }
        self.look_for_room(other)
    }

    fn look_for_room(&mut self, other: Side<'_>) -> Result<usize, Lie> {
        let taken = other.taken.load(Ordering::SeqCst);
        // Neither more than was written, nor less than it said before.
        let under_way = self.written.wrapping_sub(taken);
        if under_way > self.written - self.other_taken {
            return Err(Lie);
        }
        self.other_taken = taken;
        Ok((self.size - under_way) as usize)
    }

    /// Counts octets that were written to their place; true when the other end's bell is to be rung.
    #[inline]
    pub(crate) fn publish(&mut self, own: Side<'_>, other: Side<'_>, octets: usize) -> bool {
        self.written += octets as u64;
        own.written.store(self.written, Ordering::SeqCst);
        take_bell(other, FOR_OCTETS)
    }

    /// Octets that may be read now.
    #[inline]
    pub(crate) fn available(&mut self, other: Side<'_>) -> Result<usize, Lie> {
        let available = other
            .written
            .load(Ordering::Acquire)
            .wrapping_sub(self.taken);
        if available > self.size {
            return Err(Lie);
        }
        Ok(available as usize)
    }

    /// Gives back the places of octets that were read; true when the other end's bell is to be rung. A writer without
    /// room is woken once it can write half a ring.
    ///
    /// The bell is looked at once for each eighth of a ring, since that takes a full fence. A writer sleeps for room
    /// only over more than half a ring, so there is a look between its going to sleep and the ring's being empty.
    #[inline]
    pub(crate) fn release(&mut self, own: Side<'_>, other: Side<'_>, octets: usize) -> bool {
        self.taken += octets as u64;
        self.unlooked += octets as u64;
        if self.unlooked < self.size / 8 {
            own.taken.store(self.taken, Ordering::Release);
            return false;
        }
        self.unlooked = 0;
        own.taken.store(self.taken, Ordering::SeqCst);
        let left = other
            .written
            .load(Ordering::Relaxed)
            .wrapping_sub(self.taken);
        left <= self.size / 2 && take_bell(other, FOR_ROOM)
    }

    /// Whether a writer that had no room goes on.
    #[inline]
    pub(crate) fn has_room_again(&mut self, other: Side<'_>) -> Result<bool, Lie> {
        let half = self.size / 2;
        Ok(self.room(other, half as usize)? as u64 >= half)
    }

    /// This end is about to sleep until its bell rings `for_what`. False when that is there already, or the other end
    /// has said that it is over: then it does not sleep.
    pub(crate) fn arm(&mut self, own: Side<'_>, other: Side<'_>, for_what: u64) -> bool {
        own.bell.store(for_what, Ordering::SeqCst);
        let state = other.state.load(Ordering::SeqCst);
        let octets = state != 0 || other.written.load(Ordering::SeqCst) != self.taken;
        // A lie is found by whoever reads or writes next. Who has finished writing may go on reading.
        let room = state & (GONE | RESET) != 0
            || for_what & FOR_ROOM != 0 && self.has_room_again(other) != Ok(false);
        let sleeps = !(for_what & FOR_OCTETS != 0 && octets || for_what & FOR_ROOM != 0 && room);
        if !sleeps {
            // An armed bell says that nothing was there: the other end need not write any more, so it may never ring,
            // and this one may leave something in its ring as it goes on.
            own.bell.store(0, Ordering::SeqCst);
        }
        sleeps
    }

    /// This end looks by itself from now on. A ring may be on its way all the same.
    pub(crate) fn disarm(own: Side<'_>) {
        if own.bell.load(Ordering::Relaxed) != 0 {
            own.bell.store(0, Ordering::SeqCst);
        }
    }

    /// Whether this end's bell is armed for all of that. Where it was and is not any more, a ring is there or on its
    /// way.
    #[inline]
    pub(crate) fn is_armed(own: Side<'_>, for_what: u64) -> bool {
        own.bell.load(Ordering::SeqCst) & for_what == for_what
    }
}

/// What the other end said of itself.
#[inline]
pub(crate) fn said(other: Side<'_>) -> Result<u64, Lie> {
    match other.state.load(Ordering::SeqCst) {
        // Not understood it would be looked at for ever: it is neither an end nor nothing.
        state if state & !(FINISHED | GONE | RESET) != 0 => Err(Lie),
        state => Ok(state),
    }
}

/// Says what became of this end; true when the other end's bell is to be rung.
pub(crate) fn say(own: Side<'_>, other: Side<'_>, state: u64) -> bool {
    let before = own.state.load(Ordering::Relaxed);
    own.state.store(before | state, Ordering::SeqCst);
    take_bell(other, FOR_OCTETS | FOR_ROOM)
}

/// Takes the other end's bell, if it is armed for that.
#[inline]
fn take_bell(other: Side<'_>, for_what: u64) -> bool {
    other.bell.load(Ordering::SeqCst) & for_what != 0 && other.bell.swap(0, Ordering::SeqCst) != 0
}
