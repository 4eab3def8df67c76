//! As many messages as go, one way. The receiver counts and keeps the time, and tells the sender at the end.
//!
//! Nothing holds a sender of UDP back, and what it sends in vain would be charged to what came: the receiver tells it
//! by a word on the stream that so much more has come, and it goes no further ahead than the receiver has room for.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use super::mover::Mover;
use super::way::{with_inlet, with_outlet, Outlet};
use super::{AblatedFlow, Carrier, Pieces};
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::raw::content::message;
use crate::record::Metrics;

/// Octets that go between two looks at the clock, about: so that the clock does not weigh on small messages.
const OCTETS_PER_GLANCE: usize = 32 << 10;

/// Octets of datagrams that a word of the receiver's stands for, and that may be under way.
const WORD: u64 = 1 << 20;
const UNDER_WAY_MAX: u64 = 4 << 20;
/// Where datagrams were lost their word does not come: after this the sender goes on without.
const WORD_TIMEOUT: Duration = Duration::from_millis(50);
/// Octets of what the receiver tells at the end.
const REPORT: usize = 24;

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
    let pieces = program.pieces;
    let mover = Mover::of_server(stream, pieces)?;
    let (mut received, mut told) = (Received::of(pieces), 0);
    mover.watch(true)?;
    with_inlet(&mover, pieces, |inlet| {
        while inlet.next(&mut |octets| received.take(octets))? > 0 {
            while pieces.carrier != Carrier::Tcp && received.octets - told >= WORD {
                match stream.write(&[0]) {
                    // There is room behind the next datagrams again; the sender does not wait for ever.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    written => written?,
                };
                told += WORD;
            }
        }
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

pub(in crate::raw) fn measure(stream: &TcpStream, program: &AblatedFlow) -> Result<Metrics> {
    let pieces = program.pieces;
    let mover = Mover::of_client(stream, pieces)?;
    let mut own = message(pieces.size, 0).repeat(mover.messages_of_a_call());
    let mut credit = (pieces.carrier != Carrier::Tcp).then_some(Credit { stream, told: 0 });
    let sent = with_outlet(&mover, pieces, &own.clone(), |outlet| {
        send(outlet, &mut own, program.seconds, &mut credit)
    })?;
    mover.end()?;
    let (octets, first, nanoseconds) = report(stream)?;
    if pieces.carrier == Carrier::Tcp {
        ensure!(octets == sent, "{octets} of {sent} octets arrived");
    }
    ensure!(nanoseconds > 0, "nothing was received");
    let timed = (octets - first) as f64;
    let (size, nanoseconds) = (pieces.size as f64, nanoseconds as f64);
    let lost = 100.0 * (1.0 - octets as f64 / sent as f64);
    Ok(Metrics::from([
        (OPERATIONS.to_owned(), octets as f64 / size),
        (GOODPUT.key.to_owned(), timed * 8.0 / nanoseconds),
        (
            MESSAGE_RATE.key.to_owned(),
            timed / size * 1e9 / nanoseconds,
        ),
        ("lost_percent".to_owned(), lost),
    ]))
}

/// What the receiver tells: octets, those of its first receive, and the nanoseconds of the others. Words that nobody
/// waited for stand before it.
fn report(mut stream: &TcpStream) -> Result<(u64, u64, u64)> {
    stream.set_read_timeout(None)?;
    let mut told = Vec::new();
    stream.read_to_end(&mut told)?;
    let report = told.last_chunk::<REPORT>();
    let report = report.context("the receiver told nothing")?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[8 * at + i]));
    Ok((word(0), word(1), word(2)))
}

/// How far a sender of datagrams may go.
struct Credit<'s> {
    stream: &'s TcpStream,
    /// Octets that the receiver told of.
    told: u64,
}

impl Credit<'_> {
    /// Waits until so many octets sent are not too far ahead.
    fn wait(&mut self, sent: u64) -> Result<()> {
        while sent > self.told + UNDER_WAY_MAX {
            self.stream.set_read_timeout(Some(WORD_TIMEOUT))?;
            let mut stream = self.stream;
            match stream.read(&mut [0]) {
                Ok(0) => bail!("the receiver has ended"),
                Ok(_) => self.told += WORD,
                // What is under way has come by now, or never will.
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.told = sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Octets that were sent.
fn send(
    outlet: &mut Outlet,
    own: &mut Vec<u8>,
    seconds: u32,
    credit: &mut Option<Credit>,
) -> Result<u64> {
    let per_glance = OCTETS_PER_GLANCE.div_ceil(own.len());
    let (start, time) = (Instant::now(), Duration::from_secs(seconds.into()));
    let mut sent = 0;
    while start.elapsed() < time {
        for _ in 0..per_glance {
            outlet.put(own)?;
        }
        sent += (per_glance * own.len()) as u64;
        if let Some(credit) = credit {
            credit.wait(sent)?;
        }
    }
    Ok(sent)
}
