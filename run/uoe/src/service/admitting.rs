//! Which socket a channel of another process is for, and whether it may have one.

use std::time::Duration;

use weft_os::dgram::get_int;
use weft_settings::datagrams::Uoe;
use weft_uoe::carrier::PROOF_TIMEOUT;
use weft_uoe::control::Why;
use weft_uoe::{End, Fault};

use super::channels::PeerChannel;
use super::names::Owns;
use super::{nonce, Service};
use crate::counts::count;
use crate::offload::now;
use crate::port::Held;
use crate::suitable::{candidate, is_connected};

/// Channels of one carrier that may be without a proof at a time. Whoever asks for more has them refused.
const UNPROVEN_MAX: usize = 256;
/// Channels that may be refused one after the other, without one that is not. Each costs a look at every socket.
const REFUSED_MAX: u32 = 256;

/// A channel whose socket cannot have it yet: a plain receive is under way.
#[derive(Debug)]
pub(crate) struct Admitting {
    generation: u32,
    channel: u16,
    source: End,
    target: End,
    until: Duration,
}

impl Admitting {
    /// Whether it is this channel of the carrier of this generation.
    pub(super) fn is(&self, generation: u32, channel: u16) -> bool {
        (self.generation, self.channel) == (generation, channel)
    }
}

impl Service {
    /// The other end wants to send datagrams to `target`.
    pub(crate) fn handle_channel_wanted(&mut self, at: usize, channel: u16, ends: [End; 2]) {
        let [source, target] = ends;
        let generation = self.sides[at].generation();
        let waiting = self.admitting.iter();
        let waiting = waiting.filter(|one| one.generation == generation).count();
        if self.sides[at].unproven_channels() + waiting >= UNPROVEN_MAX {
            return self.refuse(at, channel, Why::TooMany);
        }
        let admitting = Admitting {
            generation,
            channel,
            source,
            target,
            until: now() + PROOF_TIMEOUT / 2,
        };
        if !self.try_to_admit(&admitting) {
            self.admitting.push(admitting);
        }
    }

    /// Those that could not be had at once.
    pub(crate) fn admit_waiting(&mut self) {
        for admitting in std::mem::take(&mut self.admitting) {
            if !self.try_to_admit(&admitting) {
                self.admitting.push(admitting);
            }
        }
    }

    /// Says whether it is decided.
    fn try_to_admit(&mut self, wanted: &Admitting) -> bool {
        let is_it = |side: &super::Side| side.generation() == wanted.generation;
        let Some(at) = self.sides.iter().position(is_it) else {
            return true;
        };
        let without_udp = self.sides[at].is_without_udp();
        // Behind a translator the source is another one than is claimed; which it is shows the proof.
        let seen = End::new(self.sides[at].there, wanted.source.port());
        let target = self.target(at, wanted.target);
        let from = |source| candidate(self.offload, source, target);
        let found = match without_udp {
            true => from(seen),
            false => from(wanted.source).or_else(|| from(seen)),
        };
        // What is not proven is taken by nobody whose rule does not say so.
        let is_allowed = |uoe: &Uoe| !without_udp || uoe.requires.is_some_and(|it| it.without_udp);
        let rings_soon_enough = self.sides[at].rings_soon_enough();
        let is_woken = |port: &Held| rings_soon_enough || port.with_fd(is_connected) == Some(false);
        let found = found.filter(|(port, uoe)| is_allowed(uoe) && is_woken(port));
        let Some((port, uoe)) = found else {
            self.refuse(at, wanted.channel, Why::NoSocket);
            return true;
        };
        let owns = self.owns(port);
        if owns == Owns::No {
            self.refuse(at, wanted.channel, Why::NoSocket);
            return true;
        }
        if owns == Owns::Soon || !port.port.look_at() {
            let is_late = now() >= wanted.until;
            if is_late {
                self.refuse(at, wanted.channel, Why::NoSocket);
            }
            return is_late;
        }
        if !self.can_be_woken(port) || !open_inlet(port, uoe) {
            self.refuse(at, wanted.channel, Why::NoSocket);
            return true;
        }
        self.admit(at, wanted, port);
        true
    }

    /// The end here that a channel is for, of which `claimed` is what the other end says. Where nothing is proven only
    /// the connection shows what reaches this machine: its own address counts, as that of its other end does. Else
    /// whoever reaches one address would reach sockets that are bound to any, to the loopback one too.
    fn target(&self, at: usize, claimed: End) -> End {
        let side = &self.sides[at];
        match side.is_without_udp() {
            true => End::new(side.here.ip(), claimed.port()),
            false => claimed,
        }
    }

    fn admit(&mut self, at: usize, wanted: &Admitting, port: Held) {
        let (nonce, target) = (nonce(), self.target(at, wanted.target));
        self.offload.nonces.add(nonce);
        let side = &mut self.sides[at];
        let channel = PeerChannel {
            port,
            target,
            nonce,
            source: None,
            age: None,
            behind: std::collections::VecDeque::new(),
            behind_since: Duration::ZERO,
            barrier: None,
        };
        side.add_peer_channel(wanted.channel, channel);
        side.carrier.admit(wanted.channel, nonce, now());
    }

    pub(crate) fn refuse(&mut self, at: usize, channel: u16, why: Why) {
        count(&self.offload.counts.refused);
        let side = &mut self.sides[at];
        side.carrier.refuse(channel, why, now());
        side.refused += 1;
        if side.refused > REFUSED_MAX {
            side.fault = Some(Fault::InVain(REFUSED_MAX));
        }
    }
}

/// Gives the socket a queue as long as its own; whether it has one.
fn open_inlet(port: Held, uoe: Uoe) -> bool {
    let octets = |fd| get_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
    let octets = port.with_fd(octets).unwrap_or(0);
    let Some(mut inlet) = port.inlet() else {
        return false;
    };
    inlet.open(octets.max(0) as usize, uoe.age, uoe.drops_oldest);
    true
}
