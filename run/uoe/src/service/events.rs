//! What a carrier's state machine says is to be done, and its turn as a whole.

use std::time::Duration;

use weft_os::beside::socket_name;
use weft_os::dgram::get_int;
use weft_uoe::carrier::{stays, Event};
use weft_uoe::control::Why;
use weft_uoe::{End, Fault};

use super::channels::Barrier;
use super::side::{Phase, Side};
use super::Service;
use crate::counts::count;
use crate::inlet::Source;
use crate::link::{Link, LinkId};
use crate::offload::now;
use crate::stat::Why::{NotConnected, SameProcess};
use crate::suitable::{candidate, ruled};

impl Service {
    /// Each carrier's turn; `ready` says whose connection can be read or written.
    pub(crate) fn run_sides(&mut self, ready: &[bool]) {
        for at in 0..self.sides.len() {
            let now = now();
            // What comes by the adapter no number shows.
            let is_ready = ready.get(at) == Some(&true) || self.sides[at].wire.is_adapters();
            self.tell_sent(at, now);
            self.keep_order(at, now);
            match self.sides[at].phase {
                Phase::Connecting(_) if is_ready => self.sides[at].handle_connected(now),
                Phase::Greeting | Phase::Up if is_ready => self.read_side(at, now),
                // What still comes is nobody's; the end of it is waited for.
                Phase::Closing(_) if is_ready => self.sides[at].drop_all(),
                _ => {}
            }
            // What waits on a channel that is over, as its state machine knows by now, goes on waiting elsewhere.
            self.handle_events(at, now);
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
        // What is lost goes before what is opened, which may have the same number.
        self.handle_events(at, now);
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
        let within_process = self.offload.rules.any_within_process();
        let is_itself = peer.instance == self.instance && !within_process;
        let is_somebody_else = is_itself || side.connects_to.is_some_and(|to| to != peer.instance);
        if side.own.without_udp && !side.is_accepted && !peer.without_udp {
            weft_settings::info!(
                "udp-path=none stands in the rule here and in none of the program's at {}: addresses are proven by UDP",
                side.there
            );
        }
        let begun = side.begin(peer, now);
        let place = self.free_place();
        let (Some((gather, outlet)), Some(place), false) = (begun, place, is_somebody_else) else {
            self.sides[at].phase = Phase::Gone;
            if is_itself {
                self.handle_itself(at);
            }
            return false;
        };
        self.generations = self.generations.wrapping_add(1).max(1);
        let generation = self.generations;
        let link = &self.offload.links[place];
        self.offload.use_link(place);
        link.begin(generation, gather, outlet);
        let side = &mut self.sides[at];
        side.link = Some(LinkId { place, generation });
        side.sent_told = link.sent();
        count(&self.offload.counts.carriers);
        self.drain_the_other(at, now);
        true
    }

    /// A carrier of this process to itself: it has the port that it tried without asking. What is for a socket of its
    /// own is plain, others are tried for again.
    fn handle_itself(&mut self, at: usize) {
        for wanted in std::mem::take(&mut self.sides[at].wants) {
            let here = End::new(self.sides[at].here.ip(), 0);
            match candidate(self.offload, here, wanted.to.into()) {
                Some(_) => self.stay_plain(&wanted, SameProcess),
                None => self.leave_alone(wanted.to, NotConnected),
            }
        }
    }

    /// Where both ends have connected, one carrier stays.
    fn drain_the_other(&mut self, at: usize, now: Duration) {
        let (peer, there) = (self.sides[at].peer(), self.sides[at].there);
        // The other one that leads to this process is the other end of this very carrier.
        if peer == Some(self.instance) {
            return;
        }
        let without_udp = self.sides[at].is_without_udp();
        let policy = self.sides[at].policy();
        // Who greets with somebody else's instance, from a host of its own, ends nothing of that one's.
        let same = |side: &Side| {
            let is_it = side.peer() == peer && side.there == there;
            let is_for_it = side.policy() == policy && side.is_without_udp() == without_udp;
            is_it && side.is_up() && is_for_it
        };
        let other = (0..self.sides.len()).find(|other| *other != at && same(&self.sides[*other]));
        let (Some(other), Some(peer)) = (other, peer) else {
            return;
        };
        let own = self.instance;
        let is_staying = |side: &Side| match side.is_accepted {
            false => stays(own, peer),
            true => stays(peer, own),
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

    pub(super) fn handle_events(&mut self, at: usize, now: Duration) {
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
                Event::Finished { channel, mark } => self.handle_finished(at, channel, mark),
                Event::Opened { channel } => self.handle_opened(at, channel),
                Event::Lost { channel, why } => self.handle_lost(at, channel, why),
                Event::Barrier { channel, number } => {
                    if let Some(channel) = self.sides[at].peer_channels.get_mut(&channel) {
                        channel.barrier = Some(Barrier { number, put: None });
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

    /// The source of a channel is proven.
    fn handle_incoming(&mut self, at: usize, number: u16, source: End) {
        let Some(channel) = self.sides[at].peer_channels.get_mut(&number) else {
            return;
        };
        let port = channel.port;
        let is_v6 = |fd| get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
        // Where it comes from is known now: before, it was what the other end claims.
        let Some(uoe) = ruled(self.offload, source, channel.target) else {
            return self.refuse_proven(at, number, Why::NoSocket);
        };
        let name = port.with_fd(|fd| socket_name(source.to_socket_addr(), is_v6(fd)));
        let place = name.and_then(|(name, len)| port.inlet()?.source(Source { name, len }));
        channel.source = place.map(|place| (source, place));
        channel.age = uoe.age;
        match place {
            Some(_) => {
                let side = &mut self.sides[at];
                side.set_age();
                (side.was_used, side.refused) = (true, 0);
                side.wire.attached();
                count(&self.offload.counts.taken);
            }
            None => self.refuse_proven(at, number, Why::TooMany),
        }
    }

    /// A channel of the other end's is refused, whatever it has proven.
    fn refuse_proven(&mut self, at: usize, number: u16, why: Why) {
        self.refuse(at, number, why);
        if let Some(over) = self.sides[at].remove_peer_channel(number) {
            self.retire(over.nonce);
        }
    }

    fn handle_finished(&mut self, at: usize, channel: u16, mark: Option<u32>) {
        // Its number may be another channel's before a socket could have it.
        let generation = self.sides[at].generation();
        self.admitting.retain(|one| !one.is(generation, channel));
        if let Some(over) = self.sides[at].remove_peer_channel(channel) {
            self.retire(over.nonce);
            self.end_channel((generation, channel), over, mark);
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
            let Some(barrier) = &mut channel.barrier else {
                continue;
            };
            // What waits behind plain datagrams comes before it, and is not in the queue yet.
            let Some(mut inlet) = channel.port.inlet().filter(|_| channel.behind.is_empty()) else {
                continue;
            };
            let put = *barrier.put.get_or_insert(inlet.put);
            let is_passed = inlet.passed() >= put;
            drop(inlet);
            if is_passed {
                carrier.pass(*number, barrier.number, now);
                channel.barrier = None;
            } else {
                channel.port.port.wait_for();
            }
        }
    }

    /// Puts what is to be said into the stream, and gives it to TCP.
    fn say_controls(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let Some(id) = side.link else {
            // Nothing is said before the greetings.
            while side.carrier.poll_control().is_some() {}
            return;
        };
        let link: &Link = &self.offload.links[id.place];
        let mut is_said = false;
        while let Some(control) = side.unsaid.take().or_else(|| side.carrier.poll_control()) {
            is_said = true;
            if link.say(id.generation, &control) {
                continue;
            }
            link.flush();
            if !link.say(id.generation, &control) {
                side.unsaid = Some(control);
                break;
            }
        }
        if !is_said && matches!(side.phase, Phase::Up) {
            return;
        }
        link.flush();
        if side.unsaid.is_none() && !link.waits() {
            side.send_end();
        }
    }
}
