//! The listeners of an endpoint: which of them a segment is for, and when one has something to do.

use super::isn::{Secret, Tuple};
use super::listen::{Listener, Outcome};
use super::segment::Header;
use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

/// The table, by the address and port where each listens.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_local: BTreeMap<SocketAddr, Listener>,
    /// Not after the first time that a listener has something to do: the listeners themselves are asked only then.
    at: Option<Duration>,
}

impl Listeners {
    /// False when someone listens there already.
    pub fn insert(&mut self, local: SocketAddr, listener: Listener) -> bool {
        if self.by_local.contains_key(&local) {
            return false;
        }
        self.by_local.insert(local, listener);
        true
    }

    pub fn remove(&mut self, local: SocketAddr) -> Option<Listener> {
        self.by_local.remove(&local)
    }

    pub fn get(&self, local: SocketAddr) -> Option<&Listener> {
        self.by_local.get(&local)
    }

    pub fn get_mut(&mut self, local: SocketAddr) -> Option<&mut Listener> {
        self.by_local.get_mut(&local)
    }

    /// Where those listen who take connections to `local`: at this address, at all of its version, at all of both.
    fn place_of(&self, local: SocketAddr) -> Option<SocketAddr> {
        let port = local.port();
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let version = match local {
            SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
            SocketAddr::V6(_) => both,
        };
        let mut places = [local, version, both].into_iter();
        places.find(|place| self.by_local.contains_key(place))
    }

    /// A segment for which there is no connection. Says who was asked, and what he said.
    pub fn handle_segment(
        &mut self,
        secret: &Secret,
        tuple: &Tuple,
        header: &Header,
        room: bool,
        now: Duration,
    ) -> (Option<SocketAddr>, Outcome) {
        let place = self.place_of(tuple.local);
        let Some(listener) = place.and_then(|place| self.by_local.get_mut(&place)) else {
            return (None, Outcome::Stray);
        };
        let outcome = listener.handle_segment(secret, tuple, header, room, now);
        if let Some(at) = listener.deadline() {
            self.at = Some(self.at.map_or(at, |earliest| earliest.min(at)));
        }
        (place, outcome)
    }

    /// When to poll answers; may be early.
    pub fn deadline(&self) -> Option<Duration> {
        self.at
    }

    /// A SYN+ACK to repeat at `now`. Call it until it gives none.
    pub fn poll_answer(&mut self, now: Duration) -> Option<(Tuple, Header)> {
        if self.at.is_none_or(|at| at > now) {
            return None;
        }
        let mut listeners = self.by_local.values_mut();
        let answer = listeners.find_map(|listener| listener.handle_timeout(now));
        if answer.is_none() {
            let deadlines = self.by_local.values().filter_map(Listener::deadline);
            self.at = deadlines.min();
        }
        answer
    }
}
