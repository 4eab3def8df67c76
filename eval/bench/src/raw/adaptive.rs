//! A stream in the manner of LambdaStream: the receiver tells how far apart datagrams come, and the sender, which knows
//! how far apart they left, sends more slowly where they come further apart, before anything is lost.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use weft_os::as_programs;

use super::clock::{cpu_nanoseconds, nanoseconds};
use super::datagram_flow::{jitter, send, RECEIVE_BUFFER};
use super::datagrams::says_more;
use super::programs::DatagramAdaptive;
use super::socket_rate::{self, SENDER_CPU};
use crate::metric::{CPU_PER_OCTET, GOODPUT, OPERATIONS};
use crate::record::Metrics;

/// How often the receiver tells.
const TELLS_EVERY_NS: u64 = 20_000_000;
/// The stream is over when its sender has said so and nothing has come for so long: carriers may hold it up for longer.
const SILENCE: Duration = Duration::from_millis(200);
/// A report: datagrams that came since the last, and nanoseconds from the first to the last of them.
const REPORT: usize = 2 * size_of::<u64>();
/// Datagrams come further apart than they left by more than this: the path, or the receiver, takes no more.
const FURTHER: f64 = 1.05;
/// What is tried where they do not.
const FASTER: f64 = 1.02;
/// The stream's rate does not go below this, Mbit/s: a socket takes no rate under 0.064 (`WEFT_SO_RATE`).
const RATE_MIN: f64 = 1.0;
/// A datagram begins with the time it was sent at.
const STAMP: usize = size_of::<u64>();
/// Key of the rate that it came to, Gbit/s.
const RATE: &str = "rate_gbit_s";

pub(super) fn serve(mut control: &TcpStream, program: &DatagramAdaptive) -> Result<()> {
    let address = control.local_addr()?;
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind UDP {address}"))?;
    as_programs::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(SILENCE))?;
    control.write_all(&[0])?;
    let begun = cpu_nanoseconds();
    let mut has_ended = false;
    let (mut buffer, mut delays_us) = (vec![0; program.size], Vec::new());
    let (mut all, mut first_at, mut last_at) = (0_u64, 0, 0);
    // Those since the last report.
    let (mut came, mut since) = (0_u64, 0);
    loop {
        match socket.recv(&mut buffer) {
            Ok(octets) => {
                let now = nanoseconds();
                if all == 0 {
                    (first_at, since) = (now, now);
                }
                if let Some(stamp) = buffer[..octets].first_chunk::<STAMP>() {
                    let delay = now.saturating_sub(u64::from_be_bytes(*stamp));
                    delays_us.push(delay as f64 / 1e3);
                }
                (all, came, last_at) = (all + 1, came + 1, now);
                if now - since >= TELLS_EVERY_NS {
                    let report = [came.to_be_bytes(), (now - since).to_be_bytes()].concat();
                    control.write_all(&report)?;
                    (came, since) = (0, now);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if has_ended => break,
            Err(_) => {
                control.set_nonblocking(true)?;
                has_ended = says_more(control)?;
                control.set_nonblocking(false)?;
            }
        }
    }
    // No report: what follows are the metrics.
    control.write_all(&[0xff; REPORT])?;
    let octets = (all * program.size as u64) as f64;
    let cpu = (cpu_nanoseconds() - begun) as f64 / octets;
    let took = last_at.saturating_sub(first_at).max(1) as f64;
    let metrics = Metrics::from([
        (GOODPUT.key.to_owned(), octets * 8.0 / took),
        (OPERATIONS.to_owned(), all as f64),
        (CPU_PER_OCTET.key.to_owned(), cpu),
        ("jitter_us".to_owned(), jitter(&delays_us)),
    ]);
    control.write_all(&serde_json::to_vec(&metrics)?)?;
    control.shutdown(Shutdown::Write)?;
    Ok(())
}

pub(super) fn measure(mut control: &TcpStream, program: &DatagramAdaptive) -> Result<Metrics> {
    control.read_exact(&mut [0])?;
    let own = SocketAddr::new(control.local_addr()?.ip(), 0);
    let socket = UdpSocket::bind(own)?;
    socket.connect(control.peer_addr()?)?;
    let mut datagram = vec![0x5a; program.size];
    let (begin, mut sent) = (nanoseconds(), 0_u64);
    let end = begin + u64::from(program.seconds) * 1_000_000_000;
    let (mut each, mut due) = (
        program.size as f64 * 8000.0 / f64::from(program.rate),
        begin as f64,
    );
    let begun_cpu = cpu_nanoseconds();
    let follow = |each: f64| match program.socket_rate {
        true => socket_rate::set(&socket, program.size, each),
        false => Ok(()),
    };
    follow(each)?;
    control.set_nonblocking(true)?;
    let mut told = Vec::new();
    loop {
        let mut now = nanoseconds();
        while !program.socket_rate && (now as f64) < due {
            now = nanoseconds();
        }
        if now >= end {
            break;
        }
        datagram[..STAMP].copy_from_slice(&now.to_be_bytes());
        send(&socket, &datagram)?;
        sent += 1;
        // Who was kept from sending does not make up for it.
        due = due.max(now as f64 - each) + each;
        if sent % 16 == 0 {
            let before = each;
            take_reports(control, &mut told, &mut each)?;
            each = each.min(slowest(program.size));
            if each != before {
                follow(each)?;
            }
        }
    }
    let own_cpu = (cpu_nanoseconds() - begun_cpu) as f64;
    control.set_nonblocking(false)?;
    control.shutdown(Shutdown::Write)?;
    control.read_to_end(&mut told)?;
    while told.len() >= REPORT && told[..REPORT] != [0xff; REPORT] {
        told.drain(..REPORT);
    }
    let metrics = told.get(REPORT..).unwrap_or_default();
    let mut metrics: Metrics =
        serde_json::from_slice(metrics).context("the receiver told no metrics")?;
    let lost = 100.0 * (1.0 - metrics[OPERATIONS] / sent as f64);
    let octets = metrics[OPERATIONS] * program.size as f64;
    metrics.insert(SENDER_CPU.to_owned(), own_cpu / octets);
    metrics.insert("lost_percent".to_owned(), lost);
    metrics.insert(RATE.to_owned(), program.size as f64 * 8.0 / each);
    Ok(metrics)
}

/// How far apart datagrams of so many octets leave at most, in nanoseconds.
fn slowest(size: usize) -> f64 {
    size as f64 * 8000.0 / RATE_MIN
}

/// Follows what the receiver has told.
fn take_reports(mut control: &TcpStream, told: &mut Vec<u8>, each: &mut f64) -> Result<()> {
    let mut room = [0; 64 * REPORT];
    match control.read(&mut room) {
        Ok(octets) => told.extend(&room[..octets]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
        Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    while let Some(report) = told.first_chunk::<REPORT>().copied() {
        told.drain(..REPORT);
        *each = next_interval(*each, &report);
    }
    Ok(())
}

/// How far apart the next datagrams leave, in nanoseconds.
fn next_interval(each: f64, report: &[u8; REPORT]) -> f64 {
    let (came, took) = report.split_at(size_of::<u64>());
    let number = |octets: &[u8]| {
        octets
            .iter()
            .fold(0_u64, |sum, it| sum << 8 | u64::from(*it))
    };
    let apart = number(took) as f64 / number(came).max(1) as f64;
    match apart > each * FURTHER {
        true => apart,
        false => each / FASTER,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_stream_that_pauses_has_not_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, _) = listener.accept().unwrap();
        let program = DatagramAdaptive {
            size: 1000,
            rate: 1,
            seconds: 1,
            socket_rate: false,
        };
        let receiver = thread::spawn(move || serve(&served, &program));
        control.read_exact(&mut [0]).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (to, mut told) = (control.peer_addr().unwrap(), Vec::new());
        for _ in 0..2 {
            thread::sleep(2 * SILENCE);
            socket.send_to(&[0x5a; 1000], to).unwrap();
        }
        control.shutdown(Shutdown::Write).unwrap();
        control.read_to_end(&mut told).unwrap();
        receiver.join().unwrap().unwrap();
        let metrics = told.windows(REPORT).position(|it| it == [0xff; REPORT]);
        let metrics: Metrics = serde_json::from_slice(&told[metrics.unwrap() + REPORT..]).unwrap();
        assert_eq!(metrics[OPERATIONS], 2.0);
    }

    #[test]
    fn the_slowest_stream_has_a_rate_that_a_socket_takes() {
        assert_eq!(slowest(1000), 8e6);
    }

    #[test]
    fn datagrams_that_come_further_apart_are_sent_so() {
        let report = |came: u64, took: u64| -> [u8; REPORT] {
            let octets = [came.to_be_bytes(), took.to_be_bytes()].concat();
            octets.try_into().unwrap()
        };
        assert_eq!(next_interval(1000.0, &report(100, 200_000)), 2000.0);
        assert!(next_interval(1000.0, &report(100, 100_000)) < 1000.0);
        assert_eq!(next_interval(1000.0, &report(0, 20_000_000)), 20e6);
    }
}
