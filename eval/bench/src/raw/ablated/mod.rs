//! A stream, datagrams or a ping-pong with one piece more or less: a copy of every octet, a second thread between the
//! program and its socket (the design of 2005), Nagle's algorithm, messages or datagrams by many in a call.
//!
//! The same words at both ends, so that what a piece costs is what the same program takes with it and without.

mod flow;
mod mover;
mod ping_pong;
mod way;

use clap::{Args, ValueEnum};

pub(super) use flow::{measure, serve};
pub(super) use ping_pong::{measure as measure_ping_pong, serve as serve_ping_pong};

/// What moves messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Carrier {
    /// TCP, in calls that wait
    Tcp,
    /// UDP, each datagram in a call of its own
    Udp,
    /// UDP, up to 64 datagrams in a call (sendmmsg, recvmmsg)
    UdpMany,
    /// UDP, up to 64 KB in a call, which the kernel cuts and joins (UDP_SEGMENT, UDP_GRO)
    UdpSegment,
}

/// The pieces of which each may be there.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// What moves messages
    #[arg(long)]
    pub(super) carrier: Carrier,
    /// Octets of a message, or of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Messages in one call, over TCP
    #[arg(long, default_value_t = 1)]
    pub(super) batch: usize,
    /// Leave Nagle's algorithm on
    #[arg(long)]
    pub(super) nagle: bool,
    /// Copy each octet once more, before it is sent and after it was received
    #[arg(long)]
    pub(super) copy: bool,
    /// A second thread at both ends makes the calls, and a queue is between the two
    #[arg(long)]
    pub(super) thread: bool,
}

/// As many messages as go, one way, for a time.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct AblatedFlow {
    #[command(flatten)]
    pub(super) pieces: Pieces,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// One message there and back, waiting.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct AblatedPingPong {
    #[command(flatten)]
    pub(super) pieces: Pieces,
    /// Round trips
    #[arg(long)]
    pub(super) iterations: usize,
}
