//! The end of sockets, of channels to them, and of carriers.

use std::sync::atomic::Ordering;

use weft_uoe::control::Why;

use super::channels::PeerChannel;
use super::side::Phase;
use super::{Asked, Service};
use crate::offload::now;
use crate::port::Held;
use crate::stat::Why::NotConnected;

impl Service {
    /// A socket is closed, or nothing of it goes over carriers any more: its channels are closed.
    pub(crate) fn handle_closed_port(&mut self, port: Held) {
        self.refuse_to(port);
        let now = now();
        let mut left = Vec::new();
        for side in &mut self.sides {
            let own = side.own_channels.iter();
            let own: Vec<u16> = own
                .filter(|(_, channel)| channel.wanted.port == port)
                .map(|(number, _)| *number)
                .collect();
            for number in own {
                side.carrier.close(number, Why::Ends, now);
                if let Some(channel) = side.own_channels.remove(&number) {
                    self.retired.push((now + super::NONCES_KEPT, channel.nonce));
                    left.push(channel.wanted.to);
                }
            }
            side.wants.retain(|wanted| wanted.port != port);
        }
        self.drain_own(port);
        let of_port = |asked: &Asked| asked.wanted().port == port;
        let asked = self.asked.iter().filter(|asked| of_port(asked));
        left.extend(asked.map(|asked| asked.wanted().to));
        self.asked.retain(|asked| !of_port(asked));
        // Other sockets may want channels to where this one had some.
        left.into_iter().for_each(|to| self.forget(to));
        if let Some(mut paths) = port.port.paths() {
            paths.tidy();
        }
    }

    /// Channels of others to a socket are refused from now on: what it may receive is to be seen anew.
    pub(crate) fn refuse_to(&mut self, port: Held) {
        self.lose_ended(port);
        let now = now();
        for side in &mut self.sides {
            let peer = side.peer_channels.iter();
            let peer: Vec<u16> = peer
                .filter(|(_, channel)| channel.port == port)
                .map(|(number, _)| *number)
                .collect();
            for number in peer {
                side.carrier.refuse(number, Why::Ends, now);
                if let Some(channel) = side.remove_peer_channel(number) {
                    self.retired.push((now + super::NONCES_KEPT, channel.nonce));
                    let lost = channel.behind.len() as u64;
                    let counts = &self.offload.counts;
                    counts.dropped_received.fetch_add(lost, Ordering::Relaxed);
                    leave_source(&channel);
                }
            }
        }
    }

    /// Every carrier ends.
    pub(crate) fn shut_all(&mut self, why: Why) {
        let now = now();
        for at in 0..self.sides.len() {
            self.sides[at].shut(why, now);
            self.handle_events(at, now);
        }
    }

    /// Carriers that are over are gone.
    pub(crate) fn end_sides(&mut self) {
        let mut at = 0;
        while at < self.sides.len() {
            if self.sides[at].phase != Phase::Gone {
                at += 1;
                continue;
            }
            let now = now();
            self.sides[at].carrier.handle_gone();
            self.handle_events(at, now);
            let side = self.sides.swap_remove(at);
            // What a state machine no longer knew of.
            let own = side.own_channels.values().map(|channel| channel.nonce);
            let peers = side.peer_channels.values().map(|channel| channel.nonce);
            own.chain(peers).for_each(|nonce| self.retire(nonce));
            if let Some(link) = side.link {
                self.offload.links[link.place].end(link.generation);
                self.offload.count_lost(&self.offload.links[link.place]);
            }
            for wanted in side.wants {
                self.leave_alone(wanted.to, NotConnected);
            }
            if side.wire.is_adapters() && !self.has_adapters_numbers() {
                std::mem::forget(side.wire);
            }
        }
    }
}

/// Nothing more comes on a channel from its source.
pub(super) fn leave_source(channel: &PeerChannel) {
    if let (Some((_, number)), Some(mut inlet)) = (channel.source, channel.port.inlet()) {
        inlet.leave_source(number);
    }
}
