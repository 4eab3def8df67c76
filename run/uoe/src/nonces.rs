//! How Weft's own datagrams are told from the program's: by random bits that the thread has drawn.
//!
//! What looks like one of Weft's and has other bits may be a datagram of the program's, and is handed to it.

use weft_os::lock::{Lock, Locked};
use weft_uoe::greeting::Nonce;

/// What a datagram of Weft's own is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// A bell that this process rang.
    Bell,
    /// A proof, a mark or a bell of a channel: the thread has to know.
    OfChannel,
    /// One of another process, at a socket that both have.
    OfOthers,
}

#[derive(Debug, Default)]
struct All {
    bell: Nonce,
    has_bell: bool,
    /// Those of channels, and of a parent's bells, in order: strangers make them many, and each receive that finds
    /// something of Weft's looks one up.
    others: Vec<Nonce>,
}

impl All {
    fn put(&mut self, nonce: Nonce) {
        if let Err(at) = self.others.binary_search(&nonce) {
            self.others.insert(at, nonce);
        }
    }
}

/// The random bits that sockets of this process wait for. A forked child keeps those of its parent: what was meant for
/// the parent is not handed to the child's program.
#[derive(Debug)]
pub(crate) struct Nonces(Lock<All>);

impl Nonces {
    pub(crate) fn new() -> Nonces {
        Nonces(Lock::new(All::default()))
    }

    /// What a datagram with these bits is, if it is one of Weft's own. A signal handler that comes in between the
    /// thread's own look is not possible: the thread has no handlers.
    pub(crate) fn find(&self, nonce: &Nonce) -> Option<Own> {
        let (Locked::Held(all) | Locked::Orphaned(all)) = self.0.lock() else {
            return None;
        };
        if all.has_bell && all.bell == *nonce {
            return Some(Own::Bell);
        }
        let found = all.others.binary_search(nonce);
        found.is_ok().then_some(Own::OfChannel)
    }

    /// Bells of this process have these bits from now on. By the thread.
    pub(crate) fn set_bell(&self, nonce: Nonce) {
        if let Locked::Held(mut all) | Locked::Orphaned(mut all) = self.0.lock() {
            let (before, had_bell) = (all.bell, all.has_bell);
            if had_bell {
                all.put(before);
            }
            (all.bell, all.has_bell) = (nonce, true);
        }
    }

    /// The bits of this process's bells.
    pub(crate) fn bell(&self) -> Nonce {
        match self.0.lock() {
            Locked::Held(all) | Locked::Orphaned(all) => all.bell,
            Locked::Again => Nonce::default(),
        }
    }

    /// A channel waits for these. By the thread.
    pub(crate) fn add(&self, nonce: Nonce) {
        if let Locked::Held(mut all) | Locked::Orphaned(mut all) = self.0.lock() {
            all.put(nonce);
        }
    }

    /// It does so no longer. By the thread.
    pub(crate) fn remove(&self, nonce: &Nonce) {
        if let Locked::Held(mut all) | Locked::Orphaned(mut all) = self.0.lock() {
            if let Ok(at) = all.others.binary_search(nonce) {
                all.others.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_of_coming_and_going_leaves_what_is_there() {
        weft_os::process::watch();
        let nonces = Nonces::new();
        let nonce = |number: u8| [number.wrapping_mul(83); 16];
        (1..=200).for_each(|number| nonces.add(nonce(number)));
        (1..=200)
            .filter(|number| number % 3 == 0)
            .for_each(|number| nonces.remove(&nonce(number)));
        for number in 1..=200 {
            let found = nonces.find(&nonce(number));
            assert_eq!(found.is_some(), number % 3 != 0, "{number}");
        }
    }

    #[test]
    fn own_datagrams_are_those_whose_bits_were_drawn_here() {
        weft_os::process::watch();
        let nonces = Nonces::new();
        assert_eq!(nonces.find(&[0; 16]), None, "no bell was rung yet");
        nonces.set_bell([1; 16]);
        nonces.add([2; 16]);
        assert_eq!(nonces.find(&[1; 16]), Some(Own::Bell));
        assert_eq!(nonces.find(&[2; 16]), Some(Own::OfChannel));
        assert_eq!(nonces.find(&[3; 16]), None);
        nonces.set_bell([4; 16]);
        assert_eq!(nonces.find(&[1; 16]), Some(Own::OfChannel), "a parent's");
        nonces.remove(&[2; 16]);
        assert_eq!(nonces.find(&[2; 16]), None);
    }
}
