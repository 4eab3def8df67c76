//! UDP sockets that the program owns, by descriptor: segmentation on the way out (UDP_SEGMENT), coalesced
//! receives (UDP_GRO), peeking, and facts. Raw system calls throughout; errors are errno values.

use crate::sys;

/// Level of the UDP options.
pub const SOL_UDP: i32 = 17;
/// Send as many datagrams as it takes, of so many octets each.
pub const UDP_SEGMENT: i32 = 103;
/// Receive datagrams of one flow coalesced.
pub const UDP_GRO: i32 = 104;
/// Octets of the longest socket address UDP has.
pub const NAME_LEN: usize = 28;

/// What a descriptor is, as far as datagrams are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The socket's number in the kernel, the same through every duplicate.
    pub inode: u64,
    /// Address family.
    pub family: i32,
}

/// What is, or was, at the head of the receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peeked {
    /// Octets of the datagram, or of the coalesced datagrams.
    pub octets: usize,
    /// Octets of the source address.
    pub name: usize,
    /// Octets of control messages.
    pub control: usize,
    /// `msg_flags`.
    pub flags: i32,
}

/// The UDP socket behind `fd`, if it is one.
pub fn facts(fd: i32) -> Option<Facts> {
    let is = |option, wanted| get_int(fd, libc::SOL_SOCKET, option) == Ok(wanted);
    if !is(libc::SO_TYPE, libc::SOCK_DGRAM) || !is(libc::SO_PROTOCOL, libc::IPPROTO_UDP) {
        return None;
    }
    let family = get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).ok()?;
    Some(Facts {
        inode: inode(fd)?,
        family,
    })
}

/// The number of what is open behind `fd` in the kernel, the same through every duplicate.
pub fn inode(fd: i32) -> Option<u64> {
    // SAFETY: all-zero is a value of the plain structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let addr = std::ptr::from_mut(&mut stat) as usize;
    // SAFETY: the kernel fills `stat`, whose layout is the system call's on 64-bit machines.
    unsafe { sys::call(libc::SYS_fstat, [fd as usize, addr, 0, 0, 0, 0]) }.ok()?;
    Some(stat.st_ino)
}

/// The number that an option of `fd` holds.
///
/// # Errors
/// The errno of `getsockopt`.
pub fn get_int(fd: i32, level: i32, option: i32) -> Result<i32, i32> {
    let mut value = 0i32;
    let mut len = 4u32;
    let args = [
        fd as usize,
        level as usize,
        option as usize,
        std::ptr::from_mut(&mut value) as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes at most four octets to `value`, and the length.
    unsafe { sys::call(libc::SYS_getsockopt, args) }?;
    Ok(value)
}

/// Sets an option of `fd` that holds a number.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn set_int(fd: i32, level: i32, option: i32, value: i32) -> Result<(), i32> {
    let args = [
        fd as usize,
        level as usize,
        option as usize,
        std::ptr::from_ref(&value) as usize,
        4,
        0,
    ];
    // SAFETY: the kernel reads four octets of `value`.
    unsafe { sys::call(libc::SYS_setsockopt, args) }.map(drop)
}

/// The address the socket is bound to, in `name`; gives its length.
pub fn local_name(fd: i32, name: &mut [u8; NAME_LEN]) -> usize {
    socket_name(libc::SYS_getsockname, fd, name)
}

/// Gives the socket a port of the kernel's choice if it has none, as its first send would; whether it has one.
pub fn have_port(fd: i32) -> bool {
    let mut name = [0; NAME_LEN];
    let len = local_name(fd, &mut name);
    let has_port = |name: &[u8; NAME_LEN]| name[2..4] != [0, 0];
    if len == 0 || has_port(&name) {
        return len != 0;
    }
    // The name of a socket that is bound to nothing is that of any address and any port.
    // SAFETY: the kernel reads `len` octets of `name`, which has them.
    let _ = unsafe {
        sys::call(
            libc::SYS_bind,
            [fd as usize, name.as_ptr() as usize, len, 0, 0, 0],
        )
    };
    local_name(fd, &mut name) != 0 && has_port(&name)
}

/// asm-generic/socket.h: the index of the interface that a socket is bound to.
pub const SO_BINDTOIFINDEX: i32 = 62;

/// Whether the program has chosen a way for what the socket sends: an interface that it is bound to, a mark by which
/// the machine's rules choose one, or how far it may get.
pub fn has_own_way(fd: i32) -> bool {
    /// Who sets fewer wants them to be few: no system begins with less than 64, and no path takes as many.
    const HOPS_MIN: i32 = 32;
    let is_set = |option| matches!(get_int(fd, libc::SOL_SOCKET, option), Ok(value) if value != 0);
    let are_few = |level, option| matches!(get_int(fd, level, option), Ok(0..HOPS_MIN));
    is_set(SO_BINDTOIFINDEX)
        || is_set(libc::SO_MARK)
        || are_few(libc::IPPROTO_IP, libc::IP_TTL)
        || are_few(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)
}

/// The address the socket is connected to, in `name`; gives its length, 0 if it is not connected.
pub fn peer_name(fd: i32, name: &mut [u8; NAME_LEN]) -> usize {
    socket_name(libc::SYS_getpeername, fd, name)
}

/// Puts a datagram into the queue of a socket that is connected, as if its peer had sent it: for a moment the socket is
/// connected to itself. What others send it meanwhile is lost, and what is sent from it comes back to it.
///
/// # Errors
/// The errno of `connect` or `send`; `ENOTCONN`: the socket is not connected. Where its peer cannot be reached any more
/// it stays connected to itself.
pub fn send_to_itself(fd: i32, octets: &[u8]) -> Result<(), i32> {
    let (mut own, mut peer) = ([0; NAME_LEN], [0; NAME_LEN]);
    let (own_len, peer_len) = (local_name(fd, &mut own), peer_name(fd, &mut peer));
    if own_len == 0 || peer_len == 0 {
        return Err(libc::ENOTCONN);
    }
    connect(fd, &own[..own_len])?;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let sent = send(fd, &[], octets, None, flags);
    connect(fd, &peer[..peer_len])?;
    sent.map(drop)
}

fn connect(fd: i32, name: &[u8]) -> Result<(), i32> {
    let args = [fd as usize, name.as_ptr() as usize, name.len(), 0, 0, 0];
    // SAFETY: the kernel reads the name.
    unsafe { sys::call(libc::SYS_connect, args) }.map(drop)
}

fn socket_name(call: i64, fd: i32, name: &mut [u8; NAME_LEN]) -> usize {
    let mut len = NAME_LEN as u32;
    let args = [
        fd as usize,
        name.as_mut_ptr() as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most NAME_LEN octets to `name`, and the length.
    match unsafe { sys::call(call, args) } {
        Ok(_) => (len as usize).min(NAME_LEN),
        Err(_) => 0,
    }
}

#[repr(C, align(8))]
struct SegmentControl {
    len: usize,
    level: i32,
    kind: i32,
    segment: u16,
    padding: [u8; 6],
}

/// Sends `octets`: as one datagram, or as datagrams of `segment` octets and a last one of what is left.
/// An empty `name` is the connected peer. `flags` as of `sendmsg`.
///
/// # Errors
/// The errno of `sendmsg`; nothing was sent then.
pub fn send(
    fd: i32,
    name: &[u8],
    octets: &[u8],
    segment: Option<u16>,
    flags: i32,
) -> Result<usize, i32> {
    let part = sys::IoVec {
        base: octets.as_ptr() as usize,
        len: octets.len(),
    };
    let control = SegmentControl {
        len: std::mem::offset_of!(SegmentControl, segment) + 2,
        level: SOL_UDP,
        kind: UDP_SEGMENT,
        segment: segment.unwrap_or(0),
        padding: [0; 6],
    };
    // SAFETY: all-zero is a value of the plain structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = std::ptr::from_ref(&part).cast_mut().cast();
    message.msg_iovlen = 1;
    if !name.is_empty() {
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = name.len() as u32;
    }
    if segment.is_some() {
        message.msg_control = std::ptr::from_ref(&control).cast_mut().cast();
        message.msg_controllen = std::mem::size_of::<SegmentControl>() as _;
    }
    let addr = std::ptr::from_ref(&message) as usize;
    // SAFETY: the message and all it points to outlive the call, which only reads them.
    unsafe {
        sys::call(
            libc::SYS_sendmsg,
            [fd as usize, addr, flags as usize, 0, 0, 0],
        )
    }
}

/// Copies what is at the head of the receive queue without taking it; does not wait.
///
/// # Errors
/// The errno of `recvmsg`.
pub fn peek(
    fd: i32,
    octets: &mut [u8],
    name: &mut [u8; NAME_LEN],
    control: &mut [u8],
) -> Result<Peeked, i32> {
    receive_with(fd, octets, name, control, libc::MSG_PEEK)
}

/// Takes what is at the head of the receive queue, without its control messages; does not wait. By `recvfrom`, which
/// takes two thirds of the time of `recvmsg` where nothing is there.
///
/// # Errors
/// The errno of `recvfrom`; nothing was taken then.
pub fn take(fd: i32, octets: &mut [u8], name: &mut [u8; NAME_LEN]) -> Result<Peeked, i32> {
    let mut name_len = NAME_LEN as libc::socklen_t;
    let args = [
        fd as usize,
        octets.as_mut_ptr() as usize,
        octets.len(),
        (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as usize,
        name.as_mut_ptr() as usize,
        std::ptr::from_mut(&mut name_len) as usize,
    ];
    // SAFETY: the kernel writes to the octets, the name and its length, which outlive the call.
    let len = unsafe { sys::call(libc::SYS_recvfrom, args)? };
    let is_cut = len > octets.len();
    Ok(Peeked {
        octets: len.min(octets.len()),
        name: (name_len as usize).min(NAME_LEN),
        control: 0,
        flags: if is_cut { libc::MSG_TRUNC } else { 0 },
    })
}

fn receive_with(
    fd: i32,
    octets: &mut [u8],
    name: &mut [u8; NAME_LEN],
    control: &mut [u8],
    flags: i32,
) -> Result<Peeked, i32> {
    let part = sys::IoVec {
        base: octets.as_mut_ptr() as usize,
        len: octets.len(),
    };
    // SAFETY: all-zero is a value of the plain structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = std::ptr::from_ref(&part).cast_mut().cast();
    message.msg_iovlen = 1;
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = NAME_LEN as u32;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len() as _;
    let octets = receive(fd, &mut message, flags | libc::MSG_DONTWAIT)?;
    Ok(Peeked {
        octets,
        name: (message.msg_namelen as usize).min(NAME_LEN),
        control: message.msg_controllen as usize,
        flags: message.msg_flags,
    })
}

/// Takes what is at the head of the receive queue and forgets it; does not wait.
///
/// # Errors
/// The errno of `recvmsg`; nothing was taken then.
pub fn discard(fd: i32) -> Result<(), i32> {
    // SAFETY: all-zero is a value of the plain structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    receive(fd, &mut message, libc::MSG_DONTWAIT).map(drop)
}

fn receive(fd: i32, message: &mut libc::msghdr, flags: i32) -> Result<usize, i32> {
    let addr = std::ptr::from_mut(message) as usize;
    // SAFETY: the message and the buffers it points to, which the callers own, outlive the call.
    unsafe {
        sys::call(
            libc::SYS_recvmsg,
            [fd as usize, addr, flags as usize, 0, 0, 0],
        )
    }
}

/// What of `events` (as of `poll`) holds for `fd`, waiting up to `ms` milliseconds.
pub fn ready(fd: i32, events: i16, ms: i32) -> i16 {
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let time = libc::timespec {
        tv_sec: (ms / 1000).into(),
        tv_nsec: i64::from(ms % 1000) * 1_000_000,
    };
    let args = [
        std::ptr::from_mut(&mut entry) as usize,
        1,
        std::ptr::from_ref(&time) as usize,
        0,
        8,
        0,
    ];
    // SAFETY: the kernel reads and writes the one entry and reads the time.
    match unsafe { sys::call(libc::SYS_ppoll, args) } {
        Ok(_) => entry.revents,
        Err(_) => 0,
    }
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub fn now() -> u64 {
    time_of(libc::CLOCK_MONOTONIC)
}

/// The same as of the kernel's last tick, some milliseconds ago at most: a fifth of the price.
#[inline]
pub fn now_coarse() -> u64 {
    time_of(libc::CLOCK_MONOTONIC_COARSE)
}

#[inline]
fn time_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`; async-signal-safe, and mostly without a system call.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connected_socket_is_sent_something_in_place_of_its_peer() {
        for (at, peer) in [
            ("0.0.0.0:0", "127.0.0.2:0"),
            ("127.0.0.3:0", "127.0.0.1:0"),
            ("[::]:0", "[::1]:0"),
        ] {
            let (socket, peer) = (UdpSocket::bind(at).unwrap(), UdpSocket::bind(peer).unwrap());
            let fd = socket.as_raw_fd();
            assert_eq!(send_to_itself(fd, b"bell"), Err(libc::ENOTCONN));
            socket.connect(peer.local_addr().unwrap()).unwrap();
            let ends = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
            assert_eq!(send_to_itself(fd, b"bell"), Ok(()));
            assert_eq!(ready(fd, libc::POLLIN, 1000), libc::POLLIN);
            let mut octets = [0; 8];
            assert_eq!(socket.recv(&mut octets).unwrap(), 4);
            assert_eq!(
                (socket.local_addr().unwrap(), socket.peer_addr().unwrap()),
                ends
            );
            peer.send_to(b"after", ends.0).unwrap();
            assert_eq!(
                socket.recv(&mut octets).unwrap(),
                5,
                "it hears its peer as before"
            );
        }
    }

    #[test]
    fn segments_arrive_as_datagrams_and_coalesced() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let octets: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
        assert_eq!(
            send(sender.as_raw_fd(), &[], &octets, Some(1000), 0),
            Ok(2500)
        );
        let mut buffer = [0; 4096];
        for len in [1000, 1000, 500] {
            assert_eq!(receiver.recv(&mut buffer).unwrap(), len);
        }
        set_int(receiver.as_raw_fd(), SOL_UDP, UDP_GRO, 1).unwrap();
        send(sender.as_raw_fd(), &[], &octets, Some(1000), 0).unwrap();
        // Loopback delivers within the send mostly, not always.
        receiver.peek(&mut buffer).unwrap();
        let (mut name, mut control) = ([0; NAME_LEN], [0; 256]);
        for _ in 0..2 {
            let peeked = peek(receiver.as_raw_fd(), &mut buffer, &mut name, &mut control).unwrap();
            assert_eq!((peeked.octets, peeked.name), (2500, 16));
            assert!(peeked.control > 0);
            assert_eq!(buffer[..2500], octets);
        }
        discard(receiver.as_raw_fd()).unwrap();
        assert_eq!(discard(receiver.as_raw_fd()), Err(libc::EAGAIN));
        sender.send(&octets[..7]).unwrap();
        receiver.peek(&mut buffer).unwrap();
        let mut take = || take(receiver.as_raw_fd(), &mut buffer, &mut name);
        assert_eq!(take().map(|taken| (taken.octets, taken.name)), Ok((7, 16)));
        assert_eq!(take().err(), Some(libc::EAGAIN));
    }

    #[test]
    fn a_port_is_had_once() {
        for (domain, octets) in [(libc::AF_INET, 16), (libc::AF_INET6, 28)] {
            // SAFETY: names no memory.
            let fd = unsafe { libc::socket(domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
            if fd < 0 {
                eprintln!("skipped: no sockets of family {domain}");
                continue;
            }
            let mut name = [0; NAME_LEN];
            assert_eq!(local_name(fd, &mut name), octets);
            assert_eq!(name[2..4], [0, 0], "it has none yet");
            assert!(have_port(fd));
            local_name(fd, &mut name);
            let port = [name[2], name[3]];
            assert!(port != [0, 0] && have_port(fd));
            local_name(fd, &mut name);
            assert_eq!([name[2], name[3]], port, "it stays");
            // SAFETY: nobody else has the descriptor.
            unsafe { libc::close(fd) };
            assert!(!have_port(fd));
        }
    }

    #[test]
    fn who_binds_to_an_interface_has_a_way_of_its_own() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!has_own_way(socket.as_raw_fd()));
        let loopback = 1;
        // By anybody, of a socket that is bound to none.
        if set_int(socket.as_raw_fd(), libc::SOL_SOCKET, 62, loopback).is_err() {
            eprintln!("skipped: the kernel binds no socket to an interface here");
            return;
        }
        assert!(has_own_way(socket.as_raw_fd()));
    }

    #[test]
    fn only_udp_sockets_are_udp_sockets() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let twin = udp.try_clone().unwrap();
        let facts_of = |socket: &UdpSocket| facts(socket.as_raw_fd()).unwrap();
        assert_eq!(facts_of(&udp), facts_of(&twin));
        assert_eq!(facts_of(&udp).family, libc::AF_INET);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(facts(tcp.as_raw_fd()), None);
        assert_eq!(facts(1_000_000), None);
        assert_eq!(facts(-1), None);
    }
}
