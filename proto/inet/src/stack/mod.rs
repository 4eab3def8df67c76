//! An interface with addresses: frames in, frames out.
//!
//! Drive it like every state machine here: [`Stack::handle_frame`], [`Stack::handle_timeout`], commands; then drain
//! [`Stack::poll_transmit`] and [`Stack::poll_event`], and wait until [`Stack::deadline`]. Octets that arrive for
//! someone are shown to a [`Sink`] while the frame is at hand: nothing is kept.
//!
//! | file | concern | source |
//! | --- | --- | --- |
//! | `ingress.rs` | Ethernet, IPv4, IPv6 on the way in | RFC 791, RFC 8200 |
//! | `egress.rs`, `flow.rs` | the same on the way out | |
//! | `fragments.rs` | packets of our own that are longer than the link takes | RFC 791, RFC 8200 |
//! | `addresses.rs` | our own addresses, and whether they may be used | RFC 4862 section 5.4 |
//! | `config.rs` | which address and which neighbour to take | RFC 6724 |
//! | `arp.rs`, `ndp.rs`, [`neighbor`] | hardware addresses | RFC 826, RFC 4861 |
//! | `icmp.rs` | echo, errors both ways | RFC 792, RFC 4443, RFC 5927 |
//! | `udp.rs` | datagrams | RFC 768 |
//! | [`reassembly`] | fragments | RFC 791, RFC 5722 |

mod addresses;
mod arp;
mod cidr;
mod config;
mod egress;
mod flow;
mod fragments;
mod frame;
mod icmp;
mod ingress;
mod ndp;
pub mod neighbor;
pub mod reassembly;
#[cfg(test)]
mod tests;
mod udp;

pub use addresses::AddressState;
pub use cidr::{Cidr, CidrError};
pub use config::{Route, StackConfig};
pub use frame::{Frame, Head, Mac, Payload, VnetHeader, ETHERNET_LEN, HEAD_LEN_MAX};
pub use udp::{Reach, SendError, PAYLOAD_OCTETS_MAX};

use crate::tcp::{
    Backlog, Config, ConnectError, Connection, ConnectionId, Endpoint, EndpointEvent, Placement,
};
use addresses::{Addresses, Step};
use alloc::collections::{BTreeSet, VecDeque};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use flow::Flows;
use neighbor::Neighbors;
use reassembly::Reassembly;

/// Protocol numbers (RFC 791, RFC 8200).
pub(crate) mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const FRAGMENT: u8 = 44;
    pub const ICMPV6: u8 = 58;
}

/// Who takes the octets that arrive.
pub trait Sink {
    /// Octets of a connection's stream: `placement.octets` of `payload` belong at `placement.offset`. Each octet comes
    /// once, in any order.
    fn place(&mut self, connection: ConnectionId, placement: &Placement, payload: &[u8]);
    /// A datagram to a bound port.
    fn datagram(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]);
    /// A datagram came back, somebody says: nobody has the port that it went to.
    fn refused(&mut self, _local: SocketAddr, _remote: SocketAddr) {}
}

/// What the device says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameInfo {
    /// The checksum behind the IP header was verified, or the frame never left the machine: it need not be right.
    pub checksum_good: bool,
    /// It is one of the stack's own frames that said [`Frame::looped`].
    pub looped: bool,
}

impl FrameInfo {
    /// Of a frame that said [`Frame::looped`].
    pub const LOOPED: FrameInfo = FrameInfo {
        checksum_good: true,
        looped: true,
    };
}

/// Why nobody can listen there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenError {
    /// Somebody does already.
    InUse,
    /// The address is not the interface's.
    NotOurs,
}

/// Sums for statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackCounters {
    /// Frames given in.
    pub received: u64,
    /// Of these, not for us or of no protocol we speak.
    pub ignored: u64,
    /// Of these, malformed.
    pub malformed: u64,
    /// Of these, with a wrong checksum.
    pub bad_checksum: u64,
    /// Packets not made because the queue was full, no route leads there or they would be longer than any packet.
    pub not_sent: u64,
    /// Addresses of ours that somebody else has.
    pub duplicate_addresses: u64,
}

/// An interface with its addresses and all its connections.
#[derive(Debug)]
pub struct Stack {
    config: StackConfig,
    addresses: Addresses,
    endpoint: Endpoint,
    neighbors: Neighbors,
    reassembly: Reassembly,
    udp_ports: BTreeSet<u16>,
    router: Option<(Ipv6Addr, Duration)>,
    routers_changed: u64,
    flows: Flows,
    queue: VecDeque<Frame>,
    errors: icmp::ErrorLimit,
    identification: u16,
    /// Packets that left in fragments.
    fragmented: u32,
    counters: StackCounters,
}

impl Stack {
    /// An interface that nobody has spoken to.
    pub fn new(config: StackConfig) -> Stack {
        Stack {
            addresses: Addresses::new(&config),
            endpoint: Endpoint::new(config.secret, config.limits),
            neighbors: Neighbors::new(config.neighbors),
            reassembly: Reassembly::new(config.reassembly),
            udp_ports: BTreeSet::new(),
            router: None,
            routers_changed: 0,
            flows: Flows::default(),
            queue: VecDeque::new(),
            errors: icmp::ErrorLimit::default(),
            identification: 0,
            fragmented: 0,
            counters: StackCounters::default(),
            config,
        }
    }

    /// What the interface was told.
    pub fn config(&self) -> &StackConfig {
        &self.config
    }

    /// Sums so far.
    pub fn counters(&self) -> StackCounters {
        self.counters
    }

    /// Octets of datagrams that are coming together from fragments.
    pub fn reassembly_octets(&self) -> usize {
        self.reassembly.octets()
    }

    /// Neighbours remembered.
    pub fn neighbor_count(&self) -> usize {
        self.neighbors.len()
    }

    /// Its connections and listeners.
    pub fn tcp(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The interface's addresses, the link-local one among them, and whether each may be used.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, AddressState)> + '_ {
        self.addresses.all()
    }

    /// Takes TCP connections at an address and port; the unspecified address stands for all of its version, and that of
    /// IPv6 for all of both. Of several listeners the one that says most is asked. An address that is still tentative
    /// may be given.
    ///
    /// # Errors
    /// Somebody listens there already, or the address is not the interface's.
    pub fn listen(
        &mut self,
        local: SocketAddr,
        config: Config,
        backlog: Backlog,
    ) -> Result<(), ListenError> {
        let wildcard = local.ip().is_unspecified();
        if !wildcard && self.addresses.state(local.ip()).is_none() {
            return Err(ListenError::NotOurs);
        }
        match self.endpoint.listen(local, self.fit(config), backlog) {
            true => Ok(()),
            false => Err(ListenError::InUse),
        }
    }

    /// Takes no more TCP connections there (see [`Endpoint::unlisten`]).
    pub fn unlisten(&mut self, local: SocketAddr) {
        self.endpoint.unlisten(local);
    }

    /// The program took a connection that came in (see [`Endpoint::accept`]).
    pub fn accept(&mut self, id: ConnectionId) {
        self.endpoint.accept(id);
    }

    /// Opens a TCP connection, from an address and port of the stack's choice.
    ///
    /// # Errors
    /// No address of ours reaches the other, or there is no room.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        config: Config,
        now: Duration,
    ) -> Result<ConnectionId, ConnectError> {
        let unspecified = match remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        self.connect_from(SocketAddr::new(unspecified, 0), remote, config, now)
    }

    /// Opens a TCP connection from an address and port; the stack chooses where they are unspecified or 0. From an
    /// address that is still tentative the first segment leaves when it may.
    ///
    /// # Errors
    /// The address is not the interface's or is of the other version, the two ends have a connection already, or what
    /// [`Stack::connect`] says.
    pub fn connect_from(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        config: Config,
        now: Duration,
    ) -> Result<ConnectionId, ConnectError> {
        if local.is_ipv6() != remote.is_ipv6() {
            return Err(ConnectError::NotOurs);
        }
        let address = if local.ip().is_unspecified() {
            let source = self.config.source_for(remote.ip(), self.router(now));
            source.ok_or(ConnectError::NoRoute)?
        } else {
            local.ip()
        };
        match self.addresses.state(address) {
            Some(AddressState::Preferred | AddressState::Tentative) => {}
            Some(AddressState::Duplicate) | None => return Err(ConnectError::NotOurs),
        }
        self.endpoint
            .connect(address, local.port(), remote, self.fit(config), now)
    }

    fn fit(&self, config: Config) -> Config {
        Config {
            mtu: config.mtu.min(self.config.mtu),
            // One IP packet holds 65,535 octets, headers and all.
            max_frame: config.max_frame.min(65_535 - 120),
            ..config
        }
    }

    /// Gives commands to a connection.
    pub fn command<R>(
        &mut self,
        id: ConnectionId,
        command: impl FnOnce(&mut Connection) -> R,
    ) -> Option<R> {
        self.endpoint.command(id, command)
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        match self.endpoint.may_have_event() {
            true => self.endpoint.poll_event(),
            false => None,
        }
    }

    /// The next frame to send.
    #[inline]
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Frame> {
        // Whoever polls asks much more often than there is something.
        let idle = self.queue.is_empty() && !self.endpoint.may_have_segment();
        match idle && self.addresses.settled() && self.neighbors.are_quiet(now) {
            true => None,
            false => self.next_frame(now),
        }
    }

    fn next_frame(&mut self, now: Duration) -> Option<Frame> {
        loop {
            self.detect_duplicates(now);
            self.ask_neighbors(now);
            if let Some(frame) = self.queue.pop_front() {
                return Some(frame);
            }
            let (tuple, id, transmit) = self.endpoint.poll_transmit(now)?;
            if let Some(frame) = self.segment(&tuple, id, &transmit, now) {
                return Some(frame);
            }
        }
    }

    fn detect_duplicates(&mut self, now: Duration) {
        while let Some(step) = self.addresses.poll(now) {
            match step {
                Step::Ask(address) => self.probe(address, now),
                Step::Send { source, frames } => {
                    for (destination, frame) in frames {
                        let frame = self.towards(source, destination, frame, None, now);
                        frame.into_iter().for_each(|frame| self.enqueue(frame));
                    }
                }
            }
        }
    }

    fn ask_neighbors(&mut self, now: Duration) {
        while let Some(address) = self.neighbors.poll_solicitation(now) {
            match address {
                IpAddr::V4(address) => self.ask_by_arp(address),
                IpAddr::V6(address) => self.solicit(address, now),
            }
        }
    }

    /// When to call [`Stack::handle_timeout`] and to poll again. May be early, never late: what costs less to find out
    /// then than to keep exact for every frame is found out then.
    pub fn deadline(&self) -> Option<Duration> {
        let own = [self.neighbors.deadline(), self.addresses.deadline()];
        let own = own.into_iter().flatten().min();
        match (self.endpoint.deadline(), own) {
            (Some(tcp), Some(own)) => Some(tcp.min(own)),
            (tcp, own) => tcp.or(own),
        }
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.endpoint.handle_timeout(now);
    }

    /// Puts a frame of the stack's own into the queue.
    fn enqueue(&mut self, frame: Frame) {
        if self.queue.len() < self.config.queue {
            self.queue.push_back(frame);
        } else {
            self.counters.not_sent += 1;
        }
    }
}
