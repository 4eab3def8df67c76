//! What `weft stat` is shown: which way datagrams go between sockets here and their peers, and why.

use std::net::SocketAddr;
use std::time::Duration;

use weft_os::beside;
use weft_uoe::End;

use super::requiring::Requiring;
use super::Service;
use crate::offload::now;
use crate::port::Held;
use crate::stat::{Row, Shown, Way, Why, ROWS_MAX};

/// How often what is shown is made new, while there are carriers.
const SHOWN_EVERY: Duration = Duration::from_millis(500);
/// Destinations that are plain and shown with the reason, the last ones.
const PLAIN_MAX: usize = 64;

/// What is shown, and since when.
#[derive(Debug)]
pub(super) struct Showing {
    shown: Option<Shown>,
    again_at: Duration,
    /// Destinations that were left alone, and why.
    plain: Vec<(SocketAddr, Why)>,
}

impl Showing {
    /// Nothing is shown yet; nothing ever where it is not wanted.
    pub(super) fn new(is_wanted: bool) -> Showing {
        Showing {
            shown: is_wanted.then(Shown::new).flatten(),
            again_at: Duration::ZERO,
            plain: Vec::new(),
        }
    }
}

impl Service {
    /// The destination is plain for a while, for that reason.
    pub(crate) fn leave_alone(&mut self, to: SocketAddr, why: Why) {
        self.offload.with_destinations(|known| {
            match why {
                Why::NotProven => known.handle_unproven(to.into(), now()),
                _ => known.handle_no(to.into(), now()),
            };
        });
        let plain = &mut self.showing.plain;
        plain.retain(|(other, _)| *other != to);
        if plain.len() == PLAIN_MAX {
            plain.remove(0);
        }
        plain.push((to, why));
        self.showing.again_at = Duration::ZERO;
    }

    /// The destination has a channel.
    pub(super) fn note_channel(&mut self, to: End) {
        self.showing
            .plain
            .retain(|(other, _)| End::from(*other) != to);
        self.showing.again_at = Duration::ZERO;
    }

    /// When what is shown is to be made new.
    pub(super) fn shown_at(&self) -> Option<Duration> {
        let goes_on = self.showing.shown.is_some() && !self.sides.is_empty();
        goes_on.then_some(self.showing.again_at)
    }

    /// Shows what is so now, if that is due.
    pub(super) fn show(&mut self) {
        let now = now();
        if now < self.showing.again_at || self.showing.shown.is_none() {
            return;
        }
        self.showing.again_at = now + SHOWN_EVERY;
        let rows: Vec<Row> = self.rows().take(ROWS_MAX).collect();
        let carriers = self.sides.iter().filter(|side| side.is_up()).count();
        if let Some(shown) = &self.showing.shown {
            shown.show(carriers, self.offload.counted(), &rows);
        }
    }

    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let carried = self.sides.iter().flat_map(|side| {
            let why = match side.wire.is_adapters() {
                true => Why::BothHaveAdapters,
                false => Why::BothAreWeft,
            };
            let own = side.own_channels.values();
            let own = own
                .filter(|channel| channel.is_open)
                .map(move |channel| Row {
                    port: channel.source.port(),
                    peer: channel.wanted.to,
                    way: Way::SentOverCarrier,
                    why,
                });
            let peers = side.peer_channels.values();
            let peers = peers.filter_map(move |channel| {
                Some(Row {
                    port: channel.target.port(),
                    peer: channel.source?.0.to_socket_addr(),
                    way: Way::ReceivedOverCarrier,
                    why,
                })
            });
            own.chain(peers)
        });
        let has_channel = |one: &&Requiring| {
            let mut own = self
                .sides
                .iter()
                .flat_map(|side| side.own_channels.values());
            own.any(|channel| {
                let wanted = channel.wanted;
                channel.is_open && wanted.port == one.port && wanted.to == one.to
            })
        };
        let waiting = self.requiring.iter().filter(|one| !one.was_up);
        // Who sends looks no further than its queue: that a channel has come may not have been seen there yet.
        let waiting = waiting.filter(move |one| !has_channel(one));
        let waiting = waiting.map(|one| Row {
            port: port_of(one.port),
            peer: one.to,
            way: Way::Waiting,
            why: self.why(one.to),
        });
        let is_required = |to: SocketAddr| self.requiring.iter().any(|one| one.to == to);
        let plain = self.showing.plain.iter();
        let plain = plain.filter(move |(to, _)| !is_required(*to));
        let plain = plain.map(|(to, why)| Row {
            port: 0,
            peer: *to,
            way: Way::SentPlainly,
            why: *why,
        });
        carried.chain(waiting).chain(plain)
    }

    /// Why there is no channel to this destination, as far as is known.
    fn why(&self, to: SocketAddr) -> Why {
        let mut plain = self.showing.plain.iter();
        let known = plain.find(|(other, _)| *other == to);
        known.map_or(Why::NoAnswer, |(_, why)| *why)
    }
}

fn port_of(port: Held) -> u16 {
    let at = port.with_fd(beside::local_end).flatten();
    at.map_or(0, |at| at.port())
}
