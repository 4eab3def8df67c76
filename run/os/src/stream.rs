//! TCP sockets that the program owns, by descriptor: facts, and how they are ended. Raw system calls throughout.

use crate::dgram::{get_int, local_name, peer_name, ready, set_int, NAME_LEN};
use crate::sys;

mod info;

pub use info::*;

pub use crate::dgram::inode;

/// Where a TCP socket stands, as far as it matters to who may still decide what its connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Neither connected nor listening (any more).
    Closed,
    /// It listens.
    Listening,
    /// It is connected or being connected, or a side has closed.
    Connected,
}

/// The inode of the TCP socket behind `fd`, if it is one: over IPv4 or IPv6, and not of Multipath TCP.
pub fn tcp_inode(fd: i32) -> Option<u64> {
    let get = |option| get_int(fd, libc::SOL_SOCKET, option).ok();
    let is_tcp = get(libc::SO_TYPE)? == libc::SOCK_STREAM
        && get(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP
        && is_internet(get(libc::SO_DOMAIN)?);
    is_tcp.then(|| inode(fd)).flatten()
}

/// Whether the family is that of IPv4 or IPv6.
pub fn is_internet(family: i32) -> bool {
    [libc::AF_INET, libc::AF_INET6].contains(&family)
}

/// Where the TCP socket behind `fd` stands; nothing if it is none.
pub fn state(fd: i32) -> Option<State> {
    // RFC 9293 names the states, include/net/tcp_states.h of Linux numbers them.
    const TCP_CLOSE: u8 = 7;
    const TCP_LISTEN: u8 = 10;
    // The state is the first octet of the answer.
    let [state, ..] = get_int(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
        .ok()?
        .to_ne_bytes();
    Some(match state {
        TCP_CLOSE => State::Closed,
        TCP_LISTEN => State::Listening,
        _ => State::Connected,
    })
}

/// The network namespace of the socket behind `fd`, by the kernel's number; nothing where the kernel numbers none
/// (before 5.14).
pub fn network(fd: i32) -> Option<u64> {
    // include/uapi/asm-generic/socket.h
    const SO_NETNS_COOKIE: i32 = 71;
    let mut value = 0u64;
    let mut len = std::mem::size_of_val(&value) as u32;
    let args = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        SO_NETNS_COOKIE as usize,
        std::ptr::from_mut(&mut value) as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes as many octets as `len` says to `value`, and the length.
    unsafe { sys::call(libc::SYS_getsockopt, args) }.ok()?;
    (value != 0).then_some(value)
}

/// Whether the program has asked the kernel to count octets of the socket `fd` for it: those whose pages a send without
/// copies is done with (`SO_ZEROCOPY`), or those that a look passes over (`SO_PEEK_OFF`).
pub fn counts_for_program(fd: i32) -> bool {
    let get = |option| get_int(fd, libc::SOL_SOCKET, option);
    get(libc::SO_ZEROCOPY).is_ok_and(|value| value != 0)
        || get(libc::SO_PEEK_OFF).is_ok_and(|value| value >= 0)
}

/// Ends the sending direction; the peer reads the end once it has read everything.
pub fn shut_down(fd: i32) {
    let args = [fd as usize, libc::SHUT_WR as usize, 0, 0, 0, 0];
    // SAFETY: names no memory.
    let _ = unsafe { sys::call(libc::SYS_shutdown, args) };
}

/// Ends the receiving direction.
pub fn shut_receiving_down(fd: i32) {
    let args = [fd as usize, libc::SHUT_RD as usize, 0, 0, 0, 0];
    // SAFETY: names no memory.
    let _ = unsafe { sys::call(libc::SYS_shutdown, args) };
}

/// Begins to connect and does not wait; whether the connection stands already. The name is a `sockaddr`.
///
/// The socket does not wait meanwhile, which other threads and processes that have it can see.
///
/// # Errors
/// The errno of `connect`, but for `EINPROGRESS`.
pub fn begin_to_connect(fd: i32, name: &[u8]) -> Result<bool, i32> {
    let waits = set_waits(fd, false);
    let args = [fd as usize, name.as_ptr() as usize, name.len(), 0, 0, 0];
    // SAFETY: the kernel reads the name.
    let begun = unsafe { sys::call(libc::SYS_connect, args) };
    if waits {
        set_waits(fd, true);
    }
    match begun {
        Ok(_) => Ok(true),
        Err(libc::EINPROGRESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Calls on the socket wait from now on, or do not; whether they did.
fn set_waits(fd: i32, waits: bool) -> bool {
    let call = |command: i32, flags: i32| {
        let args = [fd as usize, command as usize, flags as usize, 0, 0, 0];
        // SAFETY: names no memory.
        unsafe { sys::call(libc::SYS_fcntl, args) }.unwrap_or_default() as i32
    };
    let flags = call(libc::F_GETFL, 0);
    let did = flags & libc::O_NONBLOCK == 0;
    if waits != did {
        call(libc::F_SETFL, flags ^ libc::O_NONBLOCK);
    }
    did
}

/// Breaks the connection off: the peer gets an RST, and the socket is none any more. The descriptor stays.
pub fn reset(fd: i32) {
    let nobody = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as u16,
        sa_data: [0; 14],
    };
    let addr = std::ptr::from_ref(&nobody) as usize;
    let args = [fd as usize, addr, std::mem::size_of_val(&nobody), 0, 0, 0];
    // SAFETY: the kernel reads the name.
    let _ = unsafe { sys::call(libc::SYS_connect, args) };
}

/// Whether the socket takes nothing. Where it does not, its epolls are told by an edge when it does again, as after any
/// send that found no room.
///
/// # Errors
/// The socket's own, which the kernel tells once.
pub fn is_full(fd: i32) -> Result<bool, i32> {
    // The first page is never mapped, and the kernel looks at the octets last.
    const NOWHERE: usize = 8;
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: nothing is read.
    match unsafe { sys::call(libc::SYS_sendto, [fd as usize, NOWHERE, 1, flags, 0, 0]) } {
        Err(libc::EAGAIN) => Ok(true),
        Err(libc::EFAULT) | Ok(_) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes so many octets from the socket and throws them away; gives how many there were, 0 at the end of the stream.
///
/// # Errors
/// The errno of `recv`, which does not wait.
pub fn discard(fd: i32, octets: usize) -> Result<usize, i32> {
    let flags = (libc::MSG_TRUNC | libc::MSG_DONTWAIT) as usize;
    // SAFETY: with this flag TCP writes nothing (tcp(7)).
    unsafe { sys::call(libc::SYS_recvfrom, [fd as usize, 0, octets, flags, 0, 0]) }
}

/// Copies what the socket has next and leaves it there; gives how many octets, 0 at the end of the stream.
///
/// # Errors
/// The errno of `recv`, which does not wait.
pub fn peek(fd: i32, room: &mut [u8]) -> Result<usize, i32> {
    receive(fd, room, libc::MSG_PEEK)
}

/// Takes what the socket has next; gives how many octets, 0 at the end of the stream.
///
/// # Errors
/// The errno of `recv`, which does not wait.
pub fn take(fd: i32, room: &mut [u8]) -> Result<usize, i32> {
    receive(fd, room, 0)
}

/// Gives octets to the socket; gives how many it took. `flags` as of `send`. No call sends SIGPIPE.
///
/// # Errors
/// The errno of `send`, which does not wait.
pub fn give(fd: i32, octets: &[u8], flags: i32) -> Result<usize, i32> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let args = [
        fd as usize,
        octets.as_ptr() as usize,
        octets.len(),
        flags as usize,
        0,
        0,
    ];
    // SAFETY: the kernel reads `octets`.
    unsafe { sys::call(libc::SYS_sendto, args) }
}

fn receive(fd: i32, room: &mut [u8], flags: i32) -> Result<usize, i32> {
    let flags = (flags | libc::MSG_DONTWAIT) as usize;
    let args = [
        fd as usize,
        room.as_mut_ptr() as usize,
        room.len(),
        flags,
        0,
        0,
    ];
    // SAFETY: the kernel writes to `room` only, and no more than it holds.
    unsafe { sys::call(libc::SYS_recvfrom, args) }
}

/// For how many seconds a close of the socket waits, and after 0 resets; nothing where it does neither (`SO_LINGER`).
pub fn linger(fd: i32) -> Option<u32> {
    let mut value = libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    let mut len = std::mem::size_of_val(&value) as u32;
    let args = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_LINGER as usize,
        std::ptr::from_mut(&mut value) as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes as many octets as `len` says to `value`, and the length.
    unsafe { sys::call(libc::SYS_getsockopt, args) }.ok()?;
    (value.l_onoff != 0).then_some(value.l_linger.max(0).cast_unsigned())
}

/// How long a call on the socket waits, in milliseconds and at least one; 0 where it waits for ever (`SO_SNDTIMEO`,
/// `SO_RCVTIMEO`).
pub fn timeout_ms(fd: i32, option: i32) -> u64 {
    let mut time = [0i64; 2];
    let mut len = std::mem::size_of_val(&time) as u32;
    let args = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        option as usize,
        time.as_mut_ptr() as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes a `timeval` of two 64-bit numbers, and the length.
    if unsafe { sys::call(libc::SYS_getsockopt, args) }.is_err() || time == [0; 2] {
        return 0;
    }
    let [seconds, us] = time.map(|number| u64::try_from(number).unwrap_or(0));
    (seconds.saturating_mul(1000) + us.div_ceil(1000)).max(1)
}

/// Octets that the socket has received and nobody has read.
pub fn unread(fd: i32) -> usize {
    count_of(fd, libc::FIONREAD)
}

/// Octets that were sent and that the peer has not acknowledged.
pub fn unacknowledged(fd: i32) -> usize {
    count_of(fd, libc::TIOCOUTQ)
}

/// Octets that were sent and have not left.
pub fn not_sent(fd: i32) -> usize {
    // include/uapi/linux/sockios.h
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    count_of(fd, SIOCOUTQNSD)
}

/// Whether the peer has ended its direction, or the connection is over.
pub fn has_ended(fd: i32) -> bool {
    const ENDED: i16 = libc::POLLRDHUP;
    ready(fd, ENDED, 0) & (ENDED | libc::POLLHUP | libc::POLLERR) != 0
}

fn count_of(fd: i32, request: libc::Ioctl) -> usize {
    let mut count = 0i32;
    let addr = std::ptr::from_mut(&mut count) as usize;
    // SAFETY: the kernel writes an int.
    let result = unsafe {
        sys::call(
            libc::SYS_ioctl,
            [fd as usize, request as usize, addr, 0, 0, 0],
        )
    };
    result.map_or(0, |_| usize::try_from(count).unwrap_or(0))
}

/// Whether the two ends of the connection are one socket.
pub fn is_its_own_peer(fd: i32) -> bool {
    let (mut own, mut peer) = ([0; NAME_LEN], [0; NAME_LEN]);
    let (own_len, peer_len) = (local_name(fd, &mut own), peer_name(fd, &mut peer));
    peer_len > 0 && own[..own_len] == peer[..peer_len]
}

/// Whether the connection of the TCP socket behind `fd` is made, whatever has been closed since.
pub fn is_established(fd: i32) -> bool {
    const TCP_SYN_SENT: u8 = 2;
    const TCP_SYN_RECV: u8 = 3;
    let info = get_int(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
    info.is_ok_and(|info| ![TCP_SYN_SENT, TCP_SYN_RECV].contains(&info.to_ne_bytes()[0]))
}

/// Sends no more than so many octets a second from now on (`SO_MAX_PACING_RATE`, socket(7)), and takes only some that
/// it cannot send yet (`TCP_NOTSENT_LOWAT`, tcp(7)): whoever gives them is to notice the rate.
pub fn set_pacing_rate(fd: i32, octets: u64) {
    const UNSENT_MAX: i32 = 64 * 1024;
    let rate = i32::try_from(octets).unwrap_or(i32::MAX);
    let _ = set_int(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate);
    let _ = set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{ipproto, socket, AddressFamily, SocketType};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    #[test]
    fn only_tcp_sockets_are_tcp_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let twin = listener.try_clone().unwrap();
        let inode = tcp_inode(listener.as_raw_fd());
        assert!(inode.is_some());
        assert_eq!(inode, tcp_inode(twin.as_raw_fd()));
        if let Ok(six) = socket(AddressFamily::INET6, SocketType::STREAM, None) {
            assert!(tcp_inode(six.as_raw_fd()).is_some());
        }
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        for other in [udp.as_raw_fd(), file.as_raw_fd(), unix.as_raw_fd(), -1] {
            assert_eq!(tcp_inode(other), None);
            assert_eq!(state(other), None);
        }
        for protocol in [ipproto::MPTCP, ipproto::SCTP] {
            if let Ok(other) = socket(AddressFamily::INET, SocketType::STREAM, Some(protocol)) {
                assert_eq!(tcp_inode(other.as_raw_fd()), None);
            }
        }
    }

    #[test]
    fn a_socket_stands_where_its_life_has_brought_it() {
        let fresh = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(state(fresh.as_raw_fd()), Some(State::Closed));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(state(listener.as_raw_fd()), Some(State::Listening));
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        for end in [client.as_raw_fd(), server.as_raw_fd()] {
            assert_eq!(state(end), Some(State::Connected));
        }
    }

    #[test]
    fn what_was_carried_is_counted_whatever_is_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let (one, other) = (client.as_raw_fd(), server.as_raw_fd());
        let of = |fd| counts(fd).unwrap().unwrap();
        let (sent, received) = (of(one).sent, of(other).received);
        client.write_all(&[7; 100_000]).unwrap();
        server.read_exact(&mut [0; 70_000]).unwrap();
        assert_eq!(of(one).sent - sent, 100_000);
        assert_eq!(of(other).received - received, 70_000);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(ready(other, libc::POLLRDHUP, 1000), libc::POLLRDHUP);
        assert_eq!(of(other).received - received, 70_000);
        server.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(of(other).received - received, 100_000);
    }

    #[test]
    fn what_was_received_is_counted_of_a_connection_that_was_reset() {
        for has_ended in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let fd = server.as_raw_fd();
            let received = counts(fd).unwrap().unwrap().received;
            client.write_all(&[7; 100_000]).unwrap();
            if has_ended {
                client.shutdown(std::net::Shutdown::Write).unwrap();
            }
            reset(client.as_raw_fd());
            assert_eq!(state_of_reset(fd), Some(State::Closed));
            for taken in [0, 70_000, 30_000] {
                server.read_exact(&mut vec![0; taken]).unwrap();
                let counted = counts(fd).map(|counts| counts.unwrap().received - received);
                let all = 100_000 - unread(fd) as u32;
                // All was taken, and the reset is what is left to be told.
                let wanted = match all < 100_000 || has_ended {
                    true => Ok(all),
                    false => Err(libc::ECONNRESET),
                };
                assert_eq!(counted, wanted, "{has_ended}");
            }
        }
    }

    fn state_of_reset(fd: i32) -> Option<State> {
        ready(fd, libc::POLLHUP, 1000);
        state(fd)
    }
}
