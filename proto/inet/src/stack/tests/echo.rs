//! Echo requests longer than a packet: they arrive in fragments, and so does the reply.

use super::*;
use crate::stack::icmp::icmpv6_checksum;

/// Octets that a request carries.
const DATA: usize = 2000;
/// Octets of the first of its two fragments.
const FIRST: usize = 1400;

/// An echo request of this type with its checksum at zero.
fn request(kind: u8) -> Vec<u8> {
    let data = (0..DATA).map(|at| at as u8);
    [kind, 0, 0, 0, 0, 7, 0, 1]
        .into_iter()
        .chain(data)
        .collect()
}

/// A fragment of an IPv6 packet from the peer in a frame (RFC 8200 section 4.5); `offset` with the flag of more to
/// come in its last bit.
fn fragment(offset: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&OWN_MAC[..], &PEER_MAC, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[44, 64]);
    frame.extend_from_slice(&PEER6.octets());
    frame.extend_from_slice(&OWN6.octets());
    frame.extend_from_slice(&[protocol::ICMPV6, 0]);
    frame.extend_from_slice(&offset.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 9]);
    frame.extend_from_slice(payload);
    frame
}

/// What leaves a host for a request in two fragments: all that it and its peer say to each other.
fn answers(own: &mut Stack, fragments: [Vec<u8>; 2]) -> Vec<Vec<u8>> {
    let mut peer = stack(PEER_MAC, 2);
    let mut taken = Taken::default();
    for frame in fragments {
        own.handle_frame(&frame, FrameInfo::default(), &mut taken, NOW);
    }
    let frames = talk(own, &mut peer, &mut taken);
    assert!(frames
        .iter()
        .all(|frame| frame.len() <= ETHERNET_LEN + 1500));
    frames
}

/// The request in fragments, as the peer sends it.
fn fragments_v4() -> [Vec<u8>; 2] {
    let mut message = request(8);
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [
        ipv4(1, 1, 0x2000, &message[..FIRST]),
        ipv4(1, 1, (FIRST / 8) as u16, &message[FIRST..]),
    ]
}

fn fragments_v6() -> [Vec<u8>; 2] {
    let mut message = request(128);
    let sum = icmpv6_checksum(IpAddr::V6(PEER6), IpAddr::V6(OWN6), &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [
        fragment(1, &message[..FIRST]),
        fragment(FIRST as u16, &message[FIRST..]),
    ]
}

/// RFC 1122 section 3.2.2.6, RFC 792: a reply has all of the request.
#[test]
fn a_reply_over_ipv4_that_is_longer_than_the_mtu_leaves_in_fragments() {
    let mut own = stack(OWN_MAC, 1);
    let frames = answers(&mut own, fragments_v4());
    let parts: Vec<_> = frames
        .iter()
        .filter(|frame| frame[23] == protocol::ICMP)
        .collect();
    let field = |frame: &[u8], at| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let [first, second] = parts[..] else {
        panic!("{frames:?}");
    };
    for frame in [first, second] {
        assert_eq!(checksum::of(&frame[14..34]), 0, "of the header");
    }
    assert_eq!(first.len(), ETHERNET_LEN + 1500);
    assert_eq!(field(first, 18), field(second, 18), "one packet");
    assert_eq!(
        field(first, 20),
        0x2000,
        "more follow, and may be fragmented again"
    );
    assert_eq!(field(second, 20), 1480 / 8);
    let reply = [&first[34..], &second[34..]].concat();
    assert_eq!((reply[0], checksum::of(&reply)), (0, 0));
    assert_eq!(reply[4..], request(8)[4..]);
    assert_eq!(own.counters().not_sent, 0);
}

/// RFC 4443 section 4.2, RFC 8200 sections 4.5 and 5.
#[test]
fn a_reply_over_ipv6_that_is_longer_than_the_mtu_leaves_in_fragments() {
    let mut own = stack(OWN_MAC, 1);
    let frames = answers(&mut own, fragments_v6());
    let parts: Vec<_> = frames
        .iter()
        .filter(|frame| frame[20] == protocol::FRAGMENT)
        .collect();
    let [first, second] = parts[..] else {
        panic!("{frames:?}");
    };
    assert_eq!(
        first.len(),
        ETHERNET_LEN + 40 + 8 + 1232,
        "a multiple of eight octets"
    );
    for (frame, field) in [(first, 1), (second, 1232)] {
        let len = u16::from_be_bytes([frame[18], frame[19]]);
        assert_eq!(usize::from(len), frame.len() - ETHERNET_LEN - 40);
        assert_eq!(frame[54], protocol::ICMPV6);
        assert_eq!(u16::from_be_bytes([frame[56], frame[57]]), field);
    }
    assert_eq!(first[58..62], second[58..62], "one packet");
    let reply = [&first[62..], &second[62..]].concat();
    let sum = Checksum::pseudo(
        IpAddr::V6(OWN6),
        IpAddr::V6(PEER6),
        protocol::ICMPV6,
        reply.len(),
    );
    let mut sum = sum;
    sum.add(&reply);
    assert!(sum.is_valid());
    assert_eq!(reply[0], 129, "an echo reply");
    assert_eq!(reply[4..], request(128)[4..]);
    assert_eq!(own.counters().not_sent, 0);
}

/// Whoever sends long requests gets no more of the queue than it has, and no fragment of a reply that is not whole.
#[test]
fn a_reply_for_which_the_queue_has_no_room_is_not_begun() {
    for fragments in [fragments_v4(), fragments_v6()] {
        let mut own = Stack::new(StackConfig {
            queue: 1,
            ..config(OWN_MAC, 1)
        });
        let frames = answers(&mut own, fragments);
        assert!(frames.is_empty(), "{frames:?}");
        assert_eq!(own.counters().not_sent, 1);
    }
}

/// A request whose fragments end behind what a packet can hold with its header: no reply to it could be told of.
#[test]
fn what_is_longer_than_any_packet_does_not_leave() {
    let mut own = stack(OWN_MAC, 1);
    let mut send = |len| {
        let octets = alloc::vec![0; len];
        let (from, to) = (IpAddr::V4(OWN), IpAddr::V4(PEER));
        own.send_in_fragments(from, to, protocol::ICMP, &octets, NOW)
    };
    assert!(send(65_535 - 20));
    assert!(!send(65_535 - 19));
    assert_eq!(own.counters().not_sent, 1);
}
