//! TCP and UDP as a careful program would write it, without any library: what Weft is compared with.
//!
//! Server and client are two processes of this same executable, started by the bench with the
//! hidden `raw` command. The client prints its metrics as one JSON object.

mod ablated;
mod adaptive;
mod blast;
mod both;
mod bulk;
mod clock;
mod connect;
mod content;
mod datagram_flow;
mod datagrams;
mod exchange;
mod gather;
mod idle;
mod lone;
mod messages;
mod overlap;
mod pace;
pub(crate) mod ping_pong;
mod place;
mod process;
mod programs;
mod reports;
mod sealed;
mod socket_rate;
mod window;
mod work;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::Args;

use crate::metric::SERVER_CPU;
use crate::record::Metrics;
use clock::cpu_nanoseconds;
use programs::Program;

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

/// Runs one side; the client prints its metrics.
pub fn run(args: &RawArgs) -> Result<()> {
    if let Some(address) = args.role.listen {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        return print(&serve(&listener, args.clients, &args.program)?);
    }
    let address = args.role.connect.context("one of --listen and --connect")?;
    print(&measure_all(address, args.clients, &args.program)?)
}

/// Prints metrics, where there are any.
fn print(metrics: &Metrics) -> Result<()> {
    if metrics.is_empty() {
        return Ok(());
    }
    let line = serde_json::to_string(metrics)? + "\n";
    weft_os::stdout::print(&line).context("cannot print the metrics")?;
    Ok(())
}

/// What only the server knows; mostly nothing.
fn serve(listener: &TcpListener, clients: u32, program: &Program) -> Result<Metrics> {
    match program {
        Program::Connect(_) => connect::serve(listener)?,
        Program::Idle(_) => idle::serve(listener)?,
        Program::Reports(p) => reports::serve(listener, p)?,
        _ => return serve_accepted(listener, clients, program),
    }
    Ok(Metrics::new())
}

fn serve_accepted(listener: &TcpListener, clients: u32, program: &Program) -> Result<Metrics> {
    // All of them are there before the first is served, so that they measure at the same time.
    let streams: Vec<TcpStream> = (0..clients)
        .map(|_| accept(listener))
        .collect::<Result<_>>()?;
    let before = cpu_nanoseconds();
    match &streams[..] {
        [stream] => serve_one(stream, program)?,
        streams => thread::scope(|scope| {
            let serving: Vec<_> = streams
                .iter()
                .map(|stream| scope.spawn(|| serve_one(stream, program)))
                .collect();
            serving.into_iter().try_for_each(joined)
        })?,
    }
    let took = cpu_nanoseconds() - before;
    Ok(match program {
        Program::PingPong(p) if p.pace.is_some() => {
            let requests = u64::from(clients) * ping_pong::rounds(p);
            let each = took as f64 / requests.max(1) as f64;
            Metrics::from([(SERVER_CPU.key.to_owned(), each)])
        }
        _ => Metrics::new(),
    })
}

fn serve_one(stream: &TcpStream, program: &Program) -> Result<()> {
    match program {
        Program::PingPong(p) => ping_pong::serve(stream, p),
        Program::Stream(p) => bulk::serve(stream, p),
        Program::Feed(p) => bulk::feed(stream, p),
        Program::Both(p) => both::serve(stream, p),
        Program::Window(p) => window::serve(stream, p),
        Program::Place(p) => place::serve(stream, p),
        Program::Overlap(p) => overlap::serve(stream, p),
        Program::Process(p) => process::serve(stream, p),
        Program::Connect(_) | Program::Idle(_) | Program::Reports(_) => {
            bail!("connections are served by their listener")
        }
        Program::Exchange(p) => exchange::serve(stream, p),
        Program::Gather(p) => gather::serve(stream, p),
        Program::DatagramPingPong(p) => datagrams::serve_ping_pong(stream, p),
        Program::DatagramStream(p) => datagrams::serve_stream(stream, p),
        Program::DatagramFlow(p) => datagram_flow::serve(stream, p),
        Program::DatagramBlast(p) => blast::serve(stream, p),
        Program::DatagramAdaptive(p) => adaptive::serve(stream, p),
        Program::DatagramLone(p) => lone::serve(stream, p),
        Program::AblatedFlow(p) => ablated::serve(stream, p),
        Program::AblatedPingPong(p) => ablated::serve_ping_pong(stream, p),
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
        Program::Both(p) => both::measure(&connect()?, p),
        Program::Window(p) => window::measure(&connect()?, p),
        Program::Place(p) => place::measure(&connect()?, p),
        Program::Overlap(p) => overlap::measure(&connect()?, p),
        Program::Process(p) => process::measure(&connect()?, p),
        Program::Connect(p) => connect::measure(server, p),
        Program::Exchange(p) => exchange::measure(&connect()?, p),
        Program::Gather(p) => gather::measure(&connect()?, p),
        Program::Idle(p) => idle::measure(server, p),
        Program::Reports(p) => reports::measure(server, p),
        Program::DatagramPingPong(p) => datagrams::measure_ping_pong(&connect()?, p),
        Program::DatagramStream(p) => datagrams::measure_stream(&connect()?, p),
        Program::DatagramFlow(p) => datagram_flow::measure(&connect()?, p),
        Program::DatagramBlast(p) => blast::measure(&connect()?, p),
        Program::DatagramAdaptive(p) => adaptive::measure(&connect()?, p),
        Program::DatagramLone(p) => lone::measure(&connect()?, p),
        Program::AblatedFlow(p) => ablated::measure(&connect()?, p),
        Program::AblatedPingPong(p) => ablated::measure_ping_pong(&connect()?, p),
    }
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    Ok(listener.accept().context("cannot accept")?.0)
}

#[cfg(test)]
mod tests;
