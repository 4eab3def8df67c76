//! Destinations that are asked for, and connections that are begun for them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_discovery::{Inquiry, Learnt, TakesCarriers};
use weft_os::net::{source_apart, TcpStream};
use weft_os::{beside, dgram};
use weft_settings::datagrams::{Direction, Uoe};
use weft_settings::DiscoveryPort;
use weft_uoe::greeting::Instance;
use weft_uoe::queue::Queue;
use weft_uoe::End;

use super::asked::Asked;
use super::channels::Wanted;
use super::greeting::{greeting, Use};
use super::side::{Phase, Side};
use super::wire::Wire;
use super::Service;
use crate::counts::count;
use crate::offload::{now, CARRIERS_MAX};
use crate::port::Held;
use crate::stat::Why;

/// Destinations that are asked for at a time.
pub(super) const ASKED_MAX: usize = 32;

/// Who has waited so long for an answer gives its place to one that was not tried for yet, where there is no other:
/// most of those that answer have by then.
const PLACE_KEPT: Duration = Duration::from_millis(250);

/// How long a socket may take to have a channel, once it is known that it wants one.
const WANTED_FOR: Duration = Duration::from_secs(5);

impl Service {
    /// A socket sends busily to `to`.
    pub(crate) fn handle_wanted(&mut self, port: Held, to: SocketAddr) {
        let wanted = Wanted {
            port,
            to,
            until: now() + WANTED_FOR,
            is_required: false,
            is_again: false,
            without_udp: false,
        };
        self.find_carrier(wanted);
    }

    /// Has a channel opened on a carrier that is there, or begins to look for one.
    pub(super) fn find_carrier(&mut self, wanted: Wanted) {
        let to = wanted.to;
        if !wanted.port.is_alive() || self.is_on_its_way(&wanted) {
            return;
        }
        let bound = own_source(&wanted);
        let over_adapter = self.is_over_adapter(&wanted);
        // Two sockets that send to one destination have one carrier.
        let to_there = |side: &&mut Side| {
            let is_its = side.is_without_udp() == wanted.without_udp
                && side.wire.is_adapters() == over_adapter
                && side.is_from(bound)
                && side.is_for(wanted.port);
            side.is_up() && side.leads_to(to.into()) && is_its
        };
        if let Some(side) = self.sides.iter_mut().find(to_there) {
            return side.wants.push(wanted);
        }
        if self.sides.len() >= CARRIERS_MAX {
            return self.leave_alone(to, Why::TooMany);
        }
        if wanted.without_udp {
            return self.connect_unasked(wanted);
        }
        if self.asked.len() >= ASKED_MAX {
            return self.forget(to);
        }
        let discovery_port = self.offload.settings.discovery_port;
        let port = wanted.port;
        let sent = port.with_fd(|fd| Inquiry::send(discovery_port, fd, to, now()));
        let Some(inquiry) = sent.flatten() else {
            return self.leave_alone(to, Why::NoAnswer);
        };
        count(&self.offload.counts.asked);
        self.asked.push(Asked::new(inquiry, wanted));
    }

    fn is_on_its_way(&self, wanted: &Wanted) -> bool {
        let asked = self.asked.iter().map(|asked| &asked.wanted);
        let sides = self.sides.iter().flat_map(|side| &side.wants);
        asked.chain(sides).any(|other| other == wanted)
            || self.sides.iter().any(|side| side.has_channel(wanted))
    }

    /// The destination is asked for again with the next busy sends.
    pub(crate) fn forget(&self, to: SocketAddr) {
        self.offload.with_destinations(|known| {
            known.handle_closed(to.into(), now());
        });
    }

    /// Whether there is a place to ask in for a destination that was not tried for yet: a free one, or that of the one
    /// that has waited longest for an answer, if that was long.
    pub(super) fn make_place_to_ask(&mut self) -> bool {
        if self.asked.len() < ASKED_MAX {
            return true;
        }
        let asked = self.asked.iter().enumerate();
        let longest = asked.min_by_key(|(_, asked)| asked.asked_at);
        let Some((at, _)) = longest.filter(|(_, asked)| asked.asked_at + PLACE_KEPT <= now())
        else {
            return false;
        };
        let wanted = self.asked.swap_remove(at).wanted;
        match wanted.is_required {
            true => self.connect_unasked(wanted),
            false => self.forget(wanted.to),
        }
        true
    }

    /// The same of places for carriers: that of the one whose connection has waited longest for an answer.
    pub(super) fn make_place_to_connect(&mut self) -> bool {
        if self.sides.len() < CARRIERS_MAX {
            return true;
        }
        let connecting = self.sides.iter_mut();
        let connecting = connecting.filter_map(|side| Some((side.connecting_since()?, side)));
        let longest = connecting.min_by_key(|(since, _)| *since);
        let Some((_, side)) = longest.filter(|(since, _)| *since + PLACE_KEPT <= now()) else {
            return false;
        };
        side.phase = Phase::Gone;
        self.end_sides();
        self.sides.len() < CARRIERS_MAX
    }

    /// Takes in what those that were asked have said.
    pub(crate) fn poll_asked(&mut self) {
        let mut at = 0;
        while at < self.asked.len() {
            let asked = &mut self.asked[at];
            let learnt = asked.inquiry.poll(now());
            let waits = match learnt {
                Learnt::Waits(_) => true,
                // Who has just begun to receive may have the port a moment later.
                Learnt::Refused => asked.is_asked_once_more(),
                Learnt::TakesCarriers(_) | Learnt::No => false,
            };
            if waits {
                asked.repeat(now());
                at += 1;
                continue;
            }
            let asked = self.asked.swap_remove(at);
            match learnt {
                Learnt::TakesCarriers(takes) => self.connect(asked.wanted, takes),
                // Who requires a carrier goes on without an answer: questions may be what does not pass.
                _ if asked.wanted.is_required => self.connect_unasked(asked.wanted),
                _ => self.leave_alone(asked.wanted.to, Why::NoAnswer),
            }
        }
    }

    /// A carrier to the process that owns the destination: one that is there, or a new one.
    fn connect(&mut self, wanted: Wanted, takes: TakesCarriers) {
        count(&self.offload.counts.found);
        let instance = Instance(takes.instance);
        // What a process sends to itself is the kernel's, unless its rule says otherwise.
        let is_within = |uoe: Uoe| uoe.within_process;
        if instance == self.instance && !self.rule_of(&wanted).is_some_and(is_within) {
            return self.stay_plain(&wanted, Why::SameProcess);
        }
        let adapter = takes.adapter.filter(|_| self.is_over_adapter(&wanted));
        if let Some(at) = adapter.map(|at| at.to_socket_addr()) {
            if self
                .adapter
                .as_ref()
                .is_some_and(|own| own.leads_to(at.ip()))
            {
                return self.connect_by_adapter(wanted, at, instance);
            }
        }
        // Anybody may greet with the instance of somebody else, but only from a host of their own.
        let (there, bound) = (End::from(wanted.to).address(), own_source(&wanted));
        let is_to_it = |side: &&mut Side| {
            let is_it = side.peer() == Some(instance) && side.there == there;
            let is_for_it = !side.is_without_udp() && !side.wire.is_adapters();
            let is_for_it = is_for_it && side.is_for(wanted.port);
            is_it && side.is_usable() && is_for_it && side.is_from(bound)
        };
        if let Some(side) = self.sides.iter_mut().find(is_to_it) {
            return side.wants.push(wanted);
        }
        let mut at = wanted.to;
        at.set_port(takes.port);
        self.begin_side(wanted, at, Some(instance));
    }

    /// Whether the rule of the socket says that its carriers are the adapter's.
    fn is_over_adapter(&self, wanted: &Wanted) -> bool {
        if self.adapter.is_none() || wanted.without_udp {
            return false;
        }
        self.rule_of(wanted).is_some_and(|uoe| uoe.over_adapter)
    }

    /// The rule of the socket and its destination.
    fn rule_of(&self, wanted: &Wanted) -> Option<Uoe> {
        let local = wanted.port.with_fd(beside::local_end).flatten();
        let ends = [local.unwrap_or(wanted.to), wanted.to];
        self.offload.rules.uoe(Direction::Send, &ends)
    }

    /// A carrier of the adapter's to that of the process that owns the destination, whose host has said where that is.
    fn connect_by_adapter(&mut self, wanted: Wanted, at: SocketAddr, instance: Instance) {
        let host = Some(End::from(wanted.to).address());
        let is_to_it = |side: &&mut Side| {
            let is_it = side.peer() == Some(instance) && side.there == at.ip();
            is_it && side.is_usable() && side.wire.is_adapters() && side.is_for(wanted.port)
        };
        if let Some(side) = self.sides.iter_mut().find(is_to_it) {
            side.host = host;
            return side.wants.push(wanted);
        }
        let connection = self
            .adapter
            .as_ref()
            .and_then(|adapter| adapter.connect(at));
        let Some(connection) = connection else {
            return self.leave_alone(wanted.to, Why::NotConnected);
        };
        let use_of = Use {
            over_adapter: true,
            forgives: self.offload.rules.any_forgives(),
            is_rated: wanted.port.port.rate() > 0,
            ..Use::default()
        };
        let own = greeting(self.instance, Some(End::from(wanted.to)), use_of);
        let wire = Wire::Adapter(connection);
        let mut side = Side::connecting(wire, own, Some(instance), wanted, now());
        (side.host, side.there) = (host, at.ip());
        self.sides.push(side);
    }

    /// A carrier to whoever has the agreed port of TCP at the destination's host: nobody is asked, or has answered.
    fn connect_unasked(&mut self, wanted: Wanted) {
        let DiscoveryPort::Agreed(agreed) = self.offload.settings.discovery_port else {
            return self.leave_alone(wanted.to, Why::NotConnected);
        };
        let mut at = wanted.to;
        at.set_port(agreed);
        let bound = own_source(&wanted);
        let is_to_it = |side: &&mut Side| {
            side.connects_unasked_to == Some(at)
                && side.is_usable()
                && side.is_without_udp() == wanted.without_udp
                && side.is_from(bound)
                && side.is_for(wanted.port)
        };
        if let Some(side) = self.sides.iter_mut().find(is_to_it) {
            return side.wants.push(wanted);
        }
        if let Some(side) = self.begin_side(wanted, at, None) {
            side.connects_unasked_to = Some(at);
        }
    }

    fn begin_side(
        &mut self,
        wanted: Wanted,
        at: SocketAddr,
        to: Option<Instance>,
    ) -> Option<&mut Side> {
        // The connection takes the way that the socket's datagrams would take.
        let bound = own_source(&wanted);
        let Ok(stream) = TcpStream::connect_apart(bound, at) else {
            self.leave_alone(wanted.to, Why::NotConnected);
            return None;
        };
        let use_of = Use {
            bound,
            without_udp: wanted.without_udp,
            is_rated: wanted.port.port.rate() > 0,
            ..Use::default()
        };
        let own = greeting(self.instance, Some(End::from(wanted.to)), use_of);
        let wire = Wire::of_kernel(stream);
        self.sides
            .push(Side::connecting(wire, own, to, wanted, now()));
        self.sides.last_mut()
    }

    /// The destination is a socket of this process, or this one has no carriers: nothing to it takes one.
    pub(super) fn stay_plain(&mut self, wanted: &Wanted, why: Why) {
        self.leave_alone(wanted.to, why);
        let Some(mut paths) = wanted.port.paths() else {
            return;
        };
        let path = paths.find(wanted.to.into());
        let Some(mut required) = path.and_then(|path| path.required.take()) else {
            return;
        };
        let queue = &mut required.queue;
        wanted.port.with_fd(|fd| send_plainly(queue, fd, wanted.to));
        queue.clear();
        let dropped = required.newly_dropped();
        let counter = &self.offload.counts.dropped_full;
        counter.fetch_add(dropped, Ordering::Relaxed);
    }
}

/// Gives the kernel what waits for a channel that there will not be, as far as it takes it at once.
fn send_plainly(queue: &mut Queue<Vec<u8>>, fd: RawFd, to: SocketAddr) {
    let is_v6 = dgram::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let (name, len) = beside::socket_name(to, is_v6);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    while let Some(record) = queue.front(now()) {
        if dgram::send(fd, &name[..len], record.octets, None, flags).is_err() {
            return;
        }
        queue.pop();
    }
}

/// The address that the socket is bound to, where its datagrams would have another one else.
fn own_source(wanted: &Wanted) -> Option<IpAddr> {
    let local = wanted.port.with_fd(beside::local_end).flatten()?;
    let ip = local.ip().to_canonical();
    let is_own = !ip.is_unspecified() && !source_apart(wanted.to).is_ok_and(|usual| usual == ip);
    is_own.then_some(ip)
}

/// The end of the program's socket, as it is said to the other end of a connection from `here`.
pub(crate) fn source(port: &Held, here: SocketAddr) -> Option<End> {
    let local = port.with_fd(beside::local_end).flatten()?;
    let ip = match local.ip().is_unspecified() {
        true => here.ip(),
        false => local.ip(),
    };
    (local.port() != 0).then(|| End::new(ip, local.port()))
}
