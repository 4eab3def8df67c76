//! The kernel's TCP.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use weft_os::net::{source_towards, Bell, BoundSocket, TcpListener, TcpStream};

use super::{Bound, Carrier, Gather, Listener, Network, Scatter, SocketOptions, Source, Transfer};

/// The kernel's TCP, over whatever interfaces and routes the machine has.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelTcp;

impl Network for KernelTcp {
    fn bind(&self, addr: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Bound>> {
        Ok(Box::new(BoundSocket::bind(addr, options)?))
    }

    fn connect(&self, peer: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Carrier>> {
        Ok(Box::new(TcpStream::connect(peer, options)?))
    }

    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        source_towards(peer)
    }
}

impl Bound for BoundSocket {
    fn local_addr(&self) -> SocketAddr {
        BoundSocket::local_addr(self)
    }

    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(BoundSocket::listen(*self, backlog)?))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        Ok(Box::new(BoundSocket::connect(*self, peer)?))
    }
}

impl Source for TcpListener {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl Listener for TcpListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        let accepted = TcpListener::accept(self)?;
        Ok(accepted.map(|(stream, peer)| (Box::new(stream) as Box<dyn Carrier>, peer)))
    }

    fn has_waiting(&self) -> bool {
        TcpListener::has_waiting(self)
    }
}

impl Source for TcpStream {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl Carrier for TcpStream {
    fn is_connected(&self) -> bool {
        TcpStream::peer_addr(self).is_ok()
    }

    fn connect_result(&self) -> io::Result<()> {
        TcpStream::connect_result(self)
    }

    #[inline]
    fn send(&self, octets: &[u8]) -> Transfer {
        TcpStream::send(self, octets)
    }

    #[inline]
    fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        TcpStream::send_gather(self, list)
    }

    #[inline]
    fn recv(&self, buffer: &mut [u8]) -> Transfer {
        TcpStream::recv(self, buffer)
    }

    #[inline]
    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        TcpStream::recv_scatter(self, list)
    }

    fn finish(&self) {
        self.shutdown_write();
    }

    fn bell(&self) -> Option<Bell> {
        Some(TcpStream::bell(self))
    }

    fn is_broken(&self) -> bool {
        TcpStream::is_broken(self)
    }

    fn abort_on_close(&self) {
        TcpStream::abort_on_close(self);
    }

    fn keep_after_close(&self, time: Duration) {
        TcpStream::keep_after_close(self, time);
    }

    fn emss(&self) -> io::Result<usize> {
        TcpStream::emss(self)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::local_addr(self)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::peer_addr(self)
    }
}
