//! What a connection that is under way allocates: nothing. Every buffer and table it needs for the next segment is
//! there from the segments before.

use stats_alloc::{Region, StatsAlloc, INSTRUMENTED_SYSTEM};
use std::alloc::System;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use weft_inet::stack::{Cidr, FrameInfo, Payload, Sink, Stack, StackConfig};
use weft_inet::tcp::{Backlog, Config, ConnectionId, EndpointEvent, Event, Placement, Secret};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const INFO: FrameInfo = FrameInfo {
    checksum_good: true,
    looped: false,
};

struct Nobody;

impl Sink for Nobody {
    fn place(&mut self, _: ConnectionId, _: &Placement, _: &[u8]) {}
    fn datagram(&mut self, _: SocketAddr, _: SocketAddr, _: &[u8]) {}
}

struct End {
    stack: Stack,
    connection: Option<ConnectionId>,
    taken: u64,
}

fn end(last: u8) -> End {
    let addresses = vec![
        Cidr::new(Ipv4Addr::new(10, 0, 0, last), 24),
        Cidr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()), 64),
    ];
    let config = StackConfig {
        dad_transmits: 0,
        ..StackConfig::new([2, 0, 0, 0, 0, last], addresses, Secret([last; 16]))
    };
    End {
        stack: Stack::new(config),
        connection: None,
        taken: 0,
    }
}

/// Gives what one sends to the other, which takes it.
fn give(from: &mut End, to: &mut End, wire: &mut Vec<u8>, now: Duration) {
    while let Some(frame) = from.stack.poll_transmit(now) {
        wire.clear();
        wire.extend_from_slice(&frame.head);
        match frame.payload {
            Payload::Empty => {}
            Payload::Octets(octets) => wire.extend_from_slice(&octets),
            Payload::Stream { range, .. } => {
                wire.resize(wire.len() + (range.end - range.start) as usize, 7);
            }
        }
        to.stack.handle_frame(wire, INFO, &mut Nobody, now);
        while let Some(event) = to.stack.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    to.connection = Some(id);
                    to.stack.accept(id);
                }
                EndpointEvent::Connection(id, Event::Delivered) => {
                    let taken = to.taken;
                    let delivered = to.stack.command(id, |connection| {
                        let delivered = connection.delivered();
                        connection.consume(delivered - taken);
                        delivered
                    });
                    to.taken = delivered.unwrap();
                }
                _ => {}
            }
        }
    }
}

/// 64 octets to and fro, then bulk one way, some milliseconds of virtual time apart so that timers expire too.
#[test]
fn segments_allocate_nothing() {
    for ipv6 in [false, true] {
        let (mut a, mut b) = (end(1), end(2));
        let address = b.stack.config().addresses[usize::from(ipv6)].address;
        let remote = SocketAddr::new(address, 80);
        let listens = b.stack.listen(remote, Config::default(), Backlog::new(8));
        assert_eq!(listens, Ok(()));
        let mut now = Duration::from_secs(1);
        a.connection = a.stack.connect(remote, Config::default(), now).ok();
        let mut wire = Vec::with_capacity(2048);
        let mut round = |a: &mut End, b: &mut End, octets: u64| {
            now += Duration::from_micros(500);
            for end in [&mut *a, &mut *b] {
                if let Some(id) = end.connection {
                    end.stack.command(id, |connection| connection.write(octets));
                }
            }
            for _ in 0..4 {
                give(a, b, &mut wire, now);
                give(b, a, &mut wire, now);
            }
            for end in [a, b] {
                if end.stack.deadline().is_some_and(|at| at <= now) {
                    end.stack.handle_timeout(now);
                }
            }
        };
        for octets in [64, 20_000] {
            for _ in 0..200 {
                round(&mut a, &mut b, octets);
            }
            let before = (a.taken, b.taken);
            let region = Region::new(ALLOCATOR);
            for _ in 0..1000 {
                round(&mut a, &mut b, octets);
            }
            let change = region.change();
            assert!(
                a.taken >= before.0 + 900 * octets && b.taken >= before.1 + 900 * octets,
                "the connection stands still: {before:?} {:?}",
                (a.taken, b.taken)
            );
            // The table of deadlines has one entry, moved when its time comes: at most a node for each look.
            let looks = 1000 / 80;
            assert!(
                change.allocations <= 2 * looks,
                "{octets} octets, IPv6 {ipv6}: {change:?}"
            );
        }
    }
}
