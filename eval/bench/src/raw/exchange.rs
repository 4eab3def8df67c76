//! Many requests under way over one connection, each of them and each answer a `send` of its own;
//! both ends spin. What a program without RDMA would do for operations that ask for something back.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::programs::Exchange;
use crate::metric::MESSAGE_RATE;
use crate::record::Metrics;

/// Octets that one `recv` takes at most.
const RECEIVE: usize = 64 << 10;

pub(super) fn serve(mut stream: &TcpStream, program: &Exchange) -> Result<()> {
    prepare(stream)?;
    let answer = vec![0x5a; program.reply];
    let mut requests = Pieces::new(program.request);
    loop {
        match requests.take(stream)? {
            Some(whole) => {
                for _ in 0..whole {
                    send(&mut stream, &answer)?;
                }
            }
            None => return Ok(()),
        }
    }
}

pub(super) fn measure(mut stream: &TcpStream, program: &Exchange) -> Result<Metrics> {
    prepare(stream)?;
    let request = vec![0x5a; program.request];
    let mut answers = Pieces::new(program.reply);
    let (mut sent, mut answered) = (0, 0);
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    while start.elapsed() < time {
        while sent - answered < program.depth {
            send(&mut stream, &request)?;
            sent += 1;
        }
        let whole = answers.take(stream)?;
        ensure!(whole.is_some(), "the server ended early");
        answered += whole.unwrap_or_default();
    }
    let seconds = start.elapsed().as_secs_f64();
    // What is under way is answered before either end goes: an end that leaves answers behind resets the connection,
    // and the other meets that while it reads or while it writes.
    stream.shutdown(Shutdown::Write)?;
    let mut late = 0;
    while let Some(whole) = answers.take(stream)? {
        late += whole;
    }
    let all = answered + late;
    ensure!(all == sent, "{all} of {sent} requests were answered");
    Ok(Metrics::from([(
        MESSAGE_RATE.key.to_owned(),
        answered as f64 / seconds,
    )]))
}

fn prepare(stream: &TcpStream) -> IoResult<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

fn send(stream: &mut &TcpStream, mut octets: &[u8]) -> IoResult<()> {
    while !octets.is_empty() {
        match stream.write(octets) {
            Err(e) if passing(e.kind()) => {}
            sent => octets = &octets[sent?..],
        }
    }
    Ok(())
}

fn passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Counts messages of one length in a stream.
struct Pieces {
    buffer: Vec<u8>,
    length: usize,
    /// Octets of a message that has not come in whole.
    begun: usize,
}

impl Pieces {
    fn new(length: usize) -> Self {
        Pieces {
            buffer: vec![0; RECEIVE],
            length,
            begun: 0,
        }
    }

    /// How many messages were completed by one look at the stream, `None` at its end.
    fn take(&mut self, mut stream: &TcpStream) -> IoResult<Option<usize>> {
        match stream.read(&mut self.buffer) {
            Ok(0) => Ok(None),
            Ok(n) => {
                let octets = self.begun + n;
                self.begun = octets % self.length;
                Ok(Some(octets / self.length))
            }
            Err(e) if passing(e.kind()) => Ok(Some(0)),
            Err(e) => Err(e),
        }
    }
}
