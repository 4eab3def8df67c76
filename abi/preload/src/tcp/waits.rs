//! Waits of a thread that cannot go on with a connection over DDP: in the C library's own calls, with nothing held. So
//! timeouts, signals and cancellation are what they were (decision 0029).

use std::ffi::{c_int, c_void};

use libc::{pollfd, size_t, ssize_t};
use weft_os::stream;
use weft_sockets::Errno;

use crate::calls;
use crate::edge::errno;
use crate::real::Real;

/// How long a Request is waited for between two looks, in milliseconds.
const WHILE_MS: c_int = 10;

/// How long a window is waited for that may stand behind what the program has not read, in milliseconds.
const MOMENT_MS: c_int = 1;

/// Waits in the C library's `send` as long as a send of an octet would, and sends nothing: the octet is at an address
/// that is never mapped, which the kernel looks at last. Gives what else the call failed with.
pub fn send_nothing(fd: c_int, flags: c_int) -> Option<Errno> {
    type Signature = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"send");
    listed!(REAL);
    const NOWHERE: *const c_void = std::ptr::without_provenance(8);
    let flags = flags & (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: nothing is read: the first page is never mapped.
    let result = unsafe { REAL.get()(fd, NOWHERE, 1, flags) };
    debug_assert!(result < 0);
    Some(errno()).filter(|errno| *errno != libc::EFAULT)
}

/// Waits in the C library's `recv` until so many octets are there, or the end, and takes none.
pub fn wait_to_receive(fd: c_int, octets: usize) -> Result<(), Errno> {
    const FLAGS: c_int = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: with MSG_TRUNC TCP copies nothing (tcp(7)).
    match unsafe { real_recv()(fd, std::ptr::null_mut(), octets, FLAGS) } {
        -1 => Err(errno()),
        _ => Ok(()),
    }
}

/// Waits in the C library's `recv` until more octets are there than are now, or the end, and takes none.
pub fn wait_for_more(fd: c_int) -> Result<(), Errno> {
    const FLAGS: c_int = libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC;
    // SAFETY: as above, however many they are.
    match unsafe { real_recv()(fd, std::ptr::null_mut(), stream::unread(fd) + 1, FLAGS) } {
        -1 => Err(errno()),
        _ => Ok(()),
    }
}

type Receive = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;

fn real_recv() -> Receive {
    static REAL: Real<Receive> = Real::new(c"recv");
    listed!(REAL);
    REAL.get()
}

/// Waits until the socket is ready, as long as its timeouts say, and no longer than to the next signal; the error that
/// the wait ended with.
pub fn wait_once(fd: c_int, events: i16) -> Option<Errno> {
    let option = match events {
        libc::POLLOUT => libc::SO_SNDTIMEO,
        _ => libc::SO_RCVTIMEO,
    };
    wait_ready(fd, events, option)
}

/// Waits until something comes that may let the peer have more, as long as a send may wait, and no longer than to the
/// next signal. It may stand behind octets that the program has not read: then for a moment.
pub fn wait_for_window(fd: c_int) -> Option<Errno> {
    if stream::unread(fd) == 0 {
        return wait_ready(fd, libc::POLLIN, libc::SO_SNDTIMEO);
    }
    // SAFETY: no entry.
    match unsafe { calls::poll(std::ptr::null_mut(), 0, MOMENT_MS) } {
        -1 => Some(errno()),
        _ => None,
    }
}

/// Waits until the socket is ready, as long as this timeout of it says.
fn wait_ready(fd: c_int, events: i16, option: c_int) -> Option<Errno> {
    let ms = match stream::timeout_ms(fd, option) {
        0 => -1,
        ms => ms.min(c_int::MAX as u64) as c_int,
    };
    let mut wait = pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one entry, which is ours.
    match unsafe { calls::poll(&mut wait, 1, ms) } {
        -1 => Some(errno()),
        0 => Some(libc::EAGAIN),
        _ => None,
    }
}

/// Waits a few milliseconds, or until something comes. A signal ends it too, and the caller looks again.
pub fn wait_a_while(fd: c_int) -> Option<Errno> {
    let mut wait = pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which is ours.
    let _ = unsafe { calls::poll(&mut wait, 1, WHILE_MS) };
    None
}
