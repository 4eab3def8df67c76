//! How much of a core is left to a program that computes while messages come, or go, at a fixed rate.
//!
//! The client is that program. It computes in slices, and between two of them looks at the connection without waiting.
//! A quarter of the time it computes alone, then as long as the transfer takes beside that, then alone once more: the
//! share is of what it does alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use super::messages::{passing, Incoming, Look, Outgoing};
use super::programs::{Direction, Overlap};
use super::work::{Work, SLICE};
use crate::metric::{COMPUTING, GOODPUT, OPERATIONS};
use crate::record::Metrics;

/// A transfer that takes longer than this times what its rate asks for is another one.
const LATE: f64 = 1.2;

pub(super) fn serve(mut stream: &TcpStream, program: &Overlap) -> Result<()> {
    stream.set_nodelay(true)?;
    let count = messages(program);
    match program.direction {
        Direction::Receive => {
            stream.read_exact(&mut [0])?;
            send_at_rate(stream, program, count)
        }
        Direction::Send => {
            let mut incoming = Incoming::new(program.size);
            while incoming.count < count {
                ensure!(incoming.next(stream)?.is_some(), "the sender ended early");
            }
            Ok(stream.write_all(&[0])?)
        }
    }
}

pub(super) fn measure(mut stream: &TcpStream, program: &Overlap) -> Result<Metrics> {
    stream.set_nodelay(true)?;
    let (count, quarter) = (messages(program), quarter(program));
    let mut work = Work::calibrated();
    let before = work.alone(quarter);
    if program.direction == Direction::Receive {
        stream.write_all(&[0])?;
    }
    stream.set_nonblocking(true)?;
    let start = Instant::now();
    let slices = match program.direction {
        Direction::Receive => receive_beside(stream, program, count, &mut work)?,
        Direction::Send => send_beside(stream, program, count, &mut work)?,
    };
    let took = start.elapsed();
    let alone = (before + work.alone(quarter)) / 2.0;
    metrics(program, slices, took, alone)
}

/// Messages of the transfer, which is to take half of the time.
fn messages(program: &Overlap) -> u64 {
    u64::from(program.rate) * u64::from(program.seconds) / 2
}

fn quarter(program: &Overlap) -> Duration {
    Duration::from_secs(program.seconds.into()) / 4
}

/// Sleeps until each message is due; those that are late leave at once.
fn send_at_rate(stream: &TcpStream, program: &Overlap, count: u64) -> Result<()> {
    let mut outgoing = Outgoing::new(program.size);
    let start = Instant::now();
    while outgoing.count < count {
        let due = Duration::from_secs_f64(outgoing.count as f64 / f64::from(program.rate));
        if !outgoing.is_within() {
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        outgoing.push(stream)?;
    }
    Ok(())
}

/// Slices done until all messages have come.
fn receive_beside(
    stream: &TcpStream,
    program: &Overlap,
    count: u64,
    work: &mut Work,
) -> Result<u64> {
    let mut incoming = Incoming::new(program.size);
    let mut slices = 0;
    while incoming.count < count {
        work.slice();
        slices += 1;
        loop {
            match incoming.look(stream)? {
                Look::Octets(_) => {}
                Look::Nothing => break,
                Look::Ended if incoming.count == count => break,
                Look::Ended => bail!("{} of {count} messages came", incoming.count),
            }
        }
    }
    Ok(slices)
}

/// Slices done until the receiver has said that all messages have come.
fn send_beside(
    mut stream: &TcpStream,
    program: &Overlap,
    count: u64,
    work: &mut Work,
) -> Result<u64> {
    let mut outgoing = Outgoing::new(program.size);
    let (start, mut slices) = (Instant::now(), 0);
    loop {
        work.slice();
        slices += 1;
        let due = (start.elapsed().as_secs_f64() * f64::from(program.rate)) as u64 + 1;
        while outgoing.count < due.min(count) && outgoing.push(stream)? {}
        if outgoing.count < count {
            continue;
        }
        match stream.read(&mut [0]) {
            Ok(0) => bail!("the receiver went away"),
            Ok(_) => return Ok(slices),
            Err(error) if passing(error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn metrics(program: &Overlap, slices: u64, took: Duration, alone: f64) -> Result<Metrics> {
    let count = messages(program) as f64;
    let (took, planned) = (took.as_secs_f64(), count / f64::from(program.rate));
    ensure!(
        took <= planned * LATE,
        "{count} messages took {took:.3} s instead of {planned:.3}: more than goes through beside the computing"
    );
    let octets = count * program.size as f64;
    Ok(Metrics::from([
        (
            COMPUTING.key.to_owned(),
            100.0 * slices as f64 / took / alone,
        ),
        (GOODPUT.key.to_owned(), octets * 8.0 / took / 1e9),
        ("slice_us".to_owned(), 1e6 / alone),
        ("slice_planned_us".to_owned(), SLICE.as_secs_f64() * 1e6),
        (OPERATIONS.to_owned(), count),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_what_is_done_alone_and_a_late_transfer_has_none() {
        let program = Overlap {
            direction: Direction::Receive,
            size: 1000,
            rate: 100,
            seconds: 2,
        };
        let of = |took| metrics(&program, 40_000, Duration::from_secs_f64(took), 50_000.0);
        assert_eq!(of(1.0).unwrap()[COMPUTING.key], 80.0);
        let error = of(1.3).unwrap_err().to_string();
        assert!(error.starts_with("100 messages took 1.300 s"), "{error}");
    }
}
