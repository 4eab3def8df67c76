//! Finding a TCP connection of this machine by its two ends (`NETLINK_SOCK_DIAG`), as any user may.
//!
//! The kernel looks in the table that it sorts incoming segments by, so that it costs the same with one connection and
//! with a million, and finds one from its SYN on: what is not established yet is a request socket, which belongs to its
//! listener. Where there is no such connection but a listener that could have it, the kernel gives the listener.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

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
/// Everything that there is, and not one.
const NLM_F_DUMP: u16 = 0x300;
/// What was told changed meanwhile.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
const NO_COOKIE: [u32; 2] = [u32::MAX; 2];
const HEADER_LEN: usize = std::mem::size_of::<Header>();
/// More than an answer without attributes has.
const ANSWER_OCTETS_MAX: usize = 512;
/// Octets of a message that tells of many sockets: the kernel makes them no longer than that.
pub const LIST_OCTETS: usize = 32 << 10;
/// States in which a program may have a socket that it can send or receive by, each a bit (include/net/tcp_states.h):
/// neither those of listeners nor what is left of connections that nobody has any more.
const WITH_CONNECTION: u32 = {
    const ESTABLISHED: u32 = 1;
    const SYN_SENT: u32 = 2;
    const FIN_WAIT1: u32 = 4;
    const FIN_WAIT2: u32 = 5;
    const CLOSE: u32 = 7;
    const CLOSE_WAIT: u32 = 8;
    const LAST_ACK: u32 = 9;
    const CLOSING: u32 = 11;
    const BOUND_INACTIVE: u32 = 13;
    1 << ESTABLISHED
        | 1 << SYN_SENT
        | 1 << FIN_WAIT1
        | 1 << FIN_WAIT2
        | 1 << CLOSE
        | 1 << CLOSE_WAIT
        | 1 << LAST_ACK
        | 1 << CLOSING
        | 1 << BOUND_INACTIVE
};

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
        self.ask(family, NLM_F_REQUEST, u32::MAX, id)?;
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

    /// Gives `each` the inode of every TCP socket of this network namespace, over IPv4 and IPv6, that has a connection
    /// and that a program has. `room` is for what the kernel says, [`LIST_OCTETS`] of it. Allocates nothing.
    ///
    /// # Errors
    /// The kernel's, also where what it tells of has changed meanwhile: some may be missing.
    pub fn each_connected_inode(
        &mut self,
        room: &mut [u8],
        mut each: impl FnMut(u32),
    ) -> io::Result<()> {
        let any = SocketId {
            local_port: [0; 2],
            remote_port: [0; 2],
            local: [0; 16],
            remote: [0; 16],
            interface: 0,
            cookie: NO_COOKIE,
        };
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.ask(family, NLM_F_REQUEST | NLM_F_DUMP, WITH_CONNECTION, any)?;
            while !self.take_list(room, &mut each)? {}
        }
        Ok(())
    }

    /// Takes one message with a list of sockets; whether it was the last.
    fn take_list(&self, room: &mut [u8], each: &mut impl FnMut(u32)) -> io::Result<bool> {
        let (_, len) = net::recv(&self.fd, &mut *room, RecvFlags::DONTWAIT)?;
        let mut rest = room.get(..len).unwrap_or_default();
        while let Ok((header, behind)) = Header::read_from_prefix(rest) {
            let octets = (header.len as usize).max(HEADER_LEN);
            // One that was left unread of an earlier list.
            let is_ours = header.sequence == self.sequence;
            if is_ours && header.flags & NLM_F_DUMP_INTR != 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match header.kind {
                DONE if is_ours => return Ok(true),
                ERROR if is_ours => {
                    let (error, _) = i32::read_from_prefix(behind).unwrap_or((0, &[]));
                    return Err(Errno::from_raw_os_error(-error).into());
                }
                BY_FAMILY if is_ours => {
                    let answer = Answer::read_from_prefix(behind);
                    let (answer, _) = answer.map_err(|_| io::ErrorKind::InvalidData)?;
                    if answer.inode != 0 {
                        each(answer.inode);
                    }
                }
                _ => {}
            }
            rest = rest.get(octets.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }

    /// The network namespace that it tells of, by the kernel's number; nothing where the kernel numbers none.
    pub fn network(&self) -> Option<u64> {
        crate::stream::network(std::os::fd::AsRawFd::as_raw_fd(&self.as_fd()))
    }

    fn ask(&mut self, family: i32, flags: u16, states: u32, id: SocketId) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = Request {
            header: Header {
                len: std::mem::size_of::<Request>() as u32,
                kind: BY_FAMILY,
                flags,
                sequence: self.sequence,
                port: 0,
            },
            family: family as u8,
            protocol: libc::IPPROTO_TCP as u8,
            extensions: 0,
            padding: 0,
            states,
            id,
        };
        net::send(&self.fd, request.as_bytes(), SendFlags::NOSIGNAL)?;
        Ok(())
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

impl AsFd for SockDiag {
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
    fn every_socket_with_a_connection_is_listed_and_no_other() {
        use std::os::fd::AsRawFd;
        // The child of a test beside this one would have the sockets a little longer.
        let name = "sock_diag::tests::every_socket_with_a_connection_is_listed_and_no_other";
        if !crate::alone::is_alone(name) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let many: Vec<_> = (0..500)
            .map(|_| {
                (
                    TcpStream::connect(to).unwrap(),
                    listener.accept().unwrap().0,
                )
            })
            .collect();
        let mut diag = SockDiag::open().unwrap();
        let mut room = vec![0; LIST_OCTETS];
        let mut look = || {
            let mut inodes = std::collections::HashSet::new();
            // Sockets come and go on the machine.
            while diag
                .each_connected_inode(&mut room, |inode| {
                    inodes.insert(inode);
                })
                .is_err()
            {}
            inodes
        };
        let inode = |fd: i32| crate::stream::inode(fd).unwrap() as u32;
        let ends = many
            .iter()
            .flat_map(|(client, server)| [client.as_raw_fd(), server.as_raw_fd()]);
        let wanted: Vec<u32> = ends.map(inode).collect();
        let listed = look();
        assert!(wanted.iter().all(|inode| listed.contains(inode)));
        assert!(!listed.contains(&inode(listener.as_raw_fd())));
        drop(many);
        let listed = look();
        assert!(!wanted.iter().any(|inode| listed.contains(inode)));
        assert_eq!(diag.network(), crate::stream::network(listener.as_raw_fd()));
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
