//! One stream whose receiver works on every octet that comes, in the thread that receives: a CRC-32C over each message.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use super::content::message;
use super::programs::Process;
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::record::Metrics;

/// Messages that differ, sent in turn, so that the sender knows their checksums before it begins.
const DIFFERENT: u64 = 16;

/// What an end knows of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    /// Of their checksums, in their order.
    checksum: u64,
}

impl Sum {
    fn add(&mut self, checksum: u32) {
        self.count += 1;
        self.checksum = self.checksum.rotate_left(1) ^ u64::from(checksum);
    }
}

pub(super) fn serve(mut stream: &TcpStream, program: &Process) -> Result<()> {
    let (sum, nanoseconds) = receive(stream, program)?;
    let report = [sum.count, sum.checksum, nanoseconds].map(u64::to_be_bytes);
    stream.write_all(&report.concat())?;
    Ok(())
}

pub(super) fn measure(mut stream: &TcpStream, program: &Process) -> Result<Metrics> {
    let sent = send(stream, program)?;
    let mut report = [0; 24];
    stream.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[8 * at + i]));
    let received = Sum {
        count: word(0),
        checksum: word(1),
    };
    metrics(sent, received, word(2), program)
}

fn send(mut stream: &TcpStream, program: &Process) -> Result<Sum> {
    stream.set_nodelay(true)?;
    let messages: Vec<Vec<u8>> = (0..DIFFERENT)
        .map(|number| message(program.size, number))
        .collect();
    let checksums: Vec<u32> = messages
        .iter()
        .map(|message| crc32c::crc32c(message))
        .collect();
    let mut sent = Sum::default();
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    // At least two: the first opens the clock.
    while start.elapsed() < time || sent.count < 2 {
        let which = (sent.count % DIFFERENT) as usize;
        stream.write_all(&messages[which])?;
        sent.add(checksums[which]);
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// What came until the sender has said that this was all, and the nanoseconds from the first message on.
fn receive(mut stream: &TcpStream, program: &Process) -> Result<(Sum, u64)> {
    let (mut message, mut got) = (vec![0; program.size], 0);
    let (mut sum, mut first) = (Sum::default(), None);
    loop {
        match stream.read(&mut message[got..])? {
            0 => break,
            octets => got += octets,
        }
        if got == message.len() {
            sum.add(crc32c::crc32c(&message));
            first.get_or_insert_with(Instant::now);
            got = 0;
        }
    }
    ensure!(got == 0, "message {} ended half way", sum.count);
    let first = first.context("no message came")?;
    Ok((sum, first.elapsed().as_nanos() as u64))
}

/// The first message opens the clock and does not count: it left before.
fn metrics(sent: Sum, received: Sum, nanoseconds: u64, program: &Process) -> Result<Metrics> {
    ensure!(
        sent == received,
        "the receiver worked on {received:x?}, and {sent:x?} was sent"
    );
    ensure!(nanoseconds > 0, "nothing was received in time");
    let rate = (received.count - 1) as f64 * 1e9 / nanoseconds as f64;
    Ok(Metrics::from([
        (
            GOODPUT.key.to_owned(),
            rate * program.size as f64 * 8.0 / 1e9,
        ),
        (MESSAGE_RATE.key.to_owned(), rate),
        (OPERATIONS.to_owned(), received.count as f64),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_or_another_octet_is_another_sum() {
        let sum = |checksums: &[u32]| {
            let mut sum = Sum::default();
            checksums.iter().for_each(|&checksum| sum.add(checksum));
            sum
        };
        let program = Process {
            size: 1000,
            seconds: 1,
        };
        let of = |received| metrics(sum(&[1, 2, 3]), received, 2_000, &program);
        assert_eq!(of(sum(&[1, 2, 3])).unwrap()[GOODPUT.key], 8.0);
        assert!(of(sum(&[2, 1, 3])).is_err());
        assert!(of(sum(&[1, 2, 7])).is_err());
        assert!(of(sum(&[1, 2])).is_err());
    }
}
