//! Waiting: before a thread sleeps, what it gathered leaves.
//!
//! Readiness itself is the kernel's and right as it is: datagrams that wait to be split are still in its queue.

use std::ffi::{c_int, c_void};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use weft_sockets::stack::Stack;

use crate::edge::caught;
use crate::stack::stack;

/// The stack, if anything waits in it.
#[inline(always)]
fn waiting() -> Option<&'static Stack> {
    stack().filter(|stack| stack.anything_waits())
}

/// Makes the call without waiting first: a program that has something to do goes on gathering. Only before it
/// would sleep, or when it looks and finds nothing, does what gathered leave.
fn look_first(
    stack: &Stack,
    at_once: impl FnOnce() -> c_int,
    sleeps: bool,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let ready = at_once();
    if ready != 0 {
        return ready;
    }
    caught((), || stack.flush_all());
    if sleeps {
        real()
    } else {
        ready
    }
}

const AT_ONCE: timespec = timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Whether a call with this timeout may sleep. A bad address is the kernel's to refuse.
fn sleeps(timeout: *const timespec) -> bool {
    match timeout.is_null() {
        true => true,
        false => crate::edge::get(timeout).is_none_or(|time| (time.tv_sec, time.tv_nsec) != (0, 0)),
    }
}

macro_rules! polls {
    ($($name:ident($($extra:ident: $type:ty),*);)*) => {
        $(
            hook!(fn $name(fds: *mut pollfd, count: nfds_t, ms: c_int $(, $extra: $type)*) -> c_int, real => {
                match waiting() {
                    None => real(),
                    Some(stack) => {
                        // SAFETY: the program's own call, but for the time.
                        let at_once = || unsafe { poll_real(fds, count, 0) };
                        look_first(stack, at_once, ms != 0, real)
                    }
                }
            });
        )*
    };
}

polls! {
    poll();
    __poll();
    __poll_chk(room: size_t);
}

unsafe fn poll_real(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    static REAL: crate::real::Real<Signature> = crate::real::Real::new(c"poll");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(fds, count, ms) }
}

macro_rules! ppolls {
    ($($name:ident($($extra:ident: $type:ty),*);)*) => {
        $(
            hook!(fn $name(
                fds: *mut pollfd,
                count: nfds_t,
                timeout: *const timespec,
                mask: *const sigset_t
                $(, $extra: $type)*
            ) -> c_int, real => {
                match waiting() {
                    None => real(),
                    Some(stack) => {
                        // SAFETY: the program's own call, but for the time.
                        let at_once = || unsafe { ppoll_real(fds, count, &AT_ONCE, mask) };
                        look_first(stack, at_once, sleeps(timeout), real)
                    }
                }
            });
        )*
    };
}

ppolls! {
    ppoll();
    __ppoll_chk(room: size_t);
}

unsafe fn ppoll_real(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Signature =
        unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    static REAL: crate::real::Real<Signature> = crate::real::Real::new(c"ppoll");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(fds, count, timeout, mask) }
}

/// The three sets of a select, to look without losing what was asked.
struct Sets {
    places: [*mut fd_set; 3],
    asked: [[u8; Sets::OCTETS]; 3],
    len: usize,
}

impl Sets {
    /// Of an `fd_set` proper; who has larger ones does not look first.
    const OCTETS: usize = 128;

    fn save(count: c_int, places: [*mut fd_set; 3]) -> Option<Sets> {
        let len = usize::try_from(count).ok()?.div_ceil(64) * 8;
        let mut asked = [[0; Sets::OCTETS]; 3];
        for (place, asked) in places.iter().zip(&mut asked) {
            let asked = asked.get_mut(..len)?;
            if !place.is_null() && !crate::edge::get_octets(place.cast(), asked) {
                return None;
            }
        }
        Some(Sets { places, asked, len })
    }

    fn restore(&self) {
        for (place, asked) in self.places.iter().zip(&self.asked) {
            if !place.is_null() {
                // What was read there can be written there: select does.
                let _ = crate::edge::put_octets(place.cast(), &asked[..self.len]);
            }
        }
    }
}

/// As [`look_first`], for calls that overwrite what was asked.
fn look_first_at(
    stack: &Stack,
    count: c_int,
    places: [*mut fd_set; 3],
    at_once: impl FnOnce() -> c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    match Sets::save(count, places) {
        Some(sets) => look_first(stack, at_once, true, || {
            sets.restore();
            real()
        }),
        None => {
            caught((), || stack.flush_all());
            real()
        }
    }
}

macro_rules! selects {
    ($($name:ident;)*) => {
        $(
            hook!(fn $name(
                count: c_int,
                read: *mut fd_set,
                write: *mut fd_set,
                except: *mut fd_set,
                timeout: *mut timeval,
            ) -> c_int, real => {
                match waiting() {
                    None => real(),
                    Some(stack) => {
                        let at_once = || {
                            // SAFETY: the program's own call, but for the time.
                            unsafe {
                                pselect_real(count, read, write, except, &AT_ONCE, std::ptr::null())
                            }
                        };
                        look_first_at(stack, count, [read, write, except], at_once, real)
                    }
                }
            });
        )*
    };
}

selects! {
    select;
    __select;
}

hook!(fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int, real => {
    match waiting() {
        None => real(),
        Some(stack) => {
            // SAFETY: the program's own call, but for the time.
            let at_once = || unsafe { pselect_real(count, read, write, except, &AT_ONCE, mask) };
            look_first_at(stack, count, [read, write, except], at_once, real)
        }
    }
});

unsafe fn pselect_real(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int;
    static REAL: crate::real::Real<Signature> = crate::real::Real::new(c"pselect");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(count, read, write, except, timeout, mask) }
}

hook!(fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, ms: c_int) -> c_int, real => {
    match waiting() {
        None => real(),
        Some(stack) => {
            // SAFETY: the program's own call, but for the time.
            let at_once = || unsafe { epoll_real(epoll, events, most, 0, std::ptr::null()) };
            look_first(stack, at_once, ms != 0, real)
        }
    }
});

hook!(fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    ms: c_int,
    mask: *const sigset_t,
) -> c_int, real => {
    match waiting() {
        None => real(),
        Some(stack) => {
            // SAFETY: the program's own call, but for the time.
            let at_once = || unsafe { epoll_real(epoll, events, most, 0, mask) };
            look_first(stack, at_once, ms != 0, real)
        }
    }
});

hook!(fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int, real => {
    match waiting() {
        None => real(),
        Some(stack) => {
            // SAFETY: the program's own call, but for the time.
            let at_once = || unsafe { epoll_real(epoll, events, most, 0, mask) };
            look_first(stack, at_once, sleeps(timeout), real)
        }
    }
});

unsafe fn epoll_real(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    type Signature = unsafe extern "C-unwind" fn(
        c_int,
        *mut epoll_event,
        c_int,
        c_int,
        *const sigset_t,
    ) -> c_int;
    static REAL: crate::real::Real<Signature> = crate::real::Real::new(c"epoll_pwait");
    listed!(REAL);
    // SAFETY: the caller vouches for the arguments.
    unsafe { REAL.get()(epoll, events, most, ms, mask) }
}

hook!(fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int, real => {
    // A socket is classified before it is waited for: afterwards its first use may be in a signal handler.
    let _ = crate::mine::mine(fd);
    real()
});
