//! Connections that were accepted and whose MPA Request is not there yet, over the whole process.
//!
//! Each costs a descriptor and some memory, and whoever can connect can make them. So their number is bounded, and when
//! there is no room the connection to go is the oldest of the address that has the most: a peer that floods crowds out
//! its own. One that has sent its Request, and waits for its turn, is among them and goes after all that have not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// An honest peer's Request is there within a round trip. A younger connection is left alone: the newcomer waits in
/// the kernel's queue instead.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// Names an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number(u64);

/// The half-open connections, oldest first. `T` leads to one.
#[derive(Debug)]
pub(super) struct HalfOpen<T> {
    entries: Vec<Entry<T>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    number: Number,
    /// The listener it came to.
    listener: u64,
    /// The address that stands for all of the peer's (`crate::throttle::PeerAddress`).
    from: IpAddr,
    since: Duration,
    has_spoken: bool,
    what: T,
}

impl<T> Default for HalfOpen<T> {
    fn default() -> HalfOpen<T> {
        HalfOpen {
            entries: Vec::new(),
            next: 0,
        }
    }
}

impl<T: Clone> HalfOpen<T> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The one that makes room for another, of all or of one listener's; `None` where it is too young.
    pub(super) fn first_to_go(&self, listener: Option<u64>, now: Duration) -> Option<T> {
        let of_all = |entry: &&Entry<T>| listener.is_none_or(|listener| entry.listener == listener);
        let silent = |entry: &&Entry<T>| of_all(entry) && !entry.has_spoken;
        let any_silent = self.entries.iter().any(|entry| silent(&entry));
        let counts = |entry: &&Entry<T>| of_all(entry) && entry.has_spoken != any_silent;
        let mut per_address: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.entries.iter().filter(counts) {
            *per_address.entry(entry.from).or_default() += 1;
        }
        let crowd = per_address.values().copied().max();
        let oldest = self
            .entries
            .iter()
            .filter(counts)
            .find(|entry| per_address.get(&entry.from).copied() == crowd);
        oldest
            .filter(|entry| entry.since + GRACE <= now)
            .map(|entry| entry.what.clone())
    }

    /// How many came to that listener.
    pub(super) fn at(&self, listener: u64) -> usize {
        let here = |entry: &&Entry<T>| entry.listener == listener;
        self.entries.iter().filter(here).count()
    }

    /// One was accepted.
    pub(super) fn enter(&mut self, listener: u64, from: IpAddr, now: Duration, what: T) -> Number {
        let number = Number(self.next);
        self.next += 1;
        self.entries.push(Entry {
            number,
            listener,
            from,
            since: now,
            has_spoken: false,
            what,
        });
        number
    }

    /// Its Request is there, and waits for its turn.
    pub(super) fn has_spoken(&mut self, number: Number) {
        if let Some(at) = self.place(number) {
            self.entries[at].has_spoken = true;
        }
    }

    /// Its Request goes on, or it ended.
    pub(super) fn leave(&mut self, number: Number) {
        if let Some(at) = self.place(number) {
            self.entries.remove(at);
        }
    }

    fn place(&self, number: Number) -> Option<usize> {
        let key = |entry: &Entry<T>| entry.number.0;
        self.entries.binary_search_by_key(&number.0, key).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const LATER: Duration = Duration::from_secs(2);

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn the_oldest_goes_first_and_none_that_is_young() {
        let mut half_open = HalfOpen::default();
        let first = half_open.enter(7, address(1), NOW, "first");
        half_open.enter(7, address(1), NOW, "second");
        assert_eq!(half_open.first_to_go(None, NOW), None, "both are young");
        let later = NOW + GRACE;
        assert_eq!(half_open.first_to_go(None, later), Some("first"));
        half_open.leave(first);
        assert_eq!(half_open.count(), 1);
        half_open.leave(first);
        assert_eq!(half_open.at(7), 1);
    }

    #[test]
    fn a_flood_crowds_out_its_own() {
        let mut half_open = HalfOpen::default();
        half_open.enter(7, address(1), NOW, "an honest one, and the oldest");
        for _ in 0..2 {
            half_open.enter(7, address(2), NOW, "of the flood");
        }
        half_open.enter(7, address(3), NOW, "another honest one");
        assert_eq!(half_open.first_to_go(None, LATER), Some("of the flood"));
    }

    #[test]
    fn who_has_spoken_goes_after_all_that_have_not() {
        let mut half_open = HalfOpen::default();
        let first = half_open.enter(7, address(1), NOW, "waits for its turn");
        half_open.has_spoken(first);
        half_open.enter(7, address(1), NOW, "silent");
        let other = half_open.enter(7, address(1), NOW, "silent too");
        assert_eq!(half_open.first_to_go(None, LATER), Some("silent"));
        half_open.has_spoken(other);
        assert_eq!(half_open.first_to_go(None, LATER), Some("silent"));
        half_open.leave(Number(1));
        let third = half_open.enter(7, address(2), NOW, "and a third");
        half_open.has_spoken(third);
        let oldest = Some("waits for its turn");
        assert_eq!(half_open.first_to_go(None, LATER), oldest);
    }

    #[test]
    fn a_full_listener_is_its_own_matter() {
        let mut half_open = HalfOpen::default();
        for _ in 0..9 {
            half_open.enter(1, address(1), NOW, "elsewhere");
        }
        assert_eq!(half_open.first_to_go(Some(2), LATER), None);
        half_open.enter(2, address(2), NOW, "here");
        assert_eq!(half_open.first_to_go(Some(2), LATER), Some("here"));
        assert_eq!((half_open.at(1), half_open.at(2)), (9, 1));
    }
}
