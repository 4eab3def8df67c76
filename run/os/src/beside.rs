//! A UDP socket beside one that the program owns, of TCP or UDP: it sends from the same address, by the same way, to
//! the same host.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::descriptors;
use crate::dgram::{get_int, local_name, peer_name, set_int, NAME_LEN, SO_BINDTOIFINDEX};
use crate::guarded::Held;
use crate::private::Private;

/// Hears from one address and port alone.
#[derive(Debug)]
pub struct Beside {
    fd: Private,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A datagram of so many octets.
    Octets(usize),
    /// Nothing yet.
    Nothing,
    /// The network says that nobody is there (ICMP), or nothing more can come.
    Unreachable,
}

/// The address and port of the socket behind `fd`, IPv4-mapped ones as IPv4; nothing if it has none.
pub fn local_end(fd: i32) -> Option<SocketAddr> {
    let mut name = [0; NAME_LEN];
    let len = local_name(fd, &mut name);
    socket_addr(name.get(..len)?)
}

/// The same of the peer.
pub fn peer_end(fd: i32) -> Option<SocketAddr> {
    let mut name = [0; NAME_LEN];
    let len = peer_name(fd, &mut name);
    socket_addr(name.get(..len)?)
}

/// A socket address from the octets of a `sockaddr_in` or `sockaddr_in6`, IPv4-mapped ones as IPv4.
pub fn socket_addr(name: &[u8]) -> Option<SocketAddr> {
    let address = written_addr(name)?;
    Some(match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        IpAddr::V6(_) => address,
    })
}

/// The same as the octets have it: an IPv4-mapped address is one of IPv6.
pub fn written_addr(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(name.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let octets = <[u8; 4]>::try_from(name.get(4..8)?).ok()?;
            Some(SocketAddr::new(octets.into(), port))
        }
        libc::AF_INET6 => {
            let octets = <[u8; 16]>::try_from(name.get(8..24)?).ok()?;
            let scope = u32::from_ne_bytes(name.get(24..28)?.try_into().ok()?);
            Some(SocketAddrV6::new(octets.into(), port, 0, scope).into())
        }
        _ => None,
    }
}

/// The octets of a socket address as a socket of IPv6 (`is_v6`) or IPv4 has it, and how many they are; 0 for an IPv6
/// address where the socket is one of IPv4.
pub fn socket_name(addr: SocketAddr, is_v6: bool) -> ([u8; NAME_LEN], usize) {
    let mut name = [0; NAME_LEN];
    name[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    let address = match addr.ip().to_canonical() {
        std::net::IpAddr::V4(v4) if !is_v6 => {
            name[4..8].copy_from_slice(&v4.octets());
            return (name, 16);
        }
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(_) if !is_v6 => return (name, 0),
        std::net::IpAddr::V6(v6) => v6,
    };
    name[8..24].copy_from_slice(&address.octets());
    if let SocketAddr::V6(v6) = addr {
        name[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
    }
    (name, NAME_LEN)
}

impl Beside {
    /// Opens a socket at the address of the socket behind `fd`, which is `local`, and connects it to `to`. It is
    /// bound to the same interface and has the same mark, as far as the kernel allows.
    ///
    /// # Errors
    /// No descriptor is left, or there is no way.
    pub fn open(fd: i32, mut local: SocketAddr, to: SocketAddr) -> io::Result<Beside> {
        let family = match local {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = || net::socket_with(family, SocketType::DGRAM, flags, None);
        let own = descriptors::open_apart(open)?;
        for option in [SO_BINDTOIFINDEX, libc::SO_MARK] {
            if let Ok(value @ 1..) = get_int(fd, libc::SOL_SOCKET, option) {
                // Refused to who may not, who then asks by the way that others go.
                let _ = set_int(own.as_raw_fd(), libc::SOL_SOCKET, option, value);
            }
        }
        local.set_port(0);
        net::bind(&own, &local)?;
        net::connect(&own, &to)?;
        Ok(Beside { fd: own })
    }

    /// The address and port that it sends from.
    pub fn local(&self) -> Option<SocketAddr> {
        local_end(self.fd.as_raw_fd())
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, octets: &[u8]) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(net::send(&self.fd, octets, flags).map(drop)?)
    }

    /// Takes what has come.
    pub fn receive(&self, buffer: &mut [u8]) -> Heard {
        use rustix::io::Errno;
        match net::recv(&self.fd, buffer, RecvFlags::DONTWAIT) {
            Ok((_, octets)) => Heard::Octets(octets),
            Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
            Err(_) => Heard::Unreachable,
        }
    }

    /// Waits until something has come, `timeout` at most. A signal ends the wait early.
    pub fn wait(&self, timeout: std::time::Duration) {
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: i64::from(timeout.subsec_nanos()) as _,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
    }
}

impl AsFd for Beside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Held for Beside {
    fn abandon(self) {
        self.fd.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::time::{Duration, Instant};

    fn heard(beside: &Beside, buffer: &mut [u8]) -> Heard {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            match beside.receive(buffer) {
                Heard::Nothing => beside.wait(Duration::from_millis(50)),
                heard => return heard,
            }
        }
        Heard::Nothing
    }

    #[test]
    fn it_leaves_from_the_address_of_the_tcp_socket() {
        for here in ["127.0.0.9", "::1"] {
            let Ok(tcp) = TcpListener::bind((here, 0)) else {
                eprintln!("skipped: this machine has no {here}");
                continue;
            };
            let peer = UdpSocket::bind((here, 0)).unwrap();
            let local = local_end(tcp.as_raw_fd()).unwrap();
            assert_eq!(local, tcp.local_addr().unwrap());
            let beside = Beside::open(tcp.as_raw_fd(), local, peer.local_addr().unwrap()).unwrap();
            assert!(beside.as_fd().as_raw_fd() >= descriptors::APART);
            beside.send(b"question").unwrap();
            let mut buffer = [0; 64];
            let (octets, from) = peer.recv_from(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..octets], from.ip()),
                (&b"question"[..], local.ip())
            );
            let stranger = UdpSocket::bind((here, 0)).unwrap();
            stranger.send_to(b"stranger", from).unwrap();
            peer.send_to(b"answer", from).unwrap();
            assert_eq!(heard(&beside, &mut buffer), Heard::Octets(6));
            assert_eq!(&buffer[..6], b"answer");
            drop(peer);
            beside.send(b"anybody?").unwrap();
            assert_eq!(heard(&beside, &mut buffer), Heard::Unreachable);
        }
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (text, is_v6, len) in [
            ("192.0.2.1:5000", false, 16),
            ("192.0.2.1:5000", true, 28),
            ("[2001:db8::1]:5000", true, 28),
            ("[fe80::1%3]:5000", true, 28),
        ] {
            let (name, written) = socket_name(addr(text), is_v6);
            assert_eq!(written, len, "{text}");
            assert_eq!(socket_addr(&name[..written]), Some(addr(text)));
        }
        assert_eq!(socket_name(addr("[::1]:1"), false).1, 0);
    }

    #[test]
    fn an_ipv4_mapped_end_is_one_of_ipv4() {
        let Ok(tcp) = TcpListener::bind("[::ffff:127.0.0.1]:0") else {
            eprintln!("skipped: no IPv6");
            return;
        };
        let local = local_end(tcp.as_raw_fd()).unwrap();
        assert_eq!(local.ip().to_string(), "127.0.0.1");
    }
}
