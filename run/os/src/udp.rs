//! UDP sockets of our own: non-blocking, of both IP families where there are two, with the local
//! address of each datagram, segmentation on the way out (`UDP_SEGMENT`) and coalesced receives
//! (`UDP_GRO`).

use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

use crate::descriptors;
use crate::dgram::{set_int, SOL_UDP, UDP_GRO, UDP_SEGMENT};
use crate::guarded::Held;
use crate::lists::Gather;
use crate::net::SocketOptions;
use crate::private::Private;
use crate::sys;

/// Octets that one receive gives at most: the kernel coalesces no more.
pub const RECEIVED_OCTETS_MAX: usize = 65_536;
/// Octets of the control messages of a receive.
const CONTROL: usize = 128;

/// A socket that datagrams are sent and received by.
#[derive(Debug)]
pub struct UdpSocket {
    fd: Private,
    /// It is of IPv6, and may have IPv4 through it.
    dual: bool,
    room: u32,
}

/// What a receive gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Octets.
    pub octets: usize,
    /// Octets of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// Who sent them.
    pub from: SocketAddr,
    /// The address of this machine that they were sent to.
    pub to: IpAddr,
    /// The index of the interface that they came by.
    pub interface: u32,
}

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Writes control messages one behind the other.
struct ControlWriter {
    control: Control,
    used: usize,
}

impl ControlWriter {
    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let len = size_of::<libc::cmsghdr>() + data.len();
        let at = &mut self.control.0[self.used..];
        at[..8].copy_from_slice(&len.to_ne_bytes());
        at[8..12].copy_from_slice(&level.to_ne_bytes());
        at[12..16].copy_from_slice(&kind.to_ne_bytes());
        at[16..len].copy_from_slice(data);
        self.used += len.next_multiple_of(8);
    }
}

impl UdpSocket {
    /// Datagrams of one sender and length are received together from now on, where they came so (`UDP_GRO`), and the
    /// buffers have so many octets, or as many as the kernel allows.
    pub fn expect_many(&mut self, buffer: usize) {
        // Without it every datagram comes alone.
        let _ = self.option(SOL_UDP, UDP_GRO, 1);
        let _ = sockopt::set_socket_recv_buffer_size(&self.fd, buffer);
        let _ = sockopt::set_socket_send_buffer_size(&self.fd, buffer);
        self.note_room();
    }

    /// Binds to a port on all addresses, together with other sockets of the same user that do so (`SO_REUSEPORT`): each
    /// datagram goes to one of them. Its number is apart from the program's, datagrams come singly, and its receive
    /// buffer has `buffer` octets, or as many as the kernel allows.
    ///
    /// # Errors
    /// `AddrInUse`: somebody has the port who does not share it, or is another user.
    pub fn bind_shared(port: u16, buffer: usize) -> io::Result<UdpSocket> {
        let open = |family| {
            let fd = descriptors::open_apart(|| new_socket(family))?;
            UdpSocket::prepared(fd, family)
        };
        let (socket, any): (_, SocketAddr) = match open(AddressFamily::INET6) {
            Ok(socket) => (socket, (Ipv6Addr::UNSPECIFIED, port).into()),
            Err(_) => (
                open(AddressFamily::INET)?,
                (Ipv4Addr::UNSPECIFIED, port).into(),
            ),
        };
        if socket.dual {
            sockopt::set_ipv6_v6only(&socket.fd, false)?;
        }
        let _ = sockopt::set_socket_recv_buffer_size(&socket.fd, buffer);
        sockopt::set_socket_reuseport(&socket.fd, true)?;
        socket.bound(any)
    }

    /// Binds to an address and port, or to every address of a family; port 0 takes an ephemeral port.
    ///
    /// # Errors
    /// The address is taken, not this machine's, or not allowed.
    pub fn bind_to(addr: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
        let socket = match addr {
            SocketAddr::V4(_) => UdpSocket::open(AddressFamily::INET)?,
            SocketAddr::V6(_) => UdpSocket::open(AddressFamily::INET6)?,
        };
        if let (true, Some(on)) = (socket.dual, options.v6_only) {
            sockopt::set_ipv6_v6only(&socket.fd, on)?;
        }
        if let Some(tos) = options.tos {
            let (level, name) = match socket.dual {
                true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
                false => (libc::IPPROTO_IP, libc::IP_TOS),
            };
            socket.option(level, name, tos.into())?;
        }
        socket.bound(addr)
    }

    /// A socket that tells with each datagram which address of this machine it was sent to.
    fn open(family: AddressFamily) -> io::Result<UdpSocket> {
        UdpSocket::prepared(Private::from(new_socket(family)?), family)
    }

    /// The same of a new socket of this family.
    fn prepared(fd: Private, family: AddressFamily) -> io::Result<UdpSocket> {
        let dual = family == AddressFamily::INET6;
        let socket = UdpSocket { fd, dual, room: 0 };
        match dual {
            true => socket.option(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?,
            false => socket.option(libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
        }
        Ok(socket)
    }

    fn option(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        set_int(self.fd.as_raw_fd(), level, name, value).map_err(io::Error::from_raw_os_error)
    }

    fn bound(mut self, addr: SocketAddr) -> io::Result<UdpSocket> {
        net::bind(&self.fd, &addr)?;
        self.note_room();
        Ok(self)
    }

    fn note_room(&mut self) {
        self.room = sockopt::socket_recv_buffer_size(&self.fd).unwrap_or(0) as u32;
    }

    /// From now on it receives from `peer` only, and hears of it when nobody has that port.
    ///
    /// # Errors
    /// There is no route, or the socket is of the other family.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        Ok(net::connect(&self.fd, &peer)?)
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(net::getsockname(&self.fd)?.try_into()?)
    }

    /// Octets of the receive buffer, as the kernel counts them.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Sends a gather list from an address of this machine: as one datagram, or as datagrams of
    /// `segment` octets and a last one of what is left.
    ///
    /// # Errors
    /// The kernel's: nothing was sent then.
    pub fn send(
        &self,
        list: &Gather<'_>,
        from: IpAddr,
        to: SocketAddr,
        segment: Option<u16>,
    ) -> io::Result<()> {
        let (name, name_len) = self.name_of(to);
        let mut writer = ControlWriter {
            control: Control([0; CONTROL]),
            used: 0,
        };
        self.push_source(&mut writer, from);
        if let Some(segment) = segment {
            writer.push(SOL_UDP, UDP_SEGMENT, &segment.to_ne_bytes());
        }
        // SAFETY: an all-zero msghdr is a valid empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = std::ptr::from_ref(&name).cast_mut().cast();
        message.msg_namelen = name_len;
        message.msg_iov = list.as_slice().as_ptr().cast_mut().cast();
        message.msg_iovlen = list.as_slice().len() as _;
        message.msg_control = writer.control.0.as_mut_ptr().cast();
        message.msg_controllen = writer.used as _;
        let args = [
            self.fd.as_raw_fd() as usize,
            std::ptr::from_ref(&message) as usize,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize,
            0,
            0,
            0,
        ];
        // SAFETY: the message and all it points to outlive the call, which only reads them; the
        // list holds borrowed octets and registered memory, of which the kernel says EFAULT where
        // nothing is mapped.
        unsafe { sys::call(libc::SYS_sendmsg, args) }
            .map(drop)
            .map_err(io::Error::from_raw_os_error)
    }

    /// Receives what is at the head of the queue: a datagram, or several of one length from one
    /// sender.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` when there is nothing.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let part = sys::IoVec {
            base: buffer.as_mut_ptr() as usize,
            len: buffer.len(),
        };
        let mut control = Control([0; CONTROL]);
        // SAFETY: all-zero is a value of both plain structures.
        let (mut message, mut name): (libc::msghdr, libc::sockaddr_in6) =
            unsafe { (zeroed(), zeroed()) };
        message.msg_name = std::ptr::from_mut(&mut name).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
        message.msg_iov = std::ptr::from_ref(&part).cast_mut().cast();
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        let args = [
            self.fd.as_raw_fd() as usize,
            std::ptr::from_mut(&mut message) as usize,
            libc::MSG_DONTWAIT as usize,
            0,
            0,
            0,
        ];
        // SAFETY: the message and the buffers it points to outlive the call and may be written.
        let octets = unsafe { sys::call(libc::SYS_recvmsg, args) }
            .map_err(io::Error::from_raw_os_error)?
            .min(buffer.len());
        let mut received = Received {
            octets,
            segment: octets.max(1),
            from: address_of(&name),
            to: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            interface: 0,
        };
        read_control(
            &control.0[..message.msg_controllen.min(CONTROL)],
            &mut received,
        );
        Ok(received)
    }

    /// A socket address in the form that this socket's family takes.
    fn name_of(&self, to: SocketAddr) -> (libc::sockaddr_in6, u32) {
        // SAFETY: all-zero is a value of the plain structure.
        let mut name: libc::sockaddr_in6 = unsafe { zeroed() };
        name.sin6_port = to.port().to_be();
        if self.dual {
            name.sin6_family = libc::AF_INET6 as u16;
            name.sin6_addr.s6_addr = v6(to.ip()).octets();
            if let SocketAddr::V6(v6) = to {
                name.sin6_scope_id = v6.scope_id();
            }
            return (name, size_of::<libc::sockaddr_in6>() as u32);
        }
        name.sin6_family = libc::AF_INET as u16;
        if let IpAddr::V4(v4) = to.ip() {
            // An IPv4 name has its address where an IPv6 name has its flow.
            name.sin6_flowinfo = u32::from_ne_bytes(v4.octets());
        }
        (name, size_of::<libc::sockaddr_in>() as u32)
    }

    fn push_source(&self, writer: &mut ControlWriter, from: IpAddr) {
        if self.dual {
            let mut info = [0; size_of::<libc::in6_pktinfo>()];
            info[..16].copy_from_slice(&v6(from).octets());
            writer.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        } else if let IpAddr::V4(v4) = from {
            let mut info = [0; size_of::<libc::in_pktinfo>()];
            let at = offset_of!(libc::in_pktinfo, ipi_spec_dst);
            info[at..at + 4].copy_from_slice(&v4.octets());
            writer.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn new_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(family, SocketType::DGRAM, flags, None)
}

impl Held for UdpSocket {
    fn abandon(self) {
        self.fd.abandon();
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn address_of(name: &libc::sockaddr_in6) -> SocketAddr {
    let port = u16::from_be(name.sin6_port);
    if i32::from(name.sin6_family) == libc::AF_INET {
        let v4 = Ipv4Addr::from(name.sin6_flowinfo.to_ne_bytes());
        return SocketAddrV4::new(v4, port).into();
    }
    let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
    match address.to_ipv4_mapped() {
        Some(v4) => SocketAddrV4::new(v4, port).into(),
        None => SocketAddrV6::new(address, port, 0, name.sin6_scope_id).into(),
    }
}

fn read_control(mut control: &[u8], received: &mut Received) {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let int = |at: &[u8], from: usize| {
        let mut octets = [0; 4];
        octets.copy_from_slice(&at[from..from + 4]);
        i32::from_ne_bytes(octets)
    };
    while control.len() >= HEAD {
        let mut len = [0; size_of::<usize>()];
        len.copy_from_slice(&control[..size_of::<usize>()]);
        let len = usize::from_ne_bytes(len);
        if len < HEAD || len > control.len() {
            return;
        }
        let (level, kind, data) = (int(control, 8), int(control, 12), &control[HEAD..len]);
        match (level, kind) {
            (SOL_UDP, UDP_GRO) if data.len() >= 4 => {
                received.segment = usize::try_from(int(data, 0)).unwrap_or(0).max(1);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if data.len() >= 16 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&data[..16]);
                received.to = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
                if data.len() >= 20 {
                    received.interface = int(data, 16) as u32;
                }
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() >= 12 => {
                let at = offset_of!(libc::in_pktinfo, ipi_addr);
                let octets = [data[at], data[at + 1], data[at + 2], data[at + 3]];
                received.to = IpAddr::V4(Ipv4Addr::from(octets));
                received.interface = int(data, offset_of!(libc::in_pktinfo, ipi_ifindex)) as u32;
            }
            _ => {}
        }
        let next = len.next_multiple_of(8);
        control = control.get(next..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket of all addresses, of both versions where this machine has both.
    fn everywhere(port: u16) -> io::Result<UdpSocket> {
        let options = SocketOptions::default();
        UdpSocket::bind_to((Ipv6Addr::UNSPECIFIED, port).into(), &options)
            .or_else(|_| UdpSocket::bind_to((Ipv4Addr::UNSPECIFIED, port).into(), &options))
    }

    fn pair() -> (UdpSocket, UdpSocket, u16) {
        let [sender, receiver] = [(); 2].map(|()| {
            let mut socket = everywhere(0).unwrap();
            socket.expect_many(1 << 20);
            socket
        });
        let port = receiver.local_addr().unwrap().port();
        (sender, receiver, port)
    }

    fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Received {
        for _ in 0..10_000 {
            match socket.receive(buffer) {
                Ok(received) => return received,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
        panic!("nothing came");
    }

    #[test]
    fn both_families_tell_both_ends() {
        let (sender, receiver, port) = pair();
        let mut buffer = vec![0; RECEIVED_OCTETS_MAX];
        let ends: &[IpAddr] = if sender.dual {
            &[
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ]
        } else {
            &[IpAddr::V4(Ipv4Addr::LOCALHOST)]
        };
        for end in ends {
            let mut list = Gather::default();
            list.push(b"head");
            list.push(b"payload");
            sender
                .send(&list, *end, SocketAddr::new(*end, port), None)
                .unwrap();
            let received = receive(&receiver, &mut buffer);
            assert_eq!(&buffer[..received.octets], b"headpayload");
            assert_eq!((received.from.ip(), received.to), (*end, *end));
            assert_eq!(received.interface, 1, "the loopback interface");
        }
        let empty = receiver.receive(&mut buffer).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_source_is_the_one_that_was_asked_for() {
        let (sender, receiver, port) = pair();
        let source: IpAddr = "127.0.0.5".parse().unwrap();
        let to = SocketAddr::new("127.0.0.9".parse().unwrap(), port);
        let mut list = Gather::default();
        list.push(b"x");
        sender.send(&list, source, to, None).unwrap();
        let received = receive(&receiver, &mut [0; 8]);
        assert_eq!((received.from.ip(), received.to), (source, to.ip()));
    }

    #[test]
    fn segments_leave_and_arrive_in_one_call() {
        let (sender, receiver, port) = pair();
        let octets = vec![7; 2500];
        let mut list = Gather::default();
        list.push(&octets);
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        sender
            .send(&list, here, SocketAddr::new(here, port), Some(1000))
            .unwrap();
        let received = receive(&receiver, &mut vec![0; RECEIVED_OCTETS_MAX]);
        assert_eq!((received.octets, received.segment), (2500, 1000));
    }

    #[test]
    fn a_shared_port_is_shared_with_those_who_share() {
        let one = UdpSocket::bind_shared(0, 0).unwrap();
        let port = one.local_addr().unwrap().port();
        let two = UdpSocket::bind_shared(port, 0).unwrap();
        assert!(everywhere(port).is_err(), "who does not share has to wait");
        let sender = everywhere(0).unwrap();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut list = Gather::default();
        list.push(b"x");
        sender
            .send(&list, here, SocketAddr::new(here, port), None)
            .unwrap();
        let came = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_micros(100));
            [&one, &two]
                .iter()
                .any(|socket| socket.receive(&mut [0; 8]).is_ok())
        });
        assert!(came, "one of them has it");
    }

    #[test]
    fn a_connected_socket_hears_its_peer_only_and_that_nobody_is_there() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let here: SocketAddr = here.parse().unwrap();
            let open = || UdpSocket::bind_to(here, &SocketOptions::default());
            let (Ok(asker), Ok(peer), Ok(stranger)) = (open(), open(), open()) else {
                eprintln!("skipped: this machine has no {here}");
                continue;
            };
            let at = |socket: &UdpSocket| socket.local_addr().unwrap();
            asker.connect(at(&peer)).unwrap();
            let mut list = Gather::default();
            list.push(b"x");
            stranger.send(&list, here.ip(), at(&asker), None).unwrap();
            let mut own = Gather::default();
            own.push(b"own");
            peer.send(&own, here.ip(), at(&asker), None).unwrap();
            let received = receive(&asker, &mut [0; 8]);
            assert_eq!((received.from, received.octets), (at(&peer), 3));
            drop(peer);
            asker.send(&own, here.ip(), received.from, None).unwrap();
            let refused = (0..10_000).find_map(|_| match asker.receive(&mut [0; 8]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Some(error.kind()),
                _ => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    None
                }
            });
            assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused));
        }
    }
}
