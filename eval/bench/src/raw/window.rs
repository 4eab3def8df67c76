//! Windows of messages, each answered as a whole: the sender sends so many, and waits for the answer before the next.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use super::content::{message, set_number};
use super::messages::Incoming;
use super::programs::Window;
use crate::metric::{GOODPUT, OPERATIONS};
use crate::record::Metrics;

/// The answer tells how many messages have come so far.
const ANSWER: usize = size_of::<u64>();

pub(super) fn serve(mut stream: &TcpStream, program: &Window) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut incoming = Incoming::new(program.size);
    while incoming.next(stream)?.is_some() {
        if incoming.count.is_multiple_of(program.messages) {
            stream.write_all(&incoming.count.to_be_bytes())?;
        }
    }
    let left = incoming.count % program.messages;
    ensure!(left == 0, "the last window was {left} messages long");
    Ok(())
}

pub(super) fn measure(mut stream: &TcpStream, program: &Window) -> Result<Metrics> {
    stream.set_nodelay(true)?;
    let mut message = message(program.size, 0);
    let mut sent = 0;
    let mut window = || -> Result<u64> {
        for _ in 0..program.messages {
            set_number(&mut message, sent);
            stream.write_all(&message)?;
            sent += 1;
        }
        let mut answer = [0; ANSWER];
        stream.read_exact(&mut answer)?;
        let told = u64::from_be_bytes(answer);
        ensure!(told == sent, "{told} of {sent} messages were answered");
        Ok(sent)
    };
    // The first window opens the clock and does not count.
    let first = window()?;
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    let mut all = first;
    while start.elapsed() < time {
        all = window()?;
    }
    let nanoseconds = start.elapsed().as_nanos() as f64;
    stream.shutdown(Shutdown::Write)?;
    // The server ends without a word, or it has answered what nobody asked.
    if stream.read(&mut [0])? > 0 {
        bail!("the server answered more than it was asked");
    }
    let octets = (all - first) as f64 * program.size as f64;
    Ok(Metrics::from([
        (GOODPUT.key.to_owned(), octets * 8.0 / nanoseconds),
        (OPERATIONS.to_owned(), all as f64),
    ]))
}
