//! Carriers that send at a rate, which the program has set for one socket: those are that socket's alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_uoe::admission::FULL_TIMEOUT;
use weft_uoe::control::Why;
use weft_uoe::gather::GATHERED_OCTETS;

use super::Service;
use crate::offload::now;
use crate::port::{Held, Port};

impl Service {
    /// The program has set the rate of a socket. Its own carriers follow; of one that it has with others, or has no
    /// more for itself, its channels are closed, and the next sends find another.
    pub(crate) fn handle_rated(&mut self, port: Held) {
        let bits = port.port.rate();
        for at in 0..self.sides.len() {
            let side = &mut self.sides[at];
            if side.rated == Some(port) && bits > 0 {
                side.wire.set_rate(bits);
                continue;
            }
            let own = side.own_channels.iter();
            let own = own.filter(|(_, channel)| channel.wanted.port == port);
            let own: Vec<u16> = own.map(|(number, _)| *number).collect();
            for number in own {
                let now = now();
                self.sides[at].carrier.close(number, Why::Idle, now);
                self.handle_lost(at, number, Why::Idle);
            }
            self.sides[at].wants.retain(|wanted| wanted.port != port);
        }
        if bits == 0 {
            self.drain_own(port);
        }
    }

    /// Nothing more is sent on carriers that are this socket's alone: they end with what the other end has on them.
    pub(super) fn drain_own(&mut self, port: Held) {
        let now = now();
        let own = self
            .sides
            .iter_mut()
            .filter(|side| side.rated == Some(port));
        own.for_each(|side| side.carrier.drain(Why::Idle, now));
    }
}

impl Port {
    /// The rate at which its carriers send, in bits a second; 0: as they do.
    #[inline]
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    pub(crate) fn set_rate(&self, bits: u64) {
        self.rate.store(bits, Ordering::Relaxed);
    }
}

/// The socket, if its carriers are to be its own.
pub(super) fn rated(port: Held) -> Option<Held> {
    (port.port.rate() > 0).then_some(port)
}

/// How long a send that may block waits for room at most: as long as what is in the carrier takes to leave, where the
/// program has set its rate.
pub(crate) fn full_timeout(port: &Port) -> Duration {
    match port.rate() {
        0 => FULL_TIMEOUT,
        bits => FULL_TIMEOUT + time_of(2 * GATHERED_OCTETS, bits),
    }
}

/// How long a send that may block waits before anything is dropped, where nothing leaves: as long as the datagram takes
/// at the rate that the program has set. Who sends as fast as the carriers allow would else have all it sends dropped
/// at once, until there is one that takes something.
pub(crate) fn time_at_rate(port: &Port, len: usize) -> Duration {
    match port.rate() {
        0 => Duration::ZERO,
        bits => time_of(len, bits),
    }
}

/// How long so many octets take at so many bits a second.
fn time_of(octets: usize, bits: u64) -> Duration {
    Duration::from_nanos(octets as u64 * 8 * 1_000_000_000 / bits)
}
