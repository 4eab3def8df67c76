//! Routers that announce themselves (RFC 4861 section 6.3.4).

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const ONE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

/// A router says for how many seconds it is one.
fn advertise(stack: &mut Stack, router: Ipv6Addr, seconds: u16, now: Duration) {
    let [high, low] = seconds.to_be_bytes();
    let message = [134, 0, 0, 0, 64, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
    stack.ndp(router, &message, now);
}

#[test]
fn who_is_no_router_takes_no_others_place() {
    let mut own = stack(OWN_MAC, 1);
    advertise(&mut own, ONE, 1800, NOW);
    assert_eq!(own.router(NOW), Some(ONE));
    let changed = own.routers_changed;
    advertise(&mut own, OTHER, 0, NOW + SECOND);
    assert_eq!(own.router(NOW + SECOND), Some(ONE));
    assert_eq!(own.routers_changed, changed, "what was found holds");
    advertise(&mut own, ONE, 0, NOW + 2 * SECOND);
    assert_eq!(own.router(NOW + 2 * SECOND), None);
    assert_eq!(own.routers_changed, changed + 1);
}

/// What a connection remembers of its way ends when the router said that it would.
#[test]
fn a_router_changes_by_another_or_by_a_shorter_time_alone() {
    let mut own = stack(OWN_MAC, 1);
    let mut changes = |router, seconds, now| {
        let before = own.routers_changed;
        advertise(&mut own, router, seconds, now);
        own.routers_changed - before
    };
    assert_eq!(changes(ONE, 1800, NOW), 1);
    assert_eq!(changes(ONE, 1800, NOW + 600 * SECOND), 0);
    assert_eq!(changes(ONE, 10, NOW + 601 * SECOND), 1);
    assert_eq!(changes(OTHER, 1800, NOW + 602 * SECOND), 1);
}

/// Section 6.1.2: a router speaks from its address on the link.
#[test]
fn a_router_is_on_the_link() {
    let mut own = stack(OWN_MAC, 1);
    for source in [PEER6, Ipv6Addr::UNSPECIFIED, "fec0::1".parse().unwrap()] {
        let before = own.counters.malformed;
        advertise(&mut own, source, 1800, NOW);
        assert_eq!(own.router(NOW), None, "{source}");
        assert_eq!(own.counters.malformed, before + 1);
    }
    advertise(&mut own, "febf::1".parse().unwrap(), 1800, NOW);
    assert!(own.router(NOW).is_some());
}
