//! A receive that is about to sleep: whether it looks for the datagram first (decision 0056).

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::busy_poll::giving_way;
use weft_os::busy_poll::short_waits::{ShortWaits, Wait};
use weft_os::{dgram, file};

use super::record::Record;
use super::Datagrams;

fn now() -> Duration {
    Duration::from_nanos(dgram::now())
}

impl Datagrams {
    /// A receive has found nothing, and is about to wait; at most so long of that is spent on looking.
    pub fn begin_wait(&self, record: &'static Record, most: Duration) -> Wait {
        let waits = ShortWaits::of_word(record.short_waits.load(Ordering::Relaxed));
        waits.begin(now(), most)
    }

    /// Looks until there is something to receive; false where the wait is to be slept. Only for sockets that wait.
    pub fn looks(&self, record: &'static Record, fd: i32, wait: Wait) -> bool {
        let Some(until) = wait.looks_until().filter(|_| !file::does_not_wait(fd)) else {
            return false;
        };
        loop {
            if self.has_carried(record) || dgram::ready(fd, libc::POLLIN, 0) != 0 {
                return true;
            }
            if now() >= until {
                return false;
            }
            // The peer may need this very core for its answer.
            giving_way::look();
        }
    }

    /// The wait is over; `came` whether something did. Two threads that end theirs at once lose one's lesson.
    pub fn end_wait(&self, record: &'static Record, wait: Wait, came: bool) {
        let mut waits = ShortWaits::of_word(record.short_waits.load(Ordering::Relaxed));
        match came {
            true => waits.end(wait, now()),
            // Else a program that is idle, and waits with a timeout, would look each time.
            false => waits.end_in_vain(wait),
        }
        record.short_waits.store(waits.to_word(), Ordering::Relaxed);
    }
}
