//! A transfer in the manner of RBUDP: all of it by UDP at a rate, then the list of what is missing by TCP, and again
//! what that names, until nothing is missing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_os::as_programs;

use super::clock::{cpu_nanoseconds, nanoseconds};
use super::datagram_flow::{send, RECEIVE_BUFFER};
use super::datagrams::says_more;
use super::programs::DatagramBlast;
use super::socket_rate::{self, SENDER_CPU};
use crate::metric::{CPU_PER_OCTET, GOODPUT, OPERATIONS};
use crate::record::Metrics;

/// A datagram begins with its number.
const NUMBER: usize = size_of::<u32>();
/// A round is over when its sender has said so and nothing has come for so long.
const SILENCE: Duration = Duration::from_millis(20);
/// Rounds after which it gives up: a path that loses half of what is sent has sent all of it long before.
const ROUNDS_MAX: u32 = 100;
/// Key of the rounds that it took.
const ROUNDS: &str = "rounds";

impl DatagramBlast {
    /// Datagrams of the whole transfer.
    fn count(&self) -> usize {
        self.octets.div_ceil(self.size as u64) as usize
    }

    fn nanoseconds_each(&self) -> u64 {
        self.size as u64 * 8000 / u64::from(self.rate)
    }

    fn check(&self) -> Result<()> {
        let fits = (NUMBER..=65_507).contains(&self.size) && self.count() <= u32::MAX as usize;
        ensure!(fits && self.octets > 0, "no such transfer");
        Ok(())
    }
}

/// What the octets of a datagram behind its number are.
fn filling(number: u32) -> u8 {
    number.wrapping_mul(167) as u8
}

pub(super) fn serve(mut control: &TcpStream, program: &DatagramBlast) -> Result<()> {
    program.check()?;
    let address = control.local_addr()?;
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind UDP {address}"))?;
    as_programs::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(SILENCE))?;
    control.write_all(&[0])?;
    let begun = cpu_nanoseconds();
    // A bit for each datagram, set where it came.
    let mut there = vec![0_u8; program.count().div_ceil(8)];
    let mut came = 0;
    while came < program.count() {
        came += receive_round(&socket, control, program, &mut there)?;
        control.write_all(&there)?;
    }
    let cpu = (cpu_nanoseconds() - begun) as f64 / program.octets as f64;
    let metrics = Metrics::from([(CPU_PER_OCTET.key.to_owned(), cpu)]);
    control.write_all(&serde_json::to_vec(&metrics)?)?;
    control.shutdown(Shutdown::Write)?;
    Ok(())
}

/// Takes what comes until the sender has said that this was a round; gives how many are new.
fn receive_round(
    socket: &UdpSocket,
    control: &TcpStream,
    program: &DatagramBlast,
    there: &mut [u8],
) -> Result<usize> {
    let mut buffer = vec![0; program.size + 1];
    let (mut new, mut has_ended) = (0, false);
    control.set_nonblocking(true)?;
    loop {
        match socket.recv(&mut buffer) {
            Ok(octets) => new += usize::from(take(&buffer[..octets], program, there)?),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if has_ended => break,
            Err(_) => has_ended = says_more(control)?,
        }
    }
    control.set_nonblocking(false)?;
    Ok(new)
}

/// Whether it is one that was missing.
fn take(datagram: &[u8], program: &DatagramBlast, there: &mut [u8]) -> Result<bool> {
    let number = datagram
        .first_chunk::<NUMBER>()
        .map(|it| u32::from_be_bytes(*it));
    let number = number.filter(|number| (*number as usize) < program.count());
    let number = number.context("a datagram of somebody else")?;
    let is_whole = datagram.len() == program.size;
    let mut rest = datagram[NUMBER..].iter();
    ensure!(
        is_whole && rest.all(|octet| *octet == filling(number)),
        "a damaged datagram"
    );
    let (at, bit) = (number as usize / 8, 1 << (number % 8));
    let is_new = there[at] & bit == 0;
    there[at] |= bit;
    Ok(is_new)
}

pub(super) fn measure(mut control: &TcpStream, program: &DatagramBlast) -> Result<Metrics> {
    program.check()?;
    control.read_exact(&mut [0])?;
    let own = SocketAddr::new(control.local_addr()?.ip(), 0);
    let socket = UdpSocket::bind(own)?;
    socket.connect(control.peer_addr()?)?;
    if program.socket_rate {
        socket_rate::set(&socket, program.size, program.nanoseconds_each() as f64)?;
    }
    let (begun, mut there) = (nanoseconds(), vec![0_u8; program.count().div_ceil(8)]);
    let begun_cpu = cpu_nanoseconds();
    let (mut rounds, mut sent, mut first_lost) = (0, 0, 0.0);
    loop {
        ensure!(rounds < ROUNDS_MAX, "{rounds} rounds, and not all is there");
        sent += send_missing(&socket, program, &there)?;
        control.write_all(&[0])?;
        control.read_exact(&mut there)?;
        rounds += 1;
        let came: u32 = there.iter().map(|octet| octet.count_ones()).sum();
        if rounds == 1 {
            first_lost = 100.0 * (1.0 - f64::from(came) / program.count() as f64);
        }
        if came as usize == program.count() {
            break;
        }
    }
    let took = (nanoseconds() - begun) as f64;
    let own_cpu = (cpu_nanoseconds() - begun_cpu) as f64 / program.octets as f64;
    let mut told = Vec::new();
    control.read_to_end(&mut told)?;
    let mut metrics: Metrics =
        serde_json::from_slice(&told).context("the receiver told no metrics")?;
    metrics.extend([
        (GOODPUT.key.to_owned(), program.octets as f64 * 8.0 / took),
        (OPERATIONS.to_owned(), f64::from(sent)),
        ("lost_percent".to_owned(), first_lost),
        (ROUNDS.to_owned(), f64::from(rounds)),
        (SENDER_CPU.to_owned(), own_cpu),
    ]);
    Ok(metrics)
}

/// Sends those that are not there at the rate, and says how many they were; who is late sends at once until it is not,
/// and whose socket has the rate sends as fast as it may.
fn send_missing(socket: &UdpSocket, program: &DatagramBlast, there: &[u8]) -> Result<u32> {
    let mut datagram = vec![0; program.size];
    let nanoseconds_each = program.nanoseconds_each();
    let (begin, mut sent) = (nanoseconds(), 0);
    for number in 0..program.count() as u32 {
        if there[number as usize / 8] & 1 << (number % 8) != 0 {
            continue;
        }
        let due = begin + u64::from(sent) * nanoseconds_each;
        while !program.socket_rate && nanoseconds() < due {
            std::hint::spin_loop();
        }
        datagram.fill(filling(number));
        datagram[..NUMBER].copy_from_slice(&number.to_be_bytes());
        send(socket, &datagram)?;
        sent += 1;
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_counts_once_and_none_may_be_damaged() {
        let program = DatagramBlast {
            size: 10,
            octets: 95,
            rate: 100,
            socket_rate: false,
        };
        assert_eq!(program.count(), 10);
        let mut there = vec![0; 2];
        let mut datagram = [filling(9); 10];
        datagram[..NUMBER].copy_from_slice(&9_u32.to_be_bytes());
        assert!(take(&datagram, &program, &mut there).unwrap());
        assert!(!take(&datagram, &program, &mut there).unwrap());
        assert_eq!(there, [0, 2]);
        assert!(take(&datagram[..9], &program, &mut there).is_err());
        datagram[9] ^= 1;
        assert!(take(&datagram, &program, &mut there).is_err());
        datagram[..NUMBER].copy_from_slice(&10_u32.to_be_bytes());
        assert!(take(&datagram, &program, &mut there).is_err());
    }
}
