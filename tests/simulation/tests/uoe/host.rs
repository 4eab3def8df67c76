//! One process: its sockets, its flows, and its end of the carrier.

use crate::pipe::Pipe;
use crate::side::Side;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weft_link::Random;
use weft_uoe::admission::{Attempt, Carrier, Policy, Verdict, FULL_TIMEOUT};
use weft_uoe::carrier::{Event, Secrets};
use weft_uoe::control::Why;
use weft_uoe::destinations::{Destinations, Known};
use weft_uoe::proof::Proof;
use weft_uoe::queue::{Limits, Queue};
use weft_uoe::way::{Chooser, Send, Way};
use weft_uoe::End;

/// What leaves by UDP.
pub type Plain = (End, End, Vec<u8>);

/// Why datagrams did not arrive, each counted once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// By the program's queue, sender's side: no room, or late.
    pub outbox: u64,
    /// A full carrier that was waited for.
    pub dropped: u64,
    /// By the receiver's queue.
    pub inbox: u64,
    /// By the socket's own queue.
    pub kernel: u64,
    /// On a channel that was closed meanwhile.
    pub stray: u64,
    /// With a process that was killed.
    pub killed: u64,
    /// With a carrier: what was put into it and did not come.
    pub carrier: u64,
}

impl Lost {
    pub fn sum(&self) -> u64 {
        let Lost {
            outbox,
            dropped,
            inbox,
            kernel,
            stray,
            killed,
            carrier,
        } = *self;
        outbox + dropped + inbox + kernel + stray + killed + carrier
    }
}

/// What comes on one channel and waits for the program.
struct Inbox {
    source: End,
    queue: Queue<Vec<u8>>,
    barriers: Vec<u32>,
}

pub struct Socket {
    kernel: VecDeque<(End, Vec<u8>)>,
    inboxes: BTreeMap<u16, Inbox>,
    /// A rule lets it take datagrams over carriers.
    is_ruled: bool,
}

pub struct Flow {
    chooser: Chooser,
    channel: Option<u16>,
    is_opening: bool,
    policy: Policy,
    outbox: Queue<Vec<u8>>,
    last_send: Duration,
}

pub struct Host {
    pub sockets: BTreeMap<End, Socket>,
    pub flows: BTreeMap<(End, End), Flow>,
    pub side: Option<Side>,
    pub lost: Lost,
    pub wants_carrier: bool,
    pub limits: Limits,
    pub was_on_channel: u64,
    destinations: Destinations,
    opening: BTreeMap<u16, (End, End)>,
    random: Random,
}

const KERNEL_MAX: usize = 200;

/// A send of the program's.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub ends: (End, End),
    pub octets: &'a [u8],
    pub policy: Policy,
    /// Octets of a segment of the carrier.
    pub segment: Option<usize>,
}

impl Host {
    pub fn new(ends: &[End], limits: Limits, mut random: Random, now: Duration) -> Host {
        let socket = |is_ruled| Socket {
            kernel: VecDeque::new(),
            inboxes: BTreeMap::new(),
            is_ruled,
        };
        let sockets = ends
            .iter()
            .map(|end| (*end, socket(random.chance(0.9))))
            .collect();
        Host {
            sockets,
            flows: BTreeMap::new(),
            side: None,
            lost: Lost::default(),
            wants_carrier: false,
            limits,
            was_on_channel: 0,
            destinations: Destinations::new(random.bits(), now),
            opening: BTreeMap::new(),
            random,
        }
    }

    pub fn nonce(&mut self) -> [u8; 16] {
        let (a, b) = (self.random.bits(), self.random.bits());
        (u128::from(a) << 64 | u128::from(b)).to_be_bytes()
    }

    /// The program sends. Says whether the call took the datagram.
    pub fn send(&mut self, call: Call<'_>, plain: &mut Vec<Plain>, now: Duration) -> bool {
        let (ends, limits, octets) = (call.ends, self.limits, call.octets);
        self.flows.entry(ends).or_insert_with(|| Flow {
            chooser: Chooser::default(),
            channel: None,
            is_opening: false,
            policy: call.policy,
            outbox: Queue::new(vec![0; 30_000], limits),
            last_send: Duration::ZERO,
        });
        self.ask(ends, now);
        let flow = self.flows.get_mut(&ends).expect("just made");
        let is_busy = now - flow.last_send < Duration::from_micros(500);
        flow.last_send = now;
        let (len, packet) = (octets.len(), 1472);
        let way = match flow.policy {
            Policy::Prefer => flow.chooser.choose(Send {
                len,
                is_busy,
                packet,
            }),
            _ => Way::Channel,
        };
        if way == Way::Plain {
            plain.push((ends.0, ends.1, octets.to_vec()));
            return true;
        }
        let others_wait = !flow.outbox.is_empty();
        let carrier = self.put(way, call, plain, now);
        let flow = self.flows.get_mut(&ends).expect("just made");
        let attempt = Attempt {
            full_timeout: FULL_TIMEOUT,
            down_timeout: Duration::ZERO,
            carrier,
            others_wait: others_wait && carrier != Carrier::Ready,
            has_room: flow.outbox.has_room(len, now),
            may_block: self.random.chance(0.5),
            since: now,
        };
        match flow.policy.admit(attempt, now) {
            Verdict::Channel => true,
            Verdict::Queue => {
                let fill = |room: &mut [u8]| {
                    room.copy_from_slice(octets);
                    Ok::<(), ()>(())
                };
                // What is not put in is counted by the queue.
                flow.outbox.push(len, 0, now, fill).unwrap();
                true
            }
            Verdict::Wait(until) => {
                // Nobody here waits: the call ends as one that waited would, if nothing changed.
                let verdict = flow.policy.admit(attempt, until.unwrap_or(now));
                let is_dropped = verdict == Verdict::Drop;
                self.lost.dropped += u64::from(is_dropped);
                is_dropped
            }
            Verdict::Again => false,
            Verdict::Drop | Verdict::Plain => panic!("neither is said here"),
        }
    }

    /// Puts the datagram onto its channel, if there is one with room and none waits before it.
    fn put(&mut self, way: Way, call: Call<'_>, plain: &mut Vec<Plain>, now: Duration) -> Carrier {
        let flow = self.flows.get_mut(&call.ends).expect("it sends");
        let (Some(side), Some(channel)) = (&mut self.side, flow.channel) else {
            return Carrier::Down;
        };
        if let Way::ChannelBehind(number) = way {
            let mark = side.carrier.behind(channel, number, now);
            let mark = mark.expect("a channel that is open").to_octets();
            plain.push((call.ends.0, call.ends.1, mark.to_vec()));
        }
        let is_put = flow.outbox.is_empty() && side.put(channel, call.octets, call.segment, now);
        match way {
            Way::ChannelBarrier(number) if is_put => side.carrier.barrier(channel, number, now),
            Way::ChannelBarrier(_) => flow.chooser.handle_barrier_not_sent(),
            _ => {}
        }
        if !is_put {
            return Carrier::Full;
        }
        side.carrier.handle_sent(now);
        self.was_on_channel += 1;
        Carrier::Ready
    }

    /// Whether this flow is worth a channel, and what is done for it.
    fn ask(&mut self, ends: (End, End), now: Duration) {
        let known = self.destinations.handle_send(ends.1, now);
        let flow = &self.flows[&ends];
        let wants =
            flow.policy != Policy::Prefer || matches!(known, Known::Ask | Known::Channel(_));
        if !wants || flow.channel.is_some() || flow.is_opening {
            return;
        }
        self.wants_carrier |= self.side.is_none();
        let secrets = Secrets {
            nonce: self.nonce(),
            challenge: self.nonce(),
        };
        let Some(side) = self.side.as_mut().filter(|side| side.carrier.is_up()) else {
            // The connection is asked for; whoever still sends then opens.
            self.destinations.handle_closed(ends.1, now);
            return;
        };
        if let Some(channel) = side.carrier.open(ends.0, ends.1, secrets, now) {
            self.opening.insert(channel, ends);
            self.flows.get_mut(&ends).expect("it is there").is_opening = true;
        }
    }

    /// Everything that the carrier says.
    pub fn handle_events(&mut self, plain: &mut Vec<Plain>, now: Duration) {
        while let Some(event) = self
            .side
            .as_mut()
            .and_then(|side| side.carrier.poll_event())
        {
            let nonce = self.nonce();
            let carrier = &mut self.side.as_mut().expect("it said something").carrier;
            match event {
                Event::Up => {}
                Event::Wanted {
                    channel, target, ..
                } => {
                    match self
                        .sockets
                        .get(&target)
                        .is_some_and(|socket| socket.is_ruled)
                    {
                        true => carrier.admit(channel, nonce, now),
                        false => carrier.refuse(channel, Why::NoSocket, now),
                    }
                }
                Event::Prove { proof, from, to } => {
                    plain.push((from, to, proof.to_octets().to_vec()))
                }
                Event::Incoming {
                    channel,
                    source,
                    target,
                } => {
                    let queue = Queue::new(vec![0; 60_000], self.limits);
                    let inbox = Inbox {
                        source,
                        queue,
                        barriers: Vec::new(),
                    };
                    let inboxes = &mut self.sockets.get_mut(&target).expect("ours").inboxes;
                    assert!(inboxes.insert(channel, inbox).is_none(), "a channel twice");
                }
                Event::Finished { .. } => {}
                Event::Opened { channel } => {
                    let ends = self.opening[&channel];
                    let flow = self.flows.get_mut(&ends).expect("it opened");
                    flow.channel = Some(channel);
                    flow.is_opening = false;
                    flow.chooser.handle_opened();
                    self.destinations.handle_channel(ends.1, channel.into());
                }
                Event::Lost { channel, why } => {
                    let ends = self.opening.remove(&channel).expect("it opened");
                    let flow = self.flows.get_mut(&ends).expect("it opened");
                    (flow.channel, flow.is_opening) = (None, false);
                    flow.chooser.handle_lost();
                    match why {
                        Why::NoSocket | Why::NoProof => {
                            self.destinations.handle_no(ends.1, now);
                        }
                        _ => self.destinations.handle_closed(ends.1, now),
                    }
                }
                Event::Barrier { channel, number } => {
                    let inboxes = self
                        .sockets
                        .values_mut()
                        .filter_map(|socket| socket.inboxes.get_mut(&channel));
                    inboxes.for_each(|inbox| inbox.barriers.push(number));
                }
                Event::Passed { channel, number } => {
                    let flow = self
                        .flows
                        .get_mut(&self.opening[&channel])
                        .expect("it opened");
                    flow.chooser.handle_passed(number);
                }
                Event::Closed(_) => {}
            }
        }
    }

    /// A datagram came on the carrier.
    pub fn handle_datagram(&mut self, channel: u16, octets: &[u8], now: Duration) {
        let side = self.side.as_mut().expect("it came on it");
        let ends = side
            .carrier
            .handle_datagram(channel, now)
            .expect("a channel that was opened");
        let socket = ends.and_then(|(_, target)| self.sockets.get_mut(&target));
        let Some(inbox) = socket.and_then(|socket| socket.inboxes.get_mut(&channel)) else {
            self.lost.stray += 1;
            return;
        };
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(octets);
            Ok::<(), ()>(())
        };
        inbox.queue.push(octets.len(), 0, now, fill).unwrap();
    }

    /// A datagram came by UDP.
    pub fn handle_plain(&mut self, from: End, to: End, octets: Vec<u8>) {
        let socket = self.sockets.get_mut(&to).expect("ours");
        if socket.kernel.len() >= KERNEL_MAX && Proof::parse(&octets).is_none() {
            self.lost.kernel += 1;
            return;
        }
        socket.kernel.push_back((from, octets));
    }

    /// The program takes up to so many datagrams from a socket: those of the socket's own queue first.
    pub fn read(&mut self, at: End, most: usize, now: Duration) -> Vec<(End, Vec<u8>)> {
        let (socket, mut taken) = (self.sockets.get_mut(&at).expect("ours"), Vec::new());
        while taken.len() < most {
            let Some((from, octets)) = socket.kernel.pop_front() else {
                break;
            };
            let proof = Proof::parse(&octets);
            let is_ours = match (proof, &mut self.side) {
                (Some(proof), Some(side)) => side.carrier.handle_proof(proof, at, from, now),
                _ => false,
            };
            // One that its carrier did not outlive is known by nobody; a program here sends none of its own.
            if !is_ours && proof.is_none() {
                taken.push((from, octets));
            }
        }
        let Some(side) = &mut self.side else {
            return taken;
        };
        for (channel, inbox) in &mut socket.inboxes {
            if side.carrier.is_behind(*channel, now) {
                continue;
            }
            while taken.len() < most {
                let Some(record) = inbox.queue.front(now) else {
                    break;
                };
                taken.push((inbox.source, record.octets.to_vec()));
                inbox.queue.pop();
            }
            if inbox.queue.is_empty() {
                inbox
                    .barriers
                    .drain(..)
                    .for_each(|number| side.carrier.pass(*channel, number, now));
            }
        }
        taken
    }

    /// Datagrams that waited leave; the carrier's time passes.
    pub fn transmit(&mut self, pipe: &mut Pipe, host: usize, now: Duration) {
        let Some(side) = &mut self.side else {
            return;
        };
        if side.carrier.deadline().is_some_and(|at| at <= now) {
            side.carrier.handle_timeout(now);
        }
        for flow in self.flows.values_mut() {
            let Some(channel) = flow.channel else {
                continue;
            };
            while let Some(record) = flow.outbox.front(now) {
                if !side.put(channel, record.octets, pipe.segment(host), now) {
                    break;
                }
                flow.outbox.pop();
                self.was_on_channel += 1;
            }
        }
        side.transmit(pipe, host, now);
    }

    /// The carrier is gone: what waits of it is dropped. Gives what was put into it, and what came.
    pub fn drop_side(&mut self, plain: &mut Vec<Plain>, now: Duration) -> (u64, u64) {
        let Some(side) = &mut self.side else {
            return (0, 0);
        };
        side.carrier.handle_gone();
        self.handle_events(plain, now);
        let side = self.side.take().expect("it is there");
        for socket in self.sockets.values_mut() {
            for (_, mut inbox) in std::mem::take(&mut socket.inboxes) {
                inbox.queue.clear();
                self.lost.inbox += inbox.queue.dropped().sum();
            }
        }
        (side.put, side.came)
    }

    /// The process is killed, and another one begins in its place. Its carrier was dropped.
    pub fn kill(&mut self) {
        for socket in self.sockets.values_mut() {
            let data = socket
                .kernel
                .drain(..)
                .filter(|(_, octets)| Proof::parse(octets).is_none());
            self.lost.killed += data.count() as u64;
        }
        self.drop_flows();
    }

    pub fn drop_flows(&mut self) {
        for (_, mut flow) in std::mem::take(&mut self.flows) {
            flow.outbox.clear();
            self.lost.outbox += flow.outbox.dropped().sum();
        }
        self.opening.clear();
    }

    /// Datagrams that the program could still take.
    pub fn waiting(&self) -> usize {
        let of = |socket: &Socket| {
            let inboxes = socket.inboxes.values().map(|inbox| inbox.queue.len());
            socket.kernel.len() + inboxes.sum::<usize>()
        };
        self.sockets.values().map(of).sum()
    }
}
