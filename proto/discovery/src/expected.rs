//! The server: connections that a yes was said for.
//!
//! A yes promises that the client's MPA Request is waited for before the server's program sends its first octets. The
//! one who says yes and the one who accepts are different threads, and may be different processes; what makes them
//! agree is this table. Each connection is *promised* or *settled*, whichever comes first: the yes, or the program's
//! first octets. So no program's octets ever meet a client that was told yes, however close the two are in time.

use core::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use crate::connection::{Connection, End};
use crate::places::{hash, neighbour, to_us, Places};

/// How long the program's first octets are held back for a Request, beyond the round trip that it takes to come.
pub const REQUEST_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a promise stands if nobody takes it: a program may be slow to accept. A Request that has come by then is
/// known by its octets.
pub const PROMISED: Duration = Duration::from_secs(1);
/// How long a connection whose program has sent is kept from being promised: its question came with the SYN, and is
/// late already.
pub const SETTLED: Duration = Duration::from_millis(100);
/// Connections that the clients of one address, or of one IPv6 network of 64 bits, have in the table at most; addresses
/// whose hashes agree share them.
pub const OF_ADDRESS_MAX: u16 = 1024;

const WAYS: usize = 8;
const SETS: usize = 512;
/// Connections in the table at most.
pub const CONNECTIONS_MAX: usize = SETS * WAYS;
/// Numbers that connections are counted in, by the hash of the client's address.
const COUNTERS: usize = 256;
/// How often all entries are looked at for those that are over.
const SWEEP_EVERY: Duration = Duration::from_millis(1);

const PROMISE: u8 = 1;
const SETTLEMENT: u8 = 2;

#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct Entry {
    /// 0 where there is none.
    until_us: u64,
    since_us: u64,
    client: End,
    server: End,
    about: u8,
    what: u8,
    padding: [u8; 2],
}

/// Why no yes may be said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The program has begun to send.
    Settled,
    /// There is no room, for this address or at all.
    Full,
}

/// Whether the program's first octets may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// They may: no yes was said, and none will be.
    Leave,
    /// A yes was said at that time: the Request is waited for, until [`REQUEST_TIMEOUT`] and the connection's round
    /// trip after it.
    Held(Duration),
}

/// The table. Empty while it is zero.
#[derive(Debug, FromBytes)]
#[repr(C)]
pub struct Expected {
    seed: u64,
    swept_us: u64,
    /// Up to when nothing is promised to addresses of this counter: a settlement found no room.
    closed_until_us: [u64; COUNTERS],
    counts: [u16; COUNTERS],
    places: Places<Entry, SETS, WAYS>,
}

impl Expected {
    /// Makes it unforeseeable which connections share places. To be called while it is empty.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// A yes is about to be said for this connection.
    ///
    /// # Errors
    /// It must not be said.
    pub fn promise(&mut self, connection: &Connection, now: Duration) -> Result<(), Refusal> {
        let counter = self.counter_of(connection);
        if let Some(entry) = self.find(connection, now) {
            return match entry.what {
                PROMISE => Ok(()),
                _ => Err(Refusal::Settled),
            };
        }
        if self.closed_until_us[counter] > to_us(now) {
            return Err(Refusal::Full);
        }
        match self.enter(connection, PROMISE, PROMISED, now) {
            true => Ok(()),
            false => Err(Refusal::Full),
        }
    }

    /// When a yes was said for this connection, if one was; the promise is the caller's to keep from then on.
    pub fn take(&mut self, connection: &Connection, now: Duration) -> Option<Duration> {
        let counter = self.counter_of(connection);
        let entry = self.find(connection, now)?;
        if entry.what != PROMISE {
            return None;
        }
        entry.until_us = 0;
        let since = Duration::from_micros(entry.since_us);
        self.counts[counter] = self.counts[counter].saturating_sub(1);
        Some(since)
    }

    /// The program's first octets are about to leave on this connection, whose Request has not come.
    pub fn settle(&mut self, connection: &Connection, now: Duration) -> First {
        if let Some(since) = self.take(connection, now) {
            return First::Held(since);
        }
        let is_settled = self.find(connection, now).is_some();
        if !is_settled && !self.enter(connection, SETTLEMENT, SETTLED, now) {
            let counter = self.counter_of(connection);
            self.closed_until_us[counter] = to_us(now.saturating_add(SETTLED));
        }
        First::Leave
    }

    fn counter_of(&self, connection: &Connection) -> usize {
        let who = neighbour(connection.client.address());
        hash(self.seed, &who.to_ne_bytes()) as usize % COUNTERS
    }

    fn set(&mut self, connection: &Connection) -> &mut [Entry; WAYS] {
        let mut octets = [0; 2 * core::mem::size_of::<End>()];
        let (client, server) = octets.split_at_mut(core::mem::size_of::<End>());
        client.copy_from_slice(connection.client.as_bytes());
        server.copy_from_slice(connection.server.as_bytes());
        self.places.set(hash(self.seed, &octets))
    }

    fn find(&mut self, connection: &Connection, now: Duration) -> Option<&mut Entry> {
        let now_us = to_us(now);
        let mut ways = self.set(connection).iter_mut();
        ways.find(|entry| entry.until_us > now_us && entry.is_of(connection))
    }

    /// Puts an entry in; false where there is no room.
    fn enter(&mut self, connection: &Connection, what: u8, time: Duration, now: Duration) -> bool {
        let counter = self.counter_of(connection);
        if self.counts[counter] >= OF_ADDRESS_MAX {
            self.sweep(now);
        }
        if self.counts[counter] >= OF_ADDRESS_MAX {
            return false;
        }
        let now_us = to_us(now);
        let ways = self.set(connection);
        let Some(place) = ways.iter_mut().find(|entry| entry.until_us <= now_us) else {
            return false;
        };
        let before = *place;
        *place = Entry {
            until_us: to_us(now.saturating_add(time)),
            since_us: now_us,
            client: connection.client,
            server: connection.server,
            about: connection.about.to_octet(),
            what,
            padding: [0; 2],
        };
        self.leave(&before);
        self.counts[counter] += 1;
        true
    }

    /// Takes out what is over: entries leave by themselves only when another one needs their place.
    fn sweep(&mut self, now: Duration) {
        let now_us = to_us(now);
        if now_us < self.swept_us.saturating_add(to_us(SWEEP_EVERY)) {
            return;
        }
        self.swept_us = now_us;
        self.counts = [0; COUNTERS];
        let (seed, counts) = (self.seed, &mut self.counts);
        for entry in self.places.iter_mut().filter(|entry| entry.until_us != 0) {
            if entry.until_us <= now_us {
                entry.until_us = 0;
                continue;
            }
            let who = neighbour(entry.client.address());
            counts[hash(seed, &who.to_ne_bytes()) as usize % COUNTERS] += 1;
        }
    }

    /// An entry that was over has lost its place.
    fn leave(&mut self, entry: &Entry) {
        if entry.until_us != 0 {
            let who = neighbour(entry.client.address());
            let count = &mut self.counts[hash(self.seed, &who.to_ne_bytes()) as usize % COUNTERS];
            *count = count.saturating_sub(1);
        }
    }
}

impl Entry {
    fn is_of(&self, connection: &Connection) -> bool {
        self.client == connection.client
            && self.server == connection.server
            && self.about == connection.about.to_octet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::About;
    use std::boxed::Box;

    use zerocopy::FromZeros;

    const NOW: Duration = Duration::from_secs(1000);
    const US: Duration = Duration::from_micros(1);

    fn empty() -> Box<Expected> {
        Box::new(Expected::new_zeroed())
    }

    fn connection(address: u32, port: u16) -> Connection {
        Connection {
            about: About::Stream,
            client: End::new(address.to_be_bytes().into(), port),
            server: End::new([192, 0, 2, 1].into(), 6379),
        }
    }

    #[test]
    fn a_promise_is_taken_once() {
        let mut expected = empty();
        let one = connection(1, 1);
        assert_eq!(expected.take(&one, NOW), None);
        assert_eq!(expected.promise(&one, NOW), Ok(()));
        assert_eq!(expected.promise(&one, NOW + US), Ok(()), "asked twice");
        let datagrams = Connection {
            about: About::Datagrams,
            ..one
        };
        for other in [connection(1, 2), connection(2, 1), datagrams] {
            assert_eq!(expected.take(&other, NOW + US), None);
        }
        assert_eq!(expected.take(&one, NOW + 2 * US), Some(NOW));
        assert_eq!(expected.take(&one, NOW + 2 * US), None);
    }

    #[test]
    fn first_octets_wait_where_a_yes_was_said() {
        let mut expected = empty();
        expected.promise(&connection(1, 1), NOW).unwrap();
        assert_eq!(
            expected.settle(&connection(1, 1), NOW + US),
            First::Held(NOW)
        );
        assert_eq!(expected.settle(&connection(1, 1), NOW + US), First::Leave);
    }

    #[test]
    fn no_yes_is_said_behind_first_octets() {
        let mut expected = empty();
        let one = connection(1, 1);
        assert_eq!(expected.settle(&one, NOW), First::Leave);
        assert_eq!(
            expected.promise(&one, NOW + SETTLED - US),
            Err(Refusal::Settled)
        );
        assert_eq!(expected.take(&one, NOW + US), None);
        assert_eq!(
            expected.promise(&one, NOW + SETTLED),
            Ok(()),
            "the port was used again"
        );
    }

    #[test]
    fn promises_end() {
        let mut expected = empty();
        expected.promise(&connection(1, 1), NOW).unwrap();
        assert_eq!(expected.take(&connection(1, 1), NOW + PROMISED), None);
        assert_eq!(
            expected.settle(&connection(1, 1), NOW + PROMISED),
            First::Leave
        );
    }

    #[test]
    fn an_address_has_no_more_than_its_share_until_its_entries_are_over() {
        let mut expected = empty();
        expected.set_seed(5);
        let said = |expected: &mut Expected, now| {
            let ports =
                (1..=4096).filter(|port| expected.promise(&connection(1, *port), now).is_ok());
            ports.count()
        };
        let first = said(&mut expected, NOW);
        // A set may be full before the address is at its end.
        assert!((900..=1024).contains(&first), "{first}");
        assert!(
            expected.promise(&connection(2, 1), NOW).is_ok(),
            "others have room"
        );
        let again = said(&mut expected, NOW + PROMISED);
        assert!((900..=1024).contains(&again), "{again}");
    }

    #[test]
    fn what_was_taken_makes_room() {
        let mut expected = empty();
        for port in 1..=60_000 {
            assert_eq!(expected.promise(&connection(1, port), NOW), Ok(()));
            assert_eq!(expected.take(&connection(1, port), NOW), Some(NOW));
        }
    }

    #[test]
    fn a_flood_of_addresses_is_bounded_in_all() {
        let mut expected = empty();
        let said =
            (0..50_000).filter(|address| expected.promise(&connection(*address, 1), NOW).is_ok());
        assert!(said.count() <= CONNECTIONS_MAX);
    }

    #[test]
    fn settlements_that_find_no_room_close_the_address_for_a_while() {
        let mut expected = empty();
        for port in 1..=20_000 {
            assert_eq!(expected.settle(&connection(1, port), NOW), First::Leave);
        }
        for port in 1..=20_000 {
            assert!(expected
                .promise(&connection(1, port), NOW + SETTLED - US)
                .is_err());
        }
        assert_eq!(expected.promise(&connection(1, 7), NOW + SETTLED), Ok(()));
    }
}
