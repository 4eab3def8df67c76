//! What moves octets to the other end: a stream, or datagrams in calls of one of three sorts.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use weft_os::as_programs;

use super::{Carrier, Pieces};
use crate::raw::datagram_flow::{send as send_datagram, RECEIVE_BUFFER};
use crate::raw::datagrams::says_more;

/// Datagrams have ended when the other end has said so and nothing has come for so long.
const SILENCE: Duration = Duration::from_millis(50);
/// Octets that a receiver of a stream takes at a time.
const RECEIVE: usize = 128 << 10;
/// Octets of the longest datagram, and what the kernel cuts one send into at most.
const SEGMENTED_MAX: usize = 65_507;
const SEGMENTS_MAX: usize = 64;

/// One end of a connection, or of a pair of UDP sockets that met by one.
pub(super) struct Mover<'s> {
    stream: &'s TcpStream,
    /// None where the stream itself carries.
    socket: Option<UdpSocket>,
    pieces: Pieces,
    /// The other end has said that it has sent all.
    has_ended: AtomicBool,
}

impl<'s> Mover<'s> {
    /// The server's end.
    pub(super) fn of_server(mut stream: &'s TcpStream, pieces: Pieces) -> Result<Self> {
        stream.set_nodelay(!pieces.nagle)?;
        if pieces.carrier == Carrier::Tcp {
            return Ok(Mover::new(stream, None, pieces));
        }
        let socket = bound(stream.local_addr()?, pieces)?;
        // Its answers go where the client says that its own socket is.
        stream.write_all(&[0])?;
        let mut port = [0; 2];
        stream.read_exact(&mut port)?;
        let peer = SocketAddr::new(stream.peer_addr()?.ip(), u16::from_be_bytes(port));
        socket.connect(peer)?;
        stream.write_all(&[0])?;
        Ok(Mover::new(stream, Some(socket), pieces))
    }

    /// The client's end.
    pub(super) fn of_client(mut stream: &'s TcpStream, pieces: Pieces) -> Result<Self> {
        stream.set_nodelay(!pieces.nagle)?;
        if pieces.carrier == Carrier::Tcp {
            return Ok(Mover::new(stream, None, pieces));
        }
        stream.read_exact(&mut [0])?;
        let socket = bound(SocketAddr::new(stream.local_addr()?.ip(), 0), pieces)?;
        socket.connect(stream.peer_addr()?)?;
        stream.write_all(&socket.local_addr()?.port().to_be_bytes())?;
        stream.read_exact(&mut [0])?;
        Ok(Mover::new(stream, Some(socket), pieces))
    }

    fn new(stream: &'s TcpStream, socket: Option<UdpSocket>, pieces: Pieces) -> Self {
        Mover {
            stream,
            socket,
            pieces,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Messages that one send takes.
    pub(super) fn messages_of_a_call(&self) -> usize {
        match self.pieces.carrier {
            Carrier::Tcp => self.pieces.batch.max(1),
            Carrier::Udp => 1,
            Carrier::UdpMany => as_programs::MANY,
            Carrier::UdpSegment => (SEGMENTED_MAX / self.pieces.size).clamp(1, SEGMENTS_MAX),
        }
    }

    /// Octets that a receive is to have room for.
    pub(super) fn room(&self) -> usize {
        match self.pieces.carrier {
            Carrier::Tcp => RECEIVE.max(self.pieces.size),
            Carrier::Udp => self.pieces.size,
            Carrier::UdpMany => self.pieces.size * as_programs::MANY,
            Carrier::UdpSegment => 1 << 16,
        }
    }

    /// Sends messages, as many as [`Mover::messages_of_a_call`] says.
    pub(super) fn send(&self, octets: &[u8]) -> IoResult<()> {
        match (&self.socket, self.pieces.carrier) {
            (None, _) => (&mut &*self.stream).write_all(octets),
            (Some(socket), Carrier::UdpMany) => send_many(socket, octets, self.pieces.size),
            (Some(socket), _) => send_datagram(socket, octets),
        }
    }

    /// Receives what is there, or waits; 0 when the other end has sent all.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> IoResult<usize> {
        loop {
            let received = match (&self.socket, self.pieces.carrier) {
                (None, _) => return (&mut &*self.stream).read(buffer),
                (Some(socket), Carrier::UdpMany) => {
                    as_programs::receive_many(socket, buffer, self.pieces.size).map(Iterator::sum)
                }
                (Some(socket), _) => socket.recv(buffer),
            };
            match received {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(_) if self.has_ended.load(Ordering::Relaxed) => return Ok(0),
                Err(_) => {
                    let ended = says_more(self.stream).map_err(std::io::Error::other)?;
                    self.has_ended.store(ended, Ordering::Relaxed);
                }
                octets => return octets,
            }
        }
    }

    /// Tells the other end that this one has sent all.
    pub(super) fn end(&self) -> IoResult<()> {
        if self.socket.is_none() {
            return self.stream.shutdown(Shutdown::Write);
        }
        (&mut &*self.stream).write_all(&[0])
    }

    /// Looks for the other end's word without waiting, while datagrams come.
    pub(super) fn watch(&self, watches: bool) -> IoResult<()> {
        match self.socket {
            Some(_) => self.stream.set_nonblocking(watches),
            None => Ok(()),
        }
    }
}

fn bound(address: SocketAddr, pieces: Pieces) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind UDP {address}"))?;
    as_programs::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(SILENCE))?;
    if pieces.carrier == Carrier::UdpSegment {
        as_programs::set_segment(&socket, i32::try_from(pieces.size)?)
            .context("the kernel does not cut what is sent into datagrams")?;
        as_programs::set_coalescing(&socket).context("the kernel does not coalesce datagrams")?;
    }
    Ok(socket)
}

/// That a queue on the way was full is what UDP may do: the rest goes on behind.
fn send_many(socket: &UdpSocket, mut octets: &[u8], each: usize) -> IoResult<()> {
    while !octets.is_empty() {
        let sent = match as_programs::send_many(socket, octets, each) {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => 1,
            sent => sent?,
        };
        octets = &octets[(sent * each).min(octets.len())..];
    }
    Ok(())
}

const NO_BUFFERS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();
