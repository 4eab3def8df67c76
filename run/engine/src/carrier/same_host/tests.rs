//! Tests of a connection with rings beside it, over a network within the process.

use std::os::fd::AsFd;

use weft_os::net::SocketOptions;

use super::shared::STATE;
use super::*;
use crate::carrier::memory::Memory;
use crate::carrier::Network;

/// Two ends of a connection that share memory, one of which has sent `before` octets by the connection.
fn ends(before: usize) -> (SameHost, SameHost) {
    let network = Memory::default();
    let options = SocketOptions::default();
    let bound = network
        .bind("127.0.0.1:7".parse().unwrap(), &options)
        .unwrap();
    let listener = bound.listen(1).unwrap();
    let one = network
        .connect("127.0.0.1:7".parse().unwrap(), &options)
        .unwrap();
    let (other, _) = listener.accept().unwrap().unwrap();
    let (one, other) = (SameHost::over(one, 0), SameHost::over(other, 0));
    if before > 0 {
        assert!(matches!(one.send(&vec![1; before]), Transfer::Octets(sent) if sent == before));
    }
    let memory = one.offer(false).unwrap();
    let memory = memory.as_fd().try_clone_to_owned().unwrap();
    assert!(other
        .accept(SharedRings::open(memory).unwrap(), false)
        .unwrap());
    assert_eq!(one.shared(), Some(false));
    assert_eq!(other.shared(), Some(false));
    (one, other)
}

fn received(by: &SameHost) -> usize {
    match by.recv(&mut [0; 64]) {
        Transfer::Octets(octets) => octets,
        _ => 0,
    }
}

/// Octets of the ring stand behind those of the connection, which show by themselves.
#[test]
fn who_awaits_octets_of_the_connection_sleeps_beside_those_of_the_ring() {
    let (one, other) = ends(10);
    assert!(matches!(one.send(&[2; 7]), Transfer::Octets(7)));
    assert!(!other.has_arrived(true, false));
    assert!(other.arm(true, false), "it may sleep");
    assert!(!other.is_armed(true, false), "nobody is going to ring");
    assert_eq!(received(&other), 10);
    assert!(other.has_arrived(true, false));
    assert!(!other.arm(true, false), "seven octets are there");
    assert_eq!(received(&other), 7);
    assert!(other.arm(true, false) && other.is_armed(true, false));
}

/// The other end says that more went by the connection than did: whoever believes it sleeps, and does not spin.
#[test]
fn octets_that_never_come_keep_nobody_awake() {
    let (one, other) = ends(0);
    assert!(matches!(one.send(&[2; 7]), Transfer::Octets(7)));
    let words = other.shared.get().unwrap().words(0);
    words[SWITCHED].store(u64::MAX, Ordering::SeqCst);
    assert_eq!(received(&other), 0);
    assert!(!other.has_arrived(true, false));
    assert!(other.arm(true, false));
}

#[test]
fn an_end_says_nothing_that_is_not_known() {
    let (_one, other) = ends(0);
    let rings = &other.shared.get().unwrap().rings;
    assert!(matches!(other.recv(&mut [0; 64]), Transfer::WouldBlock));
    rings.words()[STATE].store(8, Ordering::SeqCst);
    let failed = other.recv(&mut [0; 64]);
    assert!(matches!(failed, Transfer::Failed(_)), "{failed:?}");
}
