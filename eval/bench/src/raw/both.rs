//! Both ends send over one connection, and receive from it, at the same time; each in one thread, which sleeps in
//! `poll` only where it can do neither.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_os::as_programs::{poll_either, poll_readable};

use super::messages::{Incoming, Look, Outgoing};
use super::programs::Both;
use crate::metric::{GOODPUT, OPERATIONS};
use crate::record::Metrics;

/// What an end came to: octets and nanoseconds of what it received while it was sending, and the messages that it
/// received and sent in all.
struct Own {
    octets: u64,
    nanoseconds: u64,
    received: u64,
    sent: u64,
}

/// Octets in which an end tells what it came to.
const REPORT: usize = 4 * size_of::<u64>();

pub(super) fn serve(mut stream: &TcpStream, program: &Both) -> Result<()> {
    let own = run(stream, program)?;
    let words = [own.octets, own.nanoseconds, own.received, own.sent];
    stream.write_all(&words.map(u64::to_be_bytes).concat())?;
    Ok(())
}

pub(super) fn measure(mut stream: &TcpStream, program: &Both) -> Result<Metrics> {
    let own = run(stream, program)?;
    let mut report = [0; REPORT];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[8 * at + i]));
    let other = Own {
        octets: word(0),
        nanoseconds: word(1),
        received: word(2),
        sent: word(3),
    };
    metrics(&own, &other)
}

fn run(stream: &TcpStream, program: &Both) -> Result<Own> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let (mut incoming, mut outgoing) = (Incoming::new(program.size), Outgoing::new(program.size));
    let end = Instant::now() + Duration::from_secs(program.seconds.into());
    // The first octets open the clock and do not count: they left before it.
    let (mut opened, mut octets) = (None, 0);
    while !(incoming.is_over && outgoing.is_over) {
        let now = Instant::now();
        if now >= end {
            outgoing.end();
        }
        let went = outgoing.push(stream)?;
        let came = match incoming.is_over {
            true => Look::Nothing,
            false => incoming.look(stream)?,
        };
        match came {
            Look::Octets(_) if opened.is_none() => opened = Some(now),
            // What comes later comes while one direction alone may carry something.
            Look::Octets(more) if now < end => octets += more as u64,
            Look::Octets(_) => {}
            Look::Ended => ensure!(incoming.is_over, "the other end went away"),
            Look::Nothing if went => {}
            Look::Nothing if outgoing.is_over => poll_readable(stream)?,
            Look::Nothing => poll_either(stream)?,
        }
    }
    stream.set_nonblocking(false)?;
    let counted = opened.map(|opened| end.saturating_duration_since(opened));
    Ok(Own {
        octets,
        nanoseconds: counted.unwrap_or_default().as_nanos() as u64,
        received: incoming.count,
        sent: outgoing.count,
    })
}

fn metrics(own: &Own, other: &Own) -> Result<Metrics> {
    for (sent, received) in [(own.sent, other.received), (other.sent, own.received)] {
        ensure!(
            sent == received,
            "{received} of {sent} messages of one direction were received"
        );
    }
    let goodput = |of: &Own| -> Result<f64> {
        ensure!(of.nanoseconds > 0, "one direction carried nothing in time");
        Ok(of.octets as f64 * 8.0 / of.nanoseconds as f64)
    };
    let (to_client, to_server) = (goodput(own)?, goodput(other)?);
    Ok(Metrics::from([
        (GOODPUT.key.to_owned(), to_client + to_server),
        ("to_client_gbit_s".to_owned(), to_client),
        ("to_server_gbit_s".to_owned(), to_server),
        (OPERATIONS.to_owned(), (own.received + own.sent) as f64),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(received: u64, sent: u64) -> Own {
        Own {
            octets: 1000,
            nanoseconds: 2000,
            received,
            sent,
        }
    }

    #[test]
    fn what_both_received_is_added_up_and_nothing_may_be_missing() {
        let added = metrics(&own(5, 7), &own(7, 5)).unwrap();
        assert_eq!(added[GOODPUT.key], 8.0);
        assert_eq!(added[OPERATIONS], 12.0);
        let error = metrics(&own(5, 7), &own(6, 5)).unwrap_err();
        assert!(error.to_string().starts_with("6 of 7 messages"), "{error}");
    }
}
