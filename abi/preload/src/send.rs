//! Sends, by every name there is.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t, ssize_t};
use weft_os::dgram::NAME_LEN;
use weft_os::user::UserBuffers;
use weft_sockets::verdict::Verdict;

use crate::calls;
use crate::edge::{buffer, buffers, caught, fail, get, get_octets, name_of, put, settle, NoName};
use crate::mine::{mine, mine_or_file, Mine};
use crate::receive::{each_descriptor, flags_of};
use crate::socket::{FileOctets, Socket};
use crate::stack::stack;

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
        if message.msg_controllen != 0 {
            if let Some(verdict) = self.send_with_control(&message, flags) {
                return verdict;
            }
        }
        match buffers(message.msg_iov, message.msg_iovlen) {
            Ok(data) => self.send_to(&data, flags, message.msg_name, message.msg_namelen as usize),
            Err(list) => {
                let mut octets = [0; NAME_LEN];
                match name_of(&message, &mut octets) {
                    Ok(to) => self.send_list(to, list, flags),
                    Err(NoName) => self.make_way(flags),
                }
            }
        }
    }
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
        None => {
            note_passed(message);
            real()
        }
        Some(mine) => settle(mine.send_message(get(message), flags), real),
    }
});

/// Descriptors that a message passes on are somebody else's too from then on.
pub fn note_passed(message: *const msghdr) {
    let Some(stack) = stack() else { return };
    if let Some(message) = get(message) {
        each_descriptor(&message, |fd| caught((), || stack.passing(fd)));
    }
}

/// The same of each message of a list.
pub fn note_all_passed(messages: *const mmsghdr, count: c_uint) {
    for number in 0..count.min(MOST_MESSAGES) {
        note_passed(messages.wrapping_add(number as usize).cast());
    }
}

hook!(fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, real => {
    match mine(fd) {
        Some(mine) if mine.sends_one_by_one(flags) => {
            send_messages(fd, mine, messages, count, flags)
        }
        Some(_) => real(),
        None => {
            note_all_passed(messages, count);
            real()
        }
    }
});

hook!(fn __sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, real => {
    match mine(fd) {
        Some(mine) if mine.sends_one_by_one(flags) => {
            send_messages(fd, mine, messages, count, flags)
        }
        Some(_) => real(),
        None => {
            note_all_passed(messages, count);
            real()
        }
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
            unsafe { calls::sendmsg(fd, place, flags) }
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
        // What follows does not overtake what is left of this one.
        if (octets as usize) < octets_of(place) {
            return number as c_int + 1;
        }
    }
    count.min(MOST_MESSAGES) as c_int
}

/// Octets of a message.
fn octets_of(message: *const msghdr) -> usize {
    let list = get(message).map(|message| (message.msg_iov, message.msg_iovlen));
    let (at, count) = list.unwrap_or((std::ptr::null_mut(), 0));
    let parts = (0..count).map_while(|number| get(at.wrapping_add(number)));
    parts.map(|part| part.iov_len).sum()
}

hook!(fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t, real => {
    match mine_or_file(fd) {
        None => real(),
        Some(mine) => settle(mine.send(None, &buffer(data, len), 0), real),
    }
});

hook!(fn __write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t, real => {
    match mine_or_file(fd) {
        None => real(),
        Some(mine) => settle(mine.send(None, &buffer(data, len), 0), real),
    }
});

fn write_list(mine: Mine, list: *const iovec, count: c_int, flags: c_int) -> Verdict {
    let Ok(count) = usize::try_from(count) else {
        return mine.make_way(0);
    };
    match buffers(list, count) {
        // Unlike a message of no octets, it is no datagram.
        Ok(data) if data.octets() == 0 && !mine.is_framed() => Verdict::Done(Ok(0)),
        Ok(data) => mine.send(None, &data, flags),
        Err(list) => mine.send_list(None, list, flags),
    }
}

hook!(fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t, real => {
    match mine_or_file(fd) {
        None => real(),
        Some(mine) => settle(write_list(mine, list, count, 0), real),
    }
});

/// `pwritev2` of a socket of ours.
fn write_at(mine: Mine, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> Verdict {
    // A socket has no places, and most flags say nothing to it: the kernel answers.
    let is_plain = at == -1 && (flags & !libc::RWF_NOWAIT == 0 || mine.is_framed());
    match is_plain {
        true => write_list(mine, list, count, flags_of(flags)),
        false => mine.make_way(0),
    }
}

hook!(fn pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, real => {
    match mine_or_file(fd) {
        Some(mine) => settle(write_at(mine, list, count, at, flags), real),
        None => real(),
    }
});

hook!(fn pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t, real => {
    match mine_or_file(fd) {
        Some(mine) => settle(write_at(mine, list, count, at, flags), real),
        None => real(),
    }
});

/// Octets of a file, as `sendfile` names them.
fn file_octets(fd: c_int, offset: *mut off64_t, most: size_t) -> FileOctets {
    FileOctets {
        fd,
        offset,
        most,
        splice: None,
    }
}

hook!(fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t, real => {
    match mine_or_file(out) {
        None => real(),
        Some(mine) => mine.send_file(file_octets(from, offset, count), real),
    }
});

hook!(fn sendfile64(out: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t, real => {
    match mine_or_file(out) {
        None => real(),
        Some(mine) => mine.send_file(file_octets(from, offset, count), real),
    }
});

hook!(fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t, real => {
    // One end is a pipe; an offset of a pipe or of a socket is the kernel's to refuse.
    if !from_offset.is_null() || !to_offset.is_null() {
        return real();
    }
    if let Some(mine) = mine_or_file(to) {
        let octets = FileOctets {
            splice: Some(flags),
            ..file_octets(from, std::ptr::null_mut(), len)
        };
        return mine.send_file(octets, real);
    }
    match mine_or_file(from) {
        None => real(),
        Some(mine) => mine.receive_to_pipe(to, len, flags, real),
    }
});
