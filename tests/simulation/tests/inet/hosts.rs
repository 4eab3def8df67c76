//! Two whole stacks with octets on the link between them, and programs that check each of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use weft_inet::stack::{Cidr, Frame, FrameInfo, Payload, Sink, Stack, StackConfig};
use weft_inet::tcp::receive_buffer::ReceiveBuffer;
use weft_inet::tcp::send_buffer::SendBuffer;
use weft_inet::tcp::{AckPolicy, ConnectionId, EndpointEvent, Event, Placement, Reason, Secret};
use weft_link::{Link, LinkConfig, Random, Travels};

/// A frame on the link. Damage is one flipped bit behind the Ethernet header, which no checksum misses; ARP has none
/// and is spared.
#[derive(Clone, Debug)]
pub struct Wire(pub Vec<u8>);

impl Travels for Wire {
    fn wire_len(&self) -> usize {
        self.0.len()
    }

    fn corrupt(&mut self, random: &mut Random) {
        if self.0[12..14] == [0x08, 0x06] {
            return;
        }
        let at = 14 + random.below(self.0.len() as u64 - 14) as usize;
        self.0[at] ^= 1 << random.below(8);
    }
}

/// Octet `at` of what a seed's program sends.
pub fn pattern(seed: u64, at: u64) -> u8 {
    let word = (at / 8)
        .wrapping_add(seed)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> (8 * (at % 8))) as u8
}

/// The program's half of one connection.
pub struct Program {
    pub seed: u64,
    pub outgoing: SendBuffer<Arc<[u8]>>,
    pub incoming: ReceiveBuffer,
    pub checked: u64,
    pub peer_seed: u64,
    pub closed: Option<Reason>,
    pub peer_finished: bool,
    to_send: u64,
    buffered: u64,
}

impl Program {
    fn new(seed: u64, peer_seed: u64, to_send: u64, window: u64) -> Program {
        Program {
            seed,
            outgoing: SendBuffer::default(),
            incoming: ReceiveBuffer::new(window as usize),
            checked: 0,
            peer_seed,
            closed: None,
            peer_finished: false,
            to_send,
            buffered: 0,
        }
    }
}

/// The sink of a host: receive buffers, by connection.
#[derive(Default)]
pub struct Programs {
    pub all: BTreeMap<ConnectionId, Program>,
    pub datagrams: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    early: Vec<(ConnectionId, Placement, Vec<u8>)>,
}

impl Sink for Programs {
    fn place(&mut self, connection: ConnectionId, placement: &Placement, payload: &[u8]) {
        match self.all.get_mut(&connection) {
            Some(program) => program.incoming.place(placement, payload),
            // Data with the ACK that made the connection: its event has not been read yet.
            None => self
                .early
                .push((connection, placement.clone(), payload.to_vec())),
        }
    }

    fn datagram(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.datagrams.push((local, remote, payload.to_vec()));
    }
}

/// What programs of a host do with a new connection.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub peer_seed: u64,
    pub to_send: u64,
    pub window: u64,
    /// Octets given to the connection at most ahead of its ACKs.
    pub send_buffer: u64,
    /// Cuts after so many octets each, 0 for none.
    pub piece: u64,
    /// Changes what may be changed while the connection is under way, again and again.
    pub retunes: bool,
}

pub struct Host {
    pub stack: Stack,
    pub programs: Programs,
    pub plan: Plan,
}

impl Host {
    pub fn new(last: u8, mtu: u32, plan: Plan) -> Host {
        let addresses = vec![
            Cidr::new(Ipv4Addr::new(10, 0, 0, last), 24),
            Cidr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()), 64),
        ];
        let config = StackConfig {
            mtu,
            ..StackConfig::new([2, 0, 0, 0, 0, last], addresses, Secret([last; 16]))
        };
        Host {
            stack: Stack::new(config),
            programs: Programs::default(),
            plan,
        }
    }

    pub fn address(&self, ipv6: bool) -> IpAddr {
        let mut all = self.stack.config().addresses.iter();
        all.find(|own| own.address.is_ipv6() == ipv6)
            .unwrap()
            .address
    }

    pub fn adopt(&mut self, id: ConnectionId) {
        let plan = self.plan;
        let mut program = Program::new(plan.seed, plan.peer_seed, plan.to_send, plan.window);
        let (mine, others) = std::mem::take(&mut self.programs.early)
            .into_iter()
            .partition(|(owner, ..)| *owner == id);
        self.programs.early = others;
        let mine: Vec<_> = mine;
        for (_, placement, payload) in mine {
            program.incoming.place(&placement, &payload);
        }
        self.programs.all.insert(id, program);
    }

    /// Events, then reading, writing and closing.
    pub fn work(&mut self, now: Duration) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    self.adopt(id);
                    self.stack.accept(id);
                }
                EndpointEvent::Connection(id, Event::Closed(reason)) => {
                    self.read(id);
                    self.programs.all.get_mut(&id).unwrap().closed = Some(reason);
                }
                EndpointEvent::Connection(id, event) => {
                    let program = self.programs.all.get_mut(&id).unwrap();
                    program.peer_finished |= event == Event::PeerFinished;
                    self.read(id);
                    self.write(id, now);
                }
            }
        }
    }

    fn read(&mut self, id: ConnectionId) {
        let program = self.programs.all.get_mut(&id).unwrap();
        let Some(delivered) = self
            .stack
            .tcp()
            .get(id)
            .map(|connection| connection.delivered())
        else {
            return;
        };
        let mut out = [0; 4096];
        loop {
            let read = program.incoming.read(delivered, &mut out);
            if read == 0 {
                break;
            }
            for octet in &out[..read] {
                let expected = pattern(program.peer_seed, program.checked);
                assert_eq!(
                    *octet, expected,
                    "octet {} of seed {}",
                    program.checked, program.peer_seed
                );
                program.checked += 1;
            }
            self.stack
                .command(id, |connection| connection.consume(read as u64));
        }
        if self.plan.retunes {
            self.retune(id, delivered);
        }
    }

    /// Other settings, drawn from how far the stream has come. The window never exceeds the one of the beginning, which
    /// the receive buffer has.
    fn retune(&mut self, id: ConnectionId, delivered: u64) {
        let (window, turn) = (self.plan.window, delivered / 1000 % 4);
        self.stack.command(id, |connection| {
            connection.set_no_delay(turn & 1 == 0);
            connection.set_ack_policy(AckPolicy::thinned(1 << turn));
            connection.set_receive_window(window >> turn.min(2));
        });
    }

    pub fn write(&mut self, id: ConnectionId, _now: Duration) {
        let plan = self.plan;
        let program = self.programs.all.get_mut(&id).unwrap();
        self.stack.command(id, |connection| {
            program
                .outgoing
                .release(connection.acknowledged())
                .for_each(drop);
            while program.buffered < program.to_send && connection.outstanding() < plan.send_buffer
            {
                let chunk = if plan.piece > 0 { plan.piece } else { 3000 };
                let len = chunk.min(program.to_send - program.buffered);
                let octets = (0..len).map(|i| pattern(program.seed, program.buffered + i));
                if !connection.write(len) {
                    return;
                }
                program.outgoing.push(octets.collect(), 0..len as usize);
                program.buffered += len;
                if plan.piece > 0 {
                    connection.cut();
                }
            }
            if program.buffered == program.to_send {
                connection.close();
            }
        });
    }

    /// A frame as it goes onto the link.
    fn octets(&self, mut frame: Frame) -> Vec<u8> {
        let pieces: Vec<&[u8]> = match &frame.payload {
            Payload::Empty => Vec::new(),
            Payload::Octets(octets) => vec![octets],
            Payload::Stream { connection, range } => {
                let outgoing = &self.programs.all[connection].outgoing;
                outgoing
                    .pieces(range.clone())
                    .map(|(buffer, octets)| &buffer[octets])
                    .collect()
            }
        };
        let pieces: Vec<Vec<u8>> = pieces.into_iter().map(<[u8]>::to_vec).collect();
        frame.finish_checksum(pieces.iter().map(Vec::as_slice));
        let mut octets = frame.head.to_vec();
        pieces
            .iter()
            .for_each(|piece| octets.extend_from_slice(piece));
        octets
    }

    fn transmit(&mut self, link: &mut Link<Wire>, now: Duration) {
        while let Some(frame) = self.stack.poll_transmit(now) {
            link.send(Wire(self.octets(frame)), now);
            // What was just settled may have ended a connection.
        }
        self.work(now);
    }

    fn receive(&mut self, link: &mut Link<Wire>, now: Duration) {
        while let Some(frame) = link.receive(now) {
            self.stack
                .handle_frame(&frame.0, FrameInfo::default(), &mut self.programs, now);
            self.work(now);
        }
    }
}

pub struct Hosts {
    pub now: Duration,
    pub a: Host,
    pub b: Host,
    pub to_b: Link<Wire>,
    pub to_a: Link<Wire>,
}

impl Hosts {
    pub fn new(a: Host, b: Host, link: LinkConfig, seed: u64) -> Hosts {
        Hosts {
            // Clocks of hosts do not begin at zero.
            now: Duration::from_secs(1_000_000),
            a,
            b,
            to_b: Link::new(link, seed),
            to_a: Link::new(link, !seed),
        }
    }

    pub fn step(&mut self) -> bool {
        self.a.transmit(&mut self.to_b, self.now);
        self.b.transmit(&mut self.to_a, self.now);
        let deadlines = [
            self.to_a.deadline(),
            self.to_b.deadline(),
            self.a.stack.deadline(),
            self.b.stack.deadline(),
        ];
        let Some(next) = deadlines.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.a.stack.handle_timeout(self.now);
        self.b.stack.handle_timeout(self.now);
        self.a.receive(&mut self.to_a, self.now);
        self.b.receive(&mut self.to_b, self.now);
        true
    }
}
