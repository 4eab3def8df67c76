//! Which sockets of this process take datagrams over carriers, and what the rules say of them.

use std::net::SocketAddr;

use weft_os::beside::{self, peer_end};
use weft_os::dgram::{self, get_int};
use weft_settings::datagrams::{Direction, Uoe};
use weft_uoe::End;

use crate::offload::{now, Offload};
use crate::port::Held;

impl Offload {
    /// Whether a socket of this process takes datagrams from `source` to `target` over carriers.
    pub fn takes_from(&self, source: SocketAddr, target: SocketAddr) -> bool {
        candidate(self, source.into(), target.into()).is_some()
    }
}

/// What the rules say of datagrams from `source` to `target`, if they may come over carriers.
pub(crate) fn ruled(offload: &Offload, source: End, target: End) -> Option<Uoe> {
    let ends = [target.to_socket_addr(), source.to_socket_addr()];
    offload.rules.uoe(Direction::Receive, &ends)
}

/// The socket of this process that datagrams from `source` to `target` would come to, and what its rule says; nothing
/// where there is none that takes them over carriers. One that is connected hears its peer alone.
pub(crate) fn candidate(offload: &Offload, source: End, target: End) -> Option<(Held, Uoe)> {
    let served = offload.served();
    let now = now();
    let candidates = served
        .iter()
        .filter(|held| offload.may_take(held.port, now));
    let fits = |held: &Held| {
        let fits = |fd| Some((fits(fd, target)?, hears(fd, source)?));
        held.with_fd(fits).flatten()
    };
    let fitting = candidates.filter_map(|held| Some((fits(held)?, *held)));
    // As the kernel has it, who has the address itself is before who has all, and then who is connected.
    let (_, port) = fitting.max_by_key(|(fits, _)| *fits)?;
    let uoe = ruled(offload, source, target)?;
    (port.with_fd(asks_for_nothing) == Some(true)).then_some((port, uoe))
}

/// Whether the socket behind `fd` has a peer.
pub(crate) fn is_connected(fd: i32) -> bool {
    peer_end(fd).is_some()
}

/// Whom a socket hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hears {
    Everybody,
    /// It is connected.
    ItsPeer,
}

/// Whether the socket behind `fd` hears `source`, and whom else.
fn hears(fd: i32, source: End) -> Option<Hears> {
    match peer_end(fd) {
        None => Some(Hears::Everybody),
        Some(peer) => (End::from(peer) == source).then_some(Hears::ItsPeer),
    }
}

/// How well a socket's address fits a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fits {
    /// It has all addresses, of both families.
    AllOfBoth,
    All,
    Itself,
}

/// Whether datagrams to `target` may come to the socket behind `fd`.
fn fits(fd: i32, target: End) -> Option<Fits> {
    let at = beside::local_end(fd)?;
    let v6_only = || get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) != Ok(0);
    let (own, wanted) = (at.ip().to_canonical(), target.address());
    let fits = match own.is_unspecified() {
        false if own == wanted => Fits::Itself,
        true if own.is_ipv4() == wanted.is_ipv4() => Fits::All,
        true if own.is_ipv6() && !v6_only() => Fits::AllOfBoth,
        _ => return None,
    };
    (at.port() == target.port()).then_some(fits)
}

/// Whether the program wants nothing beside a datagram's octets and its sender, and is the only one to have the port: a
/// bell, or a proof, might come to another one's socket.
fn asks_for_nothing(fd: i32) -> bool {
    const SO_TIMESTAMP_NEW: [i32; 3] = [63, 64, 65];
    const OF_SOCKET: [i32; 5] = [
        libc::SO_REUSEPORT,
        libc::SO_TIMESTAMP,
        libc::SO_TIMESTAMPNS,
        libc::SO_TIMESTAMPING,
        libc::SO_RXQ_OVFL,
    ];
    /// linux/in.h and linux/in6.h: what comes from too far away is refused, which on a carrier nobody sees.
    const IP_MINTTL: i32 = 21;
    const IPV6_MINHOPCOUNT: i32 = 73;
    const OF_IP: [i32; 6] = [
        IP_MINTTL,
        libc::IP_PKTINFO,
        libc::IP_RECVTTL,
        libc::IP_RECVTOS,
        libc::IP_RECVOPTS,
        libc::IP_RECVORIGDSTADDR,
    ];
    const OF_IPV6: [i32; 5] = [
        IPV6_MINHOPCOUNT,
        libc::IPV6_RECVPKTINFO,
        libc::IPV6_RECVHOPLIMIT,
        libc::IPV6_RECVTCLASS,
        libc::IPV6_RECVORIGDSTADDR,
    ];
    let is_off = |level, option: &i32| matches!(get_int(fd, level, *option), Ok(0) | Err(_));
    let peeks = get_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    OF_SOCKET
        .iter()
        .chain(&SO_TIMESTAMP_NEW)
        .all(|option| is_off(libc::SOL_SOCKET, option))
        && OF_IP.iter().all(|option| is_off(libc::IPPROTO_IP, option))
        && OF_IPV6
            .iter()
            .all(|option| is_off(libc::IPPROTO_IPV6, option))
        && matches!(peeks, Err(_) | Ok(i32::MIN..=-1))
        && is_not_coalesced(fd)
}

/// Whether datagrams come one by one: Weft's own could not be told apart within others.
pub(crate) fn is_not_coalesced(fd: i32) -> bool {
    matches!(get_int(fd, dgram::SOL_UDP, dgram::UDP_GRO), Ok(0) | Err(_))
}
