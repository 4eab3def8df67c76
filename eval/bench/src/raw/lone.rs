//! UDP: one datagram at a time to a port that its sender has sent nothing to before, after which the sender makes no
//! call on its socket. The receiver is there before, or comes late.
//!
//! Both ends are on one machine, whose clock they share. The TCP connection by which the two met tells the sender which
//! port is next, and then when its datagram came.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use super::clock::nanoseconds;
use super::programs::DatagramLone;
use crate::metric::{DELAY, OPERATIONS, P99};
use crate::record::Metrics;
use crate::stats::{quantile_of_sorted, sorted};

/// What has not come by then does not come.
const LOST: Duration = Duration::from_secs(10);
/// The receiver first tells the port.
const PORT: usize = size_of::<u16>();
/// What the receiver tells of a datagram: when its socket was there, and when the datagram came; 0 where it did not.
const REPORT: usize = 2 * size_of::<u64>();

pub(super) fn serve(mut control: &TcpStream, program: &DatagramLone) -> Result<()> {
    let mut own = control.local_addr()?;
    let mut buffer = vec![0; program.size];
    for _ in 0..program.iterations {
        own.set_port(0);
        let first = UdpSocket::bind(own).with_context(|| format!("cannot bind UDP {own}"))?;
        own = first.local_addr()?;
        let late = Duration::from_millis(program.late.into());
        let early = late.is_zero().then_some(first);
        control.write_all(&own.port().to_be_bytes())?;
        std::thread::sleep(late);
        let socket = match early {
            Some(socket) => socket,
            None => UdpSocket::bind(own).with_context(|| format!("cannot bind UDP {own} again"))?,
        };
        let here_at = nanoseconds();
        socket.set_read_timeout(Some(LOST))?;
        let came_at = match socket.recv(&mut buffer) {
            Ok(_) => nanoseconds(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        control.write_all(&[here_at.to_be_bytes(), came_at.to_be_bytes()].concat())?;
    }
    Ok(())
}

pub(super) fn measure(mut control: &TcpStream, program: &DatagramLone) -> Result<Metrics> {
    ensure!(program.iterations > 0, "no datagram is to be sent");
    let socket = UdpSocket::bind(SocketAddr::new(control.local_addr()?.ip(), 0))?;
    let datagram = vec![0x5a; program.size];
    let (mut delays_us, mut calls_us) = (Vec::new(), Vec::new());
    for _ in 0..program.iterations {
        let mut port = [0; PORT];
        control.read_exact(&mut port)?;
        let to = SocketAddr::new(control.peer_addr()?.ip(), u16::from_be_bytes(port));
        let sent_at = nanoseconds();
        socket.send_to(&datagram, to)?;
        calls_us.push((nanoseconds() - sent_at) as f64 / 1e3);
        let mut report = [0; REPORT];
        control.read_exact(&mut report)?;
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[at + i]));
        let (here_at, came_at) = (word(0), word(8));
        if came_at > 0 {
            delays_us.push(came_at.saturating_sub(here_at.max(sent_at)) as f64 / 1e3);
        }
    }
    metrics(&delays_us, &calls_us)
}

fn metrics(delays_us: &[f64], calls_us: &[f64]) -> Result<Metrics> {
    let (delays, calls) = (sorted(delays_us), sorted(calls_us));
    let [Some(delay), Some(tail), Some(latest)] =
        [0.5, 0.99, 1.0].map(|rank| quantile_of_sorted(&delays, rank))
    else {
        bail!("no datagram came");
    };
    let call = |rank| quantile_of_sorted(&calls, rank).unwrap_or_default();
    let (sent, came) = (calls.len() as f64, delays.len() as f64);
    Ok(Metrics::from([
        (DELAY.key.to_owned(), delay),
        (P99.to_owned(), tail),
        ("latest_us".to_owned(), latest),
        ("call_us".to_owned(), call(0.5)),
        ("longest_call_us".to_owned(), call(1.0)),
        ("lost_percent".to_owned(), 100.0 * (1.0 - came / sent)),
        (OPERATIONS.to_owned(), sent),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_is_told_and_nothing_at_all_is_an_error() {
        let metrics = metrics(&[30.0, 10.0, 20.0], &[1.0, 5.0, 2.0, 3.0]).unwrap();
        assert_eq!(metrics[DELAY.key], 20.0);
        assert_eq!(
            (metrics["latest_us"], metrics["longest_call_us"]),
            (30.0, 5.0)
        );
        assert_eq!(metrics["lost_percent"], 25.0);
        let error = super::metrics(&[], &[1.0]).unwrap_err();
        assert_eq!(error.to_string(), "no datagram came");
    }
}
