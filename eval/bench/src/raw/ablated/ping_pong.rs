//! One message there and back, both ends waiting in their receives.

use std::net::TcpStream;
use std::time::Instant;

use anyhow::{ensure, Result};

use super::mover::Mover;
use super::way::{with_inlet, with_outlet, Inlet, Outlet};
use super::AblatedPingPong;
use crate::metric::OPERATIONS;
use crate::raw::content::{check_number, message, set_number};
use crate::raw::ping_pong::{metrics, WARM_UP};
use crate::record::Metrics;

/// The two ways of an end, with the message of the one that is to be sent.
struct End<'e, 'i, 'o> {
    inlet: &'e mut Inlet<'i>,
    outlet: &'e mut Outlet<'o>,
    own: Vec<u8>,
    size: usize,
}

impl End<'_, '_, '_> {
    fn send(&mut self, number: u64) -> Result<()> {
        set_number(&mut self.own, number);
        self.outlet.put(&mut self.own)
    }

    /// Receives the message of this number; a stream may give it in parts.
    fn receive(&mut self, number: u64) -> Result<()> {
        let mut message = Vec::with_capacity(self.size);
        while message.len() < self.size {
            let came = self.inlet.next(&mut |octets| message.extend(octets))?;
            ensure!(came > 0, "the other end has ended");
        }
        check_number(&message, number)
    }
}

/// Round trips, those before the clock included.
fn rounds(program: &AblatedPingPong) -> u64 {
    (WARM_UP + program.iterations) as u64
}

pub(in crate::raw) fn serve(stream: &TcpStream, program: &AblatedPingPong) -> Result<()> {
    let mover = Mover::of_server(stream, program.pieces)?;
    converse(&mover, program, |end| {
        for number in 0..rounds(program) {
            end.receive(number)?;
            end.send(number)?;
        }
        Ok(())
    })
}

pub(in crate::raw) fn measure(stream: &TcpStream, program: &AblatedPingPong) -> Result<Metrics> {
    let mover = Mover::of_client(stream, program.pieces)?;
    let times = converse(&mover, program, |end| {
        let mut times = Vec::with_capacity(program.iterations);
        for number in 0..rounds(program) {
            let start = Instant::now();
            end.send(number)?;
            end.receive(number)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    })?;
    let mut metrics = metrics(&times[WARM_UP..], true)?;
    metrics.insert(OPERATIONS.to_owned(), rounds(program) as f64);
    Ok(metrics)
}

/// Runs an end; behind it the other end hears that this was all.
fn converse<T>(
    mover: &Mover,
    program: &AblatedPingPong,
    run: impl FnOnce(&mut End) -> Result<T>,
) -> Result<T> {
    let pieces = program.pieces;
    let own = message(pieces.size, 0);
    mover.watch(true)?;
    let done = with_inlet(mover, pieces, |inlet| {
        let done = with_outlet(mover, pieces, &own.clone(), |outlet| {
            run(&mut End {
                inlet,
                outlet,
                own,
                size: pieces.size,
            })
        });
        mover.end()?;
        done
    });
    mover.watch(false)?;
    done
}
