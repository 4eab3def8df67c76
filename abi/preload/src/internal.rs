//! Input and output that the C library does by calls of its own, which no hook sees: streams, and POSIX asynchronous
//! input and output (aio), which reads and writes in threads of the C library.

use std::ffi::{c_char, c_int, c_void};

use libc::{aiocb, sigevent, timespec, FILE};

use crate::aio;
use crate::edge::{caught, get};
use crate::stack::stack;
use crate::stdio;

/// What waits in the socket behind `fd` leaves, and from now on it is the kernel's.
fn release(fd: c_int) {
    if let Some(stack) = stack() {
        caught((), || stack.release(fd));
    }
}

/// A stream of ours on `fd`; nothing where it is to be the C library's, and the socket, if it is one, the kernel's.
fn open_stream(fd: c_int, mode: *const c_char) -> Option<*mut FILE> {
    let stream = stack().and_then(|_| stdio::open(fd, mode));
    if stream.is_none() {
        release(fd);
    }
    stream
}

hook!(fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, real => {
    open_stream(fd, mode).unwrap_or_else(real)
});

hook!(fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, real => {
    open_stream(fd, mode).unwrap_or_else(real)
});

/// Whether a request is about a connection over DDP.
fn is_ours(request: *const aiocb) -> bool {
    stack().is_some() && get(request.cast::<c_int>()).is_some_and(aio::is_ours)
}

/// Releases the socket that a request is about. A bad address is the C library's to meet.
fn release_of(request: *const aiocb) {
    const _: () = assert!(std::mem::offset_of!(aiocb, aio_fildes) == 0);
    if stack().is_some() {
        if let Some(fd) = get(request.cast::<c_int>()) {
            release(fd);
        }
    }
}

hook!(fn aio_read(request: *mut aiocb) -> c_int, real => {
    if is_ours(request) {
        return aio::begin(request, false);
    }
    release_of(request);
    real()
});

hook!(fn aio_read64(request: *mut aiocb) -> c_int, real => {
    if is_ours(request) {
        return aio::begin(request, false);
    }
    release_of(request);
    real()
});

hook!(fn aio_write(request: *mut aiocb) -> c_int, real => {
    if is_ours(request) {
        return aio::begin(request, true);
    }
    release_of(request);
    real()
});

hook!(fn aio_write64(request: *mut aiocb) -> c_int, real => {
    if is_ours(request) {
        return aio::begin(request, true);
    }
    release_of(request);
    real()
});

/// Releases the sockets that the requests of a list are about; entries may be null.
fn release_all(list: *const *mut aiocb, count: c_int) {
    if stack().is_none() {
        return;
    }
    for number in 0..usize::try_from(count).unwrap_or(0) {
        match get(list.wrapping_add(number).cast::<usize>()) {
            Some(0) => {}
            Some(request) => release_of(request as *const aiocb),
            None => return,
        }
    }
}

hook!(fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int, real => {
    if let Some(result) = aio::begin_list(mode, list, count, event.cast()) {
        return result;
    }
    release_all(list, count);
    real()
});

hook!(fn lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void) -> c_int, real => {
    if let Some(result) = aio::begin_list(mode, list, count, event.cast()) {
        return result;
    }
    release_all(list, count);
    real()
});

hook!(fn aio_cancel(fd: c_int, request: *mut aiocb) -> c_int, real => {
    aio::cancel(fd, request).unwrap_or_else(real)
});

hook!(fn aio_cancel64(fd: c_int, request: *mut aiocb) -> c_int, real => {
    aio::cancel(fd, request).unwrap_or_else(real)
});

hook!(fn aio_suspend(list: *const *const aiocb, count: c_int, timeout: *const timespec) -> c_int, real => {
    aio::suspend(list, count, timeout).unwrap_or_else(real)
});

hook!(fn aio_suspend64(list: *const *const aiocb, count: c_int, timeout: *const timespec) -> c_int, real => {
    aio::suspend(list, count, timeout).unwrap_or_else(real)
});
