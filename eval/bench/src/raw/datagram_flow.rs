//! UDP one way, in calls that wait: as many datagrams as go, or so many a second, each with the time it was sent at.
//!
//! The receiver counts, and tells its metrics on the TCP connection by which the two met. Both ends are on one machine,
//! whose clock they share.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_os::as_programs;

use super::clock::{cpu_nanoseconds, nanoseconds};
use super::datagrams::says_more;
use super::pace::Rate;
use super::programs::DatagramFlow;
use super::sealed::Key;
use crate::metric::{CPU_PER_OCTET, DELAY, GOODPUT, MESSAGE_RATE, OPERATIONS, P99, P999};
use crate::record::Metrics;
use crate::stats::{quantile_of_sorted, sorted};

/// Sends between two looks at the clock.
const SENDS_PER_GLANCE: u64 = 16;
/// The flow is over when its sender has said so and nothing has come for so long.
const SILENCE: Duration = Duration::from_millis(50);
/// Octets of the receiver's socket: what comes while it does not run.
pub(super) const RECEIVE_BUFFER: i32 = 8 << 20;
/// What one receive gives at most, coalesced or not.
const RECEIVED_MAX: usize = 64 << 10;
/// What one send takes at most: octets, and datagrams.
const SENT_MAX: usize = 65_507;
const SEGMENTS_MAX: usize = 64;
/// A datagram of a sender that keeps a pace begins with the time it was sent at, and that at which the first was.
const STAMP: usize = size_of::<u64>();
/// Share of the next difference in the mean of them (RFC 3550 section 6.4.1).
const JITTER_SHARE: f64 = 1.0 / 16.0;

/// A frame of a conversation or a game that comes this much later than the earliest is of no use any more, µs.
const LATE_US: f64 = 20_000.0;
/// What a sender that keeps a pace sends first is not looked at, up to so long and to half of the time: carriers begin
/// meanwhile.
const SETTLING_NS: u64 = 2_000_000_000;
/// Datagrams that came of those sent once all had settled, and of these those in time, as the receiver tells it.
const SETTLED: &str = "settled";
const IN_TIME: &str = "in_time";

/// What has come.
#[derive(Default)]
struct Received {
    octets: u64,
    /// Of the first receive, which opens the clock: they left before it.
    first_octets: u64,
    first_at: u64,
    last_at: u64,
    /// When the first was sent, of a sender that keeps a pace.
    begun_at: u64,
    /// Of each datagram when it was sent, and how long it took, µs; where the sender keeps a pace.
    delays_us: Vec<(u64, f64)>,
}

pub(super) fn serve(mut control: &TcpStream, program: &DatagramFlow) -> Result<()> {
    let address = control.local_addr()?;
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind UDP {address}"))?;
    as_programs::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(SILENCE))?;
    if program.own {
        as_programs::set_coalescing(&socket).context("the kernel does not coalesce datagrams")?;
    }
    control.write_all(&[0])?;
    let begun = cpu_nanoseconds();
    let received = receive(&socket, control, program)?;
    let metrics = metrics(&received, cpu_nanoseconds() - begun, program)?;
    control.write_all(&serde_json::to_vec(&metrics)?)?;
    control.shutdown(Shutdown::Write)?;
    Ok(())
}

/// Takes what comes until the sender has said that this was all.
fn receive(socket: &UdpSocket, control: &TcpStream, program: &DatagramFlow) -> Result<Received> {
    let mut buffer = vec![0; RECEIVED_MAX];
    let mut received = Received::default();
    let mut has_ended = false;
    let key = Key::if_wanted(program.decrypt);
    control.set_nonblocking(true)?;
    loop {
        match socket.recv(&mut buffer) {
            Ok(octets) => {
                if let Some(key) = &key {
                    key.open_each(&mut buffer[..octets], program.size)?;
                }
                received.take(&buffer[..octets], program.pace.is_some());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if has_ended => break,
            Err(_) => has_ended = says_more(control)?,
        }
    }
    control.set_nonblocking(false)?;
    Ok(received)
}

fn settling_ns(program: &DatagramFlow) -> u64 {
    SETTLING_NS.min(u64::from(program.seconds) * 1_000_000_000 / 2)
}

impl Received {
    fn take(&mut self, datagram: &[u8], is_stamped: bool) {
        let now = nanoseconds();
        let octets = datagram.len() as u64;
        if self.octets == 0 {
            (self.first_at, self.first_octets) = (now, octets);
        }
        self.octets += octets;
        self.last_at = now;
        if let (true, Some(stamps)) = (is_stamped, datagram.first_chunk::<{ 2 * STAMP }>()) {
            let stamp = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| stamps[at + i]));
            let sent_at = stamp(0);
            self.begun_at = stamp(STAMP);
            let delay = now.saturating_sub(sent_at);
            self.delays_us.push((sent_at, delay as f64 / 1e3));
        }
    }
}

impl Received {
    /// How long those took that were sent once all had settled, µs.
    fn settled(&self, program: &DatagramFlow) -> Vec<f64> {
        let from = self.begun_at + settling_ns(program);
        let settled = self
            .delays_us
            .iter()
            .filter(|(sent_at, _)| *sent_at >= from);
        settled.map(|(_, delay)| *delay).collect()
    }
}

/// What the receiver tells. The time on a core is its own; the sender adds what it took itself.
fn metrics(received: &Received, cpu: u64, program: &DatagramFlow) -> Result<Metrics> {
    let nanoseconds = received.last_at.saturating_sub(received.first_at) as f64;
    ensure!(nanoseconds > 0.0, "nothing was received");
    let (size, octets) = (program.size as f64, received.octets as f64);
    let timed = (received.octets - received.first_octets) as f64;
    let mut metrics = Metrics::from([
        (GOODPUT.key.to_owned(), timed * 8.0 / nanoseconds),
        (
            MESSAGE_RATE.key.to_owned(),
            timed / size * 1e9 / nanoseconds,
        ),
        (OPERATIONS.to_owned(), octets / size),
        (CPU_PER_OCTET.key.to_owned(), cpu as f64 / octets),
    ]);
    if program.pace.is_some() {
        put_delays(&received.settled(program), program.lost, &mut metrics)?;
    }
    Ok(metrics)
}

/// `lost`: the share of frames that the path loses. As many as it lets through are the earliest: of those, too, the
/// 99th percentile is told.
fn put_delays(delays_us: &[f64], lost: f64, metrics: &mut Metrics) -> Result<()> {
    let in_order = sorted(delays_us);
    let not_lost = 0.99 * (1.0 - lost / 100.0);
    for (key, rank) in [
        (DELAY.key, 0.5),
        (P99, 0.99),
        (P999, 0.999),
        ("not_lost_p99_us", not_lost),
    ] {
        let delay = quantile_of_sorted(&in_order, rank).context("nothing was received")?;
        metrics.insert(key.to_owned(), delay);
    }
    let latest = in_order.last().copied().unwrap_or_default();
    metrics.insert("latest_us".to_owned(), latest);
    metrics.insert(SETTLED.to_owned(), in_order.len() as f64);
    metrics.insert("jitter_us".to_owned(), jitter(delays_us));
    let least = in_order.first().copied().unwrap_or_default();
    let in_time = in_order.partition_point(|delay| *delay <= least + LATE_US);
    metrics.insert(IN_TIME.to_owned(), in_time as f64);
    Ok(())
}

/// The mean of the interarrival jitter of RFC 3550, µs, over all datagrams.
pub(super) fn jitter(delays_us: &[f64]) -> f64 {
    let (mut jitter, mut sum) = (0.0, 0.0);
    for pair in delays_us.windows(2) {
        jitter += ((pair[1] - pair[0]).abs() - jitter) * JITTER_SHARE;
        sum += jitter;
    }
    sum / (delays_us.len().max(2) - 1) as f64
}

pub(super) fn measure(mut control: &TcpStream, program: &DatagramFlow) -> Result<Metrics> {
    let least = if program.pace.is_some() { 2 * STAMP } else { 1 };
    ensure!(
        (least..=SENT_MAX).contains(&program.size),
        "a datagram has from {least} to {SENT_MAX} octets"
    );
    control.read_exact(&mut [0])?;
    let own = SocketAddr::new(control.local_addr()?.ip(), 0);
    let socket = UdpSocket::bind(own)?;
    socket.connect(control.peer_addr()?)?;
    let (begun, started) = (cpu_nanoseconds(), nanoseconds());
    let sent = match program.pace {
        Some(rate) => send_at_pace(&socket, program, rate)?,
        None => send_as_many_as_go(&socket, program)?,
    };
    let (cpu, took) = (cpu_nanoseconds() - begun, nanoseconds() - started);
    control.write_all(&[0])?;

    let mut told = Vec::new();
    control.read_to_end(&mut told)?;
    let mut metrics: Metrics =
        serde_json::from_slice(&told).context("the receiver told no metrics")?;
    let came = metrics[OPERATIONS];
    let lost = 100.0 * (1.0 - came / sent as f64);
    metrics.insert("lost_percent".to_owned(), lost);
    if let Some(pace) = program.pace {
        // Of what was sent while carriers began nothing is said.
        let settling = settling_ns(program) as f64 / 1e9 * f64::from(pace);
        for (told, key) in [(SETTLED, "lost_percent"), (IN_TIME, "missed_20ms_percent")] {
            let came = metrics.remove(told).unwrap_or_default();
            let missed = 100.0 * (1.0 - came / (sent as f64 - settling)).max(0.0);
            metrics.insert(key.to_owned(), missed);
        }
    }
    let octets = program.size as f64;
    metrics.insert(
        "sent_gbit_s".to_owned(),
        sent as f64 * octets * 8.0 / took as f64,
    );
    if let Some(rate) = program.rate {
        Rate::of(rate).check(metrics[MESSAGE_RATE.key])?;
    }
    // A sender that keeps a pace spins until the next is due, which says nothing.
    if program.pace.is_none() {
        *metrics.entry(CPU_PER_OCTET.key.to_owned()).or_default() += cpu as f64 / (came * octets);
    }
    Ok(metrics)
}

/// Datagrams that were sent.
fn send_as_many_as_go(socket: &UdpSocket, program: &DatagramFlow) -> Result<u64> {
    let segments = match program.own {
        true => (SENT_MAX / program.size).clamp(1, SEGMENTS_MAX),
        false => 1,
    };
    if program.own {
        let segment = i32::try_from(program.size)?;
        as_programs::set_segment(socket, segment)
            .context("the kernel does not cut what is sent into datagrams")?;
    }
    let datagram = match Key::if_wanted(program.decrypt) {
        Some(key) => key.sealed(program.size)?,
        None => vec![0x5a; program.size],
    };
    let octets = datagram.repeat(segments);
    let end = nanoseconds() + u64::from(program.seconds) * 1_000_000_000;
    let (rate, mut calls) = (program.rate.map(Rate::of), 0);
    let per_wait = (SENDS_PER_GLANCE / segments as u64).max(1);
    while calls % SENDS_PER_GLANCE != 0 || nanoseconds() < end {
        send(socket, &octets)?;
        calls += 1;
        if let Some(rate) = rate.as_ref().filter(|_| calls % per_wait == 0) {
            rate.wait(calls * segments as u64);
        }
    }
    Ok(calls * segments as u64)
}

/// The same at a pace; who is late sends at once until it is not.
fn send_at_pace(socket: &UdpSocket, program: &DatagramFlow, rate: u32) -> Result<u64> {
    let mut datagram = vec![0x5a; program.size];
    let (begin, number) = (nanoseconds(), u64::from(program.seconds) * u64::from(rate));
    for sent in 0..number {
        let due = begin + sent * 1_000_000_000 / u64::from(rate);
        let mut now = nanoseconds();
        while now < due {
            now = nanoseconds();
        }
        datagram[..STAMP].copy_from_slice(&now.to_be_bytes());
        datagram[STAMP..2 * STAMP].copy_from_slice(&begin.to_be_bytes());
        send(socket, &datagram)?;
    }
    Ok(number)
}

/// Sends one; that a queue on the way was full is what UDP may do.
pub(super) fn send(socket: &UdpSocket, octets: &[u8]) -> IoResult<()> {
    loop {
        match socket.send(octets) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => return Ok(()),
            sent => return sent.map(drop),
        }
    }
}

/// ENOBUFS.
const NO_BUFFERS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_that_do_not_change_have_no_jitter() {
        assert_eq!(jitter(&[5.0; 10]), 0.0);
        assert_eq!(jitter(&[]), 0.0);
        // One difference of 16 µs: a sixteenth of it, and that of two.
        assert_eq!(jitter(&[0.0, 16.0]), 1.0);
    }

    #[test]
    fn the_first_receive_opens_the_clock_and_does_not_count() {
        let received = Received {
            octets: 3000,
            first_octets: 1000,
            first_at: 1_000,
            last_at: 2_000,
            begun_at: 0,
            delays_us: Vec::new(),
        };
        let program = DatagramFlow {
            size: 1000,
            seconds: 1,
            pace: None,
            rate: None,
            lost: 0.0,
            decrypt: false,
            own: false,
        };
        let metrics = metrics(&received, 6000, &program).unwrap();
        assert_eq!(metrics["goodput_gbit_s"], 16.0);
        assert_eq!(metrics["cpu_ns_per_octet"], 2.0);
        assert_eq!(metrics["operations"], 3.0);
    }
}
