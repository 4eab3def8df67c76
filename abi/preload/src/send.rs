//! Sends, by every name there is.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t, ssize_t};
use weft_os::dgram::NAME_LEN;
use weft_os::user::UserBuffers;
use weft_sockets::verdict::Verdict;

use crate::edge::{buffer, buffers, fail, get, get_octets, put, settle};
use crate::mine::{known, mine, Mine};
use crate::socket::Socket;

/// What the kernel takes of a list of messages.
const MOST_MESSAGES: c_uint = 1024;

impl Mine {
    fn send_to(self, data: &UserBuffers, flags: c_int, addr: *const c_void, len: usize) -> Verdict {
        if addr.is_null() {
            return self.send(None, data, flags);
        }
        let mut octets = [0; NAME_LEN];
        match octets.get_mut(..len) {
            Some(name) if !name.is_empty() => {
                if get_octets(addr, name) {
                    self.send(Some(name), data, flags)
                } else {
                    self.make_way(flags)
                }
            }
            _ => self.make_way(flags),
        }
    }

    fn send_message(self, message: Option<msghdr>, flags: c_int) -> Verdict {
        let Some(message) = message else {
            return Verdict::Kernel;
        };
        // Control messages are about one send: the kernel's.
        if message.msg_controllen != 0 {
            return self.make_way(flags);
        }
        match buffers(message.msg_iov, message.msg_iovlen) {
            Some(data) => {
                self.send_to(&data, flags, message.msg_name, message.msg_namelen as usize)
            }
            None => self.make_way(flags),
        }
    }
}

/// Makes way on `fd` if it is ours.
fn make_way(fd: c_int) -> Verdict {
    known(fd).map_or(Verdict::Kernel, |mine| mine.make_way(0))
}

hook!(fn send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => settle(mine.send(None, &buffer(data, len), flags), real),
    }
});

hook!(fn __send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => settle(mine.send(None, &buffer(data, len), flags), real),
    }
});

hook!(fn sendto(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => {
            let verdict = mine.send_to(&buffer(data, len), flags, to.cast(), to_len as usize);
            settle(verdict, real)
        }
    }
});

hook!(fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => settle(mine.send_message(get(message), flags), real),
    }
});

hook!(fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => send_messages(fd, mine, messages, count, flags),
    }
});

hook!(fn __sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, real => {
    match mine(fd) {
        None => real(),
        Some(mine) => send_messages(fd, mine, messages, count, flags),
    }
});

/// One by one; as with the kernel, an error counts only if it meets the first.
fn send_messages(
    fd: c_int,
    mine: Mine,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    for number in 0..count.min(MOST_MESSAGES) {
        let at = messages.wrapping_add(number as usize);
        let place = at.cast::<msghdr>();
        let octets = settle(mine.send_message(get(place), flags), || {
            // SAFETY: the program's own message, one of the list it hands over.
            unsafe { sendmsg_real(fd, place, flags) }
        });
        if octets < 0 {
            return if number > 0 { number as c_int } else { -1 };
        }
        let len_at = at
            .cast::<u8>()
            .wrapping_add(std::mem::offset_of!(mmsghdr, msg_len));
        if let Err(errno) = put(len_at.cast::<u32>(), octets as u32) {
            return if number > 0 {
                number as c_int
            } else {
                fail(errno) as c_int
            };
        }
    }
    count.min(MOST_MESSAGES) as c_int
}

/// The C library's `sendmsg`.
unsafe fn sendmsg_real(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Signature = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
    static REAL: crate::real::Real<Signature> = crate::real::Real::new(c"sendmsg");
    listed!(REAL);
    // SAFETY: the caller vouches for the message.
    unsafe { REAL.get()(fd, message, flags) }
}

hook!(fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t, real => {
    match known(fd) {
        None => real(),
        Some(mine) => settle(mine.send(None, &buffer(data, len), 0), real),
    }
});

hook!(fn __write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t, real => {
    match known(fd) {
        None => real(),
        Some(mine) => settle(mine.send(None, &buffer(data, len), 0), real),
    }
});

fn write_list(mine: Mine, list: *const iovec, count: c_int) -> Verdict {
    match usize::try_from(count)
        .ok()
        .and_then(|count| buffers(list, count))
    {
        Some(data) => mine.send(None, &data, 0),
        None => mine.make_way(0),
    }
}

hook!(fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t, real => {
    match known(fd) {
        None => real(),
        Some(mine) => settle(write_list(mine, list, count), real),
    }
});

hook!(fn pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, real => {
    match known(fd) {
        Some(mine) if at == -1 && flags == 0 => settle(write_list(mine, list, count), real),
        Some(mine) => settle(mine.make_way(0), real),
        None => real(),
    }
});

hook!(fn pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t, real => {
    match known(fd) {
        Some(mine) if at == -1 && flags == 0 => settle(write_list(mine, list, count), real),
        Some(mine) => settle(mine.make_way(0), real),
        None => real(),
    }
});

hook!(fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t, real => {
    settle(make_way(out), real)
});

hook!(fn sendfile64(out: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t, real => {
    settle(make_way(out), real)
});

hook!(fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t, real => {
    settle(make_way(to), real)
});
