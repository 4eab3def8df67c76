//! One stream of `send` calls of one size. The receiver counts and keeps the time, and tells the
//! sender at the end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_os::as_programs::poll_readable;

use super::pace::Rate;
use super::programs::Stream;
use super::sealed::Key;
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::record::Metrics;

/// The receiver takes what it can get: iperf3's default block, or the message when that is larger.
const RECEIVE: usize = 128 << 10;

/// Sends between two looks at the clock, so that the clock does not weigh on small messages.
const SENDS_PER_GLANCE: usize = 16;

pub(super) fn serve(mut stream: &TcpStream, program: &Stream) -> Result<()> {
    let (octets, nanoseconds) = receive(stream, program)?;
    stream.write_all(&octets.to_be_bytes())?;
    stream.write_all(&nanoseconds.to_be_bytes())?;
    Ok(())
}

pub(super) fn measure(mut stream: &TcpStream, program: &Stream) -> Result<Metrics> {
    let rate = send(stream, program)?;
    let mut report = [0; 16];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[at + i]));
    let metrics = metrics(word(0), word(8), program)?;
    rate.map_or(Ok(()), |rate| rate.check(metrics[MESSAGE_RATE.key]))?;
    Ok(metrics)
}

/// The server's side where the client is the one that counts.
pub(super) fn feed(stream: &TcpStream, program: &Stream) -> Result<()> {
    match send(stream, program) {
        // The client has seen enough.
        Err(error) if kind(&error) == Some(ErrorKind::ConnectionReset) => Ok(()),
        sent => sent.map(drop),
    }
}

/// The client's side where it is the one that counts.
pub(super) fn take(stream: &TcpStream, program: &Stream) -> Result<Metrics> {
    let (octets, nanoseconds) = receive(stream, program)?;
    metrics(octets, nanoseconds, program)
}

fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.downcast_ref().map(std::io::Error::kind)
}

/// Sends for the time, then says that this was all. Gives the rate that it kept, if it was to keep one.
fn send(mut stream: &TcpStream, program: &Stream) -> Result<Option<Rate>> {
    stream.set_nodelay(!program.nagle)?;
    let message = match Key::if_wanted(program.decrypt) {
        Some(key) => key.sealed(program.size)?,
        None => vec![0x5a; program.size],
    };
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    let (rate, mut sent) = (program.rate.map(Rate::of), 0);
    while start.elapsed() < time {
        for _ in 0..SENDS_PER_GLANCE {
            stream.write_all(&message)?;
        }
        sent += SENDS_PER_GLANCE as u64;
        if let Some(rate) = &rate {
            rate.wait(sent);
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(rate)
}

/// Octets until the sender has said that this was all, and the nanoseconds that they took.
fn receive(mut stream: &TcpStream, program: &Stream) -> Result<(u64, u64)> {
    let key = Key::if_wanted(program.decrypt);
    // What is decrypted is there as a whole before.
    let room = match key {
        Some(_) => program.size,
        None => RECEIVE.max(program.size),
    };
    let (mut buffer, mut filled) = (vec![0; room], 0);
    let mut take = || -> Result<usize> {
        if program.poll {
            poll_readable(stream)?;
        }
        let octets = stream.read(&mut buffer[filled..])?;
        if let Some(key) = &key {
            ensure!(octets > 0 || filled == 0, "the last message came in part");
            filled += octets;
            if filled == room {
                key.open_each(&mut buffer, room)?;
                filled = 0;
            }
        }
        Ok(octets)
    };
    let mut octets = take()? as u64;
    // The first octets open the clock and do not count: they left before it.
    let (start, first) = (Instant::now(), octets);
    loop {
        match take()? {
            0 => break,
            n => octets += n as u64,
        }
    }
    Ok((octets - first, start.elapsed().as_nanos() as u64))
}

fn metrics(octets: u64, nanoseconds: u64, program: &Stream) -> Result<Metrics> {
    ensure!(nanoseconds > 0, "nothing was received");
    let (octets, nanoseconds) = (octets as f64, nanoseconds as f64);
    Ok(Metrics::from([
        (OPERATIONS.to_owned(), octets / program.size as f64),
        (GOODPUT.key.to_owned(), octets * 8.0 / nanoseconds),
        (
            MESSAGE_RATE.key.to_owned(),
            octets / program.size as f64 * 1e9 / nanoseconds,
        ),
    ]))
}
