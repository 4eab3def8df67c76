//! Frames in, frames out: ARP, neighbour discovery, echo, UDP, errors, fragments.

use super::*;
use crate::checksum::{self, Checksum};
use crate::tcp::{Placement, Secret};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NOW: Duration = Duration::from_secs(1);
const OWN_MAC: Mac = [2, 0, 0, 0, 0, 1];
const PEER_MAC: Mac = [2, 0, 0, 0, 0, 2];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

#[derive(Default)]
struct Taken(Vec<(SocketAddr, SocketAddr, Vec<u8>)>);

impl Sink for Taken {
    fn place(&mut self, _: ConnectionId, _: &Placement, _: &[u8]) {}

    fn datagram(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.0.push((local, remote, payload.to_vec()));
    }
}

fn stack(mac: Mac, last: u8) -> Stack {
    let ipv4 = Ipv4Config {
        address: Ipv4Addr::new(10, 0, 0, last),
        prefix: 24,
        gateway: Some(Ipv4Addr::new(10, 0, 0, 254)),
    };
    let ipv6 = Ipv6Config {
        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()),
        prefix: 64,
        gateway: None,
    };
    Stack::new(StackConfig::new(
        mac,
        Some(ipv4),
        Some(ipv6),
        Secret([last; 16]),
    ))
}

fn sent(stack: &mut Stack) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| stack.poll_transmit(NOW))
        .map(|mut frame| {
            frame.finish_checksum([]);
            frame.head
        })
        .collect()
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
        assert_eq!(own.send_udp(9, to, b"question", NOW), Ok(()));
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
        assert_eq!(
            own.send_udp(9, to, &[0; 2000], NOW),
            Err(SendError::TooLong)
        );
    }
}

/// RFC 1122 section 4.1.3.1, RFC 4443 section 3.1.
#[test]
fn a_port_without_an_owner_is_reported() {
    for remote in [IpAddr::V4(PEER), IpAddr::V6(PEER6)] {
        let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
        own.send_udp(9, SocketAddr::new(remote, 53), b"question", NOW)
            .unwrap();
        let frames = talk(&mut own, &mut peer, &mut Taken::default());
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
    peer.listen(80, crate::tcp::Config::default(), 8);
    let remote = SocketAddr::new(IpAddr::V4(PEER), 80);
    let id = own
        .connect(remote, crate::tcp::Config::default(), NOW)
        .unwrap();
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
    peer.listen(80, crate::tcp::Config::default(), 8);
    let config = crate::tcp::Config {
        max_frame: 65_535,
        ..crate::tcp::Config::default()
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
