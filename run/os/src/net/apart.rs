//! TCP sockets of ours in a program that asked for none: their numbers are apart from its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

use super::pace::{begin_unpaced, pace_if_far, NEAR};
use super::{family_of, local_of, start_connect, TcpListener, TcpStream};
use crate::descriptors;
use crate::guarded::Held;
use crate::private::Private;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket(family: AddressFamily) -> io::Result<Private> {
    descriptors::open_apart(|| net::socket_with(family, SocketType::STREAM, FLAGS, None))
}

/// The local address that the kernel would use towards `peer`, found without sending anything; the number that this
/// takes for a moment is apart.
///
/// # Errors
/// There is no route, or no descriptor is left.
pub fn source_apart(peer: SocketAddr) -> io::Result<IpAddr> {
    let family = family_of(peer);
    let fd = descriptors::open_apart(|| net::socket_with(family, SocketType::DGRAM, FLAGS, None))?;
    net::connect(&fd, &peer)?;
    Ok(local_of(&fd)?.ip().to_canonical())
}

impl TcpListener {
    /// Listens on all addresses of this machine, at this port or, if it is 0, at one of the kernel's choice.
    ///
    /// # Errors
    /// The port is taken, or no descriptor is left.
    pub fn apart(port: u16, backlog: i32) -> io::Result<TcpListener> {
        let (fd, any): (_, SocketAddr) = match socket(AddressFamily::INET6) {
            Ok(fd) => {
                sockopt::set_ipv6_v6only(&fd, false)?;
                (fd, (Ipv6Addr::UNSPECIFIED, port).into())
            }
            Err(_) => (
                socket(AddressFamily::INET)?,
                (Ipv4Addr::UNSPECIFIED, port).into(),
            ),
        };
        // Connections of a former process keep its port for a while, which is in nobody's way.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        net::bind(&fd, &any)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        begin_unpaced(&fd);
        net::listen(&fd, backlog)?;
        Ok(TcpListener { fd })
    }

    /// The next connection, its number apart; `None` when there is none now.
    ///
    /// # Errors
    /// Descriptors or memory are short.
    pub fn accept_apart(&self) -> io::Result<Option<TcpStream>> {
        let error = match descriptors::open_apart(|| net::accept_with(&self.fd, FLAGS)) {
            Ok(fd) => {
                pace_if_far(&fd, NEAR);
                return Ok(Some(TcpStream::new(fd)));
            }
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            _ => Err(error),
        }
    }
}

impl TcpStream {
    /// Begins to connect, with a number apart: from this address, or from one of the kernel's choice.
    ///
    /// # Errors
    /// The kernel refuses at once, for instance without a route, or as the address is none of this machine's or of the
    /// other family.
    pub fn connect_apart(from: Option<IpAddr>, peer: SocketAddr) -> io::Result<TcpStream> {
        let fd = socket(family_of(peer))?;
        if let Some(from) = from {
            let from = match (from, peer) {
                (IpAddr::V4(from), SocketAddr::V6(_)) => from.to_ipv6_mapped().into(),
                (from, _) => from,
            };
            net::bind(&fd, &SocketAddr::new(from, 0))?;
        }
        start_connect(fd, peer)
    }

    /// A second descriptor of the same connection, apart.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn second(&self) -> io::Result<TcpStream> {
        let second = || rustix::io::fcntl_dupfd_cloexec(self.fd.as_fd(), descriptors::APART);
        let fd = descriptors::open(second)?;
        Ok(TcpStream::new(fd.into()))
    }
}

impl Held for TcpListener {
    fn abandon(self) {
        self.fd.abandon();
    }
}

impl Held for TcpStream {
    fn abandon(self) {
        match Arc::try_unwrap(self.fd) {
            Ok(fd) => fd.abandon(),
            // Whoever has its bell would close the number: nobody ever does.
            Err(shared) => std::mem::forget(shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Transfer;
    use std::os::fd::AsRawFd;

    #[test]
    fn numbers_are_apart_and_a_second_one_is_the_same_connection() {
        let listener = TcpListener::apart(0, 4).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(TcpListener::apart(port, 4).is_err(), "it is taken");
        let own = [127, 0, 0, 9].into();
        let client = TcpStream::connect_apart(Some(own), ([127, 0, 0, 1], port).into()).unwrap();
        assert_eq!(client.local_addr().unwrap().ip(), own);
        let towards = source_apart(([127, 0, 0, 1], port).into());
        assert_eq!(towards.unwrap(), IpAddr::from([127, 0, 0, 1]));
        let begun = std::time::Instant::now();
        let server = loop {
            if let Some(server) = listener.accept_apart().unwrap() {
                break server;
            }
            assert!(begun.elapsed().as_secs() < 10);
            std::thread::yield_now();
        };
        let second = client.second().unwrap();
        for fd in [client.as_fd(), second.as_fd(), server.as_fd()] {
            assert!(fd.as_raw_fd() >= descriptors::APART);
        }
        drop(client);
        assert!(matches!(second.send(b"octets"), Transfer::Octets(6)));
        let mut room = [0; 16];
        while !matches!(server.recv(&mut room), Transfer::Octets(6)) {
            assert!(begun.elapsed().as_secs() < 10);
        }
        assert_eq!(&room[..6], b"octets");
    }
}
