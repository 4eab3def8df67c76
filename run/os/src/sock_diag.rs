//! Finding a TCP connection of this machine by its two ends (`NETLINK_SOCK_DIAG`), as any user may.
//!
//! The kernel looks in the table that it sorts incoming segments by, so that it costs the same with one connection and
//! with a million, and finds one from its SYN on: what is not established yet is a request socket, which belongs to its
//! listener. Where there is no such connection but a listener that could have it, the kernel gives the listener.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{self, netlink, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::descriptors;
use crate::private::Private;

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR` of linux/netlink.h.
const ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NO_COOKIE: [u32; 2] = [u32::MAX; 2];
const HEADER_LEN: usize = std::mem::size_of::<Header>();
/// More than an answer without attributes has.
const ANSWER_OCTETS_MAX: usize = 512;

/// `struct nlmsghdr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    len: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

/// `struct inet_diag_sockid`. Ports and addresses are in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SocketId {
    local_port: [u8; 2],
    remote_port: [u8; 2],
    local: [u8; 16],
    remote: [u8; 16],
    interface: u32,
    cookie: [u32; 2],
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
#[derive(Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Request {
    header: Header,
    family: u8,
    protocol: u8,
    extensions: u8,
    padding: u8,
    states: u32,
    id: SocketId,
}

/// `struct inet_diag_msg`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Answer {
    family: u8,
    state: u8,
    timer: u8,
    retransmissions: u8,
    id: SocketId,
    expires: u32,
    receive_queue: u32,
    send_queue: u32,
    user: u32,
    inode: u32,
}

/// A connection that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// How far it is.
    pub state: State,
    /// A program has accepted or made it.
    pub has_owner: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The SYN has come, and its acknowledgement has not been answered.
    SynReceived,
    /// It is open, both ways.
    Established,
    /// It is being made from here, is closing or is over.
    Other,
}

/// What asks the kernel.
#[derive(Debug)]
pub struct SockDiag {
    fd: Private,
    sequence: u32,
}

impl SockDiag {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has none, or the program may not ask it (seccomp).
    pub fn open() -> io::Result<SockDiag> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let open = || net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol);
        let fd = descriptors::open_apart(open)?;
        Ok(SockDiag { fd, sequence: 0 })
    }

    /// The TCP connection between these ends; nothing if there is none, or a listener alone. `interface` is the index
    /// of the one that its segments come by: a socket that is bound to an interface is only found by it.
    ///
    /// # Errors
    /// The kernel's, where it does not serve such questions.
    pub fn connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        interface: u32,
    ) -> io::Result<Option<Found>> {
        self.sequence = self.sequence.wrapping_add(1);
        let id = SocketId {
            local_port: local.port().to_be_bytes(),
            remote_port: remote.port().to_be_bytes(),
            local: octets_of(local.ip()),
            remote: octets_of(remote.ip()),
            interface,
            cookie: NO_COOKIE,
        };
        let family = match local.ip().to_canonical() {
            IpAddr::V4(_) => libc::AF_INET,
            IpAddr::V6(_) => libc::AF_INET6,
        };
        let request = Request {
            header: Header {
                len: std::mem::size_of::<Request>() as u32,
                kind: BY_FAMILY,
                flags: NLM_F_REQUEST,
                sequence: self.sequence,
                port: 0,
            },
            family: family as u8,
            protocol: libc::IPPROTO_TCP as u8,
            extensions: 0,
            padding: 0,
            states: u32::MAX,
            id,
        };
        net::send(&self.fd, request.as_bytes(), SendFlags::NOSIGNAL)?;
        let Some(answer) = self.receive()? else {
            return Ok(None);
        };
        let is_same = canonical(&answer, &answer.id.local) == local.ip().to_canonical()
            && canonical(&answer, &answer.id.remote) == remote.ip().to_canonical()
            && answer.id.local_port == id.local_port
            && answer.id.remote_port == id.remote_port;
        Ok(is_same.then(|| Found {
            state: state_of(answer.state),
            has_owner: answer.inode != 0,
        }))
    }

    /// The answer to the last request. The kernel gives it within the send.
    fn receive(&self) -> io::Result<Option<Answer>> {
        let mut octets = [0; ANSWER_OCTETS_MAX];
        loop {
            let (_, len) = net::recv(&self.fd, &mut octets[..], RecvFlags::DONTWAIT)?;
            let got = octets.get(..len).unwrap_or_default();
            let Ok((header, rest)) = Header::read_from_prefix(got) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            if header.sequence != self.sequence {
                continue;
            }
            if header.kind == ERROR {
                let (error, _) = i32::read_from_prefix(rest).unwrap_or((0, &[]));
                return match Errno::from_raw_os_error(-error) {
                    Errno::NOENT => Ok(None),
                    other => Err(other.into()),
                };
            }
            let answer = Answer::read_from_prefix(rest).ok();
            let (answer, _) = answer.ok_or(io::ErrorKind::InvalidData)?;
            return Ok(Some(answer));
        }
    }
}

impl crate::guarded::Held for SockDiag {
    fn abandon(self) {
        self.fd.abandon();
    }
}

impl std::os::fd::AsFd for SockDiag {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const _: () = assert!(HEADER_LEN == 16 && std::mem::size_of::<Request>() == 72);
const _: () = assert!(std::mem::size_of::<Answer>() == 72);

/// As the kernel has it: an IPv4 address in the first four octets.
fn octets_of(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            octets
        }
    }
}

/// An address of the answer. A socket of IPv6 has IPv4-mapped ones, also where it was asked for by IPv4.
fn canonical(answer: &Answer, octets: &[u8; 16]) -> IpAddr {
    match i32::from(answer.family) {
        libc::AF_INET => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        _ => IpAddr::from(*octets).to_canonical(),
    }
}

fn state_of(state: u8) -> State {
    // include/net/tcp_states.h of Linux.
    match state {
        1 => State::Established,
        // A request socket is `TCP_NEW_SYN_RECV` to the kernel itself.
        3 | 12 => State::SynReceived,
        _ => State::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Looks for the connections of a listener at `at`, seen by clients that connect to `to`.
    fn look(at: &str, to: &str) {
        let Ok(listener) = TcpListener::bind(at) else {
            eprintln!("skipped: this machine has no {at}");
            return;
        };
        let port = listener.local_addr().unwrap().port();
        let mut diag = SockDiag::open().unwrap();
        let server = SocketAddr::new(to.parse().unwrap(), port);
        let stranger = SocketAddr::new(to.parse().unwrap(), 9);
        let found = diag.connection(server, stranger, 1).unwrap();
        assert_eq!(found, None, "a listener is no connection");
        let client = TcpStream::connect(server).unwrap();
        let local = client.local_addr().unwrap();
        let waiting = diag.connection(server, local, 1).unwrap().unwrap();
        assert_eq!(waiting.state, State::Established);
        assert!(!waiting.has_owner, "nobody has accepted it");
        let accepted = listener.accept().unwrap();
        let taken = diag.connection(server, local, 1).unwrap().unwrap();
        assert_eq!((taken.state, taken.has_owner), (State::Established, true));
        let other = SocketAddr::new(local.ip(), local.port() ^ 1);
        assert_eq!(diag.connection(server, other, 1).unwrap(), None);
        drop((accepted, client));
    }

    #[test]
    fn connections_are_found_by_their_ends_and_listeners_are_not() {
        look("127.0.0.1:0", "127.0.0.1");
        look("0.0.0.0:0", "127.0.0.1");
        look("[::1]:0", "::1");
        look("[::]:0", "127.0.0.1");
        look("[::]:0", "::1");
    }

    /// With `TCP_DEFER_ACCEPT` it stays a request socket until the client has sent.
    #[test]
    fn a_connection_is_found_from_its_syn_on() {
        use std::os::fd::AsRawFd;
        for (at, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
        ] {
            let Ok(listener) = TcpListener::bind(at) else {
                eprintln!("skipped: this machine has no {at}");
                continue;
            };
            let option = libc::TCP_DEFER_ACCEPT;
            crate::dgram::set_int(listener.as_raw_fd(), libc::IPPROTO_TCP, option, 5).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = SocketAddr::new(to.parse().unwrap(), port);
            let client = TcpStream::connect(server).unwrap();
            let found =
                SockDiag::open()
                    .unwrap()
                    .connection(server, client.local_addr().unwrap(), 1);
            let half_open = Found {
                state: State::SynReceived,
                has_owner: false,
            };
            assert_eq!(found.unwrap(), Some(half_open), "{at} {to}");
        }
    }

    #[test]
    fn an_end_that_was_never_there_is_not_found() {
        let mut diag = SockDiag::open().unwrap();
        for (local, remote) in [
            ("127.0.0.1:1", "127.0.0.1:2"),
            ("[::1]:1", "[::1]:2"),
            ("192.0.2.1:1", "192.0.2.2:2"),
        ] {
            let found = diag.connection(local.parse().unwrap(), remote.parse().unwrap(), 1);
            assert_eq!(found.unwrap(), None);
        }
    }
}
