//! Request and reply over one connection with `TCP_NODELAY`, spinning, blocking or waiting in epoll.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result};
use weft_os::as_programs::EpollSet;

use super::content::{check, check_number, message, set_number};
use super::pace::Pace;
use super::programs::PingPong;
use crate::metric::{
    HALF_ROUND_TRIP, MESSAGE_RATE, OPERATIONS, P99, P999, PERCENTILES, ROUND_TRIP,
};
use crate::record::Metrics;
use crate::stats::{quantile_of_sorted, sorted};
use crate::verbs::Mode;

/// Round trips before the clock starts: TCP's windows open, caches fill.
pub(crate) const WARM_UP: usize = 1000;

pub(super) fn serve(stream: &TcpStream, program: &PingPong) -> Result<()> {
    let mut pipe = Pipe::new(stream, program)?;
    let (mut request, mut reply) = (vec![0; program.request], message(program.reply, 0));
    for number in 0..rounds(program) {
        set_number(&mut reply, number);
        pipe.receive(&mut request)?;
        // Behind the last answer nobody would hear of it.
        if number + 1 == rounds(program) {
            check(&request, number)?;
        }
        pipe.send(&reply)?;
        check_of_round(&request, number, program)?;
    }
    Ok(())
}

pub(super) fn measure(stream: &TcpStream, program: &PingPong) -> Result<Metrics> {
    let mut pipe = Pipe::new(stream, program)?;
    let (mut request, mut reply) = (message(program.request, 0), vec![0; program.reply]);
    let pace = Pace::of(program);
    let mut round_trip = |number: u64| -> Result<f64> {
        set_number(&mut request, number);
        pace.wait(number);
        let start = Instant::now();
        pipe.send(&request)?;
        pipe.receive(&mut reply)?;
        let took = start.elapsed();
        pace.answered(number);
        check_of_round(&reply, number, program)?;
        Ok(took.as_secs_f64() * 1e6)
    };
    let warm_up = warm_up(program) as u64;
    (0..warm_up).try_for_each(|number| round_trip(number).map(drop))?;
    let samples = (warm_up..rounds(program))
        .map(&mut round_trip)
        .collect::<Result<Vec<f64>>>()?;
    pace.check(rounds(program))?;
    let mut metrics = metrics(&samples, program.request == program.reply)?;
    metrics.insert(OPERATIONS.to_owned(), rounds(program) as f64);
    Ok(metrics)
}

/// Percentiles and the minimum are of half the round trip where both directions carry the same, as
/// perftest does it.
pub(crate) fn metrics(round_trips: &[f64], symmetric: bool) -> Result<Metrics> {
    let sorted = sorted(round_trips);
    let at = |rank| quantile_of_sorted(&sorted, rank).context("no iterations");
    let share = if symmetric { 0.5 } else { 1.0 };
    let seconds = sorted.iter().sum::<f64>() / 1e6;
    let mut metrics = Metrics::from([
        (HALF_ROUND_TRIP.key.to_owned(), at(0.5)? / 2.0),
        (ROUND_TRIP.key.to_owned(), at(0.5)?),
        (MESSAGE_RATE.key.to_owned(), sorted.len() as f64 / seconds),
        ("min_us".to_owned(), at(0.0)? * share),
    ]);
    for (key, rank) in PERCENTILES {
        // Of fewer round trips than a percentile has beyond it nothing would be said but the greatest once more.
        if key == P99 || key == P999 || sorted.len() as f64 * (1.0 - rank) >= 1.0 {
            metrics.insert(key.to_owned(), at(rank)? * share);
        }
    }
    Ok(metrics)
}

fn warm_up(program: &PingPong) -> usize {
    WARM_UP.min(program.iterations / 10)
}

/// Round trips, those of the warm-up among them.
pub(super) fn rounds(program: &PingPong) -> u64 {
    (warm_up(program) + program.iterations) as u64
}

/// Looks at all octets of what comes before the clock starts and at the end, and at the number of the rest.
fn check_of_round(came: &[u8], number: u64, program: &PingPong) -> Result<()> {
    match number < warm_up(program) as u64 || number + 1 == rounds(program) {
        true => check(came, number),
        false => check_number(came, number),
    }
}

/// A stream on which a would-block is an invitation to try again at once, or to wait in epoll first.
struct Pipe<'a> {
    stream: &'a TcpStream,
    set: Option<EpollSet>,
}

impl<'a> Pipe<'a> {
    fn new(stream: &'a TcpStream, program: &PingPong) -> IoResult<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(program.epoll || program.mode == Mode::Polling)?;
        let set = match program.epoll {
            true => Some(EpollSet::new()?),
            false => None,
        };
        if let Some(set) = &set {
            set.add(stream, 0)?;
        }
        Ok(Pipe { stream, set })
    }

    fn send(&mut self, mut octets: &[u8]) -> IoResult<()> {
        let mut stream = self.stream;
        while !octets.is_empty() {
            let n = spin(|| stream.write(octets))?;
            octets = &octets[n..];
        }
        Ok(())
    }

    fn receive(&mut self, octets: &mut [u8]) -> IoResult<()> {
        let (mut stream, mut got) = (self.stream, 0);
        while got < octets.len() {
            let look = || {
                if let Some(set) = &self.set {
                    set.wait(None)?;
                }
                stream.read(&mut octets[got..])
            };
            match spin(look)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => got += n,
            }
        }
        Ok(())
    }
}

fn spin(mut call: impl FnMut() -> IoResult<usize>) -> IoResult<usize> {
    loop {
        match call() {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            result => return result,
        }
    }
}
