//! Input and output that the C library does by calls of its own, which no hook sees: streams, and POSIX asynchronous
//! input and output (aio), which reads and writes in threads of the C library.

use std::ffi::{c_char, c_int, c_void};

use libc::{aiocb, sigevent, FILE};

use crate::edge::{caught, get};
use crate::stack::stack;

/// What waits in the socket behind `fd` leaves, and from now on it is the kernel's.
fn release(fd: c_int) {
    if let Some(stack) = stack() {
        caught((), || stack.release(fd));
    }
}

hook!(fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, real => {
    release(fd);
    real()
});

hook!(fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, real => {
    release(fd);
    real()
});

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
    release_of(request);
    real()
});

hook!(fn aio_read64(request: *mut aiocb) -> c_int, real => {
    release_of(request);
    real()
});

hook!(fn aio_write(request: *mut aiocb) -> c_int, real => {
    release_of(request);
    real()
});

hook!(fn aio_write64(request: *mut aiocb) -> c_int, real => {
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
    release_all(list, count);
    real()
});

hook!(fn lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void) -> c_int, real => {
    release_all(list, count);
    real()
});
