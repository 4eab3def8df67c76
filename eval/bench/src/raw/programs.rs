//! What the programs are told: the words behind `raw`, with their meaning.

use clap::{Args, Subcommand, ValueEnum};

use super::ablated::{AblatedFlow, AblatedPingPong};
use super::gather;
use crate::verbs::Mode;

/// What both ends of a measurement do.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum Program {
    /// Request and reply, one at a time
    PingPong(PingPong),
    /// One stream of send() calls, for a time
    Stream(Stream),
    /// The server sends for a time, and the client counts
    Feed(Stream),
    /// Both ends send and receive at the same time, for a time
    Both(Both),
    /// Windows of messages, each with an answer, for a time
    Window(Window),
    /// Payloads to the places that their headers name, for a time
    Place(Place),
    /// The client computes while messages come, or go, at a rate
    Overlap(Overlap),
    /// One stream whose receiver works on every octet, for a time
    Process(Process),
    /// Connections, one after another
    Connect(Connect),
    /// Many requests under way, for a time
    Exchange(Exchange),
    /// Messages of a header and a payload from two buffers, for a time
    Gather(Gather),
    /// Many connections that carry nothing
    Idle(Idle),
    /// Reports of a monitor, a connection for each or one that is kept, for a time
    Reports(Reports),
    /// UDP: one datagram there and back
    DatagramPingPong(DatagramPingPong),
    /// UDP: as many datagrams as go through, for a time
    DatagramStream(DatagramStream),
    /// UDP one way, in calls that wait, for a time
    DatagramFlow(DatagramFlow),
    /// UDP: a transfer at a rate, and again what was lost, in the manner of RBUDP
    DatagramBlast(DatagramBlast),
    /// UDP: a stream whose rate follows how far apart datagrams come, in the manner of LambdaStream
    DatagramAdaptive(DatagramAdaptive),
    /// UDP: one datagram each to ports that nothing was sent to before
    DatagramLone(DatagramLone),
    /// As many messages as go, one way, with one piece of the way more or less
    AblatedFlow(AblatedFlow),
    /// One message there and back, with one piece of the way more or less
    AblatedPingPong(AblatedPingPong),
}

/// Request and reply, one at a time.
#[derive(Args, Clone, Debug)]
pub(super) struct PingPong {
    /// Spin on non-blocking calls, or block
    #[arg(long)]
    pub(super) mode: Mode,
    /// Make non-blocking calls, and wait in epoll_wait() before each recv()
    #[arg(long)]
    pub(super) epoll: bool,
    /// Octets to the server
    #[arg(long)]
    pub(super) request: usize,
    /// Octets back
    #[arg(long)]
    pub(super) reply: usize,
    /// Round trips
    #[arg(long)]
    pub(super) iterations: usize,
    /// Round trips begun a second, for which the client sleeps between them, and the server tells its CPU; else one
    /// follows the other
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) pace: Option<u32>,
}

/// One stream of `send` calls, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Stream {
    /// Octets in one send() call
    #[arg(long)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
    /// Leave Nagle's algorithm on
    #[arg(long)]
    pub(super) nagle: bool,
    /// The receiver waits in poll() before each recv()
    #[arg(long)]
    pub(super) poll: bool,
    /// Messages a second, in bursts; as many as go without it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// The messages are sealed, and the receiver decrypts each
    #[arg(long)]
    pub(super) decrypt: bool,
}

/// Octets of a message that begins with a number of 8 octets.
fn numbered(text: &str) -> Result<usize, String> {
    let size: usize = text.parse().map_err(|error| format!("{error}"))?;
    match size >= size_of::<u64>() {
        true => Ok(size),
        false => Err("a message has a number of 8 octets: 8 or more are needed".to_owned()),
    }
}

/// Both ends send and receive at the same time, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Both {
    /// Octets of a message
    #[arg(long, value_parser = numbered)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// Windows of messages, each with an answer, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Window {
    /// Octets of a message
    #[arg(long, value_parser = numbered)]
    pub(super) size: usize,
    /// Messages of a window
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) messages: u64,
    /// Seconds to go on for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// Payloads to the places that their headers name, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Place {
    /// How the receiver gets a payload to its place
    #[arg(long)]
    pub(super) way: Way,
    /// Octets of a payload
    #[arg(long, value_parser = numbered)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// How a receiver gets payloads to their places.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Way {
    /// It reads the header, and then the payload straight to its place
    Pick,
    /// It reads both into the memory that it has for the next message
    Posted,
    /// It reads what is there into a buffer, and copies
    Copied,
}

/// The client computes while messages come, or go, at a rate.
#[derive(Args, Clone, Debug)]
pub(super) struct Overlap {
    /// What the client does beside
    #[arg(long)]
    pub(super) direction: Direction,
    /// Octets of a message
    #[arg(long, value_parser = numbered)]
    pub(super) size: usize,
    /// Messages a second
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    pub(super) rate: u32,
    /// Seconds in all; half of them are the transfer's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) seconds: u32,
}

/// Which way the messages of a client go that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Direction {
    /// It receives them
    Receive,
    /// It sends them
    Send,
}

/// One stream whose receiver works on every octet, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Process {
    /// Octets of a message
    #[arg(long, value_parser = numbered)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// Connections, one after another.
#[derive(Args, Clone, Debug)]
pub(super) struct Connect {
    /// Connections
    #[arg(long)]
    pub(super) iterations: usize,
    /// Measure until an octet has come back, not only until connect() returns
    #[arg(long)]
    pub(super) reply: bool,
}

/// Many requests under way, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Exchange {
    /// Octets to the server
    #[arg(long)]
    pub(super) request: usize,
    /// Octets back
    #[arg(long)]
    pub(super) reply: usize,
    /// Requests without an answer yet
    #[arg(long)]
    pub(super) depth: usize,
    /// Seconds to go on for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// Messages of a header and a payload from two buffers, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Gather {
    /// How the two get to the kernel together
    #[arg(long)]
    pub(super) how: gather::How,
    /// Octets of a payload
    #[arg(long, value_parser = payload)]
    pub(super) payload: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// Many connections that carry nothing.
#[derive(Args, Clone, Debug)]
pub(super) struct Idle {
    /// Connections, or as many as the limit of descriptors allows
    #[arg(long)]
    pub(super) connections: u32,
    /// Seconds for which they carry nothing
    #[arg(long)]
    pub(super) seconds: u32,
}

/// Reports of a monitor, a connection for each or one that is kept, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct Reports {
    /// Hosts that a report is of
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) hosts: u32,
    /// Clients, each with one transaction after another
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) at_once: u32,
    /// Seconds to go on for
    #[arg(long)]
    pub(super) seconds: u32,
    /// Keep the connection and ask for each report, where else a report is the whole connection
    #[arg(long)]
    pub(super) kept: bool,
    /// Tell the server of its hosts first, as Ganglia's gmetric does, by UDP at the same port
    #[arg(long, conflicts_with = "kept")]
    pub(super) feed: bool,
}

/// UDP: one datagram there and back.
#[derive(Args, Clone, Debug)]
pub(super) struct DatagramPingPong {
    /// Octets of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Round trips
    #[arg(long)]
    pub(super) iterations: usize,
    /// Wait in recv() instead of calling it over and over
    #[arg(long)]
    pub(super) waits: bool,
}

/// UDP: as many datagrams as go through, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct DatagramStream {
    /// Octets of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
}

/// UDP one way, in calls that wait, for a time.
#[derive(Args, Clone, Debug)]
pub(super) struct DatagramFlow {
    /// Octets of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
    /// Datagrams a second, each with the time it was sent at (8 octets); as many as go without it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "own")]
    pub(super) pace: Option<u32>,
    /// Datagrams a second, in bursts between which the sender sleeps
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "pace")]
    pub(super) rate: Option<u32>,
    /// The percentage of frames that the path loses; of those that it does not, the 99th percentile is told, too
    #[arg(long, default_value_t = 0.0, requires = "pace")]
    pub(super) lost: f64,
    /// Give the kernel 64 KB at a time to cut into datagrams (UDP_SEGMENT), and take as much (UDP_GRO)
    #[arg(long)]
    pub(super) own: bool,
    /// The datagrams are sealed, and the receiver decrypts each
    #[arg(long, conflicts_with = "pace")]
    pub(super) decrypt: bool,
}

/// UDP: a transfer at a rate, and again what was lost.
#[derive(Args, Clone, Debug)]
pub(super) struct DatagramBlast {
    /// Octets of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Octets of the transfer
    #[arg(long)]
    pub(super) octets: u64,
    /// Mbit/s
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: u32,
    /// Leave the pace to the socket (WEFT_SO_RATE) instead of looking at the clock before each datagram
    #[arg(long)]
    pub(super) socket_rate: bool,
}

/// UDP: a stream whose rate follows how far apart datagrams come.
#[derive(Args, Clone, Debug)]
pub(super) struct DatagramAdaptive {
    /// Octets of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Seconds to send for
    #[arg(long)]
    pub(super) seconds: u32,
    /// Mbit/s to begin with
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: u32,
    /// Leave the pace to the socket (WEFT_SO_RATE) instead of looking at the clock before each datagram
    #[arg(long)]
    pub(super) socket_rate: bool,
}

/// UDP: one datagram each to ports that nothing was sent to before.
#[derive(Args, Clone, Debug)]
pub(super) struct DatagramLone {
    /// Octets of a datagram
    #[arg(long)]
    pub(super) size: usize,
    /// Ports
    #[arg(long)]
    pub(super) iterations: u64,
    /// Milliseconds by which the receiver comes later than its port is known
    #[arg(long, default_value_t = 0)]
    pub(super) late: u32,
}

/// Octets of a payload that has room for what the receiver looks at.
fn payload(text: &str) -> Result<usize, String> {
    let bounds = gather::PAYLOADS;
    match text.parse() {
        Ok(octets) if bounds.contains(&octets) => Ok(octets),
        _ => Err(format!(
            "a number from {} to {}",
            bounds.start(),
            bounds.end()
        )),
    }
}
