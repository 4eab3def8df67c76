//! In which epolls the program has entered its sockets: who closes a socket takes it out of them.
//!
//! The kernel does so when the last descriptor of a socket is closed. Where a descriptor of ours stays behind it does
//! not, and nobody can change the entry any more once the program's number is gone: the program would be told of a
//! connection that it has closed, with data that it may have freed.

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::poll;

use super::{Record, Streams, Watch};

/// Epolls that are remembered: mostly a program has one for each of its threads. Of more the first are forgotten.
const EPOLLS_MAX: usize = 64;

/// The descriptors of epolls.
#[derive(Debug)]
pub(super) struct Epolls {
    /// Each and one; 0 for none. One that is closed meanwhile is no harm: nothing is taken out of what is no epoll.
    numbers: [AtomicU32; EPOLLS_MAX],
    next: AtomicU32,
}

impl Epolls {
    /// None yet.
    pub(super) const fn new() -> Epolls {
        Epolls {
            numbers: [const { AtomicU32::new(0) }; EPOLLS_MAX],
            next: AtomicU32::new(0),
        }
    }

    fn note(&self, epoll: i32) {
        let word = epoll as u32 + 1;
        let is_it = |number: &AtomicU32| number.load(Ordering::Relaxed) == word;
        if !self.numbers.iter().any(is_it) {
            let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % EPOLLS_MAX;
            self.numbers[at].store(word, Ordering::Relaxed);
        }
    }

    /// Takes the socket behind `fd`, which is about to be closed, out of all of them.
    pub(super) fn take_out(&self, fd: i32) {
        let words = self.numbers.iter();
        words
            .filter_map(|number| number.load(Ordering::Relaxed).checked_sub(1))
            .for_each(|epoll| poll::unwatch(epoll as i32, fd));
    }
}

impl Streams {
    /// The program has entered the socket in an epoll (`is_new`), or has changed how it is there; nothing: it has taken
    /// it out.
    pub fn watched(&self, record: &Record, is_new: bool, watch: Option<Watch>) {
        record.set_watch(is_new, watch);
        if let Some(watch) = watch {
            self.epolls.note(watch.epoll);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(epolls: &Epolls) -> Vec<u32> {
        let words = epolls.numbers.iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn each_is_remembered_once_and_the_last_ones_are() {
        let epolls = Epolls::new();
        (0..2).for_each(|_| (0..EPOLLS_MAX as i32).for_each(|epoll| epolls.note(epoll)));
        assert_eq!(numbers(&epolls), (1..=64).collect::<Vec<_>>());
        epolls.note(100);
        assert_eq!(numbers(&epolls)[..2], [101, 2]);
    }
}
