//! Tests of a connection with rings beside it, over a network within the process.

use std::os::fd::AsFd;

use weft_os::net::SocketOptions;

use super::shared::STATE;
use super::*;
use crate::carrier::memory::Memory;
use crate::carrier::tcp::KernelTcp;
use crate::carrier::Network;

/// Two ends of a connection that share memory, one of which has sent `before` octets by the connection.
fn ends(before: usize) -> (SameHost, SameHost) {
    ends_over(&Memory::default(), before)
}

fn ends_over(network: &dyn Network, before: usize) -> (SameHost, SameHost) {
    let options = SocketOptions::default();
    let bound = network.bind(([127, 0, 0, 1], 0).into(), &options).unwrap();
    let address = bound.local_addr();
    let listener = bound.listen(1).unwrap();
    let one = network.connect(address, &options).unwrap();
    let (other, _) = loop {
        if let Some(accepted) = listener.accept().unwrap() {
            break accepted;
        }
        std::thread::yield_now();
    };
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

/// Whether a sweep passes it by.
fn is_quiet(end: &SameHost) -> bool {
    end.quiet().expect("memory is shared").is_quiet()
}

#[test]
fn an_end_is_quiet_until_something_comes_or_it_sends() {
    let (one, other) = ends(0);
    assert!(!is_quiet(&other), "nobody has looked");
    assert_eq!(received(&other), 0);
    other.note_quiet();
    assert!(is_quiet(&other));

    assert!(matches!(one.send(&[2; 7]), Transfer::Octets(7)));
    assert!(!is_quiet(&other), "octets are there");
    other.note_quiet();
    assert!(!is_quiet(&other), "nobody reads them now, and may later");
    assert_eq!(received(&other), 7);
    assert!(!is_quiet(&other), "nobody has looked since");
    other.note_quiet();
    assert!(is_quiet(&other));

    assert!(matches!(other.send(&[2; 7]), Transfer::Octets(7)));
    assert!(!is_quiet(&other), "who sends may wait for room");
    other.note_quiet();
    one.finish();
    assert!(!is_quiet(&other), "the end is there");
}

#[test]
fn no_count_of_the_other_ends_makes_an_end_quiet_that_was_not_found_so() {
    let (_one, other) = ends(0);
    let shared = other.shared.get().unwrap();
    for count in [0, 1, u64::MAX] {
        shared.other().written.store(count, Ordering::SeqCst);
        assert!(!is_quiet(&other), "{count}");
    }
}

#[test]
fn what_says_that_an_end_is_quiet_says_so_no_more_when_it_is_gone() {
    let (one, other) = ends(0);
    assert_eq!(received(&one), 0);
    one.note_quiet();
    let quiet = one.quiet().expect("memory is shared");
    assert!(quiet.is_quiet());
    drop(one);
    assert!(!quiet.is_quiet(), "whoever looks lets go of it");
    drop(other);
}

/// What the other end's connection has within that time.
fn rings(of: &SameHost, within: Duration) -> usize {
    let end = std::time::Instant::now() + within;
    loop {
        match of.connection.recv(&mut [0; 64]) {
            Transfer::Octets(octets) => return octets,
            _ if std::time::Instant::now() >= end => return 0,
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn what_is_short_is_announced_by_who_takes_the_bell() {
    let (soon, late) = (Duration::from_millis(20), Duration::from_secs(20));
    let (one, other) = ends_over(&KernelTcp, 0);
    assert!(one.take_bell().is_none(), "nothing was sent");
    while rings(&other, soon) > 0 {}

    assert!(other.arm(true, false));
    assert!(matches!(one.send(&[2; 7]), Transfer::Octets(7)));
    assert_eq!(rings(&other, soon), 0, "it waits");
    let bell = one.take_bell().expect("it is due");
    assert!(one.take_bell().is_none(), "once");
    bell.ring();
    assert_eq!(rings(&other, late), 1);
    assert_eq!(received(&other), 7);

    assert!(other.arm(true, false));
    let long = vec![3; 40_000];
    assert!(matches!(one.send(&long), Transfer::Octets(40_000)));
    assert_eq!(rings(&other, late), 1, "what is long is announced at once");
    assert!(one.take_bell().is_none());
}

/// A connection that has no bell for who has no lock is rung by under it.
#[test]
fn a_bell_that_cannot_be_taken_along_is_rung() {
    let (one, other) = ends(0);
    while rings(&other, Duration::ZERO) > 0 {}
    assert!(other.arm(true, false));
    assert!(matches!(one.send(&[2; 7]), Transfer::Octets(7)));
    assert_eq!(rings(&other, Duration::ZERO), 0);
    assert!(one.take_bell().is_none());
    assert_eq!(rings(&other, Duration::from_secs(20)), 1);
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
