//! Channels that are over, and whose last datagrams come behind plain ones that the program has not taken yet.
//!
//! A sender that ends closes its carrier at once, while what it sent plainly before may wait in the socket's queue for
//! long: its last datagrams are not to overtake that.

use std::sync::atomic::Ordering;

use weft_uoe::proof::Proof;
use weft_uoe::End;

use super::channels::PeerChannel;
use super::closing::leave_source;
use super::delivering::{behind_cost, BEHIND_MAX, BEHIND_WITHIN};
use super::Service;
use crate::offload::now;
use crate::port::Held;

/// So many at most: each is looked at once a tick.
const ENDED_MAX: usize = 128;

/// Such a channel.
#[derive(Debug)]
struct One {
    /// The generation of the carrier that it was on, and its number there.
    by: (u32, u16),
    channel: PeerChannel,
    /// What its datagrams wait for; nothing once that was taken.
    mark: Option<u32>,
    /// Octets of them.
    cost: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Ended(Vec<One>);

impl Ended {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A datagram of Weft's own came to the socket from there, which may be the mark of a channel that is over.
    pub(super) fn handle_mark(&mut self, port: Held, proof: Proof, from: End) {
        let is_its = |one: &&mut One| {
            let source = one.channel.source.map(|(source, _)| source);
            one.channel.nonce == proof.nonce && one.channel.port == port && source == Some(from)
        };
        for one in self.0.iter_mut().filter(is_its) {
            one.mark.take_if(|mark| *mark <= proof.number);
        }
    }

    /// Whether another one may wait, with so many octets.
    fn has_room(&self, cost: usize) -> bool {
        let waits: usize = self.0.iter().map(|one| one.cost).sum();
        self.0.len() < ENDED_MAX && waits + cost <= BEHIND_MAX
    }
}

impl Service {
    /// A channel is over. What came on it last, and waits behind a mark, goes on waiting, as far as there is room.
    pub(super) fn end_channel(&mut self, by: (u32, u16), channel: PeerChannel, mark: Option<u32>) {
        let cost = channel
            .behind
            .iter()
            .map(|octets| behind_cost(octets))
            .sum();
        let waits = cost > 0 && mark.is_some() && self.ended.has_room(cost);
        let one = One {
            by,
            channel,
            mark,
            cost,
        };
        match waits {
            true => self.ended.0.push(one),
            false => self.end_for_good(&one),
        }
    }

    /// Hands on what waits no more, as its mark was taken, or is lost: then no plain datagram is there either.
    pub(super) fn deliver_ended(&mut self) {
        let mut at = 0;
        while at < self.ended.0.len() {
            if self.is_still_behind(&self.ended.0[at]) {
                at += 1;
                continue;
            }
            let one = self.ended.0.swap_remove(at);
            self.end_for_good(&one);
        }
    }

    fn is_still_behind(&self, one: &One) -> bool {
        let channel = &one.channel;
        let is_worth_it = now() < channel.behind_since + BEHIND_WITHIN;
        let has_plain = |fd| self.offload.has_plain(channel.port.port, fd);
        one.mark.is_some() && is_worth_it && channel.port.with_fd(has_plain) == Some(true)
    }

    fn end_for_good(&mut self, one: &One) {
        self.deliver_rest(one.by, &one.channel);
        leave_source(&one.channel);
    }

    /// What waits for this socket is lost: it is closed, or may hear others from now on.
    pub(super) fn lose_ended(&mut self, port: Held) {
        let counts = &self.offload.counts;
        self.ended.0.retain(|one| {
            let goes_on = one.channel.port != port;
            if !goes_on {
                let lost = one.channel.behind.len() as u64;
                counts.dropped_received.fetch_add(lost, Ordering::Relaxed);
                leave_source(&one.channel);
            }
            goes_on
        });
    }
}
