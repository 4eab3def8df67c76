//! Receives, by every name there is.

use std::ffi::{c_int, c_uint, c_void};

use libc::{
    iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use weft_sockets::control;

use crate::edge::{buffer, buffers, caught, get};
use crate::mine::{known, mine, Mine};
use crate::socket::{Beside, Socket};
use crate::stack::stack;

/// Octets of a message's control messages that are looked through for descriptors.
const CONTROL_OCTETS: usize = 1024;

hook!(fn recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => mine.receive(Some(&buffer(data, len)), flags, Beside::Nothing, real),
    }
});

hook!(fn __recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => mine.receive(Some(&buffer(data, len)), flags, Beside::Nothing, real),
    }
});

hook!(fn __recv_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        Some(mine) if len <= room => {
            mine.receive(Some(&buffer(data, len)), flags, Beside::Nothing, real)
        }
        _ => real(),
    }
});

hook!(fn recvfrom(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => {
            let beside = Beside::Name(from, from_len);
            mine.receive(Some(&buffer(data, len)), flags, beside, real)
        }
    }
});

hook!(fn __recvfrom_chk(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t, real => {
    match mine(fd) {
        Some(mine) if len <= room => {
            let beside = Beside::Name(from, from_len);
            mine.receive(Some(&buffer(data, len)), flags, beside, real)
        }
        _ => real(),
    }
});

hook!(fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => note_descriptors(real(), message),
        Some(mine) => receive_message(mine, message, flags, real),
    }
});

fn receive_message(
    mine: Mine,
    at: *mut msghdr,
    flags: c_int,
    real: impl FnOnce() -> isize,
) -> isize {
    let Some(message) = get(at) else {
        return real();
    };
    let room = buffers(message.msg_iov, message.msg_iovlen);
    mine.receive(room.as_ref(), flags, Beside::Message(at, message), real)
}

/// Descriptors that came with a message have numbers of which something may have been known.
fn note_descriptors(octets: isize, message: *const msghdr) -> isize {
    if octets < 0 {
        return octets;
    }
    let Some(stack) = stack() else { return octets };
    let Some(message) = get(message) else {
        return octets;
    };
    let mut control = [0; CONTROL_OCTETS];
    let len = message.msg_controllen.min(CONTROL_OCTETS);
    if len > 0 && crate::edge::get_octets(message.msg_control, &mut control[..len]) {
        for fd in control::descriptors(&control[..len]) {
            caught((), || stack.arrived(fd));
        }
    }
    octets
}

hook!(fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => mine.receive_messages(messages, count, flags, timeout, real),
    }
});

hook!(fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t, real => {
    match known(fd) {
        None => real(),
        // The kernel answers a read of nothing without looking at the queue.
        Some(_) if len == 0 => real(),
        Some(mine) => mine.receive(Some(&buffer(data, len)), 0, Beside::Nothing, real),
    }
});

hook!(fn __read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t, real => {
    match known(fd) {
        Some(mine) if len > 0 => {
            mine.receive(Some(&buffer(data, len)), 0, Beside::Nothing, real)
        }
        _ => real(),
    }
});

hook!(fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t) -> ssize_t, real => {
    match known(fd) {
        Some(mine) if len > 0 && len <= room => {
            mine.receive(Some(&buffer(data, len)), 0, Beside::Nothing, real)
        }
        _ => real(),
    }
});

fn read_list(mine: Mine, list: *const iovec, count: c_int, real: impl FnOnce() -> isize) -> isize {
    let room = usize::try_from(count)
        .ok()
        .and_then(|count| buffers(list, count));
    match room {
        Some(room) if room.octets() == 0 => real(),
        room => mine.receive(room.as_ref(), 0, Beside::Nothing, real),
    }
}

hook!(fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t, real => {
    match known(fd) {
        None => real(),
        Some(mine) => read_list(mine, list, count, real),
    }
});

hook!(fn preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, real => {
    match known(fd) {
        Some(mine) if at == -1 && flags == 0 => read_list(mine, list, count, real),
        _ => real(),
    }
});

hook!(fn preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t, real => {
    match known(fd) {
        Some(mine) if at == -1 && flags == 0 => read_list(mine, list, count, real),
        _ => real(),
    }
});
