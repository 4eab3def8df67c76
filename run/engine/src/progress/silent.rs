//! Members that nobody wakes this process for, because its threads look at them as they poll.
//!
//! Two ends that share memory wake each other by a system call only where somebody sleeps (decision 0035). So while
//! nobody sleeps in the set a member with something to read does not show there: it stands in this list, and whoever
//! sweeps looks at it. Who is about to sleep counts itself first and empties the list then, arming each member's bell;
//! who puts a member into the list looks at the count behind that. One of the two sees the other.

use crate::sync::{AtomicU32, Mutex, Ordering};

/// Members in the list at most: a sweep looks at all of them.
const LISTED_MAX: usize = 64;
/// Looks in a row that find nothing before a member's bell is armed again.
const EMPTY_LOOKS_MAX: u32 = 4096;

/// The list.
#[derive(Debug)]
pub(crate) struct Silent<T> {
    sleepers: AtomicU32,
    /// Members, and the looks in a row that found nothing.
    list: Mutex<Vec<(T, u32)>>,
}

impl<T: Clone> Silent<T> {
    pub(crate) fn new() -> Silent<T> {
        Silent {
            sleepers: AtomicU32::new(0),
            list: Mutex::new(Vec::new()),
        }
    }

    /// Puts a member into the list; false where its bell is to be armed instead.
    pub(crate) fn add(&self, member: T, is_it: impl Fn(&T) -> bool) -> bool {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            return false;
        }
        {
            let mut list = self.list.lock();
            if list.len() >= LISTED_MAX {
                return false;
            }
            list.push((member, 0));
        }
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return true;
        }
        // The sleeper may have found it or not; its bell is armed twice then, which does no harm.
        self.remove(is_it);
        false
    }

    /// The calling thread is about to sleep, and takes every member out behind this, to arm its bell.
    pub(crate) fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a member out, if there is one. The list keeps its room: nothing is allocated from one sleep to the next.
    pub(crate) fn take(&self) -> Option<T> {
        self.list.lock().pop().map(|(member, _)| member)
    }

    /// It does not sleep any more.
    pub(crate) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// The member in that place.
    pub(crate) fn at(&self, place: usize) -> Option<T> {
        let list = self.list.lock();
        list.get(place).map(|(member, _)| member.clone())
    }

    /// A look at a member found something, or nothing. True where nothing was found for so long that it was taken out
    /// of the list, and its bell is to be armed.
    pub(crate) fn looked(&self, found: bool, is_it: impl Fn(&T) -> bool) -> bool {
        let mut list = self.list.lock();
        let Some(place) = list.iter().position(|(member, _)| is_it(member)) else {
            return false;
        };
        let empty = &mut list[place].1;
        *empty = if found { 0 } else { *empty + 1 };
        let is_idle = *empty > EMPTY_LOOKS_MAX;
        if is_idle {
            list.swap_remove(place);
        }
        is_idle
    }

    /// Takes a member out.
    pub(crate) fn remove(&self, is_it: impl Fn(&T) -> bool) {
        self.list.lock().retain(|(member, _)| !is_it(member));
    }
}
