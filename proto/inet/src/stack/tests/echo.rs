//! Echo requests longer than a packet: they arrive in fragments, and the reply has to fit into one packet.

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
fn answers(fragments: [Vec<u8>; 2]) -> (Stack, Vec<Vec<u8>>) {
    let (mut own, mut peer) = (stack(OWN_MAC, 1), stack(PEER_MAC, 2));
    let mut taken = Taken::default();
    for frame in fragments {
        own.handle_frame(&frame, FrameInfo::default(), &mut taken, NOW);
    }
    let frames = talk(&mut own, &mut peer, &mut taken);
    (own, frames)
}

/// RFC 1122 section 3.2.2.6: a reply that would have to be fragmented is cut off instead.
#[test]
fn a_reply_over_ipv4_is_cut_to_the_mtu() {
    let mut message = request(8);
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let (own, frames) = answers([
        ipv4(1, 1, 0x2000, &message[..FIRST]),
        ipv4(1, 1, (FIRST / 8) as u16, &message[FIRST..]),
    ]);
    let reply = frames.last().expect("a reply");
    assert_eq!(reply.len(), ETHERNET_LEN + 1500);
    assert_eq!(reply[34], 0, "an echo reply");
    assert_eq!(checksum::of(&reply[34..]), 0);
    assert_eq!(reply[38..], message[4..1480]);
    assert_eq!(own.counters().not_sent, 0);
}

/// RFC 4443 section 4.2: a reply over IPv6 has all of the request or is none.
#[test]
fn a_reply_over_ipv6_that_is_longer_than_the_mtu_is_not_sent() {
    let mut message = request(128);
    let sum = icmpv6_checksum(IpAddr::V6(PEER6), IpAddr::V6(OWN6), &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let (own, frames) = answers([
        fragment(1, &message[..FIRST]),
        fragment(FIRST as u16, &message[FIRST..]),
    ]);
    assert!(frames.is_empty(), "{frames:?}");
    assert_eq!(own.counters().not_sent, 1);
    assert_eq!(own.counters().bad_checksum, 0);
}
