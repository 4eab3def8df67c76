//! How a send sleeps that found no room, and who wakes it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use weft_os::lock::{futex_wait, futex_wake};

/// Room on a carrier, for which sends wait.
#[derive(Debug)]
pub(crate) struct Room {
    /// How often there was some.
    made: AtomicU32,
    /// Somebody sleeps until there is, or is about to.
    is_awaited: AtomicBool,
}

impl Room {
    pub(crate) const fn new() -> Room {
        Room {
            made: AtomicU32::new(0),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// There is some: wakes who sleeps for it.
    pub(crate) fn make(&self) {
        self.made.fetch_add(1, Ordering::SeqCst);
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            futex_wake(&self.made, i32::MAX as u32);
        }
    }

    /// How often there was some, for [`Pause::for_room`].
    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::SeqCst)
    }
}

impl PartialEq for Room {
    /// A room is itself alone.
    fn eq(&self, other: &Room) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Room {}

/// A sleep before a datagram is offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    most: Duration,
    /// What ends it before its time, and how often there was some when there was too little.
    room: Option<(&'static Room, u32)>,
}

impl Pause {
    /// Of so long.
    pub(crate) fn of(time: Duration) -> Pause {
        Pause {
            most: time,
            room: None,
        }
    }

    /// Until there is room again; `made` is from when there was none. For `most` at the longest.
    pub(crate) fn for_room(room: &'static Room, made: u32, most: Duration) -> Pause {
        Pause {
            most,
            room: Some((room, made)),
        }
    }

    /// Sleeps. The caller has no lock of a socket's. It may be over early, after a signal for one. This is no
    /// cancellation point.
    pub fn sleep(self) {
        let Some((room, made)) = self.room else {
            return weft_os::sched::pause(self.most);
        };
        // Before the word is looked at, as who makes room looks after it has changed the word.
        room.is_awaited.store(true, Ordering::SeqCst);
        let ns = u64::try_from(self.most.as_nanos()).unwrap_or(u64::MAX);
        futex_wait(&room.made, made, Some(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn room_ends_the_sleep_of_all_that_wait_for_it() {
        static ROOM: Room = Room::new();
        let (begun, made) = (Instant::now(), ROOM.made());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while ROOM.made() == made {
                        Pause::for_room(&ROOM, made, LONG).sleep();
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            ROOM.make();
        });
        assert!(begun.elapsed() < LONG / 2);
    }

    #[test]
    fn room_that_was_made_before_the_sleep_is_not_slept_for() {
        static ROOM: Room = Room::new();
        let (begun, made) = (Instant::now(), ROOM.made());
        ROOM.make();
        Pause::for_room(&ROOM, made, LONG).sleep();
        assert!(begun.elapsed() < LONG / 2);
    }

    #[test]
    fn without_room_it_is_over_in_time() {
        static ROOM: Room = Room::new();
        let (begun, most) = (Instant::now(), Duration::from_millis(20));
        Pause::for_room(&ROOM, ROOM.made(), most).sleep();
        Pause::of(most).sleep();
        assert!(begun.elapsed() >= 2 * most);
    }
}
