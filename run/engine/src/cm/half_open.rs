//! Connections that were accepted and whose MPA Request is not there yet, over the whole process.
//!
//! Each costs a descriptor and some memory, and whoever can connect can make them. So their number is bounded, and when
//! there is no room the connection to go is the oldest of the address that has the most: a peer that floods crowds out
//! its own.

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
pub(crate) struct HalfOpen<T> {
    most: usize,
    entries: Vec<Entry<T>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    number: Number,
    /// The listener it came to.
    listener: u64,
    from: IpAddr,
    since: Duration,
    what: T,
}

/// Whether one more can be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room<T> {
    Free,
    /// Once that one has gone.
    Instead(T),
    /// Not now.
    None,
}

impl<T: Clone> HalfOpen<T> {
    /// At most `most` at once.
    pub(crate) fn new(most: usize) -> HalfOpen<T> {
        HalfOpen {
            most,
            entries: Vec::new(),
            next: 0,
        }
    }

    /// Room for one more; with a listener, among those of that listener, which is full.
    pub(super) fn room(&self, full: Option<u64>, now: Duration) -> Room<T> {
        if full.is_none() && self.entries.len() < self.most {
            return Room::Free;
        }
        let counts = |entry: &&Entry<T>| full.is_none_or(|listener| entry.listener == listener);
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
        match oldest {
            Some(entry) if entry.since + GRACE <= now => Room::Instead(entry.what.clone()),
            _ => Room::None,
        }
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
            what,
        });
        number
    }

    /// Its Request is there, or it ended.
    pub(super) fn leave(&mut self, number: Number) {
        if let Ok(at) = self
            .entries
            .binary_search_by_key(&number.0, |entry| entry.number.0)
        {
            self.entries.remove(at);
        }
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
    fn there_is_room_up_to_the_bound() {
        let mut half_open = HalfOpen::new(2);
        assert_eq!(half_open.room(None, NOW), Room::Free);
        let first = half_open.enter(7, address(1), NOW, "first");
        half_open.enter(7, address(1), NOW, "second");
        assert_eq!(half_open.room(None, NOW), Room::None, "both are young");
        assert_eq!(half_open.room(None, NOW + GRACE), Room::Instead("first"));
        half_open.leave(first);
        assert_eq!(half_open.room(None, LATER), Room::Free);
        half_open.leave(first);
        assert_eq!(half_open.at(7), 1);
    }

    #[test]
    fn a_flood_crowds_out_its_own() {
        let mut half_open = HalfOpen::new(4);
        half_open.enter(7, address(1), NOW, "an honest one, and the oldest");
        for _ in 0..2 {
            half_open.enter(7, address(2), NOW, "of the flood");
        }
        half_open.enter(7, address(3), NOW, "another honest one");
        assert_eq!(half_open.room(None, LATER), Room::Instead("of the flood"));
    }

    #[test]
    fn a_full_listener_is_its_own_matter() {
        let mut half_open = HalfOpen::new(100);
        for _ in 0..9 {
            half_open.enter(1, address(1), NOW, "elsewhere");
        }
        assert_eq!(half_open.room(Some(2), LATER), Room::None);
        half_open.enter(2, address(2), NOW, "here");
        assert_eq!(half_open.room(Some(2), LATER), Room::Instead("here"));
        assert_eq!((half_open.at(1), half_open.at(2)), (9, 1));
    }
}
