//! What a carrier's state machine says is to be done, and its turn as a whole.

use std::net::SocketAddr;
use std::time::Duration;

use weft_os::beside::socket_name;
use weft_os::dgram::{self, get_int};
use weft_uoe::carrier::{stays, Event};
use weft_uoe::control::Why;
use weft_uoe::proof::Proof;
use weft_uoe::way::Chooser;
use weft_uoe::{End, Fault};

use super::asking::source;
use super::side::{OwnChannel, Phase, Side, Wanted};
use super::{nonce, Service};
use crate::counts::count;
use crate::inlet::Source;
use crate::link::{Link, LinkId};
use crate::offload::now;
use crate::paths::Path;
use crate::port::Held;

/// Octets of a datagram's headers beside TCP's: what TCP's largest segment leaves of a packet is more by so many.
const TCP_IS_LONGER_BY: usize = 12;

impl Service {
    /// Each carrier's turn; `ready` says whose connection can be read or written.
    pub(crate) fn run_sides(&mut self, ready: &[bool]) {
        for at in 0..self.sides.len() {
            let now = now();
            let is_ready = ready.get(at).copied().unwrap_or(false);
            self.tell_sent(at, now);
            match self.sides[at].phase {
                Phase::Connecting(_) if is_ready => self.sides[at].handle_connected(now),
                Phase::Greeting | Phase::Up if is_ready => self.read_side(at, now),
                // What still comes is nobody's; the end of it is waited for.
                Phase::Closing(_) if is_ready => {
                    while self.sides[at].read() {
                        self.sides[at].end = 0;
                    }
                    self.sides[at].end = 0;
                }
                _ => {}
            }
            self.deliver_held(at, now);
            self.finish_turn(at, now);
        }
    }

    /// The state machine is told of what the program's calls have sent.
    fn tell_sent(&mut self, at: usize, now: Duration) {
        let side = &mut self.sides[at];
        let Some(link) = side
            .link
            .and_then(|link| self.offload.links.get(link.place))
        else {
            return;
        };
        let sent = link.sent();
        if sent != side.sent_told {
            side.sent_told = sent;
            side.carrier.handle_sent(now);
        }
    }

    fn finish_turn(&mut self, at: usize, now: Duration) {
        if let Some(fault) = self.sides[at].fault.take() {
            self.handle_fault(at, fault);
        }
        let side = &mut self.sides[at];
        if side.is_late(now) {
            side.phase = Phase::Gone;
        }
        if side.phase == Phase::Gone {
            side.carrier.handle_gone();
        } else if side.carrier.deadline().is_some_and(|at| now >= at) {
            side.carrier.handle_timeout(now);
        }
        self.open_wanted(at, now);
        self.handle_events(at, now);
        self.pass_barriers(at, now);
        self.say_controls(at);
    }

    fn handle_fault(&mut self, at: usize, fault: Fault) {
        count(&self.offload.counts.faults);
        let side = &mut self.sides[at];
        weft_settings::info!(
            "a connection that datagrams travel on, with {}, is closed: {fault}",
            side.here
        );
        side.phase = Phase::Gone;
    }

    /// The other end's greeting; says whether it is there.
    pub(super) fn read_greeting(&mut self, at: usize, now: Duration) -> bool {
        let side = &mut self.sides[at];
        let peer = match side.take_greeting() {
            Ok(Some(peer)) => peer,
            Ok(None) => return false,
            Err(fault) => {
                side.fault = Some(fault);
                return false;
            }
        };
        let is_somebody_else = side.connects_to.is_some_and(|to| to != peer.instance);
        let begun = side.begin(peer, now);
        let place = self.free_place();
        let (Some((gather, stream)), Some(place), false) = (begun, place, is_somebody_else) else {
            self.sides[at].phase = Phase::Gone;
            return false;
        };
        self.generations = self.generations.wrapping_add(1).max(1);
        let generation = self.generations;
        let link = &self.offload.links[place];
        self.offload.use_link(place);
        link.begin(generation, gather, stream);
        let side = &mut self.sides[at];
        side.link = Some(LinkId { place, generation });
        side.sent_told = link.sent();
        count(&self.offload.counts.carriers);
        self.drain_the_other(at, now);
        true
    }

    /// Where both ends have connected, one carrier stays.
    fn drain_the_other(&mut self, at: usize, now: Duration) {
        let peer = self.sides[at].peer();
        let same = |side: &Side| side.is_up() && side.peer() == peer;
        let other = (0..self.sides.len()).find(|other| *other != at && same(&self.sides[*other]));
        let (Some(other), Some(peer)) = (other, peer) else {
            return;
        };
        let own = self.instance;
        let is_staying = |side: &Side| match side.connects_to {
            Some(_) => stays(own, peer),
            None => stays(peer, own),
        };
        let goes = match is_staying(&self.sides[at]) {
            true => other,
            false => at,
        };
        let stays = if goes == at { other } else { at };
        let wants = std::mem::take(&mut self.sides[goes].wants);
        self.sides[stays].wants.extend(wants);
        self.sides[goes].carrier.drain(Why::Twice, now);
    }

    fn free_place(&self) -> Option<usize> {
        let taken: Vec<usize> = self
            .sides
            .iter()
            .filter_map(|side| side.link.map(|link| link.place))
            .collect();
        (0..self.offload.links.len()).find(|place| !taken.contains(place))
    }

    /// Opens channels that sockets wait for.
    fn open_wanted(&mut self, at: usize, now: Duration) {
        if !self.sides[at].is_up() {
            return;
        }
        for wanted in std::mem::take(&mut self.sides[at].wants) {
            let is_known = self.sides[at].has_channel(&wanted);
            if !wanted.port.is_alive() || wanted.port.port.is_off() || is_known {
                continue;
            }
            // The proof of the other end comes to this socket.
            if !wanted.port.port.look_at() && now < wanted.until {
                self.sides[at].wants.push(wanted);
                continue;
            }
            let source = source(&wanted.port, self.sides[at].here);
            let is_looked_at = wanted.port.port.look_at();
            let opened = source.filter(|_| is_looked_at);
            let opened = opened.is_some_and(|source| self.open(at, wanted, source, now));
            if !opened {
                self.offload.with_destinations(|known| {
                    known.handle_closed(wanted.to.into(), now);
                });
            }
        }
    }

    fn open(&mut self, at: usize, wanted: Wanted, source: End, now: Duration) -> bool {
        let nonce = nonce();
        let carrier = &mut self.sides[at].carrier;
        let Some(channel) = carrier.open(source, wanted.to.into(), nonce, now) else {
            return false;
        };
        self.offload.nonces.add(nonce);
        let own = OwnChannel {
            wanted,
            source,
            nonce,
            is_open: false,
        };
        self.sides[at].own_channels.insert(channel, own);
        true
    }

    fn handle_events(&mut self, at: usize, now: Duration) {
        while let Some(event) = self.sides[at].carrier.poll_event() {
            match event {
                Event::Up => {}
                Event::Wanted {
                    channel,
                    source,
                    target,
                } => self.handle_channel_wanted(at, channel, [source, target]),
                Event::Prove { proof, from, to } => self.prove(at, proof, from, to),
                Event::Incoming {
                    channel, source, ..
                } => self.handle_incoming(at, channel, source),
                Event::Finished { channel } => self.handle_finished(at, channel),
                Event::Opened { channel } => self.handle_opened(at, channel),
                Event::Lost { channel, why } => self.handle_lost(at, channel, why, now),
                Event::Barrier { channel, number } => {
                    if let Some(channel) = self.sides[at].peer_channels.get_mut(&channel) {
                        let put = channel.port.port.inlet().map_or(0, |inlet| inlet.put);
                        let behind = channel.behind.len() as u64;
                        channel.barriers.push((number, put + behind));
                    }
                }
                Event::Passed { channel, number } => self.handle_passed(at, channel, number),
                Event::Closed(_) => {
                    if self.sides[at].phase != Phase::Gone {
                        self.say_controls(at);
                        self.sides[at].finish(now);
                    }
                }
            }
        }
    }

    /// Sends a proof by UDP, from the socket that has that end.
    fn prove(&mut self, at: usize, proof: Proof, from: End, to: End) {
        let side = &self.sides[at];
        let of_own = side.own_channels.values();
        let own = of_own
            .filter(|channel| channel.source == from && End::from(channel.wanted.to) == to)
            .map(|channel| (channel.wanted.port, channel.wanted.to));
        let of_peer = side.peer_channels.values();
        let peer = of_peer
            .filter(|channel| channel.target == from)
            .map(|channel| (channel.port, to.to_socket_addr()));
        if let Some((port, to)) = own.chain(peer).find(|(port, _)| port.is_alive()) {
            port.port.with_fd(|fd| send_to(fd, to, &proof));
        }
    }

    /// The source of a channel is proven.
    fn handle_incoming(&mut self, at: usize, number: u16, source: End) {
        let Some(channel) = self.sides[at].peer_channels.get_mut(&number) else {
            return;
        };
        let port = channel.port;
        let is_v6 = |fd| get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
        let name = port
            .port
            .with_fd(|fd| socket_name(source.to_socket_addr(), is_v6(fd)));
        let place = name.and_then(|(name, len)| port.port.inlet()?.source(Source { name, len }));
        channel.source = place;
        match place {
            Some(_) => count(&self.offload.counts.taken),
            None => self.refuse(at, number, Why::TooMany),
        }
    }

    fn handle_finished(&mut self, at: usize, channel: u16) {
        if let Some(over) = self.sides[at].remove_peer_channel(channel) {
            self.retire(over.nonce);
            self.deliver_rest(at, channel, over);
        }
    }

    /// A channel of a socket here may be used.
    fn handle_opened(&mut self, at: usize, number: u16) {
        let side = &mut self.sides[at];
        let segment = side.stream.get().and_then(|stream| stream.emss().ok());
        let mark = side.carrier.mark_nonce(number);
        let (Some(link), Some(channel), Some(mark)) =
            (side.link, side.own_channels.get_mut(&number), mark)
        else {
            return;
        };
        channel.is_open = true;
        let mut chooser = Chooser::default();
        chooser.handle_opened();
        let path = Path {
            to: channel.wanted.to.into(),
            link,
            channel: number,
            mark,
            packet: segment.map_or(0, |segment| segment + TCP_IS_LONGER_BY),
            chooser,
        };
        let port = channel.wanted.port;
        let is_put = port.is_alive() && port.port.paths().is_some_and(|mut paths| paths.put(path));
        if !is_put {
            self.sides[at].carrier.close(number, Why::Ends, now());
            return;
        }
        count(&self.offload.counts.opened);
        self.offload.with_destinations(|known| {
            known.handle_channel(path.to, link.place as u32);
        });
    }

    fn handle_lost(&mut self, at: usize, number: u16, why: Why, now: Duration) {
        let link = self.sides[at].link;
        let Some(channel) = self.sides[at].own_channels.remove(&number) else {
            return;
        };
        self.retire(channel.nonce);
        let port = channel.wanted.port;
        if let (true, Some(link), Some(mut paths)) = (port.is_alive(), link, port.port.paths()) {
            paths.remove(link, number);
        }
        let to = channel.wanted.to.into();
        self.offload.with_destinations(|known| match why {
            Why::NoSocket | Why::NoProof | Why::TooMany => {
                known.handle_no(to, now);
            }
            _ => known.handle_closed(to, now),
        });
    }

    fn handle_passed(&mut self, at: usize, number: u16, barrier: u32) {
        let Some(channel) = self.sides[at].own_channels.get(&number) else {
            return;
        };
        let (port, to) = (channel.wanted.port, channel.wanted.to.into());
        if let (true, Some(mut paths)) = (port.is_alive(), port.port.paths()) {
            if let Some(path) = paths.find(to) {
                path.chooser.handle_passed(barrier);
            }
        }
    }

    /// Barriers before which everything has been taken.
    fn pass_barriers(&mut self, at: usize, now: Duration) {
        let Side {
            carrier,
            peer_channels,
            ..
        } = &mut self.sides[at];
        for (number, channel) in peer_channels.iter_mut() {
            if channel.barriers.is_empty() {
                continue;
            }
            let taken = channel.port.port.inlet().map_or(0, |inlet| inlet.taken);
            channel.barriers.retain(|(barrier, put)| {
                let is_passed = taken >= *put;
                if is_passed {
                    carrier.pass(*number, *barrier, now);
                }
                !is_passed
            });
            if !channel.barriers.is_empty() {
                channel.port.port.wait_for();
            }
        }
    }

    /// Puts what is to be said into the stream, and gives it to TCP.
    fn say_controls(&mut self, at: usize) {
        let side = &mut self.sides[at];
        while let Some(control) = side.carrier.poll_control() {
            side.controls.push_back(control);
        }
        let Some(id) = side.link else {
            return side.controls.clear();
        };
        let link: &Link = &self.offload.links[id.place];
        if side.controls.is_empty() && matches!(side.phase, Phase::Up) {
            return;
        }
        while let Some(control) = side.controls.front() {
            if !link.say(id.generation, control) {
                link.flush();
                if !link.say(id.generation, control) {
                    break;
                }
            }
            side.controls.pop_front();
        }
        link.flush();
        if side.controls.is_empty() && !link.waits() {
            side.send_end();
        }
    }

    /// A datagram of Weft's own came to a socket.
    pub(crate) fn handle_own(&mut self, proof: Proof, from: SocketAddr) {
        let (from, now) = (End::from(from), now());
        for side in &mut self.sides {
            let of_own = side.own_channels.values();
            let own = of_own.filter(|channel| channel.nonce == proof.nonce);
            let of_peer = side.peer_channels.values();
            let peer = of_peer.filter(|channel| channel.nonce == proof.nonce);
            let to = own.map(|channel| channel.source);
            let to = to.chain(peer.map(|channel| channel.target)).next();
            if let Some(to) = to {
                side.carrier.handle_proof(proof, to, from, now);
                return;
            }
        }
    }

    /// A socket is closed: its channels are.
    pub(crate) fn handle_closed_port(&mut self, port: Held) {
        let now = now();
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
                }
            }
            let peer = side.peer_channels.iter();
            let peer: Vec<u16> = peer
                .filter(|(_, channel)| channel.port == port)
                .map(|(number, _)| *number)
                .collect();
            for number in peer {
                side.carrier.refuse(number, Why::Ends, now);
                if let Some(channel) = side.remove_peer_channel(number) {
                    self.retired.push((now + super::NONCES_KEPT, channel.nonce));
                }
            }
        }
        self.asked.retain(|asked| asked.port() != port);
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
            if let Some(link) = side.link {
                self.offload.links[link.place].end(link.generation);
            }
            for wanted in side.wants {
                self.leave_alone(wanted.to);
            }
        }
    }

    /// A socket whose program does not receive: the proof that a channel waits for is looked for.
    pub(crate) fn look_for_proofs(&mut self) {
        let sides = self.sides.iter();
        let channels = sides.flat_map(|side| side.own_channels.values());
        let opening = channels.filter(|channel| !channel.is_open);
        let ports: Vec<Held> = opening.map(|channel| channel.wanted.port).collect();
        for port in ports.into_iter().filter(Held::is_alive) {
            port.port
                .with_fd(|fd| self.offload.has_plain(port.port, fd));
        }
    }
}

fn send_to(fd: i32, to: SocketAddr, proof: &Proof) {
    let is_v6 = get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let (name, len) = socket_name(to, is_v6);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // One that is lost is sent again.
    let _ = dgram::send(fd, &name[..len], &proof.to_octets(), None, flags);
}
