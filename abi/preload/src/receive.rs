//! Receives, by every name there is.

use std::ffi::{c_int, c_uint, c_void};

use libc::{
    iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use weft_sockets::control;

use crate::edge::{buffer, buffers, caught, get};
use crate::mine::{mine, mine_or_file, Mine};
use crate::socket::{Beside, Socket};
use crate::stack::stack;

/// Octets of a message's control messages that are looked through for descriptors: the 253 that one message may carry
/// take 1028, and others may stand before them.
const CONTROL_OCTETS: usize = 2048;

hook!(fn recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => mine.receive(Ok(&buffer(data, len)), flags, Beside::Nothing, real),
    }
});

hook!(fn __recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => mine.receive(Ok(&buffer(data, len)), flags, Beside::Nothing, real),
    }
});

hook!(fn __recv_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        Some(mine) if len <= room => {
            mine.receive(Ok(&buffer(data, len)), flags, Beside::Nothing, real)
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
            mine.receive(Ok(&buffer(data, len)), flags, beside, real)
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
            mine.receive(Ok(&buffer(data, len)), flags, beside, real)
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
    let room = room.as_ref().map_err(|list| *list);
    mine.receive(room, flags, Beside::Message(at, message), real)
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
    each_descriptor(&message, |fd| caught((), || stack.arrived(fd)));
    octets
}

/// Does something with each descriptor that a message carries.
pub fn each_descriptor(message: &msghdr, act: impl FnMut(c_int)) {
    let mut control = [0; CONTROL_OCTETS];
    let len = message.msg_controllen.min(CONTROL_OCTETS);
    if len > 0 && crate::edge::get_octets(message.msg_control, &mut control[..len]) {
        control::descriptors(&control[..len]).for_each(act);
    }
}

hook!(fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int, real => {
    match mine(fd) {
        None => note_all_descriptors(real(), messages),
        Some(mine) => mine.receive_messages(messages, count, flags, timeout, real),
    }
});

/// The same of so many messages of a list.
fn note_all_descriptors(count: c_int, messages: *const mmsghdr) -> c_int {
    for number in 0..usize::try_from(count).unwrap_or(0) {
        note_descriptors(0, messages.wrapping_add(number).cast());
    }
    count
}

hook!(fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t, real => {
    match mine_or_file(fd) {
        None => real(),
        // The kernel answers a read of nothing without looking at the queue.
        Some(_) if len == 0 => real(),
        Some(mine) => mine.receive(Ok(&buffer(data, len)), 0, Beside::Nothing, real),
    }
});

hook!(fn __read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t, real => {
    match mine_or_file(fd) {
        Some(mine) if len > 0 => {
            mine.receive(Ok(&buffer(data, len)), 0, Beside::Nothing, real)
        }
        _ => real(),
    }
});

hook!(fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t) -> ssize_t, real => {
    match mine_or_file(fd) {
        Some(mine) if len > 0 && len <= room => {
            mine.receive(Ok(&buffer(data, len)), 0, Beside::Nothing, real)
        }
        _ => real(),
    }
});

/// The flag of a send or receive that says what this one of `pwritev2` and `preadv2` does.
pub fn flags_of(flags: c_int) -> c_int {
    match flags & libc::RWF_NOWAIT {
        0 => 0,
        _ => libc::MSG_DONTWAIT,
    }
}

fn read_list(
    mine: Mine,
    list: *const iovec,
    count: c_int,
    flags: c_int,
    real: impl FnOnce() -> isize,
) -> isize {
    let Ok(count) = usize::try_from(count) else {
        return real();
    };
    match buffers(list, count) {
        Ok(room) if room.octets() == 0 => real(),
        Ok(room) => mine.receive(Ok(&room), flags, Beside::Nothing, real),
        Err(list) => mine.receive(Err(list), flags, Beside::Nothing, real),
    }
}

hook!(fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t, real => {
    match mine_or_file(fd) {
        None => real(),
        Some(mine) => read_list(mine, list, count, 0, real),
    }
});

hook!(fn preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, real => {
    match mine_or_file(fd) {
        Some(mine) if at == -1 && flags & !libc::RWF_NOWAIT == 0 => {
            read_list(mine, list, count, flags_of(flags), real)
        }
        _ => real(),
    }
});

hook!(fn preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t, real => {
    match mine_or_file(fd) {
        Some(mine) if at == -1 && flags & !libc::RWF_NOWAIT == 0 => {
            read_list(mine, list, count, flags_of(flags), real)
        }
        _ => real(),
    }
});
