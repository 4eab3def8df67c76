//! Datagrams that found a receive queue run empty: they wait a little for it to be filled again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use super::header::Message;
use super::Arrival;

/// How long a datagram waits: longer than a loaded machine keeps a program from a core.
const HOLD_TIME_MAX: Duration = Duration::from_secs(1);
/// Datagrams that wait at most.
const HELD_DATAGRAMS_MAX: usize = 4096;
/// Octets of payload that wait at most.
const HELD_OCTETS_MAX: usize = 8 * 1024 * 1024;

/// Credit that a datagram asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debt {
    /// The socket that the datagram came from.
    pub to: SocketAddr,
    /// The address it was sent to.
    pub from: IpAddr,
    /// The mark to repeat.
    pub mark: u32,
}

/// A datagram that waits.
#[derive(Debug)]
pub(super) struct Datagram {
    message: Message,
    from: IpAddr,
    to: IpAddr,
    payload: Vec<u8>,
    debt: Option<Debt>,
    until: Duration,
}

impl Datagram {
    pub(super) fn arrival(&self) -> Arrival<'_> {
        Arrival {
            message: self.message,
            from: self.from,
            to: self.to,
            payload: &self.payload,
            debt: self.debt,
        }
    }
}

/// What waits, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Held {
    datagrams: VecDeque<Datagram>,
    octets: usize,
    /// A receive was posted at some time: the program means to receive.
    receiving: bool,
    debts: VecDeque<Debt>,
}

impl Held {
    pub(super) fn note_receive(&mut self) {
        self.receiving = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Keeps a datagram; false when it may not wait.
    pub(super) fn push(&mut self, arrival: &Arrival<'_>, now: Duration) -> bool {
        self.expire(now);
        let full = self.datagrams.len() >= HELD_DATAGRAMS_MAX || self.octets >= HELD_OCTETS_MAX;
        if !self.receiving || full {
            return false;
        }
        self.octets += arrival.payload.len();
        self.datagrams.push_back(Datagram {
            message: arrival.message,
            from: arrival.from,
            to: arrival.to,
            payload: arrival.payload.to_vec(),
            debt: arrival.debt,
            until: now + HOLD_TIME_MAX,
        });
        true
    }

    /// The next one whose time is not over; it waits no longer.
    pub(super) fn next(&mut self, now: Duration) -> Option<Datagram> {
        self.expire(now);
        self.take()
    }

    fn expire(&mut self, now: Duration) {
        while self.datagrams.front().is_some_and(|d| d.until <= now) {
            self.take();
        }
    }

    fn take(&mut self) -> Option<Datagram> {
        let datagram = self.datagrams.pop_front()?;
        self.octets -= datagram.payload.len();
        self.debts.extend(datagram.debt);
        Some(datagram)
    }

    pub(super) fn take_debt(&mut self) -> Option<Debt> {
        self.debts.pop_front()
    }

    pub(super) fn clear(&mut self) {
        *self = Held::default();
    }
}
