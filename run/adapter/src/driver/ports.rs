//! Addresses that are held, and who listens at them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::table::{Key, Waiter};

/// Ports that are given where none is asked for (RFC 6335 section 6).
const EPHEMERAL_FIRST: u16 = 49_152;
const EPHEMERAL_PORTS: u16 = u16::MAX - EPHEMERAL_FIRST + 1;

/// Names who holds an address, or listens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Holder(u64);

/// A listener's connections that nobody has accepted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub waiting: VecDeque<Key>,
    pub waiter: Waiter,
    /// Where the stack listens for it.
    pub locals: Vec<SocketAddr>,
}

/// All of a driver.
#[derive(Debug, Default)]
pub(super) struct Ports {
    held: Vec<(Holder, Place)>,
    pub queues: HashMap<Holder, Queue>,
    holders: u64,
    /// Where the search for a free port begins.
    next: u16,
}

/// An address that is held.
#[derive(Clone, Copy, Debug)]
struct Place {
    addr: SocketAddr,
    /// All addresses of IPv6 are not those of IPv4, too.
    v6_only: bool,
}

impl Place {
    fn is_all_of_both_versions(self) -> bool {
        let ip = self.addr.ip();
        ip.is_ipv6() && ip.is_unspecified() && !self.v6_only
    }

    /// The two are one to somebody who connects: the same port of one address, or of all.
    fn collides(self, other: Place) -> bool {
        if self.addr.port() != other.addr.port() {
            return false;
        }
        let (a, b) = (self.addr.ip(), other.addr.ip());
        let any = a.is_unspecified() || b.is_unspecified();
        let families = a.is_ipv6() == b.is_ipv6()
            || self.is_all_of_both_versions()
            || other.is_all_of_both_versions();
        a == b || (any && families)
    }
}

/// Where a listener listens is where a connection has come. All addresses of IPv6 alone are not among the places of a
/// listener: it has each of them.
pub(super) fn fits(listens: SocketAddr, local: SocketAddr) -> bool {
    let [one, other] = [listens, local].map(|addr| Place {
        addr,
        v6_only: false,
    });
    one.collides(other)
}

impl Ports {
    /// Begins the search for free ports at some port.
    pub fn new(random: u64) -> Ports {
        Ports {
            next: (random % u64::from(EPHEMERAL_PORTS)) as u16,
            ..Ports::default()
        }
    }

    /// Holds an address; port 0 takes a free one. With `v6_only` all addresses of IPv6 leave those of IPv4 to others.
    /// None where somebody has it, or no port is free.
    pub fn hold(&mut self, addr: SocketAddr, v6_only: bool) -> Option<(Holder, SocketAddr)> {
        let place = |addr: SocketAddr| Place { addr, v6_only };
        let free = |addr: SocketAddr| {
            let mut held = self.held.iter();
            !held.any(|(_, held)| held.collides(place(addr)))
        };
        let addr = match addr.port() {
            0 => {
                let ports = 0..EPHEMERAL_PORTS;
                let port = |n: u16| EPHEMERAL_FIRST + (self.next.wrapping_add(n)) % EPHEMERAL_PORTS;
                let mut all = ports.map(|n| SocketAddr::new(addr.ip(), port(n)));
                let found = all.find(|addr| free(*addr))?;
                self.next = found.port() - EPHEMERAL_FIRST + 1;
                found
            }
            _ => Some(addr).filter(|addr| free(*addr))?,
        };
        self.holders += 1;
        let holder = Holder(self.holders);
        self.held.push((holder, place(addr)));
        Some((holder, addr))
    }

    /// Lets go of an address; gives where its listener listened.
    pub fn release(&mut self, holder: Holder) -> Option<Queue> {
        self.held.retain(|(of, _)| *of != holder);
        self.queues.remove(&holder)
    }

    /// The queue for a connection to this address: that of the listener that says most.
    pub fn queue_for(&mut self, local: SocketAddr) -> Option<&mut Queue> {
        let says = |queue: &Queue| {
            let locals = queue.locals.iter();
            let fits = locals.filter(|at| fits(**at, local));
            fits.map(|at| match at.ip() {
                ip if ip == local.ip() => 2,
                ip if ip.is_ipv4() == local.is_ipv4() => 1,
                _ => 0,
            })
            .max()
        };
        let fitting = self
            .queues
            .values_mut()
            .filter_map(|queue| says(queue).map(|much| (much, queue)));
        fitting
            .max_by_key(|(much, _)| *much)
            .map(|(_, queue)| queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_held_once_and_all_addresses_are_each() {
        let mut ports = Ports::default();
        let (first, _) = ports.hold(addr("10.0.0.1:7471"), false).unwrap();
        for taken in ["10.0.0.1:7471", "0.0.0.0:7471", "[::]:7471"] {
            assert_eq!(ports.hold(addr(taken), false), None, "{taken}");
        }
        for free in ["10.0.0.2:7471", "10.0.0.1:7472", "[fd00::1]:7471"] {
            assert!(ports.hold(addr(free), false).is_some(), "{free}");
        }
        ports.release(first);
        assert!(ports.hold(addr("10.0.0.1:7471"), false).is_some());
    }

    #[test]
    fn all_addresses_of_ipv6_alone_leave_those_of_ipv4() {
        let (six, four) = (addr("[::]:7471"), addr("0.0.0.0:7471"));
        for (first, second) in [(six, four), (four, six)] {
            let mut ports = Ports::default();
            assert!(ports.hold(first, first == six).is_some());
            assert_eq!(ports.hold(six, false), None, "{first}");
            assert!(ports.hold(second, second == six).is_some());
            assert_eq!(ports.hold(addr("[fd00::1]:7471"), false), None);
        }
    }

    #[test]
    fn free_ports_are_given_in_turn() {
        let mut ports = Ports::new(3);
        let any = addr("[::]:0");
        let (first, given) = ports.hold(any, false).unwrap();
        assert_eq!(given.port(), EPHEMERAL_FIRST + 3);
        ports.release(first);
        assert_eq!(
            ports.hold(any, false).unwrap().1.port(),
            EPHEMERAL_FIRST + 4
        );
        for _ in 1..EPHEMERAL_PORTS {
            assert!(ports.hold(any, false).is_some());
        }
        assert_eq!(ports.hold(any, false), None);
    }

    #[test]
    fn a_connection_goes_to_the_listener_that_says_most() {
        let mut ports = Ports::default();
        for (at, local) in ["[::]:1", "0.0.0.0:1", "10.0.0.1:1", "[::]:2"]
            .into_iter()
            .enumerate()
        {
            let queue = Queue {
                locals: vec![addr(local)],
                ..Queue::default()
            };
            ports.queues.insert(Holder(at as u64), queue);
        }
        let mut of = |local: &str| ports.queue_for(addr(local)).map(|queue| queue.locals[0]);
        for (local, listener) in [
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("10.0.0.2:1", "0.0.0.0:1"),
            ("[fd00::1]:1", "[::]:1"),
            ("10.0.0.1:2", "[::]:2"),
        ] {
            assert_eq!(of(local), Some(addr(listener)));
        }
        assert_eq!(of("10.0.0.1:3"), None);
    }
}
