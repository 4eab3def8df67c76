//! The channels of a carrier, as the thread has them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use weft_uoe::greeting::Nonce;
use weft_uoe::End;

use super::side::Side;
use crate::offload::now;
use crate::port::Held;

/// A channel that a socket wants to a destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) port: Held,
    pub(crate) to: SocketAddr,
    /// Until then; the next busy sends try again.
    pub(crate) until: Duration,
    /// The socket's rule requires it.
    pub(crate) is_required: bool,
    /// It has been tried for in vain before.
    pub(crate) is_again: bool,
    /// The socket's rule says that UDP does not pass.
    pub(crate) without_udp: bool,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Wanted) -> bool {
        self.port == other.port && self.to == other.to
    }
}

/// A channel that this end opened.
#[derive(Debug)]
pub(crate) struct OwnChannel {
    pub(crate) wanted: Wanted,
    pub(crate) source: End,
    pub(crate) nonce: Nonce,
    pub(crate) is_open: bool,
}

/// A channel that the other end opened, whose datagrams this end takes.
#[derive(Debug)]
pub(crate) struct PeerChannel {
    pub(crate) port: Held,
    pub(crate) target: End,
    pub(crate) nonce: Nonce,
    /// Its source once it is proven, and the number of that in the socket's queue.
    pub(crate) source: Option<(End, u32)>,
    /// How old its datagrams may be, as the rule says.
    pub(crate) age: Option<Duration>,
    /// Datagrams that come behind plain ones, which the program has not taken yet.
    pub(crate) behind: VecDeque<Vec<u8>>,
    /// Since when datagrams wait there.
    pub(crate) behind_since: Duration,
    /// The last barrier that came. A sender waits for none but its last.
    pub(crate) barrier: Option<Barrier>,
}

/// A barrier that waits until all before it is taken.
#[derive(Debug)]
pub(crate) struct Barrier {
    pub(crate) number: u32,
    /// What the socket's queue had been given before it; nothing while datagrams before it wait behind plain ones.
    pub(crate) put: Option<u64>,
}

impl Side {
    /// Datagrams may be as old as the rules of all sockets let them be.
    pub(crate) fn set_age(&mut self) {
        let proven = self
            .peer_channels
            .values()
            .filter(|channel| channel.source.is_some());
        let ages: Option<Vec<Duration>> = proven.map(|channel| channel.age).collect();
        let longest = ages.and_then(|ages| ages.into_iter().max());
        if let Some(any_order) = &mut self.any_order {
            any_order.set_age(longest, now());
        }
    }
}
