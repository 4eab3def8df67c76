//! One stream of `send` calls of one size. The receiver counts and keeps the time, and tells the
//! sender at the end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::Stream;
use crate::metric::{GOODPUT, MESSAGE_RATE};
use crate::record::Metrics;

/// The receiver takes what it can get: iperf3's default block, or the message when that is larger.
const RECEIVE: usize = 128 << 10;

/// Sends between two looks at the clock, so that the clock does not weigh on small messages.
const SENDS_PER_GLANCE: usize = 16;

pub(super) fn serve(mut stream: &TcpStream, program: &Stream) -> Result<()> {
    let mut buffer = vec![0; RECEIVE.max(program.size)];
    let mut octets = stream.read(&mut buffer)? as u64;
    // The first octets open the clock and do not count: they left before it.
    let (start, first) = (Instant::now(), octets);
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            n => octets += n as u64,
        }
    }
    let nanoseconds = start.elapsed().as_nanos() as u64;
    stream.write_all(&(octets - first).to_be_bytes())?;
    stream.write_all(&nanoseconds.to_be_bytes())?;
    Ok(())
}

pub(super) fn measure(mut stream: &TcpStream, program: &Stream) -> Result<Metrics> {
    stream.set_nodelay(!program.nagle)?;
    let message = vec![0x5a; program.size];
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    while start.elapsed() < time {
        for _ in 0..SENDS_PER_GLANCE {
            stream.write_all(&message)?;
        }
    }
    stream.shutdown(Shutdown::Write)?;

    let mut report = [0; 16];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[at + i]));
    let (octets, nanoseconds) = (word(0) as f64, word(8) as f64);
    ensure!(nanoseconds > 0.0, "nothing was received");
    Ok(Metrics::from([
        (GOODPUT.key.to_owned(), octets * 8.0 / nanoseconds),
        (
            MESSAGE_RATE.key.to_owned(),
            octets / program.size as f64 * 1e9 / nanoseconds,
        ),
    ]))
}
