//! Calls of the C library that hooks make themselves, of a name or with arguments other than the program's.

use std::ffi::{c_int, c_void};

use libc::{
    epoll_event, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

use crate::real::Real;

/// The C library's `poll`.
///
/// # Safety
/// As for that.
pub unsafe fn poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    static REAL: Real<Signature> = Real::new(c"poll");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(fds, count, ms) }
}

/// The C library's `epoll_ctl`.
///
/// # Safety
/// As for that.
pub unsafe fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    static REAL: Real<Signature> = Real::new(c"epoll_ctl");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(epoll, operation, fd, event) }
}

/// The C library's `ppoll`.
///
/// # Safety
/// As for that.
pub unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Signature =
        unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    static REAL: Real<Signature> = Real::new(c"ppoll");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(fds, count, timeout, mask) }
}

/// The C library's `sendmsg`.
///
/// # Safety
/// As for that.
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Signature = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"sendmsg");
    listed!(REAL);
    // SAFETY: the caller vouches for the message.
    unsafe { REAL.get()(fd, message, flags) }
}

/// The C library's `recvfrom`.
///
/// # Safety
/// As for that.
pub unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    type Signature = unsafe extern "C-unwind" fn(
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"recvfrom");
    listed!(REAL);
    // SAFETY: the caller vouches for the memory.
    unsafe { REAL.get()(fd, buffer, len, flags, addr, addr_len) }
}

/// The C library's `recvmsg`.
///
/// # Safety
/// As for that.
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    type Signature = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"recvmsg");
    listed!(REAL);
    // SAFETY: the caller vouches for the message.
    unsafe { REAL.get()(fd, message, flags) }
}
