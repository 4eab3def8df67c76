//! Non-blocking TCP sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

use crate::descriptors;
use crate::lists::{Gather, Scatter};
use crate::private::Private;
use crate::sys;
use addresses::Addresses;
use pace::{begin_unpaced, pace_if_far, NEAR};

mod addresses;
mod apart;
mod bell;
mod pace;
mod transfer;

pub use apart::source_apart;
pub use bell::Bell;
pub use transfer::{is_end, Transfer};

/// What a socket is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketOptions {
    /// `IPV6_V6ONLY`, when set.
    pub v6_only: Option<bool>,
    /// Type of service or traffic class, when set.
    pub tos: Option<u8>,
    /// Octets of `SO_SNDBUF` and `SO_RCVBUF`; 0 leaves them to the kernel.
    pub buffer: usize,
    /// Segments carry no timestamps, and 12 octets of data more; the kernel's TCP follows its own settings. For a
    /// program that notices by itself what comes again after four gigabytes (PAWS, RFC 7323).
    pub without_timestamps: bool,
}

fn new_socket(family: AddressFamily, options: &SocketOptions) -> io::Result<Private> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = descriptors::open(|| net::socket_with(family, SocketType::STREAM, flags, None))?;
    let socket = Private::from(socket);
    if family == AddressFamily::INET6 {
        if let Some(only) = options.v6_only {
            sockopt::set_ipv6_v6only(&socket, only)?;
        }
    }
    if let Some(tos) = options.tos {
        if family == AddressFamily::INET6 {
            sockopt::set_ipv6_tclass(&socket, u32::from(tos))?;
        } else {
            sockopt::set_ip_tos(&socket, tos)?;
        }
    }
    if options.buffer > 0 {
        sockopt::set_socket_send_buffer_size(&socket, options.buffer)?;
        sockopt::set_socket_recv_buffer_size(&socket, options.buffer)?;
    }
    Ok(socket)
}

fn family_of(addr: SocketAddr) -> AddressFamily {
    if addr.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    }
}

fn local_of(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(net::getsockname(socket)?.try_into()?)
}

/// A bound socket that neither listens nor is connected: it holds an address.
#[derive(Debug)]
pub struct BoundSocket {
    fd: Private,
    local: SocketAddr,
}

impl BoundSocket {
    /// Binds to `addr`; port 0 takes an ephemeral port.
    ///
    /// # Errors
    /// The address is taken, not this machine's, or not allowed.
    pub fn bind(addr: SocketAddr, options: &SocketOptions) -> io::Result<BoundSocket> {
        let fd = new_socket(family_of(addr), options)?;
        // Connections that a former listener accepted keep its port; on an RDMA device they do
        // not stand in the way of the next listener, and a live listener still does.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        net::bind(&fd, &addr)?;
        let local = local_of(&fd)?;
        Ok(BoundSocket { fd, local })
    }

    /// The address it holds.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// Another socket listens on the address.
    pub fn listen(self, backlog: i32) -> io::Result<TcpListener> {
        // Accepted sockets inherit it.
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        begin_unpaced(&self.fd);
        net::listen(&self.fd, backlog)?;
        Ok(TcpListener { fd: self.fd })
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// The kernel refuses at once, for instance without a route.
    pub fn connect(self, peer: SocketAddr) -> io::Result<TcpStream> {
        start_connect(self.fd, peer)
    }
}

fn start_connect(fd: Private, peer: SocketAddr) -> io::Result<TcpStream> {
    // Before the SYN, so that not even the first FPDU waits for an acknowledgement.
    sockopt::set_tcp_nodelay(&fd, true)?;
    begin_unpaced(&fd);
    match net::connect(&fd, &peer) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::new(fd)),
        Err(error) => Err(error.into()),
    }
}

/// The local address the kernel would use towards `peer`, found without sending anything.
///
/// # Errors
/// There is no route.
pub fn source_towards(peer: SocketAddr) -> io::Result<SocketAddr> {
    let fd = net::socket_with(
        family_of(peer),
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut probe = peer;
    if probe.port() == 0 {
        probe.set_port(9);
    }
    net::connect(&fd, &probe)?;
    let mut local = local_of(&fd)?;
    local.set_port(0);
    Ok(local)
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener {
    fd: Private,
}

impl TcpListener {
    /// The next connection; `None` when there is none now.
    ///
    /// # Errors
    /// Descriptors or memory are short.
    pub fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let mut accepted = net::acceptfrom_with(&self.fd, flags);
        if matches!(accepted, Err(rustix::io::Errno::MFILE)) && descriptors::raise() {
            accepted = net::acceptfrom_with(&self.fd, flags);
        }
        match accepted {
            Ok((fd, peer)) => {
                let fd = Private::from(fd);
                descriptors::make_room(fd.as_raw_fd() as u64);
                pace_if_far(&fd, NEAR);
                let stream = TcpStream::new(fd);
                let peer = match peer {
                    Some(peer) => {
                        let peer = peer.try_into()?;
                        stream.addresses.peer(|| Ok(peer))?
                    }
                    None => stream.peer_addr()?,
                };
                Ok(Some((stream, peer)))
            }
            Err(
                rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED,
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a connection waits to be accepted.
    pub fn has_waiting(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// The address listened on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        local_of(&self.fd)
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A connected or connecting socket.
#[derive(Debug)]
#[repr(C)]
pub struct TcpStream {
    addresses: Addresses,
    /// Shared with whoever has a [`Bell`].
    fd: Arc<Private>,
    /// Its number, so that sending and receiving need not look for it. Last: in a queue pair what each pass looks at
    /// stands behind it, in the same line of memory.
    number: RawFd,
}

impl TcpStream {
    fn new(fd: Private) -> TcpStream {
        TcpStream {
            number: fd.as_raw_fd(),
            fd: Arc::new(fd),
            addresses: Addresses::default(),
        }
    }

    #[inline]
    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: the number of `fd`, which is open as long as this is.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// Forgets the addresses, for which hardly anybody asks once the connection stands, and frees their memory. Who
    /// asks all the same asks the kernel, which knows no peer of a socket that was reset.
    pub fn forget_addresses(&mut self) {
        self.addresses = Addresses::default();
    }

    /// Begins to connect from an address of the kernel's choice.
    ///
    /// # Errors
    /// The kernel refuses at once.
    pub fn connect(peer: SocketAddr, options: &SocketOptions) -> io::Result<TcpStream> {
        start_connect(new_socket(family_of(peer), options)?, peer)
    }

    /// The outcome of a connect that is over; call when the socket is writable.
    ///
    /// # Errors
    /// Why it failed.
    pub fn connect_result(&self) -> io::Result<()> {
        sockopt::socket_error(&*self.fd)??;
        pace_if_far(&*self.fd, NEAR);
        Ok(())
    }

    /// Sends octets.
    #[inline]
    pub fn send(&self, octets: &[u8]) -> Transfer {
        let flags = net::SendFlags::DONTWAIT | net::SendFlags::NOSIGNAL;
        Transfer::of_send(net::send(self.socket(), octets, flags).map_err(Into::into))
    }

    /// Sends a gather list.
    #[inline]
    pub fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        // SAFETY: the kernel only reads. The list holds borrowed octets and ranges of registered
        // memory, of which the kernel says EFAULT where nothing is mapped.
        Transfer::of_send(unsafe { sys::sendmsg(self.number, list.as_slice()) })
    }

    /// Receives octets.
    #[inline]
    pub fn recv(&self, buffer: &mut [u8]) -> Transfer {
        let received = net::recv(self.socket(), buffer, net::RecvFlags::DONTWAIT);
        Transfer::of_recv(received.map(|(octets, _)| octets).map_err(Into::into))
    }

    /// Receives into a scatter list.
    #[inline]
    pub fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        // SAFETY: every element is a mutably borrowed buffer or registered memory, which may be
        // overwritten.
        Transfer::of_recv(unsafe { sys::recvmsg(self.number, list.as_slice()) })
    }

    /// Finishes sending: FIN goes out behind what was sent.
    pub fn shutdown_write(&self) {
        let _ = net::shutdown(&*self.fd, net::Shutdown::Write);
    }

    /// Whether it was reset or both directions are closed, found without reading it.
    pub fn is_broken(&self) -> bool {
        let mut fds = [PollFd::new(&*self.fd, PollFlags::empty())];
        let over = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(over)
    }

    /// Bounds how long the kernel goes on with what it has of a socket that is closed, while the other end takes none
    /// of it.
    pub fn keep_after_close(&self, time: std::time::Duration) {
        let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_user_timeout(&*self.fd, ms);
    }

    /// Makes closing send RST instead of FIN.
    pub fn abort_on_close(&self) {
        let _ = sockopt::set_socket_linger(&*self.fd, Some(std::time::Duration::ZERO));
    }

    /// Octets of payload a TCP segment carries at most at the moment (the EMSS of RFC 5044).
    ///
    /// # Errors
    /// The kernel's.
    pub fn emss(&self) -> io::Result<usize> {
        let mut mss: libc::c_int = 0;
        let mut len = std::mem::size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` octets to `mss` and the new length to `len`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                self.number,
                libc::IPPROTO_TCP,
                libc::TCP_MAXSEG,
                std::ptr::from_mut(&mut mss),
                std::ptr::from_mut(&mut len),
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mss.max(0) as usize)
    }

    /// This end's address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        // A connect binds before anything leaves.
        self.addresses.local(|| local_of(&*self.fd))
    }

    /// The other end's address, also once that has gone.
    ///
    /// # Errors
    /// Not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.addresses.peer(|| {
            let peer = net::getpeername(&*self.fd)?.ok_or(io::ErrorKind::NotConnected)?;
            Ok(peer.try_into()?)
        })
    }

    /// The descriptor's number.
    pub fn raw(&self) -> RawFd {
        self.number
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Registered;
    use crate::poll::{Epoll, Interest};
    use std::time::Duration;

    /// Loopback delivers within the send mostly, not always.
    fn await_readable(socket: &impl AsFd) {
        let epoll = Epoll::new().unwrap();
        epoll.add(socket, 0, Interest::Read).unwrap();
        let timeout = Some(Duration::from_secs(20));
        assert_eq!(epoll.wait(timeout, 1, |_| ()).unwrap(), 1);
    }

    fn pair() -> (TcpStream, TcpStream) {
        let options = SocketOptions::default();
        let listener = BoundSocket::bind("127.0.0.1:0".parse().unwrap(), &options)
            .unwrap()
            .listen(4)
            .unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap(), &options).unwrap();
        await_readable(&listener);
        let (server, peer) = listener.accept().unwrap().expect("a connection");
        client.connect_result().unwrap();
        assert_eq!(client.local_addr().unwrap(), peer);
        (client, server)
    }

    #[test]
    fn gather_and_scatter_reach_registered_memory() {
        let (client, server) = pair();
        let source = Registered::allocate(64).unwrap();
        let target = Registered::allocate(64).unwrap();
        source.write(4, b"registered").unwrap();
        let mut gather = Gather::default();
        assert!(gather.push(b"head"));
        assert!(gather.push_registered(&source, 4, 10));
        assert!(matches!(client.send_gather(&gather), Transfer::Octets(14)));
        let mut head = [0; 4];
        let mut scatter = Scatter::default();
        assert!(scatter.push(&mut head));
        assert!(scatter.push_registered(&target, 20, 10));
        await_readable(&server);
        assert!(matches!(
            server.recv_scatter(&scatter),
            Transfer::Octets(14)
        ));
        let mut placed = [0; 10];
        target.read(20, &mut placed).unwrap();
        assert_eq!((&head, &placed), (b"head", b"registered"));
    }

    #[test]
    fn a_connection_stays_open_for_its_bell() {
        let (client, server) = pair();
        let bell = client.bell();
        drop(client);
        let mut buffer = [1; 8];
        assert!(matches!(server.recv(&mut buffer), Transfer::WouldBlock));
        bell.ring();
        await_readable(&server);
        assert!(matches!(server.recv(&mut buffer), Transfer::Octets(1)));
        assert_eq!(buffer[..2], [0, 1]);
        drop(bell);
        await_readable(&server);
        assert!(matches!(server.recv(&mut buffer), Transfer::End));
    }

    #[test]
    fn an_empty_socket_would_block_and_an_ended_one_says_so() {
        let (client, server) = pair();
        let mut buffer = [0; 8];
        assert!(matches!(server.recv(&mut buffer), Transfer::WouldBlock));
        client.shutdown_write();
        await_readable(&server);
        assert!(matches!(server.recv(&mut buffer), Transfer::End));
        assert!(client.emss().unwrap() >= 536);
    }

    #[test]
    fn unmapped_memory_fails_the_send_and_not_the_process() {
        let (client, _server) = pair();
        let memory = crate::mem::unmapped(4096);
        let mut gather = Gather::default();
        gather.push_registered(&memory, 0, 4096);
        match client.send_gather(&gather) {
            Transfer::Failed(error) => assert_eq!(error.raw_os_error(), Some(libc::EFAULT)),
            other => panic!("{other:?}"),
        }
    }
}
