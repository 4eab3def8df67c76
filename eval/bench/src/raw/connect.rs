//! Connections, one after another: the time of `connect` alone, and until the first octet from the
//! server, which only a connection the server has accepted can give.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};

use super::programs::Connect;
use crate::metric::{BRING_UP, CONNECT, P99};
use crate::record::Metrics;
use crate::stats::{median, quantile_of_sorted, sorted};

/// Ask for one octet back.
const REPLY: u8 = b'r';
/// Tell the server that this was all.
const QUIT: u8 = b'q';

pub(super) fn serve(listener: &TcpListener) -> Result<()> {
    loop {
        let mut stream = super::accept(listener)?;
        let mut octet = [0];
        match stream.read(&mut octet) {
            Ok(0) => {}
            Ok(_) if octet[0] == QUIT => return Ok(()),
            Ok(_) => stream.write_all(&octet)?,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
            Err(e) => return Err(e.into()),
        }
    }
}

pub(super) fn measure(server: SocketAddr, program: &Connect) -> Result<Metrics> {
    let (mut connects, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..program.iterations {
        let start = Instant::now();
        let mut stream = TcpStream::connect(server)?;
        connects.push(start.elapsed().as_secs_f64() * 1e6);
        stream.write_all(&[REPLY])?;
        stream.read_exact(&mut [0])?;
        replies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    TcpStream::connect(server)?.write_all(&[QUIT])?;

    let (times, metric) = if program.reply {
        (replies, BRING_UP)
    } else {
        (connects, CONNECT)
    };
    let p99 = quantile_of_sorted(&sorted(&times), 0.99);
    Ok(Metrics::from([
        (
            metric.key.to_owned(),
            median(&times).context("no iterations")?,
        ),
        (P99.to_owned(), p99.context("no iterations")?),
    ]))
}
