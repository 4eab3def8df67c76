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

/// Whether the process at the other end has this one's effective user; of a listener as it began to listen.
pub(crate) fn is_of_this_user(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    of_other_end(socket).is_ok_and(|peer| peer.uid == own && !may_be_anybody(own))
}

/// Users that have no number in this user namespace have all the same one here (`overflowuid`, user_namespaces(7)): a
/// process that has that number itself cannot tell them from its own user.
fn may_be_anybody(user: u32) -> bool {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let anybody = read("/proc/sys/kernel/overflowuid");
    anybody.trim().parse() == Ok(user) && !numbers_everybody(&read("/proc/self/uid_map"))
}

/// Whether a user namespace with this `uid_map` has a number for each user, as the first one has.
fn numbers_everybody(uid_map: &str) -> bool {
    const ALL: [&str; 3] = ["0", "0", "4294967295"];
    uid_map.split_whitespace().eq(ALL)
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
    fn who_may_be_anybody_is_nobodys_own() {
        let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap();
        let anybody = number.trim().parse().unwrap();
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        assert_eq!(may_be_anybody(anybody), !numbers_everybody(&map));
        assert!(!may_be_anybody(anybody - 1));
        let own = rustix::process::geteuid().as_raw();
        let is_own = is_of_this_user(&UnixStream::pair().unwrap().0);
        assert_eq!(is_own, !may_be_anybody(own));
    }

    #[test]
    fn the_first_user_namespace_numbers_everybody_and_a_part_is_not_all() {
        assert!(numbers_everybody("         0          0 4294967295\n"));
        for map in [
            "",
            "0 1000 1\n",
            "0 100000 65536\n",
            "0 0 65536\n65536 70000 10\n",
        ] {
            assert!(!numbers_everybody(map), "{map}");
        }
    }

    #[test]
    fn what_is_no_unix_socket_has_nobody() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let errno = of_other_end(&file).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::ENOTSOCK));
    }
}
