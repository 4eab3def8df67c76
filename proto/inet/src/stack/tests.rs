//! Frames in, frames out: ARP, neighbour discovery, echo, UDP, errors, fragments.

mod detection;
mod echo;
mod routers;

use super::*;
use crate::checksum::{self, Checksum};
use crate::tcp::{EndpointEvent, Event, Placement, Secret, State};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NOW: Duration = Duration::from_secs(1);
const OWN_MAC: Mac = [2, 0, 0, 0, 0, 1];
const PEER_MAC: Mac = [2, 0, 0, 0, 0, 2];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// From whatever address suits.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

#[derive(Default)]
struct Taken(
    Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    Vec<(SocketAddr, SocketAddr)>,
);

impl Sink for Taken {
    fn place(&mut self, _: ConnectionId, _: &Placement, _: &[u8]) {}

    fn datagram(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.0.push((local, remote, payload.to_vec()));
    }

    fn refused(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.1.push((local, remote));
    }
}

fn config(mac: Mac, last: u8) -> StackConfig {
    let ipv4 = Ipv4Addr::new(10, 0, 0, last);
    let ipv6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into());
    let addresses = Vec::from([Cidr::new(ipv4, 24), Cidr::new(ipv6, 64)]);
    StackConfig {
        routes: Vec::from([Route {
            destination: Cidr::new(Ipv4Addr::UNSPECIFIED, 0),
            gateway: IpAddr::from([10, 0, 0, 254]),
        }]),
        // Its tests are their own, in `detection.rs`.
        dad_transmits: 0,
        ..StackConfig::new(mac, addresses, Secret([last; 16]))
    }
}

fn stack(mac: Mac, last: u8) -> Stack {
    Stack::new(config(mac, last))
}

fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
}

/// A frame as it goes onto the line; what it carries of a stream is all zero.
fn octets(mut frame: Frame) -> Vec<u8> {
    let body = match &frame.payload {
        Payload::Empty => Vec::new(),
        Payload::Octets(octets) => octets.clone(),
        Payload::Stream { range, .. } => alloc::vec![0; (range.end - range.start) as usize],
    };
    frame.finish_checksum([&body[..]]);
    [&frame.head[..], &body].concat()
}

fn sent_at(stack: &mut Stack, now: Duration) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| stack.poll_transmit(now))
        .map(octets)
        .collect()
}

fn sent(stack: &mut Stack) -> Vec<Vec<u8>> {
    sent_at(stack, NOW)
}

/// Lets two stacks talk until both are silent; gives every frame that was on the line.
fn talk(a: &mut Stack, b: &mut Stack, taken: &mut Taken) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let (from_a, from_b) = (sent(a), sent(b));
        if from_a.is_empty() && from_b.is_empty() {
            return all;
        }
        for frame in &from_a {
            b.handle_frame(frame, FrameInfo::default(), taken, NOW);
        }
        for frame in &from_b {
            a.handle_frame(frame, FrameInfo::default(), taken, NOW);
        }
        all.extend(from_a);
        all.extend(from_b);
    }
}

/// An IPv4 packet from the peer in a frame.
fn ipv4(protocol: u8, identification: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&OWN_MAC[..], &PEER_MAC, &[8, 0]].concat();
    let len = (20 + payload.len()) as u16;
    let mut header = Vec::from([0x45, 0]);
    for field in [len, identification, fragment] {
        header.extend_from_slice(&field.to_be_bytes());
    }
    header.extend_from_slice(&[64, protocol, 0, 0]);
    header.extend_from_slice(&PEER.octets());
    header.extend_from_slice(&OWN.octets());
    let sum = checksum::of(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&header);
    frame.extend_from_slice(payload);
    frame
}

fn echo() -> Vec<u8> {
    let mut message = [&[8, 0, 0, 0, 0, 7, 0, 1][..], b"are you there"].concat();
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Somebody on the line says that he is we: an answer would go to ourselves, and a SYN would open a connection between
/// our own ports (RFC 1122 section 3.2.1.3).
#[test]
fn what_comes_from_the_line_with_our_own_address_is_ignored() {
    let mut own = stack(OWN_MAC, 1);
    let mut frame = ipv4(1, 1, 0, &echo());
    frame[26..30].copy_from_slice(&OWN.octets());
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut taken = Taken::default();
    own.handle_frame(&frame, FrameInfo::default(), &mut taken, NOW);
    assert_eq!(
        (own.counters().ignored, own.counters().bad_checksum),
        (1, 0)
    );
    assert!(sent(&mut own).is_empty());
    // As it is one of our own, it is answered, to ourselves.
    own.handle_frame(&frame, FrameInfo::LOOPED, &mut taken, NOW);
    assert_eq!(sent(&mut own).len(), 1);
}

/// RFC 826, RFC 792: the answer waits for the address, and the request for it is asked once.
#[test]
fn echo_finds_its_way_back_by_arp() {
    let mut own = stack(OWN_MAC, 1);
    own.handle_frame(
        &ipv4(1, 1, 0, &echo()),
        FrameInfo::default(),
        &mut Taken::default(),
        NOW,
    );
    let request = sent(&mut own);
    assert_eq!(request.len(), 1);
    assert_eq!(request[0][..6], [0xff; 6]);
    let mut peer = stack(PEER_MAC, 2);
    peer.handle_frame(
        &request[0],
        FrameInfo::default(),
        &mut Taken::default(),
        NOW,
    );
    let answer = sent(&mut peer);
    own.handle_frame(&answer[0], FrameInfo::default(), &mut Taken::default(), NOW);
    let reply = sent(&mut own);
    assert_eq!(reply.len(), 1);
    assert_eq!(reply[0][..6], PEER_MAC);
    assert_eq!(reply[0][34], 0, "an echo reply");
    assert_eq!(reply[0][42..], *b"are you there");
    assert_eq!(checksum::of(&reply[0][34..]), 0);
}

#[test]
fn a_wrong_checksum_is_counted_and_dropped() {
    let mut own = stack(OWN_MAC, 1);
    let mut message = echo();
    message[9] ^= 1;
    let mut frame = ipv4(1, 1, 0, &message);
    own.handle_frame(&frame, FrameInfo::default(), &mut Taken::default(), NOW);
    frame[20] ^= 1;
    own.handle_frame(&frame, FrameInfo::default(), &mut Taken::default(), NOW);
    assert_eq!(own.counters().bad_checksum, 2);
    assert!(sent(&mut own).is_empty());
}

/// Both versions, with the neighbour found by ARP or by solicitation.
#[test]
fn datagrams_arrive_over_both_versions() {
    for remote in [IpAddr::V4(PEER), IpAddr::V6(PEER6)] {
        let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
        assert!(peer.bind_udp(53));
        let to = SocketAddr::new(remote, 53);
        assert_eq!(own.send_udp(ANY, to, b"question", NOW), Ok(()));
        let mut taken = Taken::default();
        talk(&mut own, &mut peer, &mut taken);
        let own_address = if remote.is_ipv4() {
            IpAddr::V4(OWN)
        } else {
            IpAddr::V6(OWN6)
        };
        assert_eq!(
            taken.0,
            [(to, SocketAddr::new(own_address, 9), b"question".to_vec())]
        );
    }
}

/// Datagrams that are longer than the link takes come together again, of the greatest length, too.
#[test]
fn long_datagrams_leave_in_fragments() {
    for remote in [IpAddr::V4(PEER), IpAddr::V6(PEER6)] {
        let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
        assert!(peer.bind_udp(53));
        let to = SocketAddr::new(remote, 53);
        let long: Vec<u8> = (0..PAYLOAD_OCTETS_MAX + 1).map(|at| at as u8).collect();
        own.send_udp(ANY, to, b"who are you", NOW).unwrap();
        talk(&mut own, &mut peer, &mut Taken::default());
        for len in [2000, PAYLOAD_OCTETS_MAX] {
            own.send_udp(ANY, to, &long[..len], NOW).unwrap();
            let mut taken = Taken::default();
            talk(&mut own, &mut peer, &mut taken);
            assert_eq!(taken.0.len(), 1, "{len} octets to {remote}");
            assert_eq!(taken.0[0].2, long[..len]);
        }
        assert_eq!(own.send_udp(ANY, to, &long, NOW), Err(SendError::TooLong));
    }
}

#[test]
fn a_datagram_comes_from_the_address_that_was_named() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    assert!(peer.bind_udp(53));
    let to = SocketAddr::from((PEER, 53));
    let from = SocketAddr::from((OWN, 7));
    own.send_udp(from, to, b"x", NOW).unwrap();
    let mut taken = Taken::default();
    talk(&mut own, &mut peer, &mut taken);
    assert_eq!(taken.0, [(to, from, b"x".to_vec())]);
    for foreign in [
        SocketAddr::from((PEER, 7)),
        SocketAddr::from((OWN6, 7)),
        SocketAddr::from(([10, 0, 0, 77], 7)),
    ] {
        let sent = own.send_udp(foreign, to, b"x", NOW);
        assert_eq!(sent, Err(SendError::NotOurs), "{foreign}");
    }
}

/// All of a datagram finds room in the queue, or none of it.
#[test]
fn a_full_queue_takes_no_part_of_a_datagram() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    assert!(peer.bind_udp(53));
    let to = SocketAddr::from((PEER, 53));
    own.send_udp(ANY, to, b"who are you", NOW).unwrap();
    talk(&mut own, &mut peer, &mut Taken::default());
    let room = own.config().queue;
    for _ in 1..room {
        own.send_udp(ANY, to, b"x", NOW).unwrap();
    }
    let sent = own.send_udp(ANY, to, &[0; 2000], NOW);
    assert_eq!(sent, Err(SendError::Full));
    assert_eq!(own.send_udp(ANY, to, b"x", NOW), Ok(()));
    let mut frames = 0;
    while own.poll_transmit(NOW).is_some() {
        frames += 1;
    }
    assert_eq!(frames, room);
}

#[test]
fn whether_a_datagram_would_leave_is_known_before() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    let (here, there) = (IpAddr::V4(OWN), IpAddr::V4(PEER));
    assert_eq!(own.reach(here, here, NOW), Reach::Now, "it is ours");
    let beyond = "2001::1".parse().unwrap();
    assert_eq!(own.reach(IpAddr::V6(OWN6), beyond, NOW), Reach::Nowhere);
    let Reach::Asking { since, room } = own.reach(here, there, NOW) else {
        panic!("nobody has told");
    };
    assert_eq!(since, NOW);
    for left in (0..room).rev() {
        let to = SocketAddr::new(there, 53);
        own.send_udp(ANY, to, b"x", NOW).unwrap();
        let room = own.reach(here, there, NOW + Duration::from_millis(1));
        assert_eq!(room, Reach::Asking { since, room: left });
    }
    talk(&mut own, &mut peer, &mut Taken::default());
    assert_eq!(own.reach(here, there, NOW), Reach::Now);
}

/// RFC 1122 section 4.1.3.1, RFC 4443 section 3.1.
#[test]
fn a_port_without_an_owner_is_reported() {
    for remote in [IpAddr::V4(PEER), IpAddr::V6(PEER6)] {
        let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
        own.send_udp(ANY, SocketAddr::new(remote, 53), b"question", NOW)
            .unwrap();
        let mut taken = Taken::default();
        let frames = talk(&mut own, &mut peer, &mut taken);
        let sender = match remote {
            IpAddr::V4(_) => IpAddr::V4(OWN),
            IpAddr::V6(_) => IpAddr::V6(OWN6),
        };
        let ends = [(sender, 9), (remote, 53)].map(SocketAddr::from);
        assert_eq!(taken.1, [(ends[0], ends[1])], "its sender is told");
        let error = frames.last().unwrap();
        let at = if remote.is_ipv4() { 34 } else { 54 };
        let expected = if remote.is_ipv4() { [3, 3] } else { [1, 4] };
        assert_eq!(error[at..at + 2], expected);
    }
}

/// RFC 791 section 3.2: a datagram in two fragments, the second first.
#[test]
fn fragments_come_together() {
    let mut own = stack(OWN_MAC, 1);
    own.bind_udp(53);
    let mut datagram = [&[0, 9, 0, 53, 0, 24, 0, 0][..], b"sixteen octets.."].concat();
    let mut sum = Checksum::pseudo(
        IpAddr::V4(PEER),
        IpAddr::V4(OWN),
        protocol::UDP,
        datagram.len(),
    );
    sum.add(&datagram);
    datagram[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    let mut taken = Taken::default();
    let second = ipv4(17, 5, 2, &datagram[16..]);
    let first = ipv4(17, 5, 0x2000, &datagram[..16]);
    own.handle_frame(&second, FrameInfo::default(), &mut taken, NOW);
    assert!(taken.0.is_empty());
    own.handle_frame(&first, FrameInfo::default(), &mut taken, NOW);
    assert_eq!(taken.0[0].2, b"sixteen octets..");
}

/// RFC 1191: the packet that a router could not forward is quoted, and its connection sends smaller ones.
#[test]
fn a_router_that_says_too_big_reaches_the_connection() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    listen(&mut peer, everywhere(80));
    let remote = SocketAddr::new(IpAddr::V4(PEER), 80);
    let id = own.connect(remote, Config::default(), NOW).unwrap();
    talk(&mut own, &mut peer, &mut Taken::default());
    own.command(id, |connection| connection.write(3000));
    let frame = own.poll_transmit(NOW).unwrap();
    let Payload::Stream { range, .. } = &frame.payload else {
        panic!("no data")
    };
    assert_eq!(range.end - range.start, 1448);
    let mut message = [&[3, 4, 0, 0, 0, 0, 0x04, 0xb0][..], &frame.head[14..42]].concat();
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    own.handle_frame(
        &ipv4(1, 3, 0, &message),
        FrameInfo::default(),
        &mut Taken::default(),
        NOW,
    );
    assert_eq!(own.tcp().get(id).unwrap().mss(), 1200 - 40 - 12);
}

#[test]
fn a_large_frame_says_how_to_cut_it() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    listen(&mut peer, everywhere(80));
    let config = Config {
        max_frame: 65_535,
        ..Config::default()
    };
    let id = own
        .connect(SocketAddr::new(IpAddr::V6(PEER6), 80), config, NOW)
        .unwrap();
    talk(&mut own, &mut peer, &mut Taken::default());
    own.command(id, |connection| connection.write(10_000));
    let frame = own.poll_transmit(NOW).unwrap();
    assert_eq!((frame.vnet.gso_type, frame.vnet.gso_size), (4, 1428));
    assert_eq!(usize::from(frame.vnet.header_len), frame.head.len());
    assert!(frame.vnet.needs_checksum);
}

fn listen(stack: &mut Stack, local: SocketAddr) {
    let listens = stack.listen(local, Config::default(), Backlog::new(8));
    assert_eq!(listens, Ok(()));
}

/// What came in and was not told yet.
fn incoming(stack: &mut Stack) -> Option<ConnectionId> {
    core::iter::from_fn(|| stack.poll_event()).find_map(|event| match event {
        EndpointEvent::Incoming(id) => Some(id),
        _ => None,
    })
}

fn is_established(stack: &Stack, id: ConnectionId) -> bool {
    let connection = stack.tcp().get(id);
    connection.is_some_and(|connection| connection.state() == State::Established)
}

/// A listener that takes both versions: the packets of either fit the MTU, whatever the peer takes.
#[test]
fn a_dual_stack_listener_keeps_to_the_mtu_of_both_versions() {
    for remote in [IpAddr::V4(PEER), IpAddr::V6(PEER6)] {
        let mut own = Stack::new(StackConfig {
            mtu: 9000,
            ..config(OWN_MAC, 1)
        });
        let mut peer = stack(PEER_MAC, 2);
        listen(&mut peer, everywhere(80));
        let config = Config {
            mtu: 9000,
            ..Config::default()
        };
        own.connect(SocketAddr::new(remote, 80), config, NOW)
            .unwrap();
        let frames = talk(&mut own, &mut peer, &mut Taken::default());
        let syn_ack = &frames[frames.len() - 2];
        let options = if remote.is_ipv4() { 34 + 20 } else { 54 + 20 };
        let mss = u16::from_be_bytes([syn_ack[options + 2], syn_ack[options + 3]]);
        assert_eq!(usize::from(mss), 1500 - (options - ETHERNET_LEN));
        let id = incoming(&mut peer).unwrap();
        peer.command(id, |connection| connection.write(20_000));
        let packet = octets(peer.poll_transmit(NOW).unwrap()).len() - ETHERNET_LEN;
        assert_eq!(packet, 1500, "to {remote}");
    }
}

#[test]
fn a_connection_leaves_from_the_address_and_port_that_were_chosen() {
    let second = Ipv4Addr::new(10, 0, 0, 9);
    let mut settings = config(OWN_MAC, 1);
    settings.addresses.push(Cidr::new(second, 24));
    let (mut own, mut peer) = (Stack::new(settings), stack(PEER_MAC, 2));
    listen(&mut peer, everywhere(80));
    let remote = SocketAddr::from((PEER, 80));
    let connect = |own: &mut Stack, local: SocketAddr| {
        own.connect_from(local, remote, Config::default(), NOW)
    };
    let id = connect(&mut own, SocketAddr::from((second, 7000))).unwrap();
    talk(&mut own, &mut peer, &mut Taken::default());
    assert!(is_established(&own, id));
    let there = incoming(&mut peer).unwrap();
    let seen = peer.tcp().tuple(there).unwrap().remote;
    assert_eq!(seen, SocketAddr::from((second, 7000)));
    let again = connect(&mut own, SocketAddr::from((second, 7000)));
    assert_eq!(again, Err(ConnectError::InUse));
    // Either may be left open.
    let any_port = connect(&mut own, SocketAddr::from((second, 0))).unwrap();
    assert_eq!(own.tcp().tuple(any_port).unwrap().local.ip(), second);
    let any_address = connect(&mut own, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7000))).unwrap();
    assert_eq!(
        own.tcp().tuple(any_address).unwrap().local,
        SocketAddr::from((OWN, 7000))
    );
    for local in [
        SocketAddr::from((PEER, 0)),
        SocketAddr::from((OWN6, 0)),
        SocketAddr::from(([127, 0, 0, 1], 0)),
    ] {
        assert_eq!(connect(&mut own, local), Err(ConnectError::NotOurs));
    }
    let nowhere = SocketAddr::from((Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 1), 80));
    assert_eq!(
        own.connect(nowhere, Config::default(), NOW),
        Err(ConnectError::NoRoute)
    );
}

/// Of the listeners for one port, the one of the address is asked before the one of the version, and that before the
/// one of both.
#[test]
fn the_listener_that_says_most_is_asked() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    let places = [
        everywhere(80),
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80)),
        SocketAddr::from((PEER, 80)),
    ];
    for place in places {
        listen(&mut peer, place);
    }
    let taken_already = peer.listen(places[2], Config::default(), Backlog::new(1));
    assert_eq!(taken_already, Err(ListenError::InUse));
    let stranger = SocketAddr::from((OWN, 80));
    assert_eq!(
        peer.listen(stranger, Config::default(), Backlog::new(1)),
        Err(ListenError::NotOurs)
    );
    let waiting =
        |peer: &Stack| places.map(|place| peer.tcp().listener(place).unwrap().waiting().count());
    for (remote, expected) in [
        (IpAddr::V4(PEER), [0, 0, 1]),
        (IpAddr::V6(PEER6), [1, 0, 1]),
    ] {
        own.connect(SocketAddr::new(remote, 80), Config::default(), NOW)
            .unwrap();
        talk(&mut own, &mut peer, &mut Taken::default());
        assert_eq!(waiting(&peer), expected);
    }
    peer.unlisten(places[2]);
    own.connect(SocketAddr::from((PEER, 80)), Config::default(), NOW)
        .unwrap();
    talk(&mut own, &mut peer, &mut Taken::default());
    assert_eq!(peer.tcp().listener(places[1]).unwrap().waiting().count(), 1);
}

/// Whom the program has accepted stays when it stops to listen; who waits is reset, and so is whoever comes then.
#[test]
fn who_stops_to_listen_resets_those_that_wait() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    listen(&mut peer, everywhere(80));
    let remote = SocketAddr::from((PEER, 80));
    let connect = |own: &mut Stack, peer: &mut Stack| {
        let id = own.connect(remote, Config::default(), NOW).unwrap();
        talk(own, peer, &mut Taken::default());
        id
    };
    let accepted = connect(&mut own, &mut peer);
    let id = incoming(&mut peer).unwrap();
    peer.accept(id);
    let waits = connect(&mut own, &mut peer);
    assert!(is_established(&own, waits));
    peer.unlisten(everywhere(80));
    talk(&mut own, &mut peer, &mut Taken::default());
    let late = connect(&mut own, &mut peer);
    assert!(is_established(&own, accepted) && is_established(&peer, id));
    assert!(own.tcp().get(waits).is_none() && own.tcp().get(late).is_none());
    let closed: Vec<_> = core::iter::from_fn(|| own.poll_event())
        .filter(|event| matches!(event, EndpointEvent::Connection(_, Event::Closed(_))))
        .collect();
    assert_eq!(closed.len(), 2);
    assert_eq!(peer.tcp().len(), 1);
}

/// A program that does not accept: its queue keeps its length, and the peers' segments, repeated, complete the
/// handshakes once there is room.
#[test]
fn connections_wait_within_the_backlog() {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    let backlog = Backlog {
        handshakes: 8,
        connections: 2,
    };
    let place = everywhere(80);
    peer.listen(place, Config::default(), backlog).unwrap();
    let remote = SocketAddr::from((PEER, 80));
    for _ in 0..5 {
        own.connect(remote, Config::default(), NOW).unwrap();
    }
    talk(&mut own, &mut peer, &mut Taken::default());
    assert_eq!(peer.tcp().len(), 2);
    assert_eq!(peer.tcp().listener(place).unwrap().waiting().count(), 2);
    let mut accepted = 0;
    let mut now = NOW;
    while accepted < 5 {
        while let Some(id) = incoming(&mut peer) {
            assert!(peer.tcp().listener(place).unwrap().waiting().count() <= 2);
            peer.accept(id);
            accepted += 1;
        }
        now += Duration::from_millis(500);
        assert!(now < NOW + Duration::from_secs(30), "{accepted} accepted");
        for stack in [&mut own, &mut peer] {
            stack.handle_timeout(now);
        }
        loop {
            let (there, back) = (sent_at(&mut own, now), sent_at(&mut peer, now));
            if there.is_empty() && back.is_empty() {
                break;
            }
            let nobody = &mut Taken::default();
            there
                .iter()
                .for_each(|frame| peer.handle_frame(frame, FrameInfo::default(), nobody, now));
            back.iter()
                .for_each(|frame| own.handle_frame(frame, FrameInfo::default(), nobody, now));
        }
    }
    assert_eq!((own.tcp().len(), peer.tcp().len()), (5, 5));
    // One that ends before it is accepted leaves the queue too.
    assert_eq!(peer.tcp().listener(place).unwrap().waiting().count(), 0);
}

/// Octets to the interface's own address come back by the driver, not by the device; over both versions.
#[test]
fn a_connection_to_ones_own_address_is_looped() {
    for own_address in [IpAddr::V4(OWN), IpAddr::V6(OWN6)] {
        // Four full segments: the ACK of the last two leaves at once.
        let octets_there = if own_address.is_ipv4() {
            4 * 1448
        } else {
            4 * 1428
        };
        let mut own = stack(OWN_MAC, 1);
        listen(&mut own, everywhere(80));
        let remote = SocketAddr::new(own_address, 80);
        let id = own.connect(remote, Config::default(), NOW).unwrap();
        own.command(id, |connection| connection.write(octets_there));
        loop_back(&mut own);
        let there = incoming(&mut own).unwrap();
        assert!(is_established(&own, id) && is_established(&own, there));
        assert_eq!(own.tcp().get(there).unwrap().delivered(), octets_there);
        assert_eq!(own.tcp().get(id).unwrap().acknowledged(), octets_there);
        // Somebody else who says that he is us is not heard.
        own.command(id, |connection| connection.write(1));
        let forged = octets(own.poll_transmit(NOW).unwrap());
        let ignored = own.counters().ignored;
        own.handle_frame(&forged, FrameInfo::default(), &mut Taken::default(), NOW);
        assert_eq!(own.counters().ignored, ignored + 1);
        assert_eq!(own.tcp().get(there).unwrap().delivered(), octets_there);
    }
}

/// Gives an interface what it sends itself, until it is silent.
fn loop_back(own: &mut Stack) {
    while let Some(frame) = own.poll_transmit(NOW) {
        assert!(frame.looped, "{frame:?}");
        let octets = octets(frame);
        own.handle_frame(&octets, FrameInfo::LOOPED, &mut Taken::default(), NOW);
    }
}

#[test]
fn datagrams_and_echoes_to_ones_own_address_are_looped() {
    let mut own = stack(OWN_MAC, 1);
    own.bind_udp(53);
    own.send_udp(ANY, SocketAddr::from((OWN, 53)), b"self", NOW)
        .unwrap();
    let frame = own.poll_transmit(NOW).unwrap();
    assert!(frame.looped);
    let mut taken = Taken::default();
    own.handle_frame(&octets(frame), FrameInfo::LOOPED, &mut taken, NOW);
    assert_eq!(taken.0[0].2, b"self");
}

/// RFC 4861 section 7.3.1: a connection whose octets arrive confirms the neighbour, and nobody asks for it every half
/// minute; one that nobody talks to is asked for.
#[test]
fn a_busy_connection_confirms_its_neighbour() {
    for busy in [true, false] {
        let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
        listen(&mut peer, everywhere(80));
        let remote = SocketAddr::from((PEER, 80));
        let id = own.connect(remote, Config::default(), NOW).unwrap();
        talk(&mut own, &mut peer, &mut Taken::default());
        let mut now = NOW;
        let mut requests = 0;
        for _ in 0..20 {
            now += Duration::from_secs(5);
            if busy {
                own.command(id, |connection| connection.write(100));
            } else {
                own.send_udp(ANY, SocketAddr::from((PEER, 53)), b"", now)
                    .unwrap();
            }
            for _ in 0..3 {
                // The receiver's delayed ACK is due by the second.
                now += Duration::from_millis(100);
                own.handle_timeout(now);
                peer.handle_timeout(now);
                for frame in sent_at(&mut own, now) {
                    requests += usize::from(frame[12..14] == [8, 6]);
                    // Nobody answers: what is known from before is all there is.
                    peer.handle_frame(&frame, FrameInfo::default(), &mut Taken::default(), now);
                }
                for frame in sent_at(&mut peer, now) {
                    if frame[12..14] != [8, 6] {
                        own.handle_frame(&frame, FrameInfo::default(), &mut Taken::default(), now);
                    }
                }
            }
        }
        assert_eq!(requests == 0, busy, "{requests} requests");
    }
}
