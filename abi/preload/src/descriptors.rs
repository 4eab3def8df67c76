//! Descriptors made, doubled and closed.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{mode_t, sigset_t, sockaddr, socklen_t, FILE};
use weft_os::lowest;
use weft_sockets::verdict::Verdict;

use crate::edge::{caught, fail};
use crate::mine::{known, mine_or_file};
use crate::process::CLOSE_RANGE_CLOEXEC;
use crate::socket::Socket;
use crate::stack::stack;
use crate::stdio;
use crate::tcp;

/// Makes a call of the program's that takes or frees a number and is soon over: in the meantime no thread of ours has a
/// low one.
#[inline]
fn numbered<T>(real: impl FnOnce() -> T) -> T {
    match stack() {
        Some(_) => lowest::program(real),
        None => real(),
    }
}

/// A descriptor appeared that is no socket of any kind of ours; whatever was known of its number is of the past.
fn made(fd: c_int) -> c_int {
    if let Some(stack) = stack() {
        caught((), || stack.made_other(fd));
    }
    fd
}

/// A descriptor came from elsewhere, and may be anything.
fn arrived(fd: c_int) -> c_int {
    if let Some(stack) = stack() {
        caught((), || stack.arrived(fd));
    }
    fd
}

fn made_pair(status: c_int, pair: *const c_int) -> c_int {
    if status == 0 && stack().is_some() {
        for number in 0..2 {
            if let Some(fd) = crate::edge::get(pair.wrapping_add(number)) {
                made(fd);
            }
        }
    }
    status
}

hook!(fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int, real => {
    made_socket(numbered(real), family, kind, protocol)
});

hook!(fn __socket(family: c_int, kind: c_int, protocol: c_int) -> c_int, real => {
    made_socket(numbered(real), family, kind, protocol)
});

/// Bits of the second argument of `socket` that are the type; the others are flags.
const SOCKET_TYPES: c_int = 0xff;

fn made_socket(fd: c_int, family: c_int, kind: c_int, protocol: c_int) -> c_int {
    if let Some(stack) = stack() {
        caught((), || {
            stack.made_socket(fd, family, kind & SOCKET_TYPES, protocol)
        });
    }
    fd
}

hook!(fn socketpair(family: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int, real => {
    made_pair(numbered(real), pair)
});

/// Accepts on `fd`; what comes is of the same kind.
fn accept_on(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let Some(stack) = stack() else { return real() };
    if let Some(Verdict::Done(Err(errno))) = mine_or_file(fd).map(|mine| mine.accepting()) {
        return fail(errno) as c_int;
    }
    let listener = caught(None, || stack.listener(fd));
    // The kernel gives it its number before it waits.
    lowest::await_ours();
    let connection = real();
    caught((), || stack.accepted(listener, connection));
    if let Some(mine) = known(connection) {
        mine.connected();
    }
    connection
}

hook!(fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, real => {
    accept_on(fd, real)
});

hook!(fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int, real => {
    accept_on(fd, real)
});

hook!(fn pipe(pair: *mut c_int) -> c_int, real => made_pair(numbered(real), pair));
hook!(fn __pipe(pair: *mut c_int) -> c_int, real => made_pair(numbered(real), pair));
hook!(fn pipe2(pair: *mut c_int, flags: c_int) -> c_int, real => made_pair(numbered(real), pair));
hook!(fn epoll_create(size: c_int) -> c_int, real => made(numbered(real)));
hook!(fn epoll_create1(flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn eventfd(value: c_uint, flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn timerfd_create(clock: c_int, flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, real => made(numbered(real)));
hook!(fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, real => made(numbered(real)));
hook!(fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, real => made(numbered(real)));
hook!(fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, real => made(numbered(real)));
hook!(fn __open_2(path: *const c_char, flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn __open64_2(path: *const c_char, flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn creat(path: *const c_char, mode: mode_t) -> c_int, real => made(numbered(real)));
hook!(fn creat64(path: *const c_char, mode: mode_t) -> c_int, real => made(numbered(real)));

hook!(fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, real => {
    made(numbered(real))
});

hook!(fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, real => {
    made(numbered(real))
});

hook!(fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, real => made(numbered(real)));
hook!(fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, real => made(numbered(real)));

/// A descriptor is about to be closed. What waits in it leaves while it is there.
#[inline(always)]
fn closing(fd: c_int) {
    if let Some(stack) = stack() {
        // Who closes has forked: of `vfork` nobody else tells.
        weft_os::forking::over();
        let here = 0u8;
        tcp::forget_left(std::ptr::from_ref(&here).addr());
        caught((), || {
            stack.kinds().streams.other_watched_no_more(None, fd);
            stack.closing(fd);
        });
    }
}

/// Whether `fd` is a descriptor of ours that has to stay: who closes all there are knows nothing of it.
fn is_kept(fd: c_int) -> bool {
    stack().is_some_and(|stack| stack.kinds().streams.kept() == Some(fd))
}

hook!(fn close(fd: c_int) -> c_int, real => {
    if is_kept(fd) {
        return fail(libc::EBADF) as c_int;
    }
    closing(fd);
    numbered(real)
});

hook!(fn __close(fd: c_int) -> c_int, real => {
    if is_kept(fd) {
        return fail(libc::EBADF) as c_int;
    }
    closing(fd);
    numbered(real)
});

hook!(fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, real => {
    if let Some(stack) = stack() {
        if flags & CLOSE_RANGE_CLOEXEC == 0 && first <= last {
            caught((), || stack.closing_range(first, last));
        }
        if let Some(kept) = stack.kinds().streams.kept().map(|fd| fd as c_uint) {
            if (first..=last).contains(&kept) {
                return numbered(|| close_around(first, kept, last, flags));
            }
        }
    }
    numbered(real)
});

/// `close_range` without the descriptor of ours.
fn close_around(first: c_uint, kept: c_uint, last: c_uint, flags: c_int) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int;
    static REAL: crate::real::Real<Signature> = crate::real::Real::new(c"close_range");
    listed!(REAL);
    // SAFETY: the program's own call, in two parts.
    let close = |first, last| unsafe { REAL.get()(first, last, flags) };
    let below = if first < kept {
        close(first, kept - 1)
    } else {
        0
    };
    let above = if kept < last {
        close(kept + 1, last)
    } else {
        0
    };
    below.min(above)
}

hook!(fn closefrom(first: c_int) -> (), real => {
    let Some(stack) = stack() else {
        return real();
    };
    let from = first.max(0) as c_uint;
    caught((), || stack.closing_range(from, c_uint::MAX));
    match stack.kinds().streams.kept() {
        Some(kept) if kept >= first => {
            numbered(|| close_around(from, kept as c_uint, c_uint::MAX, 0));
        }
        _ => numbered(real),
    }
});

/// A stream's descriptor is about to be closed.
fn closing_stream(file: *mut FILE) {
    // One of ours closes its descriptor when it has flushed.
    if stack().is_some() && !file.is_null() && stdio::descriptor_of(file).is_none() {
        // SAFETY: the program hands over a stream of its own.
        let fd = unsafe { libc::fileno(file) };
        closing(fd);
    }
}

hook!(fn fclose(file: *mut FILE) -> c_int, real => {
    closing_stream(file);
    real()
});

hook!(fn _IO_fclose(file: *mut FILE) -> c_int, real => {
    closing_stream(file);
    real()
});

hook!(fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, real => {
    closing_stream(file);
    real()
});

hook!(fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, real => {
    closing_stream(file);
    real()
});

/// `new` was made a duplicate of `old`, if the call went well.
fn doubled(old: c_int, new: c_int) -> c_int {
    if let Some(stack) = stack() {
        if new >= 0 {
            caught((), || stack.duplicated(old, new));
        }
    }
    new
}

/// `new` is about to be closed by becoming a duplicate.
fn overwriting(old: c_int, new: c_int) {
    if let Some(stack) = stack() {
        if old != new {
            stdio::before_moving(new);
            caught((), || stack.overwriting(old, new));
        }
    }
}

/// [`doubled`], to a number that the program has chosen.
fn moved(old: c_int, new: c_int) -> c_int {
    let new = doubled(old, new);
    if old != new && stack().is_some() {
        stdio::moved(new);
    }
    new
}

hook!(fn dup(old: c_int) -> c_int, real => doubled(old, numbered(real)));

hook!(fn dup2(old: c_int, new: c_int) -> c_int, real => {
    overwriting(old, new);
    moved(old, numbered(real))
});

hook!(fn __dup2(old: c_int, new: c_int) -> c_int, real => {
    overwriting(old, new);
    moved(old, numbered(real))
});

hook!(fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int, real => {
    if flags & !libc::O_CLOEXEC != 0 {
        // It will be refused.
        return real();
    }
    overwriting(old, new);
    moved(old, numbered(real))
});

fn fcntl_on(fd: c_int, command: c_int, real: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => doubled(fd, numbered(real)),
        _ => real(),
    }
}

hook!(fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int, real => {
    fcntl_on(fd, command, real)
});

hook!(fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int, real => {
    fcntl_on(fd, command, real)
});

hook!(fn __fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int, real => {
    fcntl_on(fd, command, real)
});

hook!(fn pidfd_getfd(pidfd: c_int, fd: c_int, flags: c_uint) -> c_int, real => arrived(numbered(real)));
