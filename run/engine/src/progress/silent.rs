//! Members that nobody wakes this process for, because its threads look at them as they poll.
//!
//! Two ends that share memory wake each other by a system call only where somebody sleeps (decision 0035). So while
//! nobody sleeps in the set a member with something to read does not show there: it stands in this list, and whoever
//! sweeps looks at it. Who is about to sleep counts itself first and empties the list then, arming each member's bell;
//! who puts a member into the list looks at the count behind that. One of the two sees the other.
//!
//! Most members of a long list have nothing. A sweep passes them by without their locks (decision 0059).

use crate::sync::{AtomicU32, Mutex, Ordering};

/// Members in the list at most: a sweep goes over all of them.
const LISTED_MAX: usize = 256;
/// Looks in a row that find nothing before a member's bell is armed again.
const EMPTY_LOOKS_MAX: u32 = 65_536;

/// An entry of the list: which one, of all that there ever were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

/// A member of the list that is to be looked at.
#[derive(Debug)]
pub(crate) struct ToLookAt<T> {
    pub(crate) entry: Entry,
    pub(crate) member: T,
    /// The place behind it, if there are members.
    pub(crate) next: Option<usize>,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Silent<T> {
    sleepers: AtomicU32,
    list: Mutex<List<T>>,
}

#[derive(Debug)]
struct List<T> {
    /// Entries that there ever were.
    made: u64,
    /// Where the last look was: what it came to is said next.
    looked_at: usize,
    listed: Vec<Listed<T>>,
}

#[derive(Debug)]
struct Listed<T> {
    entry: Entry,
    member: T,
    /// Looks in a row that found nothing.
    empty: u32,
}

impl<T> Silent<T> {
    pub(crate) fn new() -> Silent<T> {
        Silent {
            sleepers: AtomicU32::new(0),
            list: Mutex::new(List {
                made: 0,
                looked_at: 0,
                listed: Vec::new(),
            }),
        }
    }

    /// Puts a member into the list; false where its bell is to be armed instead.
    pub(crate) fn add(&self, member: T) -> bool {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let entry = {
            let mut list = self.list.lock();
            if list.listed.len() >= LISTED_MAX {
                return false;
            }
            list.made += 1;
            let entry = Entry(list.made);
            list.listed.push(Listed {
                entry,
                member,
                empty: 0,
            });
            entry
        };
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return true;
        }
        // The sleeper may have found it or not; its bell is armed twice then, which does no harm.
        self.remove(entry);
        false
    }

    /// The calling thread is about to sleep, and takes every member out behind this, to arm its bell.
    pub(crate) fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a member out, if there is one. The list keeps its room: nothing is allocated from one sleep to the next.
    pub(crate) fn take(&self) -> Option<T> {
        self.list.lock().listed.pop().map(|listed| listed.member)
    }

    /// It does not sleep any more.
    pub(crate) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// The first member from that place on that is to be looked at; else whether there are members at all. Passes those
    /// by that `is_quiet` says have nothing: that is a look, too. `take` makes what is given of the member.
    #[inline]
    pub(crate) fn next<R>(
        &self,
        from: usize,
        is_quiet: impl Fn(&T) -> bool,
        take: impl FnOnce(&T) -> R,
    ) -> Result<ToLookAt<R>, bool> {
        let mut guard = self.list.lock();
        let list = &mut *guard;
        let mut place = from;
        while let Some(listed) = list.listed.get_mut(place) {
            // Whoever was quiet for so long is taken out by a look.
            if listed.empty < EMPTY_LOOKS_MAX && is_quiet(&listed.member) {
                listed.empty += 1;
                place += 1;
                continue;
            }
            let (entry, member) = (listed.entry, take(&listed.member));
            list.looked_at = place;
            let next = (place + 1 < list.listed.len()).then_some(place + 1);
            return Ok(ToLookAt {
                entry,
                member,
                next,
            });
        }
        Err(place > 0)
    }

    /// A look at a member found something, or nothing. True where nothing was found for so long that it was taken out
    /// of the list, and its bell is to be armed.
    pub(crate) fn looked(&self, found: bool, entry: Entry) -> bool {
        let mut list = self.list.lock();
        let is_it = |one: &Listed<T>| one.entry == entry;
        let near = Some(list.looked_at).filter(|at| list.listed.get(*at).is_some_and(is_it));
        let Some(place) = near.or_else(|| list.listed.iter().position(is_it)) else {
            return false;
        };
        let empty = &mut list.listed[place].empty;
        *empty = if found { 0 } else { *empty + 1 };
        let is_idle = *empty > EMPTY_LOOKS_MAX;
        if is_idle {
            list.listed.swap_remove(place);
        }
        is_idle
    }

    /// Takes an entry out. One that its member has had since, after a sleeper took this one out, stays: what was seen
    /// of the member before does not hold for that.
    pub(crate) fn remove(&self, entry: Entry) {
        self.list.lock().listed.retain(|one| one.entry != entry);
    }
}
