//! The order in which a listener tells its program of connect requests.
//!
//! Each connection is a TCP stream of its own, so the requests of a program that connects a
//! hundred queue pairs one after another may arrive in any order. On the wire of one adapter
//! they do not, and programs pair their queue pairs by that order: perftest takes the n-th request
//! for its peer's n-th queue pair, and waits for ever where it is another one. So the requests of
//! one peer address are told in the order in which its connections were accepted. A connection
//! that stays silent holds up the ones behind it for [`HOLD`] and no longer.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// How long a connection without a request holds up later ones from the same address.
pub(super) const HOLD: Duration = Duration::from_millis(50);

/// Names an accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

/// Connections that were accepted and whose requests have not been told yet, oldest first.
#[derive(Debug)]
pub(super) struct Order<T> {
    waiting: VecDeque<Entry<T>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: Ticket,
    from: IpAddr,
    holds_until: Duration,
    request: Option<T>,
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order {
            waiting: VecDeque::new(),
            next: 0,
        }
    }
}

impl<T> Order<T> {
    /// A connection from `from` was accepted.
    pub(super) fn accepted(&mut self, from: IpAddr, now: Duration) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back(Entry {
            ticket,
            from,
            holds_until: now + HOLD,
            request: None,
        });
        ticket
    }

    /// Its request is there: `due` then says what may be told.
    pub(super) fn arrived(&mut self, ticket: Ticket, request: T) {
        if let Some(entry) = self.waiting.iter_mut().find(|e| e.ticket == ticket) {
            entry.request = Some(request);
        }
    }

    /// It ended; whether it was still waiting to be told.
    pub(super) fn gone(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|e| e.ticket != ticket);
        self.waiting.len() < before
    }

    /// Takes the requests that are to be told now, in order.
    pub(super) fn due(&mut self, now: Duration) -> Vec<T> {
        let mut silent: Vec<IpAddr> = Vec::new();
        let mut due = Vec::new();
        let mut index = 0;
        while let Some(entry) = self.waiting.get(index) {
            let held = silent.contains(&entry.from);
            if entry.request.is_some() && !held {
                due.extend(self.waiting.remove(index).and_then(|e| e.request));
                continue;
            }
            if entry.request.is_none() && !held && entry.holds_until > now {
                silent.push(entry.from);
            }
            index += 1;
        }
        due
    }

    /// The requests that were never told.
    pub(super) fn into_requests(self) -> impl Iterator<Item = T> {
        self.waiting.into_iter().filter_map(|entry| entry.request)
    }

    /// When requests that wait now are told at the latest; `None` when none waits.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let last = self.waiting.iter().rposition(|e| e.request.is_some())?;
        let holding = self.waiting.iter().take(last);
        holding
            .filter(|e| e.request.is_none())
            .map(|e| e.holds_until)
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn requests_are_told_in_the_order_of_the_accepts() {
        let mut order = Order::default();
        let first = order.accepted(ONE, NOW);
        let second = order.accepted(ONE, NOW);
        order.arrived(second, "second");
        assert!(order.due(NOW).is_empty(), "the first one's is under way");
        order.arrived(first, "first");
        assert_eq!(order.due(NOW), ["first", "second"]);
        assert_eq!(order.deadline(), None);
    }

    #[test]
    fn a_silent_connection_holds_up_its_own_address_and_that_for_a_while() {
        let mut order = Order::default();
        let silent = order.accepted(ONE, NOW);
        let same = order.accepted(ONE, NOW);
        let other = order.accepted(OTHER, NOW);
        order.arrived(same, "same");
        order.arrived(other, "other");
        assert_eq!(order.due(NOW), ["other"]);
        assert_eq!(order.deadline(), Some(NOW + HOLD));
        assert_eq!(order.due(NOW + HOLD), ["same"]);
        order.arrived(silent, "late");
        assert_eq!(order.due(NOW + HOLD), ["late"], "late, but not lost");
    }

    #[test]
    fn a_connection_that_ended_holds_up_nobody() {
        let mut order = Order::default();
        let ended = order.accepted(ONE, NOW);
        let next = order.accepted(ONE, NOW);
        order.arrived(next, "next");
        assert!(order.gone(ended));
        assert_eq!(order.due(NOW), ["next"]);
    }
}
