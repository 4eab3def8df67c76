//! `recvmmsg` as so many receives, with the kernel's rules: an error counts only if it meets the first message, and the
//! timeout is looked at after each.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, timespec};
use weft_os::dgram;
use weft_sockets::Errno;

use crate::edge::{fail, get, put};

/// What the kernel takes of a list of messages.
const MOST_MESSAGES: c_uint = 1024;

/// Receives one message after the other by `receive`, which is given the message and its flags and gives the result of
/// a `recvmsg`.
pub fn receive_one_by_one(
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
    receive: impl FnMut(*mut msghdr, c_int) -> isize,
) -> c_int {
    let limit = match deadline(timeout) {
        Ok(limit) => limit,
        Err(errno) => return fail(errno) as c_int,
    };
    let received = receive_until(limit, messages, count.min(MOST_MESSAGES), flags, receive);
    match limit {
        Some(limit) if received > 0 => match put(timeout, time_until(limit)) {
            Ok(()) => received,
            Err(errno) => fail(errno) as c_int,
        },
        _ => received,
    }
}

fn receive_until(
    limit: Option<u64>,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    mut receive: impl FnMut(*mut msghdr, c_int) -> isize,
) -> c_int {
    let wait_for_one = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    for number in 0..count {
        let at = messages.wrapping_add(number as usize);
        let octets = receive(at.cast(), flags);
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

/// When it stops, in nanoseconds of the monotonic clock.
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

/// What is left of its time, which the kernel writes back where messages came.
fn time_until(limit: u64) -> timespec {
    let left = limit.saturating_sub(dgram::now());
    timespec {
        tv_sec: (left / 1_000_000_000) as libc::time_t,
        tv_nsec: (left % 1_000_000_000) as libc::c_long,
    }
}
