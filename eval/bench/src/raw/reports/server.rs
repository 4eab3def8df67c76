//! A monitor of the bench's own: one report, over and over.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};

use super::report;
use crate::raw::programs::Reports;

/// Gives reports until somebody ends the program: on a connection that is kept one for each line, else one to everyone
/// who connects, and the end of the connection. No client's fault ends it.
pub(in crate::raw) fn serve(listener: &TcpListener, program: &Reports) -> Result<()> {
    let report = report::make(program.hosts);
    loop {
        let stream = super::super::accept(listener)?;
        stream.set_nodelay(true).context("no TCP_NODELAY")?;
        if program.kept {
            let report = report.clone();
            thread::spawn(move || on_request(&stream, &report));
        } else {
            // A client that got no whole report says so itself.
            let _ = (&stream).write_all(&report);
        }
    }
}

fn on_request(mut stream: &TcpStream, report: &[u8]) -> std::io::Result<()> {
    let mut requests = BufReader::new(stream);
    let mut line = Vec::new();
    while requests.read_until(b'\n', &mut line)? > 0 {
        stream.write_all(report)?;
        line.clear();
    }
    Ok(())
}
