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

/// How a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Something came.
    Came,
    /// Nothing did.
    Empty,
    /// Nothing was there, and the socket does not wait, or not longer than it did.
    WouldBlock,
}

/// In a record's word: the last receive that found nothing was told so ([`Ended::WouldBlock`]). A program that looks
/// again and again that way pays for no clock.
const WOULD_BLOCK: u64 = 1 << 63;

/// A wait on a socket whose record has that word.
#[inline]
fn begin(word: u64, now: impl FnOnce() -> Duration, most: Duration) -> Option<Wait> {
    let waits = (word & WOULD_BLOCK == 0).then(|| ShortWaits::of_word(word))?;
    Some(waits.begin(now(), most))
}

/// The word after a wait.
#[inline]
fn learnt(word: u64, wait: Option<Wait>, ended: Ended, now: impl FnOnce() -> Duration) -> u64 {
    let mut waits = ShortWaits::of_word(word & !WOULD_BLOCK);
    match (ended, wait) {
        (Ended::Came, Some(wait)) => waits.end(wait, now()),
        // Else a program that is idle, and waits with a timeout, would look each time.
        (Ended::Empty, Some(wait)) => waits.end_in_vain(wait),
        (Ended::WouldBlock, Some(wait)) if wait.looks_until().is_some() => waits.end_in_vain(wait),
        _ => {}
    }
    match ended {
        Ended::WouldBlock => waits.to_word() | WOULD_BLOCK,
        Ended::Came | Ended::Empty => waits.to_word(),
    }
}

impl Datagrams {
    /// A receive has found nothing, and is about to wait; at most so long of that is spent on looking. Nothing where
    /// the last one did not wait.
    #[inline]
    pub fn begin_wait(&self, record: &'static Record, most: Duration) -> Option<Wait> {
        begin(record.short_waits.load(Ordering::Relaxed), now, most)
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

    /// The wait is over. Two threads that end theirs at once lose one's lesson.
    #[inline]
    pub fn end_wait(&self, record: &'static Record, wait: Option<Wait>, ended: Ended) {
        let before = record.short_waits.load(Ordering::Relaxed);
        let after = learnt(before, wait, ended, now);
        if after != before {
            record.short_waits.store(after, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);
    const SOON: Duration = Duration::from_micros(30);

    fn wait(word: u64, ended: Ended) -> (u64, Option<Wait>) {
        let wait = begin(word, || Duration::ZERO, MOST);
        (learnt(word, wait, ended, || SOON), wait)
    }

    #[test]
    fn who_does_not_wait_looks_at_no_clock_until_something_comes() {
        let (word, _) = wait(0, Ended::WouldBlock);
        let no_clock = || -> Duration { unreachable!("nobody waits") };
        assert!(begin(word, no_clock, MOST).is_none());
        assert_eq!(learnt(word, None, Ended::WouldBlock, no_clock), word);
        let (word, waited) = wait(word, Ended::Came);
        assert!(waited.is_none() && begin(word, || SOON, MOST).is_some());
    }

    #[test]
    fn what_was_learnt_before_stands() {
        let (word, _) = wait(0, Ended::Came);
        let (refused, _) = wait(word, Ended::WouldBlock);
        let (again, _) = wait(refused, Ended::Came);
        assert_eq!(again, word);
    }

    #[test]
    fn a_look_in_vain_counts_where_the_socket_waits_no_longer() {
        let looks = |word| {
            let (after, wait) = wait(word, Ended::Came);
            (after, wait.is_some_and(|wait| wait.looks_until().is_some()))
        };
        let mut word = 0;
        while !looks(word).1 {
            word = looks(word).0;
        }
        let (timed_out, _) = wait(word, Ended::WouldBlock);
        let (after, _) = wait(timed_out, Ended::Came);
        assert!(!looks(after).1);
    }
}
