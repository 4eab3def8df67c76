//! As many messages as go, one way. The receiver counts and keeps the time, and tells the sender at the end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::mover::Mover;
use super::way::{with_inlet, with_outlet, Outlet};
use super::{AblatedFlow, Carrier, Pieces};
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::raw::content::message;
use crate::record::Metrics;

/// Octets that go between two looks at the clock, about: so that the clock does not weigh on small messages.
const OCTETS_PER_GLANCE: usize = 32 << 10;

/// What has come.
struct Received {
    octets: u64,
    /// Of the first receive, which opens the clock: they left before it.
    first: u64,
    begun: Instant,
    last: Instant,
    /// The message of which all are.
    message: Vec<u8>,
    is_it: bool,
}

impl Received {
    fn of(pieces: Pieces) -> Received {
        let now = Instant::now();
        Received {
            octets: 0,
            first: 0,
            begun: now,
            last: now,
            message: message(pieces.size, 0),
            is_it: true,
        }
    }

    /// Both ends of what comes are looked at.
    fn take(&mut self, octets: &[u8]) {
        let (Some(first), Some(last)) = (octets.first(), octets.last()) else {
            return;
        };
        self.last = Instant::now();
        if self.octets == 0 {
            (self.first, self.begun) = (octets.len() as u64, self.last);
        }
        let at = |octet: u64| self.message[(octet % self.message.len() as u64) as usize];
        let end = self.octets + octets.len() as u64 - 1;
        self.is_it &= (*first, *last) == (at(self.octets), at(end));
        self.octets = end + 1;
    }
}

pub(in crate::raw) fn serve(mut stream: &TcpStream, program: &AblatedFlow) -> Result<()> {
    let mover = Mover::of_server(stream, program.pieces)?;
    let mut received = Received::of(program.pieces);
    mover.watch(true)?;
    with_inlet(&mover, program.pieces, |inlet| {
        while inlet.next(&mut |octets| received.take(octets))? > 0 {}
        Ok(())
    })?;
    mover.watch(false)?;
    ensure!(received.is_it, "what came is not what was sent");
    let nanoseconds = (received.last - received.begun).as_nanos() as u64;
    let report = [received.octets, received.first, nanoseconds].map(u64::to_be_bytes);
    stream.write_all(&report.concat())?;
    stream.shutdown(Shutdown::Write)?;
    Ok(())
}

pub(in crate::raw) fn measure(mut stream: &TcpStream, program: &AblatedFlow) -> Result<Metrics> {
    let pieces = program.pieces;
    let mover = Mover::of_client(stream, pieces)?;
    let mut own = message(pieces.size, 0).repeat(mover.messages_of_a_call());
    let octets_of_a_call = own.len();
    let calls = with_outlet(&mover, pieces, &own.clone(), |outlet| {
        send(outlet, &mut own, program.seconds)
    })?;
    mover.end()?;
    let mut report = [0; 24];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[8 * at + i]));
    let (octets, first, nanoseconds) = (word(0), word(1), word(2));
    let sent = calls * octets_of_a_call as u64;
    if pieces.carrier == Carrier::Tcp {
        ensure!(octets == sent, "{octets} of {sent} octets arrived");
    }
    ensure!(nanoseconds > 0, "nothing was received");
    let timed = (octets - first) as f64;
    let (size, nanoseconds) = (pieces.size as f64, nanoseconds as f64);
    Ok(Metrics::from([
        (OPERATIONS.to_owned(), octets as f64 / size),
        (GOODPUT.key.to_owned(), timed * 8.0 / nanoseconds),
        (
            MESSAGE_RATE.key.to_owned(),
            timed / size * 1e9 / nanoseconds,
        ),
        (
            "lost_percent".to_owned(),
            100.0 * (1.0 - octets as f64 / sent as f64),
        ),
    ]))
}

/// Calls that were made.
fn send(outlet: &mut Outlet, own: &mut Vec<u8>, seconds: u32) -> Result<u64> {
    let per_glance = OCTETS_PER_GLANCE.div_ceil(own.len());
    let (start, time) = (Instant::now(), Duration::from_secs(seconds.into()));
    let mut calls = 0;
    while start.elapsed() < time {
        for _ in 0..per_glance {
            outlet.put(own)?;
        }
        calls += per_glance as u64;
    }
    Ok(calls)
}
