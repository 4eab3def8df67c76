//! The bodies of the fuzz targets, to be run by the fuzzer and, over the committed corpora, by the tests.
//!
//! Each takes any octets and panics when the code under test breaks a promise: that memory stays within its bounds,
//! that what is polled comes to an end, that every octet of a stream is placed once and within the window.

use crate::stack::{Cidr, Frame, FrameInfo, Payload, Route, Sink, Stack, StackConfig};
use crate::tcp::options::{Options, SackBlocks, Timestamps};
use crate::tcp::ranges::RangeSet;
use crate::tcp::{
    AckPolicy, Algorithm, Backlog, Config, ConnectionId, Endpoint, EndpointEvent, Flags, Header,
    KeepAlive, Limits, Placement, Secret, Seq, Tuple,
};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

/// Segments or frames that one input may cause to be sent: more is a loop without end.
const OCTETS_MAX: usize = 100_000;
const WINDOW: u64 = 20_000;

/// Takes an input apart; gives zeros at its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn octet(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.octet()) << 8 | u16::from(self.octet())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

fn config(flags: u8) -> Config {
    Config {
        receive_window: WINDOW,
        timestamps: flags & 1 != 0,
        sack: flags & 2 != 0,
        window_scaling: flags & 4 != 0,
        aligned: flags & 8 != 0,
        max_frame: if flags & 16 != 0 { 32_000 } else { 0 },
        mtu_probing: flags & 32 != 0,
        algorithm: match flags >> 6 {
            0 => Algorithm::Cubic,
            1 => Algorithm::Reno,
            2 => Algorithm::FixedRate { rate: 1_000_000 },
            _ => Algorithm::Unlimited,
        },
        ack: if flags & 32 != 0 {
            AckPolicy::thinned(16)
        } else {
            AckPolicy::default()
        },
        ..Config::default()
    }
}

/// Nobody: only looks whether what it is shown is there.
struct Nobody;

impl Sink for Nobody {
    fn place(&mut self, _connection: ConnectionId, placement: &Placement, payload: &[u8]) {
        assert!(payload
            .get(placement.octets.clone())
            .is_some_and(|octets| !octets.is_empty()));
    }

    fn datagram(&mut self, _local: SocketAddr, _remote: SocketAddr, _payload: &[u8]) {}
}

/// A whole stack and any frames. Input: flags of [`config`], then records of length (2 octets) and frame; a length of
/// 0xff00 or more lets time pass instead.
pub fn frames(data: &[u8]) {
    let mut input = Input(data);
    let mac = [2, 0, 0, 0, 0, 1];
    let limits = Limits {
        connections: 4,
        time_wait: 4,
        answers: 8,
    };
    let own = Ipv4Addr::new(10, 0, 0, 1);
    let own6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    let addresses = vec![
        Cidr::new(own, 24),
        Cidr::new(own6, 64),
        Cidr::new([10, 1, 0, 1], 16),
    ];
    let route = Route {
        destination: Cidr::new([192, 168, 0, 0], 16),
        gateway: Ipv4Addr::new(10, 0, 0, 254).into(),
    };
    let flags = input.octet();
    let mut stack = Stack::new(StackConfig {
        routes: vec![route],
        // With detection of duplicates, or the addresses used at once.
        dad_transmits: u32::from(flags >> 5) & 3,
        limits,
        neighbors: 8,
        reassembly: 10_000,
        queue: 8,
        ..StackConfig::new(mac, addresses, Secret([1; 16]))
    });
    let config = config(flags);
    let mut now = Duration::from_secs(1);
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
    let backlog = Backlog {
        handshakes: 2,
        connections: 2,
    };
    let listens = [both, SocketAddr::from((own, 80))]
        .map(|local| stack.listen(local, config.clone(), backlog));
    assert_eq!(listens, [Ok(()); 2]);
    stack.bind_udp(53);
    let remote = SocketAddr::from(([10, 0, 0, 2], 5000));
    stack
        .connect(remote, config.clone(), now)
        .expect("there is room");
    let own_port = SocketAddr::from((own6, 80));
    stack
        .connect(own_port, config, now)
        .expect("the address is known");
    let mut sent = 0;
    while !input.0.is_empty() {
        let len = input.word();
        if len >= 0xff00 {
            now += Duration::from_millis(u64::from(len & 0xff) * 100);
            stack.handle_timeout(now);
        } else {
            let info = FrameInfo::default();
            stack.handle_frame(input.take(len.into()), info, &mut Nobody, now);
        }
        while let Some(frame) = stack.poll_transmit(now) {
            sent += 1;
            assert!(sent < OCTETS_MAX, "frames without end");
            if frame.looped {
                stack.handle_frame(&looped(frame), FrameInfo::LOOPED, &mut Nobody, now);
            }
        }
        while let Some(event) = stack.poll_event() {
            // Every second is accepted: the other places in the queues stay taken.
            match event {
                EndpointEvent::Incoming(id) if sent & 1 == 0 => stack.accept(id),
                _ => {}
            }
        }
        assert!(stack.deadline().is_none_or(|at| at > Duration::ZERO));
        assert!(stack.tcp().len() <= 4 && stack.tcp().time_wait_len() <= 4);
        assert!(stack.reassembly_octets() <= 10_000 && stack.neighbor_count() <= 8);
    }
}

/// A frame for ourselves, with the octets of the stream it carries: all alike.
fn looped(frame: Frame) -> Vec<u8> {
    let mut octets = frame.head.to_vec();
    match frame.payload {
        Payload::Empty => {}
        Payload::Octets(body) => octets.extend(body),
        Payload::Stream { range, .. } => octets.extend(range.map(|_| 7)),
    }
    octets
}

/// One peer of an endpoint: what was placed, and what it last heard.
struct Peer {
    tuple: Tuple,
    /// Numbers of ours as the peer knows them.
    heard: Seq,
    next: Seq,
    placed: RangeSet,
    id: Option<ConnectionId>,
}

/// An endpoint and a peer that does anything. Input: flags of [`config`], whether we listen; then operations.
pub fn segments(data: &[u8]) {
    let mut input = Input(data);
    let config = config(input.octet());
    let mut endpoint = Endpoint::new(Secret([1; 16]), Limits::default());
    let mut now = Duration::from_secs(1);
    let tuple = Tuple {
        local: SocketAddr::from(([10, 0, 0, 1], 80)),
        remote: SocketAddr::from(([10, 0, 0, 2], 5000)),
    };
    let mut peer = Peer {
        tuple,
        heard: Seq(0),
        next: Seq(7),
        placed: RangeSet::default(),
        id: None,
    };
    if input.octet() & 1 == 0 {
        endpoint.listen(tuple.local, config, Backlog::new(1));
    } else {
        peer.id = endpoint
            .connect(tuple.local.ip(), 80, tuple.remote, config, now)
            .ok();
    }
    let mut sent = 0;
    while !input.0.is_empty() {
        match input.octet() {
            0 => {
                now += Duration::from_millis(u64::from(input.octet()) * 10);
                endpoint.handle_timeout(now);
            }
            1 => now = endpoint.deadline().unwrap_or(now).max(now),
            2 => command(&mut endpoint, &peer, &mut input, now),
            3 => endpoint.handle_packet_too_big(&tuple, peer.heard, input.word().into(), now),
            kind => inject(&mut endpoint, &mut peer, kind, &mut input, now),
        }
        endpoint.handle_timeout(now);
        while let Some((_, _, transmit)) = endpoint.poll_transmit(now) {
            sent += 1;
            assert!(sent < OCTETS_MAX, "segments without end");
            let data = transmit.payload.end - transmit.payload.start;
            peer.heard = transmit
                .header
                .seq
                .advanced(transmit.header.sequence_len(data as usize));
        }
        while endpoint.poll_event().is_some() {}
        check(&endpoint, &peer);
    }
}

fn command(endpoint: &mut Endpoint, peer: &Peer, input: &mut Input<'_>, now: Duration) {
    let Some(id) = peer.id else { return };
    let (kind, amount) = (input.octet() % 12, u64::from(input.word()));
    match kind {
        6 => return endpoint.accept(id),
        7 if amount % 8 == 0 => return endpoint.unlisten(peer.tuple.local),
        _ => {}
    }
    let millis = Duration::from_millis(amount);
    endpoint.command(id, |connection| match kind {
        0 | 1 => {
            connection.write(amount);
            connection.cut();
        }
        2 | 3 => connection.consume(amount),
        4 => connection.close(),
        7 => connection.set_no_delay(amount & 1 == 0),
        8 => connection.set_user_timeout((amount > 9).then_some(millis), now),
        9 => {
            let idle = millis.max(Duration::from_millis(1));
            let keep_alive = KeepAlive {
                idle,
                interval: idle,
                count: 3,
            };
            connection.set_keep_alive((amount > 9).then_some(keep_alive), now);
        }
        10 | 11 => {
            // What is checked below knows the window of the beginning.
            let window = connection.set_receive_window(amount.min(WINDOW));
            assert!(window <= WINDOW);
        }
        _ if amount % 4 == 0 => connection.abort(),
        _ => connection.detach(now),
    });
}

/// A segment about where the two ends are: so most get past the first checks.
fn inject(
    endpoint: &mut Endpoint,
    peer: &mut Peer,
    kind: u8,
    input: &mut Input<'_>,
    now: Duration,
) {
    let flags = Flags::from_bits_retain(
        input.octet() & 0x3f | if kind & 1 == 0 { Flags::ACK.bits() } else { 0 },
    );
    let seq = if kind & 2 == 0 {
        peer.next
    } else {
        peer.next.advanced(u64::from(input.word() % 4096))
    };
    let ack = if kind & 4 == 0 {
        peer.heard
    } else {
        Seq(peer.heard.0.wrapping_sub(input.word().into()))
    };
    let len = usize::from(input.word() % 3000);
    let mut sack = SackBlocks::default();
    for _ in 0..kind >> 6 {
        let left = Seq(peer.heard.0.wrapping_sub(input.word().into()));
        sack.push(left, left.advanced(input.word().into()));
    }
    let syn = flags.contains(Flags::SYN);
    let options = Options {
        mss: syn.then(|| input.word()),
        window_scale: (syn && kind & 8 != 0).then(|| input.octet() % 15),
        sack_permitted: syn,
        timestamps: (kind & 16 == 0).then(|| Timestamps {
            value: (now.as_millis() as u32),
            echo: input.word().into(),
        }),
        sack,
    };
    let header = Header {
        source: peer.tuple.remote.port(),
        destination: 80,
        seq,
        ack,
        flags,
        window: input.word(),
        urgent: if kind & 32 != 0 { input.word() } else { 0 },
        options,
    };
    let before = peer
        .id
        .and_then(|id| endpoint.get(id))
        .map_or(0, |connection| connection.delivered());
    let id = endpoint.handle_segment(&peer.tuple, &header, len, now);
    if id.is_some() && id != peer.id {
        // A new connection of the same two ends: a stream of its own.
        peer.id = id;
        peer.placed.clear();
    }
    if let Some(id) = id {
        endpoint.command(id, |connection| {
            let placements: Vec<_> = connection.placements().collect();
            for placement in placements {
                let range = placement.offset..placement.offset + placement.octets.len() as u64;
                assert!(placement.octets.end <= len && !range.is_empty());
                assert!(range.end <= before + 2 * WINDOW, "beyond the window");
                if Some(id) == peer.id {
                    assert_eq!(
                        peer.placed.first_gap(range.clone()),
                        Some(range.clone()),
                        "placed twice"
                    );
                    peer.placed.insert(range);
                }
            }
        });
    }
    if seq == peer.next {
        peer.next = seq.advanced(header.sequence_len(len));
    }
}

fn check(endpoint: &Endpoint, peer: &Peer) {
    let Some(connection) = peer.id.and_then(|id| endpoint.get(id)) else {
        return;
    };
    assert!(connection.acknowledged() <= connection.written());
    assert!(connection.out_of_order() <= WINDOW);
    let urgent = connection.urgent().unwrap_or_default();
    assert!(urgent <= connection.delivered() + WINDOW + 0xffff);
    let in_order = peer.placed.containing(0).map_or(0, |range| range.end);
    assert_eq!(connection.delivered(), in_order);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn corpus(target: &str, body: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for entry in entries {
            body(&std::fs::read(entry.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_corpora_still_pass() {
        corpus("inet_frames", frames);
        corpus("inet_segments", segments);
    }

    /// What the fuzzer does, without its guidance: enough to find what is easily found.
    #[test]
    fn any_octets_will_do() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        for round in 0..3000 {
            let octets: Vec<u8> = (0..20 + round % 400).map(|_| random()).collect();
            segments(&octets);
            frames(&octets);
        }
    }
}
