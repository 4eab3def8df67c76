//! Who is at the other end of a Unix socket, as the kernel says.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::sys;

/// The process at the other end and its user, as it connected or began to listen (`SO_PEERCRED`). The number of a
/// process of another process namespace is 0, which rustix's type cannot have.
pub(crate) fn of_other_end(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut octets = size_of::<libc::ucred>() as libc::socklen_t;
    let args = [
        socket.as_fd().as_raw_fd() as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_PEERCRED as usize,
        std::ptr::from_mut(&mut peer) as usize,
        std::ptr::from_mut(&mut octets) as usize,
        0,
    ];
    // SAFETY: the kernel writes at most so many octets to `peer`, of three plain numbers, and how many to `octets`.
    unsafe { sys::call(libc::SYS_getsockopt, args) }.map_err(io::Error::from_raw_os_error)?;
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = of_other_end(&one).unwrap();
        assert_eq!(peer.pid as u32, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn what_is_no_unix_socket_has_nobody() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let errno = of_other_end(&file).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::ENOTSOCK));
    }
}
