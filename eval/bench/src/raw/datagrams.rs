//! UDP, one `send` per datagram, both ends spinning unless told to wait. The TCP connection by which the two met tells
//! that the server's socket stands, and at the end what came.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use super::programs::{DatagramPingPong, DatagramStream};
use super::{content, ping_pong};
use crate::metric::{GOODPUT, MESSAGE_RATE};
use crate::record::Metrics;

/// Sends between two looks at the clock.
const SENDS_PER_GLANCE: usize = 16;
/// A stream is over when its sender has said so and nothing has come for so long.
const SILENCE: Duration = Duration::from_millis(100);
/// A round trip without loss is over long before; after this the program gives up.
const LOST: Duration = Duration::from_secs(10);

/// Looks at an empty socket between two looks at the clock.
const LOOKS_PER_GLANCE: u32 = 1000;

pub(super) fn serve_ping_pong(control: &TcpStream, program: &DatagramPingPong) -> Result<()> {
    let socket = Socket::of_server(control, program.waits)?;
    let mut datagram = vec![0; program.size];
    for i in 0..ping_pong::WARM_UP + program.iterations {
        if i == 0 {
            socket.answer_the_first(&mut datagram)?;
        } else {
            socket.receive(&mut datagram)?;
            socket.send(&datagram)?;
        }
    }
    Ok(())
}

pub(super) fn measure_ping_pong(
    control: &TcpStream,
    program: &DatagramPingPong,
) -> Result<Metrics> {
    let socket = Socket::of_client(control, program.waits)?;
    let (mut message, mut back) = (content::message(program.size, 0), vec![0; program.size]);
    let warm_up = ping_pong::WARM_UP as u64;
    let rounds = warm_up + program.iterations as u64;
    let mut round_trip = |number: u64| -> Result<f64> {
        content::set_number(&mut message, number);
        let start = Instant::now();
        socket.send(&message)?;
        socket.receive(&mut back)?;
        let took = start.elapsed();
        // What comes back was there: the server says again what it gets.
        match number < warm_up || number + 1 == rounds {
            true => content::check(&back, number)?,
            false => content::check_number(&back, number)?,
        }
        Ok(took.as_secs_f64() * 1e6)
    };
    (0..warm_up).try_for_each(|number| round_trip(number).map(drop))?;
    let samples = (warm_up..rounds)
        .map(&mut round_trip)
        .collect::<Result<Vec<f64>>>()?;
    ping_pong::metrics(&samples, true)
}

pub(super) fn serve_stream(mut control: &TcpStream, program: &DatagramStream) -> Result<()> {
    let socket = Socket::of_server(control, false)?;
    let mut datagram = vec![0; program.size];
    while socket.look(&mut datagram)?.is_none() {}
    // The first one opens the clock and does not count: it left before.
    let start = Instant::now();
    let (mut count, mut last) = (0_u64, start);
    let (mut looks, mut ended) = (0_u32, None);
    control.set_nonblocking(true)?;
    loop {
        if socket.look(&mut datagram)?.is_some() {
            (count, last) = (count + 1, Instant::now());
            continue;
        }
        looks = looks.wrapping_add(1);
        if looks % LOOKS_PER_GLANCE != 0 {
            continue;
        }
        if ended.is_none() && says_more(control)? {
            ended = Some(Instant::now());
        }
        if ended.is_some_and(|at| at.max(last).elapsed() > SILENCE) {
            break;
        }
    }
    control.set_nonblocking(false)?;
    let nanoseconds = (last - start).as_nanos() as u64;
    control.write_all(&count.to_be_bytes())?;
    control.write_all(&nanoseconds.to_be_bytes())?;
    Ok(())
}

pub(super) fn measure_stream(mut control: &TcpStream, program: &DatagramStream) -> Result<Metrics> {
    let socket = Socket::of_client(control, false)?;
    let message = vec![0x5a; program.size];
    let (start, time) = (Instant::now(), Duration::from_secs(program.seconds.into()));
    let mut sent = 0;
    while start.elapsed() < time {
        for _ in 0..SENDS_PER_GLANCE {
            socket.send(&message)?;
            sent += 1;
        }
    }
    control.write_all(&[0])?;

    let mut report = [0; 16];
    control.read_exact(&mut report)?;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| report[at + i]));
    let (count, nanoseconds) = (word(0) as f64, word(8) as f64);
    ensure!(nanoseconds > 0.0, "nothing was received");
    Ok(Metrics::from([
        (
            GOODPUT.key.to_owned(),
            count * program.size as f64 * 8.0 / nanoseconds,
        ),
        (MESSAGE_RATE.key.to_owned(), count * 1e9 / nanoseconds),
        (
            "lost_percent".to_owned(),
            100.0 * (1.0 - (count + 1.0) / f64::from(sent)),
        ),
    ]))
}

/// A socket whose would-block is an invitation to try again at once: one that does not block, or whose time was over.
struct Socket {
    socket: UdpSocket,
    waits: bool,
}

impl Socket {
    /// Bound to the port number of the control connection; its peer is whoever sends first.
    fn of_server(mut control: &TcpStream, waits: bool) -> Result<Socket> {
        let address = control.local_addr()?;
        let socket =
            UdpSocket::bind(address).with_context(|| format!("cannot bind UDP {address}"))?;
        let socket = Socket::new(socket, waits)?;
        control.write_all(&[0])?;
        Ok(socket)
    }

    fn of_client(mut control: &TcpStream, waits: bool) -> Result<Socket> {
        control.read_exact(&mut [0])?;
        let own = SocketAddr::new(control.local_addr()?.ip(), 0);
        let socket = UdpSocket::bind(own)?;
        socket.connect(control.peer_addr()?)?;
        Socket::new(socket, waits)
    }

    fn new(socket: UdpSocket, waits: bool) -> Result<Socket> {
        socket.set_read_timeout(waits.then_some(LOST))?;
        socket.set_nonblocking(!waits)?;
        Ok(Socket { socket, waits })
    }

    fn answer_the_first(&self, datagram: &mut [u8]) -> Result<()> {
        let mut sender = None;
        self.spin(|| {
            sender = Some(self.socket.recv_from(datagram)?.1);
            Ok(())
        })?;
        self.socket.connect(sender.context("no first datagram")?)?;
        self.send(datagram)
    }

    fn spin(&self, mut call: impl FnMut() -> IoResult<()>) -> Result<()> {
        // A call that waits has waited as long as a look at the clock is worth.
        let glance = if self.waits { 1 } else { LOOKS_PER_GLANCE };
        let (mut looks, mut since) = (0, None);
        loop {
            match call() {
                Err(e) if passing(e.kind()) => {}
                result => return Ok(result?),
            }
            looks += 1;
            if looks % glance == 0 {
                let since = since.get_or_insert_with(Instant::now);
                ensure!(since.elapsed() < LOST, "a datagram was lost");
            }
        }
    }

    fn send(&self, datagram: &[u8]) -> Result<()> {
        self.spin(|| self.socket.send(datagram).map(|_| ()))
    }

    /// A datagram that fills this room.
    fn receive(&self, datagram: &mut [u8]) -> Result<()> {
        let mut len = 0;
        self.spin(|| {
            len = self.socket.recv(datagram)?;
            Ok(())
        })?;
        let whole = datagram.len();
        ensure!(
            len == whole,
            "a datagram of {len} octets came instead of one of {whole}"
        );
        Ok(())
    }

    /// What is there now.
    fn look(&self, datagram: &mut [u8]) -> IoResult<Option<usize>> {
        match self.socket.recv(datagram) {
            Err(e) if passing(e.kind()) => Ok(None),
            got => got.map(Some),
        }
    }
}

/// Whether a non-blocking control connection has an octet, or its end.
pub(super) fn says_more(mut control: &TcpStream) -> Result<bool> {
    match control.read(&mut [0]) {
        Err(e) if passing(e.kind()) => Ok(false),
        got => Ok(got.map(|_| true)?),
    }
}

fn passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
