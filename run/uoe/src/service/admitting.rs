//! Which socket a channel of another process is for, and whether it may have one.

use std::net::IpAddr;
use std::time::Duration;

use weft_os::beside::{self, peer_end};
use weft_os::dgram::{self, get_int};
use weft_settings::datagrams::{Direction, Uoe};
use weft_uoe::carrier::PROOF_TIMEOUT;
use weft_uoe::control::Why;
use weft_uoe::End;

use super::side::PeerChannel;
use super::{nonce, Service};
use crate::counts::count;
use crate::offload::now;
use crate::port::Held;

/// A channel whose socket cannot have it yet: a plain receive is under way.
#[derive(Debug)]
pub(crate) struct Admitting {
    generation: u32,
    channel: u16,
    source: End,
    target: End,
    until: Duration,
}

/// What is known of a socket that takes datagrams.
struct Candidate {
    port: Held,
}

impl Service {
    /// The other end wants to send datagrams to `target`.
    pub(crate) fn handle_channel_wanted(&mut self, at: usize, channel: u16, ends: [End; 2]) {
        let [source, target] = ends;
        let admitting = Admitting {
            generation: self.sides[at].generation(),
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
        let candidate = self.candidate(wanted.source, wanted.target);
        let Some((candidate, uoe)) = candidate else {
            self.refuse(at, wanted.channel, Why::NoSocket);
            return true;
        };
        let port = candidate.port;
        if !port.port.look_at() {
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

    fn admit(&mut self, at: usize, wanted: &Admitting, port: Held) {
        let nonce = nonce();
        self.offload.nonces.add(nonce);
        let side = &mut self.sides[at];
        let channel = PeerChannel {
            port,
            target: wanted.target,
            nonce,
            source: None,
            behind: std::collections::VecDeque::new(),
            barriers: Vec::new(),
        };
        side.peer_channels.insert(wanted.channel, channel);
        side.carrier.admit(wanted.channel, nonce, now());
    }

    pub(crate) fn refuse(&mut self, at: usize, channel: u16, why: Why) {
        count(&self.offload.counts.refused);
        self.sides[at].carrier.refuse(channel, why, now());
    }

    /// The socket that datagrams from `source` to `target` would come to, and what its rule says.
    fn candidate(&self, source: End, target: End) -> Option<(Candidate, Uoe)> {
        let served = self.offload.served();
        let takes = |held: &Held| {
            let connected_to = held.port.with_fd(|fd| takes(fd, target)).flatten()?;
            // One that is connected hears its peer alone: once that is gone nobody could wake its program.
            matches!(connected_to, Connected::ToNobody).then_some(Candidate { port: *held })
        };
        let candidates = served.iter().filter(|held| !held.port.is_off());
        let best = { candidates }.find_map(takes)?;
        let ends = [target.to_socket_addr(), source.to_socket_addr()];
        let uoe = self.offload.rules.uoe(Direction::Receive, &ends)?;
        Some((best, uoe))
    }

    /// Whether a bell comes to it: it may be bound to an interface, or hear from some addresses alone.
    fn can_be_woken(&self, port: Held) -> bool {
        let offload = self.offload;
        // The program may be waiting, and have taken the bell before it is looked for.
        let before = offload.bells_taken();
        let is_there = |fd| dgram::ready(fd, libc::POLLIN, 0) & libc::POLLIN != 0;
        let rung = |fd| offload.ring(fd) && (is_there(fd) || offload.bells_taken() != before);
        port.port.with_fd(rung) == Some(true)
    }
}

enum Connected {
    ToNobody,
    ToSomebody,
}

/// Whether the socket behind `fd` takes datagrams to `target`, and from whom; nothing where it does not, or its program
/// asks for what a carrier does not bring.
fn takes(fd: i32, target: End) -> Option<Connected> {
    let at = beside::local_end(fd)?;
    let v6_only = || get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) != Ok(0);
    let has_address = match (at.ip(), target.address()) {
        (own, wanted) if own.to_canonical() == wanted => true,
        (IpAddr::V4(own), IpAddr::V4(_)) => own.is_unspecified(),
        (IpAddr::V6(own), IpAddr::V6(_)) => own.is_unspecified(),
        (IpAddr::V6(own), IpAddr::V4(_)) => own.is_unspecified() && !v6_only(),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
    };
    if !has_address || at.port() != target.port() || !asks_for_nothing(fd) {
        return None;
    }
    Some(match peer_end(fd) {
        None => Connected::ToNobody,
        Some(_) => Connected::ToSomebody,
    })
}

/// Whether the program wants nothing beside a datagram's octets and its sender.
fn asks_for_nothing(fd: i32) -> bool {
    const SO_TIMESTAMP_NEW: [i32; 3] = [63, 64, 65];
    const OF_SOCKET: [i32; 4] = [
        libc::SO_TIMESTAMP,
        libc::SO_TIMESTAMPNS,
        libc::SO_TIMESTAMPING,
        libc::SO_RXQ_OVFL,
    ];
    const OF_IP: [i32; 5] = [
        libc::IP_PKTINFO,
        libc::IP_RECVTTL,
        libc::IP_RECVTOS,
        libc::IP_RECVOPTS,
        libc::IP_RECVORIGDSTADDR,
    ];
    const OF_IPV6: [i32; 4] = [
        libc::IPV6_RECVPKTINFO,
        libc::IPV6_RECVHOPLIMIT,
        libc::IPV6_RECVTCLASS,
        libc::IPV6_RECVORIGDSTADDR,
    ];
    let is_off = |level, option: &i32| matches!(get_int(fd, level, *option), Ok(0) | Err(_));
    let peeks = get_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    OF_SOCKET
        .iter()
        .chain(&SO_TIMESTAMP_NEW)
        .all(|option| is_off(libc::SOL_SOCKET, option))
        && OF_IP.iter().all(|option| is_off(libc::IPPROTO_IP, option))
        && OF_IPV6
            .iter()
            .all(|option| is_off(libc::IPPROTO_IPV6, option))
        && matches!(peeks, Err(_) | Ok(i32::MIN..=-1))
        && is_not_coalesced(fd)
}

/// Whether datagrams come one by one: Weft's own could not be told apart within others.
pub(crate) fn is_not_coalesced(fd: i32) -> bool {
    matches!(get_int(fd, dgram::SOL_UDP, dgram::UDP_GRO), Ok(0) | Err(_))
}

/// Gives the socket a queue as long as its own; whether it has one.
fn open_inlet(port: Held, uoe: Uoe) -> bool {
    let octets = |fd| get_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
    let octets = port.port.with_fd(octets).unwrap_or(0);
    let Some(mut inlet) = port.port.inlet() else {
        return false;
    };
    inlet.open(octets.max(0) as usize, uoe.age, uoe.drops_oldest);
    true
}
