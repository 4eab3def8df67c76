//! Datagrams in.

use std::ffi::{c_int, c_uint, c_void};

use libc::{
    iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use weft_os::dgram;
use weft_os::user::UserBuffers;
use weft_sockets::control;
use weft_sockets::receiver::{Ask, Datagram, CONTROL};
use weft_sockets::stack::Receive;
use weft_sockets::Errno;

use crate::edge::{
    buffer, buffers, caught, errno, fail, get, known, mine, put, put_octets, test_cancel, Mine,
};
use crate::real::Real;
use crate::stack::stack;

/// What the kernel takes of a list of messages.
const MOST_MESSAGES: c_uint = 1024;
/// Receives that are not about datagrams in the queue.
const ELSEWHERE: c_int = libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Where a datagram's address and control messages go.
#[derive(Clone, Copy)]
enum Beside {
    /// Nowhere.
    Nothing,
    /// The address, and its length in and out.
    Name(*mut sockaddr, *mut socklen_t),
    /// Both, by way of a message.
    Message(*mut msghdr, msghdr),
}

impl Mine {
    /// A receive in the kernel or out of what was coalesced. `real` is the same call of the C library.
    fn receive(
        self,
        room: Option<&UserBuffers>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let Mine { stack, record, fd } = self;
        let room = match room {
            Some(room) if flags & ELSEWHERE == 0 => room,
            _ => {
                caught((), || stack.flush(record));
                return real();
            }
        };
        match caught(Receive::Split, || stack.begin_receive(record, fd)) {
            Receive::Plain => {
                let octets = real();
                // A thread that is cancelled in the call leaves it begun, which is safe.
                let before = errno();
                caught((), || stack.end_receive(record, fd, octets >= 0));
                if octets < 0 {
                    fail(before);
                }
                octets
            }
            Receive::Split => self.split(room, flags, beside),
        }
    }

    fn split(self, room: &UserBuffers, flags: c_int, beside: Beside) -> isize {
        let Mine { stack, record, fd } = self;
        test_cancel();
        let ask = Ask {
            room: room.octets(),
            whole: flags & libc::MSG_TRUNC != 0,
            stay: flags & libc::MSG_PEEK != 0,
        };
        let mut empty_wait = false;
        let mut flushed = false;
        loop {
            let received = caught(Err(libc::EIO), || {
                stack.receive(record, fd, ask, |datagram| {
                    deliver(&datagram, room, flags, beside)
                })
            });
            match received {
                Ok(octets) => return octets as isize,
                Err(libc::EAGAIN) => {}
                Err(errno) => return fail(errno),
            }
            // What this process itself sent may be what it looks for.
            if !flushed && stack.anything_waits() {
                caught((), || stack.flush_all());
                flushed = true;
                continue;
            }
            if flags & libc::MSG_DONTWAIT != 0 {
                return fail(libc::EAGAIN);
            }
            // After SHUT_RD a wait ends at once with 0, as it does for an empty datagram.
            if empty_wait && dgram::ready(fd, libc::POLLRDHUP, 0) & libc::POLLRDHUP != 0 {
                return 0;
            }
            match wait(fd) {
                -1 => return -1,
                octets => empty_wait = octets == 0,
            }
        }
    }
}

/// Waits for a datagram as the C library's `recv` would: as long as the socket's options say, interrupted and
/// cancelled as that is; a descriptor that does not wait fails with EAGAIN.
fn wait(fd: c_int) -> isize {
    type Signature = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"recv");
    listed!(REAL);
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: room for no octets is asked for.
    unsafe { REAL.get()(fd, std::ptr::null_mut(), 0, flags) }
}

fn deliver(
    datagram: &Datagram<'_>,
    room: &UserBuffers,
    flags: c_int,
    beside: Beside,
) -> Result<usize, Errno> {
    room.write(datagram.octets).map_err(|_| libc::EFAULT)?;
    match beside {
        Beside::Nothing => {}
        Beside::Name(addr, len_at) => {
            if !addr.is_null() {
                let len = get(len_at).ok_or(libc::EFAULT)?;
                // Lengths are signed to the kernel.
                let len = c_int::try_from(len).map_err(|_| libc::EINVAL)?;
                let fits = datagram.name.len().min(len as usize);
                put_octets(addr.cast(), &datagram.name[..fits])?;
                put(len_at, datagram.name.len() as socklen_t)?;
            }
        }
        Beside::Message(at, message) => deliver_message(datagram, flags, at, message)?,
    }
    Ok(datagram.result)
}

fn deliver_message(
    datagram: &Datagram<'_>,
    flags: c_int,
    at: *mut msghdr,
    mut message: msghdr,
) -> Result<(), Errno> {
    if !message.msg_name.is_null() {
        let len = c_int::try_from(message.msg_namelen).map_err(|_| libc::EINVAL)?;
        let fits = datagram.name.len().min(len as usize);
        put_octets(message.msg_name, &datagram.name[..fits])?;
        message.msg_namelen = datagram.name.len() as socklen_t;
    }
    let mut room = [0; CONTROL];
    let mut len = message.msg_controllen.min(CONTROL);
    if message.msg_control.is_null() {
        len = 0;
    }
    let handed = control::hand_over(datagram.control, &mut room[..len]);
    put_octets(message.msg_control, &room[..handed.len])?;
    message.msg_controllen = handed.len as _;
    let set = |on: bool, flag: c_int| if on { flag } else { 0 };
    message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC
        | set(datagram.truncated, libc::MSG_TRUNC)
        | set(handed.truncated, libc::MSG_CTRUNC);
    put(at, message)
}

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
    let mut control = [0; CONTROL];
    let len = message.msg_controllen.min(CONTROL);
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
        Some(mine) => receive_messages(mine, messages, count, flags, timeout, || real() as isize),
    }
});

fn receive_messages(
    mine: Mine,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
    real: impl FnOnce() -> isize,
) -> c_int {
    let Mine { stack, record, fd } = mine;
    let plain = flags & ELSEWHERE != 0
        || caught(Receive::Split, || stack.begin_receive(record, fd)) == Receive::Plain;
    if plain {
        // The kernel waits for all of them, and some may be of this process.
        caught((), || stack.flush_all());
        let number = real();
        let before = errno();
        if flags & ELSEWHERE == 0 {
            caught((), || stack.end_receive(record, fd, number > 0));
        }
        if number < 0 {
            fail(before);
        }
        return number as c_int;
    }
    let limit = match deadline(timeout) {
        Ok(limit) => limit,
        Err(errno) => return fail(errno) as c_int,
    };
    let received = split_messages(mine, messages, count.min(MOST_MESSAGES), flags, limit);
    match limit {
        Some(limit) if received > 0 => match put(timeout, time_until(limit)) {
            Ok(()) => received,
            Err(errno) => fail(errno) as c_int,
        },
        _ => received,
    }
}

fn split_messages(
    mine: Mine,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: Option<u64>,
) -> c_int {
    let wait_for_one = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    for number in 0..count {
        let at = messages.wrapping_add(number as usize);
        let octets = split_message(mine, at.cast(), flags);
        let told = |result: c_int| if number > 0 { number as c_int } else { result };
        if octets < 0 {
            return told(-1);
        }
        let len_at = at
            .cast::<u8>()
            .wrapping_add(std::mem::offset_of!(mmsghdr, msg_len));
        if let Err(errno) = put(len_at.cast::<u32>(), octets as u32) {
            return told(fail(errno) as c_int);
        }
        if wait_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
        if limit.is_some_and(|limit| dgram::now() >= limit) {
            return number as c_int + 1;
        }
    }
    count as c_int
}

fn split_message(mine: Mine, at: *mut msghdr, flags: c_int) -> isize {
    let Some(message) = get(at) else {
        return fail(libc::EFAULT);
    };
    match buffers(message.msg_iov, message.msg_iovlen) {
        Some(room) => mine.split(&room, flags, Beside::Message(at, message)),
        None => fail(libc::EMSGSIZE),
    }
}

/// When a `recvmmsg` stops, nanoseconds of the monotonic clock. As with the kernel it is looked at after each
/// datagram only.
fn deadline(timeout: *const timespec) -> Result<Option<u64>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    let time = get(timeout).ok_or(libc::EFAULT)?;
    let valid = time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec);
    if !valid {
        return Err(libc::EINVAL);
    }
    let ns = (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64;
    Ok(Some(dgram::now().saturating_add(ns)))
}

/// What is left of a `recvmmsg`'s time, which the kernel writes back where datagrams came.
fn time_until(limit: u64) -> timespec {
    let left = limit.saturating_sub(dgram::now());
    timespec {
        tv_sec: (left / 1_000_000_000) as libc::time_t,
        tv_nsec: (left % 1_000_000_000) as libc::c_long,
    }
}

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

/// `FIONREAD`: octets of the next datagram, not of all that were coalesced with it. Nothing if the kernel is to
/// answer.
pub fn next_len(fd: c_int) -> Option<usize> {
    let Mine { stack, record, fd } = known(fd)?;
    caught(None, || stack.next_len(record, fd))
}
