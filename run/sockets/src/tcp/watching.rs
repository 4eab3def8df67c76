//! In which epolls the program has entered its sockets: who closes a socket takes it out of them.
//!
//! The kernel does so when the last descriptor of a socket is closed. Where a descriptor of ours stays behind it does
//! not, and nobody can change the entry any more once the program's number is gone: the program would be told of a
//! connection that it has closed, with data that it may have freed.

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::lock::{Guard, Lock, Locked};
use weft_os::{pages, poll};

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

/// How many descriptors were entered with a word, by its hash: mostly it is one, and then nobody need look further. One
/// that was taken out may still be among them.
#[derive(Debug)]
pub(super) struct Words(&'static [AtomicU32]);

/// Counters of [`Words`], a power of two.
const WORDS: usize = 1 << 14;
/// Descriptors that are none of TCP sockets and were entered by edge. Of more the first are forgotten.
const OTHERS_MAX: usize = 256;

impl Words {
    /// None yet; nothing where the kernel has no memory for them.
    pub(super) fn new() -> Option<Words> {
        pages::words(WORDS).map(Words)
    }

    fn count(&self, watch: &Watch) -> &AtomicU32 {
        let both = watch.data ^ (watch.epoll as u64) << 32;
        // The golden ratio: near ones are far apart (Knuth 6.4).
        let hash = both.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(hash >> (u64::BITS - WORDS.ilog2())) as usize]
    }

    fn add(&self, watch: &Watch) {
        self.count(watch).fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, watch: &Watch) {
        self.count(watch).fetch_sub(1, Ordering::Relaxed);
    }

    fn may_be_shared(&self, watch: &Watch) -> bool {
        self.count(watch).load(Ordering::Relaxed) > 1
    }
}

/// Descriptors of any other kind that were entered by edge, or for one event.
///
/// An event names what a descriptor was entered with. Where that is another's word, too, nobody can tell whose event it
/// is: to hide it as framing would lose it, if it comes no more.
#[derive(Debug)]
pub(super) struct Others {
    list: Lock<[Watch; OTHERS_MAX]>,
    count: AtomicU32,
    next: AtomicU32,
}

impl Others {
    /// None yet.
    pub(super) const fn new() -> Others {
        Others {
            list: Lock::new([Watch::NONE; OTHERS_MAX]),
            count: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }

    fn list(&self) -> Option<Guard<'_, [Watch; OTHERS_MAX]>> {
        match self.list.lock() {
            Locked::Held(list) | Locked::Orphaned(list) => Some(list),
            Locked::Again => None,
        }
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn put(&self, watch: Watch, words: &Words) {
        self.forget(words, |one| one.is_at(watch.epoll, watch.fd));
        let Some(mut list) = self.list() else { return };
        let at = list
            .iter()
            .position(|one| !one.is_any())
            .unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) as usize % OTHERS_MAX);
        match list[at].is_any() {
            true => words.remove(&list[at]),
            false => drop(self.count.fetch_add(1, Ordering::Relaxed)),
        }
        words.add(&watch);
        list[at] = watch;
    }

    fn forget(&self, words: &Words, is_over: impl Fn(&Watch) -> bool) {
        if !self.any() {
            return;
        }
        let Some(mut list) = self.list() else { return };
        for watch in list
            .iter_mut()
            .filter(|watch| watch.is_any() && is_over(watch))
        {
            words.remove(watch);
            *watch = Watch::NONE;
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn have_word_of(&self, watch: &Watch) -> bool {
        self.any()
            && self
                .list()
                .is_none_or(|list| list.iter().any(|one| is_same_word(one, watch)))
    }
}

fn is_same_word(one: &Watch, other: &Watch) -> bool {
    (one.epoll, one.data) == (other.epoll, other.data)
}

impl Streams {
    /// The program has entered the socket in an epoll, or has changed how it is there.
    pub fn watched(&self, record: &Record, watch: Watch) {
        let Some(words) = &self.words else { return };
        record.put_watch(watch, |known| words.add(known), |gone| words.remove(gone));
        self.epolls.note(watch.epoll);
    }

    /// The program has taken it out, or closes this number of it, in any epoll (nothing) or this one. An epoll that it
    /// was entered in by a number goes on telling of it as long as there is another descriptor, and nobody can change
    /// the entry any more.
    pub fn watched_no_more(&self, record: &Record, epoll: Option<i32>, fd: i32) {
        let Some(words) = &self.words else { return };
        match epoll {
            // Mostly it comes back: some programs take a socket out and enter it again with every message.
            Some(epoll) => record.take_watch_out(epoll, fd),
            None => record.forget_watches(|watch| watch.fd == fd, |watch| words.remove(watch)),
        }
    }

    /// The same of a socket that is gone.
    pub(super) fn forget_watches(&self, record: &Record) {
        if let Some(words) = &self.words {
            record.forget_watches(|_| true, |watch| words.remove(watch));
        }
    }

    /// Whether descriptors that are none of TCP sockets are to be remembered. Without a rule most programs have no TCP
    /// socket that is looked after, and nobody asks for them.
    #[inline]
    pub fn others_matter(&self) -> bool {
        self.rules.any() || self.begun() > 0
    }

    /// A descriptor that is none of a TCP socket was entered in an epoll, or is there in another way.
    pub fn other_watched(&self, watch: Watch) {
        const BY_EDGE: u32 = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
        let matters = self.others_matter();
        let Some(words) = self.words.as_ref().filter(|_| matters) else {
            return;
        };
        match watch.events & BY_EDGE {
            // What is reported by level is reported again.
            0 => self
                .others
                .forget(words, |one| one.is_at(watch.epoll, watch.fd)),
            _ => self.others.put(watch, words),
        }
    }

    /// It was taken out, or is closed.
    pub fn other_watched_no_more(&self, epoll: Option<i32>, fd: i32) {
        if let Some(words) = &self.words {
            self.others.forget(words, |one| {
                one.fd == fd && epoll.is_none_or(|epoll| one.epoll == epoll)
            });
        }
    }

    /// Whether an event of the epoll with this word may be of another descriptor than the socket.
    pub fn shares_word(&self, record: &Record, watch: &Watch) -> bool {
        let may = self
            .words
            .as_ref()
            .is_some_and(|words| words.may_be_shared(watch));
        may && (self.others.have_word_of(watch) || self.has_other_with_word(record, watch))
    }

    #[cold]
    fn has_other_with_word(&self, record: &Record, watch: &Watch) -> bool {
        let others = self
            .records
            .taken()
            .filter(|one| one.number != record.number);
        others
            .flat_map(Record::watches)
            .any(|one| is_same_word(&one, watch))
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

    fn watch(epoll: i32, fd: i32, data: u64) -> Watch {
        Watch {
            epoll,
            fd,
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            data,
        }
    }

    fn streams() -> Streams {
        let rules = weft_settings::streams::StreamRules::parse("require").unwrap();
        Streams::new(rules, false, None, false)
    }

    #[test]
    fn a_word_is_shared_as_long_as_another_descriptor_has_it() {
        use crate::kind::{Origin, Sockets};
        weft_os::process::watch();
        let streams = streams();
        let [one, other] = [(); 2].map(|()| {
            let number = streams.begin(1, Origin::Made).unwrap();
            streams.record(number).unwrap()
        });
        let first = watch(3, 4, 77);
        streams.watched(one, first);
        // Changed, and entered once more by a copy: it is the same socket.
        streams.watched(one, first);
        streams.watched(one, watch(3, 5, 77));
        assert!(!streams.shares_word(one, &first));
        for (epoll, data) in [(4, 77), (3, 78)] {
            streams.watched(other, watch(epoll, 6, data));
            assert!(!streams.shares_word(one, &first), "another epoll, or word");
        }
        streams.watched(other, watch(3, 6, 77));
        assert!(streams.shares_word(one, &first));
        streams.watched_no_more(other, Some(3), 6);
        assert!(!streams.shares_word(one, &first));
        streams.other_watched(watch(3, 9, 77));
        assert!(streams.shares_word(one, &first));
        streams.other_watched(Watch {
            events: libc::EPOLLIN as u32,
            ..watch(3, 9, 77)
        });
        assert!(!streams.shares_word(one, &first), "by level it comes again");
        streams.other_watched(watch(3, 9, 77));
        streams.other_watched_no_more(None, 9);
        assert!(!streams.shares_word(one, &first));
        streams.watched(other, watch(3, 6, 77));
        streams.forget_watches(other);
        assert!(!streams.shares_word(one, &first));
    }

    #[test]
    fn a_socket_is_remembered_in_the_last_of_its_epolls() {
        use crate::kind::{Origin, Sockets};
        weft_os::process::watch();
        let streams = streams();
        let record = streams
            .record(streams.begin(1, Origin::Made).unwrap())
            .unwrap();
        let epolls = || {
            let mut epolls: Vec<i32> = record.watches().map(|watch| watch.epoll).collect();
            epolls.sort_unstable();
            epolls
        };
        (10..14).for_each(|epoll| streams.watched(record, watch(epoll, 4, 1)));
        streams.watched(record, watch(12, 4, 2));
        assert_eq!(epolls(), [10, 11, 12, 13]);
        streams.watched(record, watch(14, 4, 1));
        assert!(epolls().len() == 4 && epolls().contains(&14));
        streams.watched_no_more(record, Some(14), 4);
        assert!(!epolls().contains(&14));
        streams.watched_no_more(record, None, 4);
        assert_eq!(epolls(), []);
    }
}
