//! Socket options, names and states: what depends on datagrams that have gathered.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use crate::edge::{caught, fail, get, known, mine, put, Mine};
use crate::receive::next_len;

/// Sends what gathered on `fd` before a call that concerns the socket as a whole.
fn flush(fd: c_int) {
    if let Some(Mine { stack, record, .. }) = known(fd) {
        caught((), || stack.flush(record));
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
    if let Some(Mine { stack, record, .. }) = mine(fd) {
        match how {
            libc::SHUT_RD => caught((), || stack.flush(record)),
            _ => caught((), || stack.shutting_down(record)),
        }
    }
    real()
});

fn connecting(fd: c_int) {
    if let Some(Mine { stack, record, .. }) = mine(fd) {
        caught((), || stack.connecting(record));
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
    // The first datagram binds the socket.
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
    if let Some(Mine { stack, record, .. }) = mine(fd) {
        caught((), || {
            stack.flush(record);
            stack.option_set(record, level, option);
        });
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
    let Mine { stack, record, .. } = mine;
    // Who has no room for the answer is refused by the kernel.
    let len = get(len_at)?;
    if len < 4 {
        return None;
    }
    let errno = caught(None, || stack.take_error(record))?;
    let written = put(value.cast::<c_int>(), errno).and_then(|()| put(len_at, 4));
    Some(match written {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    })
}

hook!(fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, real => {
    if known(fd).is_none() {
        return real();
    }
    match request {
        libc::FIONREAD => match next_len(fd) {
            Some(octets) => match put(argument.cast::<c_int>(), octets as c_int) {
                Ok(()) => 0,
                Err(errno) => fail(errno) as c_int,
            },
            None => real(),
        },
        libc::TIOCOUTQ => {
            flush(fd);
            real()
        }
        _ => real(),
    }
});
