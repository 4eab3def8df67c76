//! Messages of which each is in two buffers, a header and a payload, and how they get to the kernel together: copied
//! into one buffer, by one `writev`, or by two sends under `TCP_CORK`. The receiver looks at each, keeps the time, and
//! tells the sender at the end.

use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use rustix::net::sockopt::set_tcp_cork;

use super::programs::Gather;
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::record::Metrics;

/// Octets of a header: the number of the message, and its complement.
const HEADER: usize = 16;
/// Octets at both ends of a payload that follow from the number, too.
const MARK: usize = 8;
/// Octets of a payload at least, and at most.
pub(super) const PAYLOADS: std::ops::RangeInclusive<usize> = 2 * MARK..=16 << 20;
/// The receiver takes as much at a time as a stream's does, or a message when that is larger.
const RECEIVE: usize = 128 << 10;
/// Messages between two looks at the clock.
const PER_GLANCE: u64 = 16;

/// How two buffers get to the kernel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum How {
    /// Copied into one, which one `send` takes
    Copy,
    /// By one `writev`
    Writev,
    /// By a `send` each, with `TCP_CORK` set before and cleared behind them
    Cork,
}

pub(super) fn serve(mut stream: &TcpStream, program: &Gather) -> Result<()> {
    let (messages, nanoseconds) = receive(stream, program)?;
    stream.write_all(&messages.to_be_bytes())?;
    stream.write_all(&nanoseconds.to_be_bytes())?;
    Ok(())
}

pub(super) fn measure(mut stream: &TcpStream, program: &Gather) -> Result<Metrics> {
    let sent = send(stream, program)?;
    let mut report = [0; 16];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[at + i]));
    let (messages, nanoseconds) = (word(0), word(8) as f64);
    ensure!(messages == sent, "{messages} of {sent} messages arrived");
    ensure!(nanoseconds > 0.0, "nothing was received");
    let messages = messages as f64;
    Ok(Metrics::from([
        (OPERATIONS.to_owned(), messages),
        (
            GOODPUT.key.to_owned(),
            messages * program.payload as f64 * 8.0 / nanoseconds,
        ),
        (MESSAGE_RATE.key.to_owned(), messages * 1e9 / nanoseconds),
    ]))
}

fn header(number: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&number.to_be_bytes());
    header[8..].copy_from_slice(&(!number).to_be_bytes());
    header
}

/// What both ends of a payload are.
fn mark(number: u64) -> [u8; MARK] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Sends for the time, then says that this was all. Gives how many messages it were.
fn send(stream: &TcpStream, program: &Gather) -> Result<u64> {
    stream.set_nodelay(true)?;
    let mut payload = vec![0x5a; program.payload];
    let mut both = Vec::with_capacity(HEADER + program.payload);
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    let mut number = 0;
    while start.elapsed() < time {
        for _ in 0..PER_GLANCE {
            let mark = mark(number);
            payload[..MARK].copy_from_slice(&mark);
            payload[program.payload - MARK..].copy_from_slice(&mark);
            send_one(stream, program.how, &header(number), &payload, &mut both)?;
            number += 1;
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(number)
}

/// Sends one message. `both` is the buffer that copies go into.
fn send_one(
    mut stream: &TcpStream,
    how: How,
    header: &[u8],
    payload: &[u8],
    both: &mut Vec<u8>,
) -> Result<()> {
    match how {
        How::Copy => {
            both.clear();
            both.extend_from_slice(header);
            both.extend_from_slice(payload);
            stream.write_all(both)?;
        }
        How::Writev => {
            let mut slices = [IoSlice::new(header), IoSlice::new(payload)];
            let mut left = &mut slices[..];
            while !left.is_empty() {
                let octets = stream.write_vectored(left)?;
                ensure!(octets > 0, "the receiver takes nothing more");
                IoSlice::advance_slices(&mut left, octets);
            }
        }
        How::Cork => {
            set_tcp_cork(stream, true)?;
            stream.write_all(header)?;
            stream.write_all(payload)?;
            set_tcp_cork(stream, false)?;
        }
    }
    Ok(())
}

/// Messages until the sender has said that this was all, and the nanoseconds that they took.
fn receive(mut stream: &TcpStream, program: &Gather) -> Result<(u64, u64)> {
    let message = HEADER + program.payload;
    let mut buffer = vec![0; RECEIVE.max(2 * message)];
    let (mut number, mut held, mut start) = (0, 0, None);
    loop {
        let octets = stream.read(&mut buffer[held..])?;
        // The first octets open the clock: they left before it, and are one read of many.
        let start = *start.get_or_insert_with(Instant::now);
        held += octets;
        let whole = held / message;
        for one in buffer[..whole * message].chunks_exact(message) {
            ensure!(is(one, number), "message {number} is not what was sent");
            number += 1;
        }
        if octets == 0 {
            ensure!(held == 0, "the stream ends within message {number}");
            return Ok((number, start.elapsed().as_nanos() as u64));
        }
        buffer.copy_within(whole * message..held, 0);
        held -= whole * message;
    }
}

/// Whether this is the message of that number: its header, both ends of its payload, and an octet between.
fn is(message: &[u8], number: u64) -> bool {
    let (head, payload) = message.split_at(HEADER);
    let (first, rest) = payload.split_at(MARK);
    let (middle, last) = rest.split_at(rest.len() - MARK);
    let is_between = middle
        .get(middle.len() / 2)
        .is_none_or(|&octet| octet == 0x5a);
    head == header(number) && first == mark(number) && last == mark(number) && is_between
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_from_others() {
        let mut message = header(7).to_vec();
        message.extend(mark(7));
        message.extend([0x5a; 100]);
        message.extend(mark(7));
        assert!(is(&message, 7) && !is(&message, 8));
        for at in [0, HEADER - 1, HEADER, HEADER + MARK + 50, message.len() - 1] {
            let mut other = message.clone();
            other[at] ^= 1;
            assert!(!is(&other, 7), "{at}");
        }
    }
}
