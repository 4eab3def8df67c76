//! What every hook does: the program's memory, errno, panics.

use std::ffi::{c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

use libc::socklen_t;
use weft_os::dgram::NAME_LEN;
use weft_os::user::{self, UserBuffers, RANGES_MAX};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

/// Sets errno and gives the -1 that goes with it.
pub fn fail(errno: Errno) -> isize {
    // SAFETY: the C library gives each thread its own errno at this address.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The calling thread's errno.
pub fn errno() -> Errno {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

extern "C-unwind" {
    fn pthread_testcancel();
}

/// Ends the thread if somebody asked for it, as the call we stand in for would have.
#[inline]
pub fn test_cancel() {
    // SAFETY: nothing is held here, and every frame above up to the program's is `C-unwind` or passes unwinding on.
    unsafe { pthread_testcancel() }
}

/// Does work of ours, in which no call of the C library is made; a panic becomes `otherwise`.
#[inline]
pub fn caught<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Ends a hook: by the kernel's answer, or ours.
#[inline]
pub fn settle(verdict: Verdict, real: impl FnOnce() -> isize) -> isize {
    match verdict {
        Verdict::Kernel => real(),
        Verdict::Begun => match real() {
            // What the program would have been told of its own call.
            -1 if errno() == libc::EALREADY => fail(libc::EINPROGRESS),
            result => result,
        },
        Verdict::Done(Ok(octets)) => octets as isize,
        Verdict::Done(Err(errno)) => fail(errno),
    }
}

/// The program's buffer of one call.
#[inline]
pub fn buffer(addr: *const c_void, len: usize) -> UserBuffers {
    // SAFETY: the program hands the buffer over for the length of its call.
    unsafe { UserBuffers::one(addr as usize, len) }
}

/// The program's list of buffers of one call; where it cannot be held as a whole, it as it was handed over.
pub fn buffers(list: *const libc::iovec, count: usize) -> Result<UserBuffers, List> {
    // SAFETY: as above.
    unsafe { UserBuffers::list(list as usize, count) }.ok_or(List { at: list, count })
}

/// A list of the program's that cannot be held as a whole: it is too long, or not mapped, or names too much.
#[derive(Clone, Copy)]
pub struct List {
    at: *const libc::iovec,
    count: usize,
}

impl List {
    /// Whether it names octets that there can be. Else who answers the call, and how.
    pub fn check(self) -> Result<(), Verdict> {
        self.octets().map(|_| ())
    }

    /// Octets that it names. Else who answers the call, and how.
    pub fn octets(self) -> Result<usize, Verdict> {
        // What is longer the kernel refuses, each call in its own words.
        if self.count > libc::UIO_MAXIOV as usize {
            return Err(Verdict::Kernel);
        }
        let mut octets = 0usize;
        for number in 0..self.count {
            let part = get(self.at.wrapping_add(number));
            let part = part.ok_or(Verdict::Done(Err(libc::EFAULT)))?;
            let sum = octets.checked_add(part.iov_len);
            octets = sum
                .filter(|sum| *sum <= isize::MAX as usize)
                .ok_or(Verdict::Done(Err(libc::EINVAL)))?;
        }
        Ok(octets)
    }

    /// Its buffers, as many at a time as can be held; nothing for those that are not mapped.
    pub fn pieces(self) -> impl Iterator<Item = Option<UserBuffers>> {
        (0..self.count).step_by(RANGES_MAX).map(move |first| {
            let count = RANGES_MAX.min(self.count - first);
            buffers(self.at.wrapping_add(first), count).ok()
        })
    }
}

/// A structure of the program's; nothing if it is not mapped.
pub fn get<T: Plain>(addr: *const T) -> Option<T> {
    // SAFETY: `Plain` says that any bits make one; the program hands it over with its call.
    unsafe { user::get(addr as usize) }
}

/// Writes a structure where the program wants it.
pub fn put<T: Plain>(addr: *mut T, value: T) -> Result<(), Errno> {
    // SAFETY: the program hands the place over to be written.
    unsafe { user::put(addr as usize, value) }
        .then_some(())
        .ok_or(libc::EFAULT)
}

/// Writes octets where the program wants them.
pub fn put_octets(addr: *mut c_void, octets: &[u8]) -> Result<(), Errno> {
    // SAFETY: the program hands the place over to be written.
    unsafe { user::put_octets(addr as usize, octets) }
        .then_some(())
        .ok_or(libc::EFAULT)
}

/// Reads octets of the program's.
pub fn get_octets(addr: *const c_void, octets: &mut [u8]) -> bool {
    // SAFETY: the program hands them over with its call.
    unsafe { user::get_octets(addr as usize, octets) }
}

/// Ends a `setsockopt` at Weft's level: `set` is given the value, or nothing where it has another length.
pub fn set_own_option<const OCTETS: usize>(
    value: *const c_void,
    len: socklen_t,
    set: impl FnOnce(&[u8]) -> Result<(), Errno>,
) -> Verdict {
    let mut octets = [0; OCTETS];
    let has_length = len as usize == OCTETS;
    if has_length && !get_octets(value, &mut octets) {
        return Verdict::Done(Err(libc::EFAULT));
    }
    let given = if has_length { &octets[..] } else { &[] };
    Verdict::Done(caught(Err(libc::EIO), || set(given)).map(|()| 0))
}

/// Ends a `getsockopt` at Weft's level: gives as much of what is found as there is room for.
pub fn give_own_option<const OCTETS: usize>(
    value: *mut c_void,
    len_at: *mut socklen_t,
    find: impl FnOnce() -> Result<[u8; OCTETS], Errno>,
) -> Verdict {
    let give = || {
        let room = get(len_at).ok_or(libc::EFAULT)?;
        let room = usize::try_from(room.cast_signed()).map_err(|_| libc::EINVAL)?;
        let found = caught(Err(libc::EIO), find)?;
        let given = &found[..room.min(OCTETS)];
        put(len_at, given.len() as socklen_t)?;
        put_octets(value, given)
    };
    Verdict::Done(give().map(|()| 0))
}

/// An address that only the kernel can answer: it is none, or not mapped.
pub struct NoName;

/// The address that a message is for, copied to `octets`, if it has one.
pub fn name_of<'a>(
    message: &libc::msghdr,
    octets: &'a mut [u8; NAME_LEN],
) -> Result<Option<&'a [u8]>, NoName> {
    if message.msg_name.is_null() {
        return Ok(None);
    }
    let name = octets.get_mut(..message.msg_namelen as usize);
    let name = name.filter(|name| !name.is_empty()).ok_or(NoName)?;
    match get_octets(message.msg_name, name) {
        true => Ok(Some(name)),
        false => Err(NoName),
    }
}

/// Structures of C for which every bit pattern is a value.
///
/// # Safety
/// That is so.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: numbers and pointers only.
            unsafe impl Plain for $type {}
        )*
    };
}

plain!(
    c_int,
    u32,
    usize,
    libc::msghdr,
    libc::mmsghdr,
    libc::iovec,
    i64,
    libc::pollfd,
    libc::epoll_event,
    libc::timeval,
    libc::timespec
);
