//! The same measurements through Weft's own Rust API: what is left when the C face and perftest
//! are taken away. Sends in a stream are missing: perftest's credits, which keep the receive queue
//! from running empty, are perftest's.

mod end;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use self::end::{posting, reap, Connector, End, Listener, DEPTH, SIGNAL_EVERY};
use crate::metric::{CONNECT, GOODPUT, MESSAGE_RATE, OPERATIONS, P99};
use crate::raw::ping_pong::{metrics as ping_pong_metrics, WARM_UP};
use crate::raw::Role;
use crate::record::Metrics;
use crate::stats::{median, quantile_of_sorted, sorted};

/// One side of a measurement through the Rust API.
#[derive(Args, Clone, Debug)]
pub struct NativeArgs {
    #[command(flatten)]
    role: Role,
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand, Clone, Copy, Debug)]
enum Program {
    /// Sends, one at a time, there and back
    PingPong {
        #[arg(long)]
        size: usize,
        #[arg(long)]
        iterations: usize,
    },
    /// RDMA Writes, for a time
    Write {
        #[arg(long)]
        size: usize,
        #[arg(long)]
        seconds: u32,
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
        post_list: u32,
    },
    /// Connections, one after another
    Connect {
        #[arg(long)]
        iterations: usize,
    },
}

/// Octets a message has where messages do not matter.
const NOTE: usize = 1;

/// Runs one side; the client prints its metrics.
pub fn run(args: &NativeArgs) -> Result<()> {
    if let Some(address) = args.role.listen {
        return serve(&Listener::bind(address)?, args.program);
    }
    let server = args.role.connect.context("one of --listen and --connect")?;
    let metrics = serde_json::to_string(&measure(server, args.program)?)?;
    weft_os::stdout::print(
        &(metrics
            + "
"),
    )
    .context("cannot print the metrics")?;
    Ok(())
}

fn serve(listener: &Listener, program: Program) -> Result<()> {
    match program {
        Program::PingPong { size, iterations } => {
            let end = listener.accept(size)?;
            for _ in 0..warm_up(iterations) + iterations {
                end.receive()?;
                end.send_in_turn()?;
            }
        }
        Program::Write { size, .. } => {
            let end = listener.accept(size)?;
            end.receive()?;
            end.send(true)?;
            while reap(&end.send_cq)? == 0 {}
            return listener.wait_disconnected();
        }
        Program::Connect { iterations } => {
            return listener.accept_many(iterations);
        }
    }
    listener.wait_disconnected()
}

fn measure(server: SocketAddr, program: Program) -> Result<Metrics> {
    match program {
        Program::PingPong { size, iterations } => {
            let end = Connector::new(server, size)?.connect()?;
            let metrics = ping_pong(&end, iterations)?;
            end.disconnect()?;
            Ok(metrics)
        }
        Program::Write {
            size,
            seconds,
            post_list,
        } => {
            let end = Connector::new(server, size)?.connect()?;
            let time = Duration::from_secs(seconds.into());
            let metrics = writes(&end, size, time, post_list)?;
            end.disconnect()?;
            Ok(metrics)
        }
        Program::Connect { iterations } => connects(server, iterations),
    }
}

fn ping_pong(end: &End, iterations: usize) -> Result<Metrics> {
    let round_trip = || -> Result<f64> {
        let start = Instant::now();
        end.send_in_turn()?;
        end.receive()?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    for _ in 0..warm_up(iterations) {
        round_trip()?;
    }
    let samples = (0..iterations)
        .map(|_| round_trip())
        .collect::<Result<Vec<f64>>>()?;
    ping_pong_metrics(&samples, true)
}

/// Writes until the time is up, then a Send, whose answer says that all of them are placed.
fn writes(end: &End, size: usize, time: Duration, post_list: u32) -> Result<Metrics> {
    let (mut posted, mut room) = (0_u64, DEPTH);
    let start = Instant::now();
    while start.elapsed() < time {
        while room < post_list.max(SIGNAL_EVERY) {
            room += reap(&end.send_cq)? as u32 * SIGNAL_EVERY;
        }
        for _ in 0..SIGNAL_EVERY / post_list {
            let mut batch = end.qp.send_batch();
            for _ in 0..post_list {
                posted += 1;
                let signaled = posted % u64::from(SIGNAL_EVERY) == 0;
                end.with_request(true, signaled, |request| batch.post(request))
                    .map_err(posting)?;
            }
        }
        room -= SIGNAL_EVERY / post_list * post_list;
    }
    while room < DEPTH - SIGNAL_EVERY {
        room += reap(&end.send_cq)? as u32 * SIGNAL_EVERY;
    }
    end.send(false)?;
    end.receive()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Metrics::from([
        (
            GOODPUT.key.to_owned(),
            posted as f64 * size as f64 * 8.0 / seconds / 1e9,
        ),
        (MESSAGE_RATE.key.to_owned(), posted as f64 / seconds),
        (OPERATIONS.to_owned(), posted as f64),
    ]))
}

fn connects(server: SocketAddr, iterations: usize) -> Result<Metrics> {
    let mut times = Vec::with_capacity(iterations);
    for _ in 0..iterations {
        let connector = Connector::new(server, NOTE)?;
        let start = Instant::now();
        let end = connector.connect()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        end.disconnect()?;
    }
    let p99 = quantile_of_sorted(&sorted(&times), 0.99);
    Ok(Metrics::from([
        (
            CONNECT.key.to_owned(),
            median(&times).context("no iterations")?,
        ),
        (P99.to_owned(), p99.context("no iterations")?),
    ]))
}

fn warm_up(iterations: usize) -> usize {
    WARM_UP.min(iterations / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides in this process.
    fn run(program: Program) -> Metrics {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, program).unwrap());
            let metrics = measure(address, program).unwrap();
            server.join().unwrap();
            metrics
        })
    }

    #[test]
    fn more_round_trips_than_a_send_queue_has_places() {
        let metrics = run(Program::PingPong {
            size: 64,
            iterations: 10 * DEPTH as usize,
        });
        assert!(metrics["half_rtt_us"] > 0.0);
    }

    #[test]
    fn writes_alone_and_in_lists() {
        for post_list in [1, 16] {
            let metrics = run(Program::Write {
                size: 64,
                seconds: 1,
                post_list,
            });
            assert!(metrics["messages_per_s"] > 0.0);
        }
    }

    #[test]
    fn connections_one_after_another() {
        assert!(run(Program::Connect { iterations: 5 })["connect_us"] > 0.0);
    }
}
