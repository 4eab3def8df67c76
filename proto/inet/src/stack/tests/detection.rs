//! Duplicate address detection (RFC 4862 section 5.4): frames in, frames out.

use super::super::*;
use crate::checksum::Checksum;
use crate::tcp::{Placement, Secret};
use alloc::vec::Vec;

const START: Duration = Duration::from_secs(1000);
const SECOND: Duration = Duration::from_secs(1);
const OWN_MAC: Mac = [2, 0, 0, 0, 0, 1];
const PEER_MAC: Mac = [2, 0, 0, 0, 0, 2];
const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// From whatever address suits.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 9);
const PEER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

struct Nobody;

impl Sink for Nobody {
    fn place(&mut self, _: ConnectionId, _: &Placement, _: &[u8]) {}
    fn datagram(&mut self, _: SocketAddr, _: SocketAddr, _: &[u8]) {}
}

fn stack(mac: Mac, address: Ipv6Addr, dad_transmits: u32) -> Stack {
    let addresses = Vec::from([Cidr::new(address, 64), Cidr::new([10, 0, 0, mac[5]], 24)]);
    Stack::new(StackConfig {
        dad_transmits,
        ..StackConfig::new(mac, addresses, Secret([mac[5]; 16]))
    })
}

fn sent(stack: &mut Stack, now: Duration) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| stack.poll_transmit(now))
        .map(|mut frame| {
            let body = match &frame.payload {
                Payload::Octets(octets) => octets.clone(),
                _ => Vec::new(),
            };
            frame.finish_checksum([&body[..]]);
            [&frame.head[..], &body].concat()
        })
        .collect()
}

fn give(stack: &mut Stack, frames: &[Vec<u8>], now: Duration) {
    for frame in frames {
        stack.handle_frame(frame, FrameInfo::default(), &mut Nobody, now);
    }
}

fn state(stack: &Stack, address: Ipv6Addr) -> AddressState {
    stack.addresses.state(IpAddr::V6(address)).unwrap()
}

/// A neighbour solicitation without options, as section 5.4.2 has it, checksum and all.
#[test]
fn an_address_is_asked_for_and_used_a_second_later() {
    let mut own = stack(OWN_MAC, OWN, 2);
    assert_eq!(own.deadline(), Some(Duration::ZERO), "at once");
    let solicitations = sent(&mut own, START);
    // Its address and the link-local one.
    assert_eq!(solicitations.len(), 2);
    let solicitation = &solicitations[0];
    assert_eq!(solicitation[..6], [0x33, 0x33, 0xff, 0, 0, 1]);
    assert_eq!(solicitation[22..38], [0; 16], "from nobody");
    assert_eq!(solicitation[38..54], config::solicited_node(OWN).octets());
    assert_eq!((solicitation[54], solicitation.len()), (135, 54 + 24));
    assert_eq!(solicitation[62..78], OWN.octets());
    let mut sum = Checksum::pseudo(
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(config::solicited_node(OWN)),
        protocol::ICMPV6,
        24,
    );
    sum.add(&solicitation[54..]);
    assert!(sum.is_valid());
    assert_eq!(state(&own, OWN), AddressState::Tentative);
    assert!(sent(&mut own, START + SECOND / 2).is_empty());
    assert_eq!(own.deadline(), Some(START + SECOND));
    assert_eq!(sent(&mut own, START + SECOND).len(), 2, "the second time");
    assert!(sent(&mut own, START + 2 * SECOND).is_empty());
    let all: Vec<_> = own.addresses().map(|(_, state)| state).collect();
    assert_eq!(all, [AddressState::Preferred; 3]);
    assert_eq!(own.deadline(), None);
}

#[test]
fn an_address_that_somebody_has_is_not_used() {
    let (mut own, mut peer) = (stack(OWN_MAC, OWN, 1), stack(PEER_MAC, OWN, 0));
    let solicitations = sent(&mut own, START);
    give(&mut peer, &solicitations, START);
    let answers = sent(&mut peer, START);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0][..6], [0x33, 0x33, 0, 0, 0, 1], "to all nodes");
    give(&mut own, &answers, START);
    assert_eq!(state(&own, OWN), AddressState::Duplicate);
    assert_eq!(own.counters().duplicate_addresses, 1);
    let later = START + 10 * SECOND;
    assert!(sent(&mut own, later).is_empty());
    assert_eq!(state(&own, OWN), AddressState::Duplicate, "for good");
    let remote = SocketAddr::from((PEER, 80));
    let local = SocketAddr::from((OWN, 0));
    let refused = own.connect_from(local, remote, Config::default(), later);
    assert_eq!(refused, Err(ConnectError::NotOurs));
    // The others are not concerned.
    assert!(own.addresses.is_usable(IpAddr::from([10, 0, 0, 1])));
}

#[test]
fn of_two_that_ask_at_once_neither_gets_the_address() {
    let (mut own, mut peer) = (stack(OWN_MAC, OWN, 1), stack(PEER_MAC, OWN, 1));
    let (ours, theirs) = (sent(&mut own, START), sent(&mut peer, START));
    give(&mut peer, &ours, START);
    give(&mut own, &theirs, START);
    for stack in [&own, &peer] {
        assert_eq!(state(stack, OWN), AddressState::Duplicate);
    }
    // Neither answered: an answer would come from an address that is nobody's.
    assert!(sent(&mut own, START).is_empty() && sent(&mut peer, START).is_empty());
}

/// A link that gives our own solicitation back is no other host.
#[test]
fn an_echo_of_the_solicitation_is_no_duplicate() {
    let mut own = stack(OWN_MAC, OWN, 1);
    let solicitations = sent(&mut own, START);
    give(&mut own, &solicitations, START);
    assert_eq!(state(&own, OWN), AddressState::Tentative);
}

/// A program that connects at once waits for its address and no longer.
#[test]
fn what_leaves_from_a_tentative_address_waits() {
    let (mut own, mut peer) = (stack(OWN_MAC, OWN, 1), stack(PEER_MAC, PEER, 0));
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
    peer.listen(both, Config::default(), Backlog::new(8))
        .unwrap();
    let remote = SocketAddr::from((PEER, 80));
    let id = own.connect(remote, Config::default(), START).unwrap();
    for solicitation in sent(&mut own, START) {
        assert_eq!(solicitation[20], protocol::ICMPV6);
    }
    // Nobody may talk to it yet either (section 5.4).
    peer.connect(SocketAddr::from((OWN, 80)), Config::default(), START)
        .unwrap();
    let now = START + SECOND;
    let mut state = None;
    for _ in 0..8 {
        let (ours, theirs) = (sent(&mut own, now), sent(&mut peer, now));
        give(&mut peer, &ours, now);
        give(&mut own, &theirs, now);
        state = own.tcp().get(id).map(|connection| connection.state());
    }
    assert_eq!(state, Some(crate::tcp::State::Established));
    let counters = own.tcp().get(id).unwrap().counters();
    assert_eq!(counters.timeouts, 0, "the first SYN was kept");
}

/// What stands in wait for an address is bounded, the newest first.
#[test]
fn little_waits_for_an_address() {
    let mut own = stack(OWN_MAC, OWN, 1);
    let peer = SocketAddr::from((PEER, 9));
    for number in 0..100u8 {
        own.send_udp(ANY, peer, &[number], START).unwrap();
    }
    sent(&mut own, START);
    let now = START + SECOND;
    let asked = sent(&mut own, now);
    assert_eq!(asked.len(), 1, "for the neighbour");
    let mut neighbor = stack(PEER_MAC, PEER, 0);
    give(&mut neighbor, &asked, now);
    give(&mut own, &sent(&mut neighbor, now), now);
    let last = sent(&mut own, now);
    assert!(!last.is_empty() && last.len() <= 16);
    assert_eq!(last.last().unwrap()[62], 99);
}
