//! Deadlines of connections.
//!
//! A deadline names a member of the epoll set and keeps nothing alive: one whose member is gone
//! falls away when its time comes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use parking_lot::Mutex;

use super::member::Token;

/// The deadlines that are to come, in engine time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(Duration, Token)>>>,
}

impl Timers {
    /// Adds a deadline; true when it is the next one.
    pub(crate) fn add(&self, at: Duration, token: Token) -> bool {
        let mut heap = self.heap.lock();
        let next = heap.peek().is_none_or(|Reverse((first, _))| at < *first);
        heap.push(Reverse((at, token)));
        next
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.heap.lock().peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a deadline that has passed.
    pub(crate) fn take_due(&self, now: Duration) -> Option<Token> {
        let mut heap = self.heap.lock();
        if heap.peek()?.0 .0 > now {
            return None;
        }
        heap.pop().map(|Reverse((_, token))| token)
    }
}
