//! What a segment costs in instructions: two stacks joined in memory, without a device and without a payload to copy
//! but what a frame carries.
//!
//!     cargo build --release -p weft-inet --example segment_cost
//!     valgrind --tool=callgrind target/release/examples/segment_cost ping 100000
//!     valgrind --tool=callgrind target/release/examples/segment_cost bulk 100000
//!
//! Divide the difference of two counts by the difference of their numbers: start-up falls out. `ping` sends 64 octets
//! back and forth, so a hop is one segment with everything a driver does for it: frame in, octets to their place,
//! events, the program takes and writes, deadline asked, frame out. `bulk` sends full segments of 1500 octets one way;
//! a count is a segment of data with its share of the ACKs.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use weft_inet::stack::{Cidr, Frame, FrameInfo, Payload, Sink, Stack, StackConfig};
use weft_inet::tcp::{
    Algorithm, Backlog, Config, ConnectionId, EndpointEvent, Event, Placement, Secret,
};

const PING_LEN: u64 = 64;
const INFO: FrameInfo = FrameInfo {
    checksum_good: true,
    looped: false,
};

/// Memory that octets are placed into.
struct Target(Vec<u8>);

impl Sink for Target {
    fn place(&mut self, _: ConnectionId, placement: &Placement, payload: &[u8]) {
        let octets = &payload[placement.octets.clone()];
        let at = placement.offset as usize % (self.0.len() / 2);
        self.0[at..at + octets.len()].copy_from_slice(octets);
    }

    fn datagram(&mut self, _: SocketAddr, _: SocketAddr, _: &[u8]) {}
}

/// One end, with the program behind it.
struct End {
    stack: Stack,
    connection: Option<ConnectionId>,
    memory: Target,
    source: Vec<u8>,
    taken: u64,
    established: bool,
}

impl End {
    fn new(last: u8) -> End {
        let addresses = vec![Cidr::new(Ipv4Addr::new(10, 0, 0, last), 24)];
        let config = StackConfig::new([2, 0, 0, 0, 0, last], addresses, Secret([last; 16]));
        End {
            stack: Stack::new(config),
            connection: None,
            memory: Target(vec![0; 1 << 17]),
            source: vec![7; 1 << 16],
            taken: 0,
            established: false,
        }
    }

    /// A frame came; what the driver and the program do about it. Returns the octets that the program took.
    fn receive(&mut self, octets: &[u8], now: Duration) -> u64 {
        self.stack.handle_frame(octets, INFO, &mut self.memory, now);
        let mut took = 0;
        while let Some(event) = self.stack.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    self.connection = Some(id);
                    self.stack.accept(id);
                }
                EndpointEvent::Connection(_, Event::Established) => self.established = true,
                EndpointEvent::Connection(id, Event::Delivered) => {
                    let taken = self.taken;
                    let delivered = self.stack.command(id, |connection| {
                        let delivered = connection.delivered();
                        connection.consume(delivered - taken);
                        delivered
                    });
                    self.taken = delivered.unwrap_or(taken);
                    took += self.taken - taken;
                }
                _ => {}
            }
        }
        took
    }

    fn write(&mut self, octets: u64) {
        if let Some(id) = self.connection {
            self.stack
                .command(id, |connection| connection.write(octets));
        }
    }

    /// The next frame as it goes to a device.
    fn transmit<'a>(&mut self, wire: &'a mut Vec<u8>, now: Duration) -> Option<&'a [u8]> {
        let frame: Frame = self.stack.poll_transmit(now)?;
        wire.clear();
        wire.extend_from_slice(&frame.head);
        if let Payload::Stream { range, .. } = &frame.payload {
            wire.extend_from_slice(&self.source[..(range.end - range.start) as usize]);
        }
        Some(wire)
    }

    /// What a loop does between frames.
    fn rest(&mut self, now: Duration) {
        if self.stack.deadline().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
    }
}

fn pair(config: &Config, now: Duration) -> (End, End) {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
    let listens = b.stack.listen(everywhere, config.clone(), Backlog::new(8));
    assert_eq!(listens, Ok(()));
    let remote = SocketAddr::from(([10, 0, 0, 2], 80));
    let id = a.stack.connect(remote, config.clone(), now);
    a.connection = Some(id.expect("there is room"));
    (a, b)
}

/// Gives everything that either sends to the other; says what the two programs took.
fn exchange(a: &mut End, b: &mut End, wire: &mut Vec<u8>, now: Duration) -> (u64, u64) {
    let mut took = (0, 0);
    while let Some(octets) = a.transmit(wire, now) {
        took.1 += b.receive(octets, now);
    }
    while let Some(octets) = b.transmit(wire, now) {
        took.0 += a.receive(octets, now);
    }
    a.rest(now);
    b.rest(now);
    took
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (kind, count) = match &arguments[..] {
        [kind, count] => (kind.as_str(), count.parse::<u64>().expect("a number")),
        _ => ("ping", 100_000),
    };
    let step = Duration::from_micros(1);
    let mut now = Duration::from_secs(1);
    let mut wire = Vec::with_capacity(2048);
    let config = Config {
        algorithm: Algorithm::Unlimited,
        receive_window: 1 << 16,
        ..Config::default()
    };
    let (mut a, mut b) = pair(&config, now);
    while !(a.established && b.connection.is_some()) {
        exchange(&mut a, &mut b, &mut wire, now);
        now += step;
    }
    match kind {
        "ping" => {
            let mut hops = 0;
            a.write(PING_LEN);
            while hops < count {
                now += step;
                while let Some(octets) = a.transmit(&mut wire, now) {
                    if b.receive(octets, now) == PING_LEN {
                        b.write(PING_LEN);
                        hops += 1;
                    }
                }
                b.rest(now);
                now += step;
                while let Some(octets) = b.transmit(&mut wire, now) {
                    if a.receive(octets, now) == PING_LEN {
                        a.write(PING_LEN);
                        hops += 1;
                    }
                }
                a.rest(now);
            }
        }
        "bulk" => {
            a.write(count * 1448);
            let mut taken = 0;
            while taken < count * 1448 {
                now += step;
                taken += exchange(&mut a, &mut b, &mut wire, now).1;
            }
        }
        other => panic!("no such pattern: {other} (there are ping, bulk)"),
    }
    let counters = |end: &End| {
        let id = end.connection.expect("it is there");
        end.stack.tcp().get(id).expect("it is there").counters()
    };
    println!(
        "{kind} {count}: sent {} and {} segments",
        counters(&a).segments_sent,
        counters(&b).segments_sent
    );
}
