//! Reports of a monitor, in the manner of Ganglia: a connection for each, as its `gmond` gives them, or all of them
//! over one connection that is kept.

mod feed;
mod report;
mod server;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use super::joined;
use super::programs::Reports;
use crate::metric::{OPERATIONS, P99, REQUEST_RATE};
use crate::record::Metrics;
use crate::stats::{quantile_of_sorted, sorted};
use report::Whole;
pub(super) use server::serve;

/// Key of the median time of a transaction, µs.
const TRANSACTION: &str = "request_us";
/// Key of the mean length of a report.
const OCTETS: &str = "report_octets";

/// What asks for a report on a connection that is kept, as `gmetad` is asked at its interactive port.
const REQUEST: &[u8] = b"/\n";
/// Octets that one receive takes at most.
const RECEIVE: usize = 64 << 10;
/// Longer than any report here; who sends so much sends no report.
const LONGEST: usize = 64 << 20;
/// Transactions of each client before the clock starts.
const WARM_UP: usize = 10;

/// What one client has seen.
#[derive(Default)]
struct Seen {
    transactions_us: Vec<f64>,
    octets: u64,
    /// Transactions before the clock started.
    warm_up: usize,
}

/// Makes transactions for a time, and looks at each report: a client that takes a report has to read it.
pub(super) fn measure(server: SocketAddr, program: &Reports) -> Result<Metrics> {
    let whole = Whole::of(program.hosts);
    if program.feed {
        feed::until_reported(server, program.hosts, || {
            let mut report = Vec::new();
            transaction(server, &mut report)?;
            Ok(whole.check(&report).is_ok())
        })?;
    }
    let begin = Instant::now();
    let seen: Vec<Seen> = thread::scope(|scope| {
        let clients: Vec<_> = (0..program.at_once)
            .map(|_| scope.spawn(|| client(server, program, &whole)))
            .collect();
        clients.into_iter().map(joined).collect::<Result<_>>()
    })?;
    metrics(&seen, begin.elapsed())
}

fn metrics(seen: &[Seen], took: Duration) -> Result<Metrics> {
    let times: Vec<f64> = seen
        .iter()
        .flat_map(|seen| seen.transactions_us.iter().copied())
        .collect();
    let (measured, octets) = (
        times.len(),
        seen.iter().map(|seen| seen.octets).sum::<u64>(),
    );
    let times = sorted(&times);
    let at = |rank| quantile_of_sorted(&times, rank).context("no transaction ended in time");
    let warm_up: usize = seen.iter().map(|seen| seen.warm_up).sum();
    Ok(Metrics::from([
        (TRANSACTION.to_owned(), at(0.5)?),
        (P99.to_owned(), at(0.99)?),
        (
            REQUEST_RATE.key.to_owned(),
            measured as f64 / took.as_secs_f64(),
        ),
        (OCTETS.to_owned(), octets as f64 / measured as f64),
        (OPERATIONS.to_owned(), (measured + warm_up) as f64),
    ]))
}

/// One client, one transaction after another.
fn client(server: SocketAddr, program: &Reports, whole: &Whole) -> Result<Seen> {
    let mut kept = match program.kept {
        true => Some(connect(server)?),
        false => None,
    };
    let mut report = Vec::new();
    let mut one = || -> Result<(f64, u64)> {
        let begin = Instant::now();
        match &mut kept {
            Some(stream) => asked(stream, &mut report)?,
            None => transaction(server, &mut report)?,
        }
        let took = begin.elapsed().as_secs_f64() * 1e6;
        whole.check(&report)?;
        Ok((took, report.len() as u64))
    };
    for _ in 0..WARM_UP {
        one()?;
    }
    let mut seen = Seen {
        warm_up: WARM_UP,
        ..Seen::default()
    };
    let end = Instant::now() + Duration::from_secs(program.seconds.into());
    while Instant::now() < end {
        let (took, octets) = one()?;
        seen.transactions_us.push(took);
        seen.octets += octets;
    }
    Ok(seen)
}

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream =
        TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection and what comes over it to its end.
fn transaction(server: SocketAddr, report: &mut Vec<u8>) -> Result<()> {
    let mut stream = connect(server)?;
    report.clear();
    while receive(&mut stream, report)? > 0 {}
    ensure!(
        !report.is_empty(),
        "the server closed the connection and sent nothing"
    );
    Ok(())
}

/// A report on a connection that is kept. Where it ends its own last element says.
fn asked(stream: &mut TcpStream, report: &mut Vec<u8>) -> Result<()> {
    stream
        .write_all(REQUEST)
        .context("cannot ask for a report")?;
    report.clear();
    while !report.ends_with(report::END) {
        if receive(stream, report)? == 0 {
            bail!(
                "the server closed the connection after {} octets of a report",
                report.len()
            );
        }
    }
    Ok(())
}

/// Appends what one receive gives; how much that was.
fn receive(stream: &mut TcpStream, report: &mut Vec<u8>) -> Result<usize> {
    let so_far = report.len();
    ensure!(
        so_far < LONGEST,
        "the server sent more than {LONGEST} octets and no end of a report"
    );
    report.resize(so_far + RECEIVE, 0);
    let received = stream.read(&mut report[so_far..]);
    report.truncate(so_far + *received.as_ref().unwrap_or(&0));
    received.with_context(|| format!("cannot receive behind {so_far} octets of a report"))
}

#[cfg(test)]
mod tests;
