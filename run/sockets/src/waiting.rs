//! Sockets by number in which there is something to look after: datagrams that wait, streams with a rest or whose
//! readiness is in doubt, connections that the program has closed.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::numbers::Numbers;

/// Sockets by number, and how many they are, which every wait of the program asks.
#[derive(Debug)]
pub struct Waiting {
    sockets: Numbers,
    count: AtomicU32,
}

impl Waiting {
    /// None yet; of those to come all have numbers below `bound`.
    pub fn new(bound: usize) -> Waiting {
        Waiting {
            sockets: Numbers::new(bound),
            count: AtomicU32::new(0),
        }
    }

    /// Whether there are any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) != 0
    }

    /// Whether this socket is one of them.
    #[inline]
    pub fn contains(&self, number: usize) -> bool {
        self.sockets.contains(number)
    }

    /// This socket is from now on.
    #[inline]
    pub fn insert(&self, number: usize) {
        if self.sockets.insert(number) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// It is no longer.
    pub fn remove(&self, number: usize) {
        if self.sockets.remove(number) {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The sockets.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.sockets.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_counts_once_however_often_it_is_entered() {
        let waiting = Waiting::new(128);
        assert!(!waiting.any());
        for number in [9, 9, 70] {
            waiting.insert(number);
        }
        assert_eq!(waiting.iter().collect::<Vec<_>>(), [9, 70]);
        for number in [9, 9] {
            assert!(waiting.any());
            waiting.remove(number);
        }
        assert!(waiting.any() && waiting.contains(70) && !waiting.contains(9));
        waiting.remove(70);
        assert!(!waiting.any());
    }
}
