//! Socket options, names and states: what depends on data that waits here.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use crate::edge::{fail, get, put};
use crate::mine::{known, mine, Mine};
use crate::socket::Socket;

/// What waits on `fd` leaves before a call that concerns the socket as a whole.
fn flush(fd: c_int) {
    if let Some(mine) = known(fd) {
        mine.flush();
    }
}

hook!(fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, real => {
    flush(fd);
    real()
});

hook!(fn listen(fd: c_int, backlog: c_int) -> c_int, real => {
    flush(fd);
    real()
});

hook!(fn shutdown(fd: c_int, how: c_int) -> c_int, real => {
    if let Some(mine) = mine(fd) {
        mine.shutting_down(how);
    }
    real()
});

fn connecting(fd: c_int) {
    if let Some(mine) = mine(fd) {
        mine.connecting();
    }
}

hook!(fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, real => {
    connecting(fd);
    real()
});

hook!(fn __connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, real => {
    connecting(fd);
    real()
});

hook!(fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, real => {
    // The first datagram binds a socket.
    flush(fd);
    real()
});

hook!(fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, real => {
    real()
});

hook!(fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int, real => {
    if let Some(mine) = mine(fd) {
        mine.setting_option(level, option);
    }
    real()
});

hook!(fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int, real => {
    match known(fd) {
        Some(mine) if (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR) => {
            match give_error(mine, value, len) {
                Some(answer) => answer,
                None => real(),
            }
        }
        _ => real(),
    }
});

/// The error of a send that nobody waited for, as `SO_ERROR`; nothing if there is none.
fn give_error(mine: Mine, value: *mut c_void, len_at: *mut socklen_t) -> Option<c_int> {
    // Who has no room for the answer is refused by the kernel.
    let len = get(len_at)?;
    if len < 4 {
        return None;
    }
    let errno = mine.take_error()?;
    let written = put(value.cast::<c_int>(), errno).and_then(|()| put(len_at, 4));
    Some(match written {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    })
}

hook!(fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, real => {
    let Some(mine) = known(fd) else {
        return real();
    };
    match request {
        libc::FIONREAD => match mine.next_len() {
            Some(octets) => match put(argument.cast::<c_int>(), octets as c_int) {
                Ok(()) => 0,
                Err(errno) => fail(errno) as c_int,
            },
            None => real(),
        },
        libc::TIOCOUTQ => {
            mine.flush();
            real()
        }
        _ => real(),
    }
});
