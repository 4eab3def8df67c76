//! Waiting for sockets, and setting their options, by the C library's names, as programs do.
//!
//! Everything else here keeps away from those names, because a sockets face interposes them. A program that is to be
//! measured under such a face has to use them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::dgram::{SOL_UDP, UDP_GRO, UDP_SEGMENT};

/// Gives a socket room for so many octets that come, or for as many as this user may have.
///
/// # Errors
/// What `setsockopt` says.
pub fn set_receive_buffer(fd: impl AsFd, octets: i32) -> io::Result<()> {
    // Past the limit of the machine only with privilege.
    set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, octets)
        .or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, octets))
}

/// Has the kernel cut what each send gives a UDP socket into datagrams of so many octets.
///
/// # Errors
/// What `setsockopt` says.
pub fn set_segment(fd: impl AsFd, octets: i32) -> io::Result<()> {
    set_option(fd, SOL_UDP, UDP_SEGMENT, octets)
}

/// Has the kernel give a UDP socket several datagrams in one receive.
///
/// # Errors
/// What `setsockopt` says.
pub fn set_coalescing(fd: impl AsFd) -> io::Result<()> {
    set_option(fd, SOL_UDP, UDP_GRO, 1)
}

/// Sets an option that is a number of 64 bits, as those of a sockets face are.
///
/// # Errors
/// What `setsockopt` says.
pub fn set_wide_option(fd: impl AsFd, level: i32, name: i32, value: u64) -> io::Result<()> {
    set_number(fd, level, name, &value)
}

/// Datagrams that one call sends or receives at most.
pub const MANY: usize = 64;

/// Sends `octets` to a connected UDP socket's peer as datagrams of `each` octets, the last one may be shorter, in one
/// `sendmmsg` of at most [`MANY`] of them. Gives how many left.
///
/// # Errors
/// What `sendmmsg` says where not even the first one left.
pub fn send_many(fd: impl AsFd, octets: &[u8], each: usize) -> io::Result<usize> {
    let mut parts = octets.chunks(each).map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let (mut parts, count) = take_many(&mut parts);
    let mut messages = messages(&mut parts[..count]);
    let (fd, list) = (fd.as_fd().as_raw_fd(), messages.as_mut_ptr());
    // SAFETY: each of the messages has one part of `octets`, which the call reads; all of them outlive it.
    let sent = unsafe { libc::sendmmsg(fd, list, count as u32, 0) };
    Ok(number(sent)? as usize)
}

/// Receives at most [`MANY`] datagrams in one `recvmmsg`, each into `each` octets of `buffer`; waits for the first one
/// alone. Gives the length of each, in their order.
///
/// # Errors
/// What `recvmmsg` says; `EAGAIN` when nothing came in the socket's timeout.
pub fn receive_many(
    fd: impl AsFd,
    buffer: &mut [u8],
    each: usize,
) -> io::Result<impl Iterator<Item = usize>> {
    let mut parts = buffer.chunks_exact_mut(each).map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    let (mut parts, count) = take_many(&mut parts);
    let mut messages = messages(&mut parts[..count]);
    let (fd, list) = (fd.as_fd().as_raw_fd(), messages.as_mut_ptr());
    let (flags, never) = (libc::MSG_WAITFORONE, std::ptr::null_mut());
    // SAFETY: each of the messages has one part of `buffer`, which nobody else has; all of them outlive the call.
    let came = unsafe { libc::recvmmsg(fd, list, count as u32, flags, never) };
    let came = number(came)? as usize;
    Ok(messages
        .into_iter()
        .take(came)
        .map(|message| message.msg_len as usize))
}

fn take_many(parts: &mut dyn Iterator<Item = libc::iovec>) -> ([libc::iovec; MANY], usize) {
    let mut taken = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; MANY];
    let mut count = 0;
    for (place, part) in taken.iter_mut().zip(parts) {
        *place = part;
        count += 1;
    }
    (taken, count)
}

/// A message of each part.
fn messages(parts: &mut [libc::iovec]) -> [libc::mmsghdr; MANY] {
    // SAFETY: all-zero is a value of the plain structure: no name, no parts, no ancillary data.
    let mut messages: [libc::mmsghdr; MANY] = unsafe { std::mem::zeroed() };
    for (message, part) in messages.iter_mut().zip(parts) {
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    messages
}

fn set_option(fd: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_number(fd, level, name, &value)
}

fn set_number<N: Copy>(fd: impl AsFd, level: i32, name: i32, value: &N) -> io::Result<()> {
    let value: *const N = value;
    let (fd, len) = (fd.as_fd().as_raw_fd(), size_of::<N>() as u32);
    // SAFETY: the C library reads one number, which outlives the call.
    number(unsafe { libc::setsockopt(fd, level, name, value.cast(), len) }).map(drop)
}

/// Waits until a descriptor can be read or has ended.
///
/// # Errors
/// `EINTR` when a signal handler ran.
pub fn poll_readable(fd: impl AsFd) -> io::Result<()> {
    poll(fd, libc::POLLIN)
}

/// Waits until a descriptor can be read or written, or has ended.
///
/// # Errors
/// `EINTR` when a signal handler ran.
pub fn poll_either(fd: impl AsFd) -> io::Result<()> {
    poll(fd, libc::POLLIN | libc::POLLOUT)
}

fn poll(fd: impl AsFd, events: i16) -> io::Result<()> {
    let mut entry = libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: the C library reads and writes one entry, which outlives the call.
    let found = unsafe { libc::poll(&mut entry, 1, -1) };
    number(found).map(drop)
}

/// An epoll set of descriptors that are waited for until they can be read, level-triggered.
#[derive(Debug)]
pub struct EpollSet(OwnedFd);

impl EpollSet {
    /// An empty set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<EpollSet> {
        // SAFETY: the call has no pointer.
        let fd = number(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new, and nobody else has it.
        Ok(EpollSet(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor, which [`EpollSet::wait`] names by `token`.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        let (set, member) = (self.0.as_raw_fd(), fd.as_fd().as_raw_fd());
        // SAFETY: the C library reads one event, which outlives the call.
        let done = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, member, &mut event) };
        number(done).map(drop)
    }

    /// Waits until one can be read or has ended, and tells its token; none when the time is over before (none: never).
    ///
    /// # Errors
    /// `EINTR` when a signal handler ran.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        let milliseconds = timeout.map_or(-1, |time| {
            i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
        });
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the C library writes one event, which outlives the call.
        let found = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, milliseconds) };
        Ok((number(found)? > 0).then_some(event.u64))
    }
}

/// What a call of the C library returned, or its errno.
fn number(returned: i32) -> io::Result<i32> {
    if returned < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(returned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_set_tells_which_of_its_members_can_be_read() {
        let (mut first, first_peer) = connection();
        let (mut second, second_peer) = connection();
        let set = EpollSet::new().unwrap();
        set.add(&first_peer, 1).unwrap();
        set.add(&second_peer, 2).unwrap();
        assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), None);
        second.write_all(b"x").unwrap();
        assert_eq!(set.wait(None).unwrap(), Some(2));
        first.write_all(b"x").unwrap();
        poll_readable(&first_peer).unwrap();
    }

    #[test]
    fn who_waits_for_either_goes_on_when_it_can_read_or_write() {
        let (mut first, mut peer) = connection();
        // Nothing has come, and there is room.
        poll_either(&first).unwrap();
        first.set_nonblocking(true).unwrap();
        while first.write(&[0; 1 << 16]).is_ok() {}
        // No room is left, and something has come.
        peer.write_all(b"x").unwrap();
        poll_either(&first).unwrap();
        poll_readable(&first).unwrap();
    }

    #[test]
    fn one_send_is_several_datagrams_and_one_receive_takes_them() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_receive_buffer(&receiver, 1 << 20).unwrap();
        set_coalescing(&receiver).unwrap();
        set_segment(&sender, 100).unwrap();
        let to = receiver.local_addr().unwrap();
        assert_eq!(sender.send_to(&[7; 250], to).unwrap(), 250);
        assert_eq!(receiver.recv(&mut [0; 1000]).unwrap(), 250);
        let stream = connection().0;
        assert!(set_coalescing(&stream).is_err());
    }

    #[test]
    fn one_call_sends_several_datagrams_and_one_receives_them() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        assert_eq!(send_many(&sender, b"aaaabbbbcc", 4).unwrap(), 3);
        let mut buffer = [0; 20];
        let lengths: Vec<usize> = receive_many(&receiver, &mut buffer, 5).unwrap().collect();
        assert_eq!(lengths, [4, 4, 2]);
        assert_eq!(&buffer[..12], b"aaaa\0bbbb\0cc");
        receiver
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let nothing = receive_many(&receiver, &mut buffer, 5).map(drop);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_descriptor_that_cannot_wait_is_an_error() {
        let set = EpollSet::new().unwrap();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(set.add(&file, 1).is_err());
    }
}
