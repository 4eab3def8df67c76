//! What all programs do with their sockets.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long a process may take until it listens.
const START: Duration = Duration::from_secs(20);
/// How long between two tries to connect to one that does not listen yet.
const AGAIN: Duration = Duration::from_millis(10);

/// Listens for other processes of the program.
///
/// # Errors
/// The address cannot be had.
pub fn listen(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).with_context(|| format!("cannot listen on {at}"))
}

/// The next connection. What is written leaves at once.
///
/// # Errors
/// The listener fails.
pub fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, _) = listener.accept().context("cannot accept")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to a process that listens before long. What is written leaves at once.
///
/// # Errors
/// It does not listen, or cannot be reached.
pub fn connect(to: SocketAddr) -> Result<TcpStream> {
    let until = Instant::now() + START;
    let stream = loop {
        match TcpStream::connect(to).and_then(to_another) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until =>
            {
                std::thread::sleep(AGAIN);
            }
            connected => break connected.with_context(|| format!("cannot connect to {to}"))?,
        }
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The connection, unless it is one of a socket with itself: TCP makes such a one where nobody listens at a port of
/// this machine's and the kernel gives the very same to whoever connects (RFC 9293 3.5, simultaneous open). Its holder
/// would hear itself, and the process that was to listen could not.
fn to_another(stream: TcpStream) -> io::Result<TcpStream> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

/// Writes all of these, one behind the other, in as few calls as the kernel takes.
///
/// # Errors
/// The other end is gone.
pub fn write_all(mut stream: &TcpStream, parts: &[&[u8]]) -> Result<()> {
    let mut slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => anyhow::bail!("the other end takes nothing more"),
            Ok(octets) => IoSlice::advance_slices(&mut left, octets),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot write to the other end"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::OwnedFd;

    use rustix::net::{bind, connect, getsockname, socket, AddressFamily, SocketType};

    use super::*;

    #[test]
    fn a_socket_that_has_connected_to_itself_is_nobodys_peer() {
        let own: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&own, &SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
        connect(&own, &getsockname(&own).unwrap()).unwrap();
        let refused = to_another(TcpStream::from(own)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(to_another(stream).is_ok());
    }
}
