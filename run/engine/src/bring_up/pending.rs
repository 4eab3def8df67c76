//! Connections that wait at a port: for a queue pair that takes them, or for nothing.
//!
//! Whoever connects and is not the peer that a queue pair waits for hears nothing, whatever the reason is: a stranger
//! learns neither which numbers exist nor whether he was near. So all of them wait in here, those whose time has not
//! come and those that are wrong. What bounds them is their number: when there is no room, the oldest of the address
//! that has the most goes, so that whoever floods crowds out his own. A peer that was crowded out connects again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::message::Message;

/// For so long an attempt counts among those of its address for its number.
const WINDOW: Duration = Duration::from_secs(10);
/// Attempts of one address for one number in that time that are nobody's guess: a peer makes two, and others when its
/// time for one is over.
const ATTEMPTS_OF_A_PEER_MAX: usize = 4;

/// Names an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

/// The attempts that wait, oldest first. `T` leads to one.
#[derive(Debug)]
pub(super) struct Pending<T> {
    most: usize,
    attempts: Vec<Attempt<T>>,
    next: u64,
}

/// One that waits.
#[derive(Clone, Debug)]
pub(super) struct Attempt<T> {
    pub(super) ticket: Ticket,
    pub(super) message: Message,
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
    /// A peer does not connect so often. If this one is not taken it is a guess.
    pub(super) is_one_too_many: bool,
}

impl<T: Clone> Pending<T> {
    /// At most `most` at once.
    pub(super) fn new(most: usize) -> Pending<T> {
        Pending {
            most,
            attempts: Vec::new(),
            next: 0,
        }
    }

    /// One more. Old ones that are not `alive` any more make room first.
    pub(super) fn enter(
        &mut self,
        message: Message,
        (from, whose): (IpAddr, IpAddr),
        what: T,
        now: Duration,
        alive: impl Fn(&T) -> bool,
    ) -> Entered<T> {
        self.attempts
            .retain(|attempt| attempt.since + WINDOW > now || alive(&attempt.what));
        let crowded_out = match self.attempts.len() >= self.most {
            true => self.crowd_out_one(),
            false => None,
        };
        let earlier = |attempt: &&Attempt<T>| {
            attempt.message.to == message.to
                && attempt.whose == whose
                && attempt.since + WINDOW > now
        };
        let is_one_too_many =
            self.attempts.iter().filter(earlier).count() >= ATTEMPTS_OF_A_PEER_MAX;
        let ticket = Ticket(self.next);
        self.next += 1;
        self.attempts.push(Attempt {
            ticket,
            message,
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
        self.attempts.len()
    }

    /// The one that goes first when there is no room does.
    pub(super) fn crowd_out_one(&mut self) -> Option<T> {
        let mut of_each: HashMap<IpAddr, usize> = HashMap::new();
        for attempt in &self.attempts {
            *of_each.entry(attempt.whose).or_default() += 1;
        }
        let most = of_each.values().copied().max();
        let mut attempts = self.attempts.iter();
        let oldest = attempts.position(|attempt| of_each.get(&attempt.whose).copied() == most)?;
        Some(self.attempts.remove(oldest).what)
    }

    /// Those for a number, oldest first.
    pub(super) fn of(&self, number: u32) -> Vec<Attempt<T>> {
        let of_it = |attempt: &&Attempt<T>| attempt.message.to == number;
        self.attempts.iter().filter(of_it).cloned().collect()
    }

    /// One of them.
    pub(super) fn get(&self, ticket: Ticket) -> Option<Attempt<T>> {
        Some(self.attempts[self.place(ticket)?].clone())
    }

    /// It waits no longer; false when it did not.
    pub(super) fn take(&mut self, ticket: Ticket) -> bool {
        let place = self.place(ticket);
        place.is_some_and(|place| {
            self.attempts.remove(place);
            true
        })
    }

    /// It is wrong; true when that is news.
    pub(super) fn is_wrong(&mut self, ticket: Ticket) -> bool {
        let place = self.place(ticket);
        place.is_some_and(|place| !std::mem::replace(&mut self.attempts[place].guess, true))
    }

    fn place(&self, ticket: Ticket) -> Option<usize> {
        let found = self
            .attempts
            .binary_search_by_key(&ticket.0, |d| d.ticket.0);
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Proof;
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn to(number: u32) -> Message {
        Message {
            to: number,
            from: 7,
            proof: Proof::Nothing,
        }
    }

    fn address(n: u8) -> (IpAddr, IpAddr) {
        let address = IpAddr::from([10, 0, 0, n]);
        (address, address)
    }

    fn enter(pending: &mut Pending<u32>, number: u32, of: u8, what: u32) -> Entered<u32> {
        pending.enter(to(number), address(of), what, NOW, |_| true)
    }

    #[test]
    fn who_floods_crowds_out_his_own() {
        let mut pending = Pending::new(8);
        let honest = enter(&mut pending, 1, 1, 0);
        assert_eq!(honest.crowded_out, None);
        for what in 1..=1000 {
            let entered = enter(&mut pending, what % 5, 2, what);
            let oldest = what.checked_sub(7).filter(|oldest| *oldest > 0);
            assert_eq!(entered.crowded_out, oldest);
            assert!(pending.attempts.len() <= 8);
        }
        assert!(pending.take(honest.ticket), "it still waits");
    }

    #[test]
    fn a_dial_is_taken_once() {
        let mut pending = Pending::new(8);
        let first = enter(&mut pending, 1, 1, 10).ticket;
        let second = enter(&mut pending, 2, 1, 20).ticket;
        let waiting: Vec<_> = pending.of(2).iter().map(|attempt| attempt.what).collect();
        assert_eq!(waiting, [20]);
        assert!(pending.take(first));
        assert!(!pending.take(first));
        assert_eq!(pending.get(second).map(|attempt| attempt.what), Some(20));
        assert!(pending.get(first).is_none());
    }

    #[test]
    fn more_than_a_peer_attempts_are_one_too_many_whatever_the_number_is() {
        let mut pending = Pending::new(64);
        for what in 0..4 {
            assert!(!enter(&mut pending, 1, 1, what).is_one_too_many);
        }
        assert!(enter(&mut pending, 1, 1, 4).is_one_too_many);
        assert!(
            !enter(&mut pending, 1, 2, 5).is_one_too_many,
            "another address"
        );
        assert!(
            !enter(&mut pending, 2, 1, 6).is_one_too_many,
            "another number"
        );
        let later = pending.enter(to(1), address(1), 7, NOW + WINDOW, |_| true);
        assert!(!later.is_one_too_many, "those are long ago");
    }

    #[test]
    fn what_is_wrong_counts_once() {
        let mut pending = Pending::new(8);
        let attempt = enter(&mut pending, 1, 1, 0).ticket;
        assert!(pending.is_wrong(attempt));
        assert!(!pending.is_wrong(attempt));
        pending.take(attempt);
        assert!(!pending.is_wrong(attempt));
    }

    #[test]
    fn what_has_ended_is_kept_for_the_count_alone() {
        let mut pending = Pending::new(8);
        enter(&mut pending, 1, 1, 0);
        let next =
            |pending: &mut Pending<u32>, now| pending.enter(to(1), address(1), 1, now, |_| false);
        next(&mut pending, NOW);
        assert_eq!(pending.attempts.len(), 2);
        next(&mut pending, NOW + WINDOW);
        assert_eq!(pending.attempts.len(), 1);
    }
}
