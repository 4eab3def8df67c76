//! The kernel's UDP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use weft_os::udp::UdpSocket;

use super::{DatagramSocket, Gather, Received, SocketOptions, Source};

/// Holds a port of the kernel's (see [`Network::datagrams`](super::Network::datagrams)).
///
/// # Errors
/// The address is taken, not this machine's, or not allowed.
pub fn bind(
    addr: SocketAddr,
    options: &SocketOptions,
    many: Option<usize>,
) -> io::Result<Box<dyn DatagramSocket>> {
    let mut socket = UdpSocket::bind_to(addr, options)?;
    if let Some(buffer) = many {
        socket.expect_many(buffer);
    }
    Ok(Box::new(socket))
}

impl Source for UdpSocket {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl DatagramSocket for UdpSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        UdpSocket::local_addr(self)
    }

    fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        UdpSocket::connect(self, peer)
    }

    fn send(
        &self,
        list: &Gather<'_>,
        from: IpAddr,
        to: SocketAddr,
        segment: Option<u16>,
    ) -> io::Result<()> {
        UdpSocket::send(self, list, from, to, segment)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        UdpSocket::receive(self, buffer)
    }

    fn room(&self, _at: IpAddr) -> u32 {
        UdpSocket::room(self)
    }
}
