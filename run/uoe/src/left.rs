//! Sockets that the program has closed while datagrams of theirs wait: the thread has them a while longer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::lock::Locked;
use weft_os::process;

use crate::mail::Mail;
use crate::offload::{now, Offload};
use crate::port::{Held, Left, Port};

/// How long the thread has one.
const LEFT_FOR: Duration = Duration::from_secs(3);

impl Offload {
    /// The program closes a socket: what waits in its queues is the thread's from here on, or is dropped and counted.
    pub(crate) fn leave_queues(&'static self, port: &'static Port) {
        let queued = match self.is_any_required {
            true => port.queued(),
            false => 0,
        };
        if queued > 0 && !self.leave_to_thread(port) {
            self.count_unsent(queued);
        }
    }

    /// Says whether there was a place for it.
    #[cold]
    fn leave_to_thread(&'static self, port: &'static Port) -> bool {
        if self.is_over() || process::is_borrowed() || !self.has_thread() {
            return false;
        }
        let Locked::Held(mut left) = self.left.lock() else {
            return false;
        };
        let mut places = left.iter_mut().zip(&self.left_ports);
        let Some((place, heir)) = places.find(|(place, _)| place.is_none()) else {
            return false;
        };
        let from = port.held();
        heir.inherit(port);
        let to = heir.held();
        let until = now() + LEFT_FOR;
        *place = Some(Left { port: to, until });
        self.tell(Mail::Left { from, to });
        true
    }

    /// Those that the thread has.
    pub(crate) fn left(&self) -> Vec<Left> {
        match self.left.lock() {
            Locked::Held(left) => left.iter().flatten().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// One of them is closed; what still waits in it is dropped.
    pub(crate) fn end_left(&self, port: Held) {
        let (Locked::Held(mut left) | Locked::Orphaned(mut left)) = self.left.lock() else {
            return;
        };
        let is_it = |place: &&mut Option<Left>| place.is_some_and(|left| left.port == port);
        if let Some(place) = left.iter_mut().find(is_it) {
            self.count_unsent(port.port.queued());
            port.port.end();
            *place = None;
        }
    }

    /// The program wants an address that it has closed the socket of: those that the thread has give theirs back.
    /// Whether any did.
    pub fn give_addresses_back(&self) -> bool {
        if !self.is_any_required {
            return false;
        }
        let left = self.left();
        for one in &left {
            self.end_left(one.port);
            self.tell(Mail::Closed { port: one.port });
        }
        !left.is_empty()
    }

    /// In a child: its parent's are the parent's.
    pub(crate) fn forget_left(&self) {
        let (Locked::Held(mut left) | Locked::Orphaned(mut left)) = self.left.lock() else {
            return;
        };
        for (place, port) in left.iter_mut().zip(&self.left_ports) {
            if place.take().is_some() {
                port.end();
            }
        }
    }

    fn count_unsent(&self, datagrams: u64) {
        let counter = &self.counts.dropped_full;
        counter.fetch_add(datagrams, Ordering::Relaxed);
    }
}
