//! Dials that wait at a port: for a queue pair that takes them, or for nothing.
//!
//! Whoever dials and is not the peer that a queue pair waits for hears nothing, whatever the reason is: a stranger
//! learns neither which numbers exist nor whether he was near. So all of them wait in here, those whose time has not
//! come and those that are wrong. What bounds them is their number: when there is no room, the oldest of the address
//! that has the most goes, so that whoever floods crowds out his own. A peer that was crowded out dials again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::hello::Hello;

/// For so long a dial counts among those of its address for its number.
const WINDOW: Duration = Duration::from_secs(10);
/// Dials of one address for one number in that time that are nobody's guess: a peer makes two, and others when its
/// time for one is over.
const NOT_A_GUESS: usize = 4;

/// Names a dial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

/// The dials that wait, oldest first. `T` leads to one.
#[derive(Debug)]
pub(super) struct Room<T> {
    most: usize,
    dials: Vec<Dial<T>>,
    next: u64,
}

/// One that waits.
#[derive(Clone, Debug)]
pub(super) struct Dial<T> {
    pub(super) ticket: Ticket,
    pub(super) hello: Hello,
    /// Where it comes from.
    pub(super) from: IpAddr,
    pub(super) what: T,
    /// The address that stands for all of that peer.
    whose: IpAddr,
    since: Duration,
    guess: bool,
}

/// What came of one more.
#[derive(Debug)]
pub(super) struct Entered<T> {
    pub(super) ticket: Ticket,
    /// This one had to go.
    pub(super) crowded_out: Option<T>,
    /// A peer does not dial so often. If this one is not taken it is a guess.
    pub(super) is_one_too_many: bool,
}

impl<T: Clone> Room<T> {
    /// At most `most` at once.
    pub(super) fn new(most: usize) -> Room<T> {
        Room {
            most,
            dials: Vec::new(),
            next: 0,
        }
    }

    /// One more. Old ones that are not `alive` any more make room first.
    pub(super) fn enter(
        &mut self,
        hello: Hello,
        (from, whose): (IpAddr, IpAddr),
        what: T,
        now: Duration,
        alive: impl Fn(&T) -> bool,
    ) -> Entered<T> {
        self.dials
            .retain(|dial| dial.since + WINDOW > now || alive(&dial.what));
        let crowded_out = match self.dials.len() >= self.most {
            true => self.crowd_out_one(),
            false => None,
        };
        let earlier = |dial: &&Dial<T>| {
            dial.hello.to == hello.to && dial.whose == whose && dial.since + WINDOW > now
        };
        let is_one_too_many = self.dials.iter().filter(earlier).count() >= NOT_A_GUESS;
        let ticket = Ticket(self.next);
        self.next += 1;
        self.dials.push(Dial {
            ticket,
            hello,
            from,
            what,
            whose,
            since: now,
            guess: false,
        });
        Entered {
            ticket,
            crowded_out,
            is_one_too_many,
        }
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.dials.len()
    }

    /// The one that goes first when there is no room does.
    pub(super) fn crowd_out_one(&mut self) -> Option<T> {
        let mut of_each: HashMap<IpAddr, usize> = HashMap::new();
        for dial in &self.dials {
            *of_each.entry(dial.whose).or_default() += 1;
        }
        let most = of_each.values().copied().max();
        let mut dials = self.dials.iter();
        let oldest = dials.position(|dial| of_each.get(&dial.whose).copied() == most)?;
        Some(self.dials.remove(oldest).what)
    }

    /// Those for a number, oldest first.
    pub(super) fn of(&self, number: u32) -> Vec<Dial<T>> {
        let of_it = |dial: &&Dial<T>| dial.hello.to == number;
        self.dials.iter().filter(of_it).cloned().collect()
    }

    /// One of them.
    pub(super) fn get(&self, ticket: Ticket) -> Option<Dial<T>> {
        Some(self.dials[self.place(ticket)?].clone())
    }

    /// It waits no longer; false when it did not.
    pub(super) fn take(&mut self, ticket: Ticket) -> bool {
        let place = self.place(ticket);
        place.is_some_and(|place| {
            self.dials.remove(place);
            true
        })
    }

    /// It is wrong; true when that is news.
    pub(super) fn is_wrong(&mut self, ticket: Ticket) -> bool {
        let place = self.place(ticket);
        place.is_some_and(|place| !std::mem::replace(&mut self.dials[place].guess, true))
    }

    fn place(&self, ticket: Ticket) -> Option<usize> {
        let found = self.dials.binary_search_by_key(&ticket.0, |d| d.ticket.0);
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::Word;
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn to(number: u32) -> Hello {
        Hello {
            to: number,
            from: 7,
            word: Word::Nothing,
        }
    }

    fn address(n: u8) -> (IpAddr, IpAddr) {
        let address = IpAddr::from([10, 0, 0, n]);
        (address, address)
    }

    fn enter(room: &mut Room<u32>, number: u32, of: u8, what: u32) -> Entered<u32> {
        room.enter(to(number), address(of), what, NOW, |_| true)
    }

    #[test]
    fn who_floods_crowds_out_his_own() {
        let mut room = Room::new(8);
        let honest = enter(&mut room, 1, 1, 0);
        assert_eq!(honest.crowded_out, None);
        for what in 1..=1000 {
            let entered = enter(&mut room, what % 5, 2, what);
            let oldest = what.checked_sub(7).filter(|oldest| *oldest > 0);
            assert_eq!(entered.crowded_out, oldest);
            assert!(room.dials.len() <= 8);
        }
        assert!(room.take(honest.ticket), "it still waits");
    }

    #[test]
    fn a_dial_is_taken_once() {
        let mut room = Room::new(8);
        let first = enter(&mut room, 1, 1, 10).ticket;
        let second = enter(&mut room, 2, 1, 20).ticket;
        let waiting: Vec<_> = room.of(2).iter().map(|dial| dial.what).collect();
        assert_eq!(waiting, [20]);
        assert!(room.take(first));
        assert!(!room.take(first));
        assert_eq!(room.get(second).map(|dial| dial.what), Some(20));
        assert!(room.get(first).is_none());
    }

    #[test]
    fn more_than_a_peer_dials_are_one_too_many_whatever_the_number_is() {
        let mut room = Room::new(64);
        for what in 0..4 {
            assert!(!enter(&mut room, 1, 1, what).is_one_too_many);
        }
        assert!(enter(&mut room, 1, 1, 4).is_one_too_many);
        assert!(
            !enter(&mut room, 1, 2, 5).is_one_too_many,
            "another address"
        );
        assert!(!enter(&mut room, 2, 1, 6).is_one_too_many, "another number");
        let later = room.enter(to(1), address(1), 7, NOW + WINDOW, |_| true);
        assert!(!later.is_one_too_many, "those are long ago");
    }

    #[test]
    fn what_is_wrong_counts_once() {
        let mut room = Room::new(8);
        let dial = enter(&mut room, 1, 1, 0).ticket;
        assert!(room.is_wrong(dial));
        assert!(!room.is_wrong(dial));
        room.take(dial);
        assert!(!room.is_wrong(dial));
    }

    #[test]
    fn what_has_ended_is_kept_for_the_count_alone() {
        let mut room = Room::new(8);
        enter(&mut room, 1, 1, 0);
        let next = |room: &mut Room<u32>, now| room.enter(to(1), address(1), 1, now, |_| false);
        next(&mut room, NOW);
        assert_eq!(room.dials.len(), 2);
        next(&mut room, NOW + WINDOW);
        assert_eq!(room.dials.len(), 1);
    }
}
