//! One TCP socket of the program, whatever number of descriptors it has.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weft_discovery::Ticket;
use weft_os::atomic::try_update;
use weft_os::lock::{Lock, Locked};
use weft_os::process;

use super::standing::{Asked, Standing, State};
use crate::kind::Origin;
use crate::references::References;

/// What is known of a socket. A program may have tens of thousands, so it is small.
#[derive(Debug)]
pub struct Record {
    pub(super) number: u32,
    pub(super) references: References,
    /// What the program asked for by the socket option.
    asked: AtomicU32,
    /// What was decided when it connected, listened or was accepted.
    standing: AtomicU32,
    /// It is used in ways that no hook sees.
    released: AtomicBool,
    /// The slot of its connection over DDP, and one; 0 for none, [`NOT_LOOKED_UP`] and [`NO_ROOM`].
    slot: AtomicU32,
    /// The process that is known to use the connection. A forked child has its parent's.
    used_by: AtomicU32,
    /// The question whether the other end is Weft, as a word; 0 for none that is open.
    question: AtomicU32,
    /// Whose the question is, as others see it: a child that is made amid a connect has it too, and no answer to it.
    asked_by: AtomicU32,
    /// A descriptor for the thread that serves what nobody calls for; -1 for none. Used under the lock.
    pub(super) served_by: Lock<i32>,
    /// Calls that wait.
    pub(super) waiters: AtomicU32,
    /// The process whose they are.
    pub(super) waiters_of: AtomicU32,
    /// A descriptor for those whose own number was closed; -1 for none.
    pub(super) stand_in: Lock<i32>,
    /// What the kernel reports of it may be framing.
    doubtful: AtomicBool,
    /// How it was entered in epolls.
    watches: Lock<Watches>,
}

/// How a socket was entered in an epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The epoll's descriptor.
    pub epoll: i32,
    /// The socket's descriptor there.
    pub fd: i32,
    /// For which events, and how.
    pub events: u32,
    /// What the program is told with them.
    pub data: u64,
}

/// Epolls that a socket is remembered in; of more the first are forgotten.
const WATCHES_MAX: usize = 4;

/// In which epolls a socket is.
#[derive(Clone, Copy, Debug)]
struct Watches {
    list: [Watch; WATCHES_MAX],
    /// Where the next goes if there is no place.
    next: u8,
}

impl Watch {
    /// Beside the events of one that was taken out. It keeps its place and its word, as it mostly comes back. No event
    /// has this bit.
    const OUT: u32 = 1 << 27;

    /// None. No epoll has this number.
    pub(super) const NONE: Watch = Watch {
        epoll: -1,
        fd: -1,
        events: 0,
        data: 0,
    };

    /// Whether it is there.
    pub(super) fn is_any(&self) -> bool {
        self.has_place() && self.events & Watch::OUT == 0
    }

    /// Whether it is there, or was taken out.
    fn has_place(&self) -> bool {
        self.epoll >= 0
    }

    /// Whether it is of the same descriptor in the same epoll.
    pub(super) fn is_at(&self, epoll: i32, fd: i32) -> bool {
        (self.epoll, self.fd) == (epoll, fd)
    }
}

impl Watches {
    const NONE: Watches = Watches {
        list: [Watch::NONE; WATCHES_MAX],
        next: 0,
    };

    /// How it is there, or was.
    fn at(&mut self, epoll: i32, fd: i32) -> Option<&mut Watch> {
        self.list.iter_mut().find(|one| one.is_at(epoll, fd))
    }

    /// It is there like this from now on; gives how it was there, or what had the place.
    fn put(&mut self, watch: Watch) -> Watch {
        let place = |is_it: &dyn Fn(&Watch) -> bool| self.list.iter().position(is_it);
        let known = place(&|one| one.is_at(watch.epoll, watch.fd));
        let free = || place(&|one| !one.has_place()).or_else(|| place(&|one| !one.is_any()));
        let at = known.or_else(free).unwrap_or_else(|| {
            self.next = (self.next + 1) % WATCHES_MAX as u8;
            self.next.into()
        });
        std::mem::replace(&mut self.list[at], watch)
    }
}

/// Whether the socket has a slot is not known.
const NOT_LOOKED_UP: u32 = u32::MAX;
/// It was to have one, and there was none; what its peer begins with has not been seen.
const NO_ROOM: u32 = u32::MAX - 1;

/// The same.
#[derive(Debug)]
pub(super) struct NotLookedUp;

/// Octets of a record at most.
const RECORD_OCTETS_MAX: usize = 256;
const _: () = assert!(std::mem::size_of::<Record>() <= RECORD_OCTETS_MAX);

impl Record {
    /// The record with this number, without a socket.
    pub(super) const fn new(number: u32) -> Record {
        Record {
            number,
            references: References::new(),
            asked: AtomicU32::new(0),
            standing: AtomicU32::new(0),
            released: AtomicBool::new(false),
            slot: AtomicU32::new(0),
            used_by: AtomicU32::new(0),
            question: AtomicU32::new(0),
            asked_by: AtomicU32::new(0),
            served_by: Lock::new(-1),
            waiters: AtomicU32::new(0),
            waiters_of: AtomicU32::new(0),
            stand_in: Lock::new(-1),
            doubtful: AtomicBool::new(false),
            watches: Lock::new(Watches::NONE),
        }
    }

    /// From here on it is the record of a new socket.
    pub(super) fn begin(&self, origin: Origin) {
        let standing = match origin {
            Origin::Accepted(word) => Standing::from_word(word),
            Origin::Made | Origin::Found => Standing::default(),
        };
        self.set_asked(Asked::Nothing);
        self.set_standing(standing);
        self.released.store(false, Ordering::Relaxed);
        let word = match origin {
            Origin::Found => NOT_LOOKED_UP,
            Origin::Accepted(_) if standing.state == State::Ddp => NOT_LOOKED_UP,
            // Nobody else can have it.
            Origin::Made | Origin::Accepted(_) => 0,
        };
        self.set_used_here();
        self.slot.store(word, Ordering::Release);
        self.set_question(None);
        self.doubtful.store(false, Ordering::Relaxed);
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number as usize
    }

    /// How it was entered in epolls.
    pub fn watches(&self) -> impl Iterator<Item = Watch> {
        let list = match self.watches.lock() {
            Locked::Held(watches) | Locked::Orphaned(watches) => watches.list,
            Locked::Again => [Watch::NONE; WATCHES_MAX],
        };
        list.into_iter().filter(Watch::is_any)
    }

    /// It was entered in an epoll, or is there in another way from now on. A word that it was not known by goes to
    /// `add` before, and one that is forgotten for it to `remove`.
    pub(super) fn put_watch(&self, watch: Watch, add: impl Fn(&Watch), remove: impl Fn(&Watch)) {
        let (Locked::Held(mut watches) | Locked::Orphaned(mut watches)) = self.watches.lock()
        else {
            return;
        };
        match watches.at(watch.epoll, watch.fd) {
            Some(known) if known.data == watch.data => known.events = watch.events,
            _ => {
                add(&watch);
                let before = watches.put(watch);
                if before.has_place() {
                    remove(&before);
                }
            }
        }
    }

    /// It was taken out of an epoll.
    pub(super) fn take_watch_out(&self, epoll: i32, fd: i32) {
        if let Locked::Held(mut watches) | Locked::Orphaned(mut watches) = self.watches.lock() {
            if let Some(watch) = watches.at(epoll, fd) {
                watch.events |= Watch::OUT;
            }
        }
    }

    /// Forgets the watches of which `is_over` says so, and gives each to `each`.
    pub(super) fn forget_watches(&self, is_over: impl Fn(&Watch) -> bool, each: impl Fn(&Watch)) {
        if let Locked::Held(mut watches) | Locked::Orphaned(mut watches) = self.watches.lock() {
            let over = watches.list.iter_mut();
            over.filter(|watch| watch.has_place() && is_over(watch))
                .for_each(|watch| {
                    each(watch);
                    *watch = Watch::NONE;
                });
        }
    }

    /// Whether what the kernel reports of it may be framing.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    pub(super) fn set_doubtful(&self, doubtful: bool) {
        self.doubtful.store(doubtful, Ordering::Relaxed);
    }

    /// The slot of its connection over DDP. An error where nobody has looked yet.
    #[inline]
    pub(super) fn slot(&self) -> Result<Option<u32>, NotLookedUp> {
        match self.slot.load(Ordering::Acquire) {
            NOT_LOOKED_UP | NO_ROOM => Err(NotLookedUp),
            word => Ok(word.checked_sub(1)),
        }
    }

    pub(super) fn set_slot(&self, slot: Option<u32>) {
        let word = slot.map_or(0, |slot| slot + 1);
        self.slot.store(word, Ordering::Release);
    }

    /// Gives it its slot, or none, where it was not known; whether that is so: another thread may have been first.
    pub(super) fn enter_first(&self, slot: Option<u32>) -> bool {
        let word = slot.map_or(0, |slot| slot + 1);
        let is_first = |known: u32| [NOT_LOOKED_UP, NO_ROOM].contains(&known).then_some(word);
        try_update(&self.slot, is_first).is_ok()
    }

    /// Whether it was accepted where there was no room for another connection over DDP, and its peer may ask for one
    /// yet.
    #[inline]
    pub fn lacks_room(&self) -> bool {
        self.slot.load(Ordering::Acquire) == NO_ROOM
    }

    /// There is none; false where another thread found some.
    pub(super) fn set_lacks_room(&self) -> bool {
        self.slot
            .compare_exchange(NOT_LOOKED_UP, NO_ROOM, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Whether this process is known to use the connection.
    #[inline]
    pub(super) fn is_used_here(&self) -> bool {
        self.used_by.load(Ordering::Relaxed) == process::id()
    }

    pub(super) fn set_used_here(&self) {
        self.used_by.store(process::id(), Ordering::Relaxed);
    }

    /// The question whether the other end is Weft, while that is not known.
    #[inline]
    pub(super) fn question(&self) -> Option<Ticket> {
        Ticket::from_word(self.question.load(Ordering::Acquire))
    }

    /// The process that asked it.
    pub(super) fn asked_by(&self) -> u32 {
        self.asked_by.load(Ordering::Relaxed)
    }

    pub(super) fn set_question(&self, question: Option<Ticket>) {
        if question.is_some() {
            self.asked_by.store(process::member(), Ordering::Relaxed);
        }
        let word = question.map_or(0, Ticket::to_word);
        self.question.store(word, Ordering::Release);
    }

    /// The record's question is settled, if it still is this one; whether it was. A thread that forks settles those of
    /// sockets which others use: one of them may be closed meanwhile, and its record another socket's, which may have
    /// asked as well.
    pub(super) fn end_question(&self, question: Ticket) -> bool {
        self.question
            .compare_exchange(question.to_word(), 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(super) fn asked(&self) -> Asked {
        Asked::from_word(self.asked.load(Ordering::Relaxed))
    }

    pub(super) fn set_asked(&self, asked: Asked) {
        self.asked.store(asked.to_word(), Ordering::Relaxed);
    }

    pub(super) fn standing(&self) -> Standing {
        Standing::from_word(self.standing.load(Ordering::Relaxed))
    }

    pub(super) fn set_standing(&self, standing: Standing) {
        self.standing.store(standing.to_word(), Ordering::Relaxed);
    }

    pub(super) fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// The socket is used in ways that no hook sees: what is not decided yet will be TCP.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_settles_late_ends_no_other_question() {
        let (record, of) = (Record::new(0), Ticket::from_word);
        record.set_question(of(7));
        assert!(record.end_question(of(7).unwrap()));
        assert!(!record.end_question(of(7).unwrap()), "it has been");
        // The socket was closed, and the next that has the record asks too.
        record.set_question(of(8));
        assert!(!record.end_question(of(7).unwrap()));
        assert_eq!(record.question(), of(8));
    }
}
