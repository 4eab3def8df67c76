//! TCP and UDP as a careful program would write it, without any library: what Weft is compared with.
//!
//! Server and client are two processes of this same executable, started by the bench with the
//! hidden `raw` command. The client prints its metrics as one JSON object.

mod adaptive;
mod blast;
mod bulk;
mod clock;
mod connect;
mod datagram_flow;
mod datagrams;
mod exchange;
mod gather;
mod idle;
mod lone;
pub(crate) mod ping_pong;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::{Args, Subcommand};

use crate::record::Metrics;
use crate::verbs::Mode;

/// One side of a raw TCP measurement.
#[derive(Args, Clone, Debug)]
pub struct RawArgs {
    #[command(flatten)]
    role: Role,
    /// Connections at once: a server waits for all of them before it serves any, a client makes all of them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    #[command(subcommand)]
    program: Program,
}

/// Which side a process of a measurement is.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Role {
    /// Serve one measurement at this address
    #[arg(long)]
    pub(crate) listen: Option<SocketAddr>,
    /// Measure against the server at this address
    #[arg(long)]
    pub(crate) connect: Option<SocketAddr>,
}

#[derive(Subcommand, Clone, Debug)]
enum Program {
    /// Request and reply, one at a time
    PingPong(PingPong),
    /// One stream of send() calls, for a time
    Stream(Stream),
    /// The server sends for a time, and the client counts
    Feed(Stream),
    /// Connections, one after another
    Connect(Connect),
    /// Many requests under way, for a time
    Exchange(Exchange),
    /// Messages of a header and a payload from two buffers, for a time
    Gather(Gather),
    /// Many connections that carry nothing
    Idle(Idle),
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
}

/// Request and reply, one at a time.
#[derive(Args, Clone, Debug)]
struct PingPong {
    /// Spin on non-blocking calls, or block
    #[arg(long)]
    mode: Mode,
    /// Make non-blocking calls, and wait in epoll_wait() before each recv()
    #[arg(long)]
    epoll: bool,
    /// Octets to the server
    #[arg(long)]
    request: usize,
    /// Octets back
    #[arg(long)]
    reply: usize,
    /// Round trips
    #[arg(long)]
    iterations: usize,
}

/// One stream of `send` calls, for a time.
#[derive(Args, Clone, Debug)]
struct Stream {
    /// Octets in one send() call
    #[arg(long)]
    size: usize,
    /// Seconds to send for
    #[arg(long)]
    seconds: u32,
    /// Leave Nagle's algorithm on
    #[arg(long)]
    nagle: bool,
    /// The receiver waits in poll() before each recv()
    #[arg(long)]
    poll: bool,
}

/// Connections, one after another.
#[derive(Args, Clone, Debug)]
struct Connect {
    /// Connections
    #[arg(long)]
    iterations: usize,
    /// Measure until an octet has come back, not only until connect() returns
    #[arg(long)]
    reply: bool,
}

/// Many requests under way, for a time.
#[derive(Args, Clone, Debug)]
struct Exchange {
    /// Octets to the server
    #[arg(long)]
    request: usize,
    /// Octets back
    #[arg(long)]
    reply: usize,
    /// Requests without an answer yet
    #[arg(long)]
    depth: usize,
    /// Seconds to go on for
    #[arg(long)]
    seconds: u32,
}

/// Messages of a header and a payload from two buffers, for a time.
#[derive(Args, Clone, Debug)]
struct Gather {
    /// How the two get to the kernel together
    #[arg(long)]
    how: gather::How,
    /// Octets of a payload
    #[arg(long, value_parser = payload)]
    payload: usize,
    /// Seconds to send for
    #[arg(long)]
    seconds: u32,
}

/// Many connections that carry nothing.
#[derive(Args, Clone, Debug)]
struct Idle {
    /// Connections, or as many as the limit of descriptors allows
    #[arg(long)]
    connections: u32,
    /// Seconds for which they carry nothing
    #[arg(long)]
    seconds: u32,
}

/// UDP: one datagram there and back.
#[derive(Args, Clone, Debug)]
struct DatagramPingPong {
    /// Octets of a datagram
    #[arg(long)]
    size: usize,
    /// Round trips
    #[arg(long)]
    iterations: usize,
    /// Wait in recv() instead of calling it over and over
    #[arg(long)]
    waits: bool,
}

/// UDP: as many datagrams as go through, for a time.
#[derive(Args, Clone, Debug)]
struct DatagramStream {
    /// Octets of a datagram
    #[arg(long)]
    size: usize,
    /// Seconds to send for
    #[arg(long)]
    seconds: u32,
}

/// UDP one way, in calls that wait, for a time.
#[derive(Args, Clone, Debug)]
struct DatagramFlow {
    /// Octets of a datagram
    #[arg(long)]
    size: usize,
    /// Seconds to send for
    #[arg(long)]
    seconds: u32,
    /// Datagrams a second, each with the time it was sent at (8 octets); as many as go without it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "own")]
    pace: Option<u32>,
    /// The percentage of frames that the path loses; of those that it does not, the 99th percentile is told, too
    #[arg(long, default_value_t = 0.0, requires = "pace")]
    lost: f64,
    /// Give the kernel 64 KB at a time to cut into datagrams (UDP_SEGMENT), and take as much (UDP_GRO)
    #[arg(long)]
    own: bool,
}

/// UDP: a transfer at a rate, and again what was lost.
#[derive(Args, Clone, Debug)]
struct DatagramBlast {
    /// Octets of a datagram
    #[arg(long)]
    size: usize,
    /// Octets of the transfer
    #[arg(long)]
    octets: u64,
    /// Mbit/s
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
}

/// UDP: a stream whose rate follows how far apart datagrams come.
#[derive(Args, Clone, Debug)]
struct DatagramAdaptive {
    /// Octets of a datagram
    #[arg(long)]
    size: usize,
    /// Seconds to send for
    #[arg(long)]
    seconds: u32,
    /// Mbit/s to begin with
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
}

/// UDP: one datagram each to ports that nothing was sent to before.
#[derive(Args, Clone, Debug)]
struct DatagramLone {
    /// Octets of a datagram
    #[arg(long)]
    size: usize,
    /// Ports
    #[arg(long)]
    iterations: u64,
    /// Milliseconds by which the receiver comes later than its port is known
    #[arg(long, default_value_t = 0)]
    late: u32,
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

/// Runs one side; the client prints its metrics.
pub fn run(args: &RawArgs) -> Result<()> {
    if let Some(address) = args.role.listen {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        return serve(&listener, args.clients, &args.program);
    }
    let address = args.role.connect.context("one of --listen and --connect")?;
    let metrics = serde_json::to_string(&measure_all(address, args.clients, &args.program)?)?;
    weft_os::stdout::print(
        &(metrics
            + "
"),
    )
    .context("cannot print the metrics")?;
    Ok(())
}

fn serve(listener: &TcpListener, clients: u32, program: &Program) -> Result<()> {
    match program {
        Program::Connect(_) => return connect::serve(listener),
        Program::Idle(_) => return idle::serve(listener),
        _ => {}
    }
    // All of them are there before the first is served, so that they measure at the same time.
    let streams: Vec<TcpStream> = (0..clients)
        .map(|_| accept(listener))
        .collect::<Result<_>>()?;
    if let [stream] = &streams[..] {
        return serve_one(stream, program);
    }
    thread::scope(|scope| {
        let serving: Vec<_> = streams
            .iter()
            .map(|stream| scope.spawn(|| serve_one(stream, program)))
            .collect();
        serving.into_iter().try_for_each(joined)
    })
}

fn serve_one(stream: &TcpStream, program: &Program) -> Result<()> {
    match program {
        Program::PingPong(p) => ping_pong::serve(stream, p),
        Program::Stream(p) => bulk::serve(stream, p),
        Program::Feed(p) => bulk::feed(stream, p),
        Program::Connect(_) | Program::Idle(_) => bail!("connections are served by their listener"),
        Program::Exchange(p) => exchange::serve(stream, p),
        Program::Gather(p) => gather::serve(stream, p),
        Program::DatagramPingPong(p) => datagrams::serve_ping_pong(stream, p),
        Program::DatagramStream(p) => datagrams::serve_stream(stream, p),
        Program::DatagramFlow(p) => datagram_flow::serve(stream, p),
        Program::DatagramBlast(p) => blast::serve(stream, p),
        Program::DatagramAdaptive(p) => adaptive::serve(stream, p),
        Program::DatagramLone(p) => lone::serve(stream, p),
    }
}

/// Measures over several connections at once; what flows is added up.
fn measure_all(server: SocketAddr, clients: u32, program: &Program) -> Result<Metrics> {
    if clients == 1 {
        return measure(server, program);
    }
    ensure!(
        matches!(program, Program::Stream(_) | Program::Feed(_)),
        "only streams are measured over several connections at once"
    );
    let mut total = Metrics::new();
    let measured: Vec<Metrics> = thread::scope(|scope| {
        let measuring: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| measure(server, program)))
            .collect();
        measuring.into_iter().map(joined).collect::<Result<_>>()
    })?;
    for (key, value) in measured.into_iter().flatten() {
        *total.entry(key).or_default() += value;
    }
    Ok(total)
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))?
}

fn measure(server: SocketAddr, program: &Program) -> Result<Metrics> {
    let connect =
        || TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"));
    match program {
        Program::PingPong(p) => ping_pong::measure(&connect()?, p),
        Program::Stream(p) => bulk::measure(&connect()?, p),
        Program::Feed(p) => bulk::take(&connect()?, p),
        Program::Connect(p) => connect::measure(server, p),
        Program::Exchange(p) => exchange::measure(&connect()?, p),
        Program::Gather(p) => gather::measure(&connect()?, p),
        Program::Idle(p) => idle::measure(server, p),
        Program::DatagramPingPong(p) => datagrams::measure_ping_pong(&connect()?, p),
        Program::DatagramStream(p) => datagrams::measure_stream(&connect()?, p),
        Program::DatagramFlow(p) => datagram_flow::measure(&connect()?, p),
        Program::DatagramBlast(p) => blast::measure(&connect()?, p),
        Program::DatagramAdaptive(p) => adaptive::measure(&connect()?, p),
        Program::DatagramLone(p) => lone::measure(&connect()?, p),
    }
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    Ok(listener.accept().context("cannot accept")?.0)
}

#[cfg(test)]
mod tests;
