//! An interface with addresses: frames in, frames out.
//!
//! Drive it like every state machine here: [`Stack::handle_frame`], [`Stack::handle_timeout`], commands; then drain
//! [`Stack::poll_transmit`] and [`Stack::poll_event`], and wait until [`Stack::deadline`]. Octets that arrive for
//! someone are shown to a [`Sink`] while the frame is at hand: nothing is kept.
//!
//! | file | concern | source |
//! | --- | --- | --- |
//! | `ingress.rs` | Ethernet, IPv4, IPv6 on the way in | RFC 791, RFC 8200 |
//! | `egress.rs` | the same on the way out | |
//! | `arp.rs`, `ndp.rs`, [`neighbor`] | hardware addresses | RFC 826, RFC 4861 |
//! | `icmp.rs` | echo, errors both ways | RFC 792, RFC 4443, RFC 5927 |
//! | `udp.rs` | datagrams | RFC 768 |
//! | [`reassembly`] | fragments | RFC 791, RFC 5722 |

mod arp;
mod config;
mod egress;
mod frame;
mod icmp;
mod ingress;
mod ndp;
pub mod neighbor;
pub mod reassembly;
#[cfg(test)]
mod tests;
mod udp;

pub use config::{Ipv4Config, Ipv6Config, StackConfig};
pub use frame::{Frame, Mac, Payload, VnetHeader, ETHERNET_LEN};
pub use udp::SendError;

use crate::tcp::{
    Config, ConnectError, Connection, ConnectionId, Endpoint, EndpointEvent, Placement,
};
use alloc::collections::{BTreeSet, VecDeque};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use neighbor::Neighbors;
use reassembly::Reassembly;

/// Protocol numbers (RFC 791, RFC 8200).
pub(crate) mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMPV6: u8 = 58;
}

/// Who takes the octets that arrive.
pub trait Sink {
    /// Octets of a connection's stream: `placement.octets` of `payload` belong at `placement.offset`. Each octet comes
    /// once, in any order.
    fn place(&mut self, connection: ConnectionId, placement: &Placement, payload: &[u8]);
    /// A datagram to a bound port.
    fn datagram(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]);
}

/// What the device says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameInfo {
    /// The checksum behind the IP header was verified, or the frame never left the machine: it need not be right.
    pub checksum_good: bool,
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
    /// Frames not made because the queue was full or no route leads there.
    pub not_sent: u64,
}

/// An interface with its addresses and all its connections.
#[derive(Debug)]
pub struct Stack {
    config: StackConfig,
    endpoint: Endpoint,
    neighbors: Neighbors,
    reassembly: Reassembly,
    udp_ports: BTreeSet<u16>,
    router: Option<(Ipv6Addr, Duration)>,
    queue: VecDeque<Frame>,
    errors: icmp::ErrorLimit,
    identification: u16,
    counters: StackCounters,
}

impl Stack {
    /// An interface that nobody has spoken to.
    pub fn new(config: StackConfig) -> Stack {
        Stack {
            endpoint: Endpoint::new(config.secret, config.limits),
            neighbors: Neighbors::new(config.neighbors),
            reassembly: Reassembly::new(config.reassembly),
            udp_ports: BTreeSet::new(),
            router: None,
            queue: VecDeque::new(),
            errors: icmp::ErrorLimit::default(),
            identification: 0,
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

    /// Takes TCP connections on a port. False when someone does already.
    pub fn listen(&mut self, port: u16, config: Config, backlog: usize) -> bool {
        let config = self.fit(config, self.config.ipv4.is_none());
        self.endpoint.listen(port, config, backlog)
    }

    /// Opens a TCP connection.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        config: Config,
        now: Duration,
    ) -> Result<ConnectionId, ConnectError> {
        let local = self
            .config
            .source_for(remote.ip())
            .ok_or(ConnectError::NoPort)?;
        let config = self.fit(config, remote.is_ipv6());
        self.endpoint.connect(local, 0, remote, config, now)
    }

    fn fit(&self, config: Config, ipv6: bool) -> Config {
        Config {
            mtu: config.mtu.min(self.config.mtu),
            ipv6,
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
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.endpoint.poll_event()
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Frame> {
        loop {
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

    fn ask_neighbors(&mut self, now: Duration) {
        while let Some(address) = self.neighbors.poll_solicitation(now) {
            match address {
                IpAddr::V4(address) => self.ask_by_arp(address),
                IpAddr::V6(address) => self.solicit(address),
            }
        }
    }

    /// When to call [`Stack::handle_timeout`] and to poll again.
    pub fn deadline(&self) -> Option<Duration> {
        [self.endpoint.deadline(), self.neighbors.deadline()]
            .into_iter()
            .flatten()
            .min()
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
