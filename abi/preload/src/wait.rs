//! Waiting: before a thread sleeps, what it gathered leaves; and a socket whose readiness is framing alone is none that
//! is ready.
//!
//! Readiness of datagrams is the kernel's and right as it is: those that wait to be split are still in its queue. A
//! stream over DDP has octets in its socket now and then that are none of the program's.

use std::ffi::{c_int, c_void};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use weft_sockets::stack::Stack;

use crate::edge::{caught, get, get_octets, put, put_octets};
use crate::limit::{time_of, Limit, SECOND_NS};
use crate::mine::known;
use crate::socket::Socket;
use crate::stack::stack;
use crate::tcp::events;

/// The stack, if anything waits in it, or readiness has to be looked at.
#[inline(always)]
fn concerned() -> Option<&'static Stack> {
    stack().filter(|stack| stack.anything_waits() || stack.looks_again())
}

/// Waits up to a limit. `wait` makes the call with another limit, `sift` takes away what is not ready after all and
/// gives how many are left.
///
/// It looks without waiting first where something waits to leave: a program that has something to do goes on
/// gathering. Only before it would sleep, or when it looks and finds nothing, does what gathered leave.
fn wait_well(
    stack: &'static Stack,
    limit: Limit,
    mut wait: impl FnMut(Limit) -> c_int,
    sift: impl Fn(c_int) -> c_int,
) -> c_int {
    if stack.anything_waits() {
        let ready = wait(Limit::NOW);
        let ready = if ready > 0 { sift(ready) } else { ready };
        if ready != 0 {
            return ready;
        }
        caught((), || stack.flush_all());
        if limit.left_ns() == Some(0) {
            return 0;
        }
    }
    loop {
        let ready = wait(limit);
        if ready <= 0 {
            return ready;
        }
        let ready = sift(ready);
        if ready > 0 || limit.left_ns() == Some(0) {
            return ready;
        }
    }
}

/// Whether the program can receive from the descriptor, of which the kernel says so.
fn is_readable(fd: c_int) -> bool {
    known(fd).is_none_or(|mine| caught(true, || mine.is_readable()))
}

const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// Takes the readiness of descriptors away that cannot be received from.
fn sift_polled(fds: *mut pollfd, count: nfds_t, ready: c_int) -> c_int {
    let mut left = ready;
    for number in 0..count as usize {
        let at = fds.wrapping_add(number);
        let Some(polled) = get(at).filter(|polled| polled.revents & READABLE != 0) else {
            continue;
        };
        if polled.fd >= 0 && !is_readable(polled.fd) {
            let revents = polled.revents & !READABLE;
            let _ = put(at, pollfd { revents, ..polled });
            left -= c_int::from(revents == 0);
        }
    }
    left
}

fn poll_well(
    stack: &'static Stack,
    fds: *mut pollfd,
    count: nfds_t,
    limit: Limit,
    mask: *const sigset_t,
) -> c_int {
    let wait = |limit: Limit| {
        let time = limit.left_ns().map(time_of);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the program's own call, but for the time.
        unsafe { ppoll_real(fds, count, time, mask) }
    };
    wait_well(stack, limit, wait, |ready| sift_polled(fds, count, ready))
}

macro_rules! polls {
    ($($name:ident($($extra:ident: $type:ty),*);)*) => {
        $(
            hook!(fn $name(fds: *mut pollfd, count: nfds_t, ms: c_int $(, $extra: $type)*) -> c_int, real => {
                match concerned() {
                    None => real(),
                    Some(stack) => poll_well(stack, fds, count, Limit::of_ms(ms), std::ptr::null()),
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
                match concerned().zip(Limit::of_time(timeout)) {
                    None => real(),
                    Some((stack, limit)) => poll_well(stack, fds, count, limit, mask),
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
            if !place.is_null() && !get_octets(place.cast(), asked) {
                return None;
            }
        }
        Some(Sets { places, asked, len })
    }

    fn restore(&self) {
        for (place, asked) in self.places.iter().zip(&self.asked) {
            if !place.is_null() {
                // What was read there can be written there: select does.
                let _ = put_octets(place.cast(), &asked[..self.len]);
            }
        }
    }

    /// As [`sift_polled`].
    fn sift(&self, ready: c_int) -> c_int {
        let read = self.places[0];
        let mut set = [0; Sets::OCTETS];
        if read.is_null() || !get_octets(read.cast(), &mut set[..self.len]) {
            return ready;
        }
        let mut left = ready;
        for fd in 0..self.len * 8 {
            let bit = 1 << (fd % 8);
            if set[fd / 8] & bit != 0 && !is_readable(fd as c_int) {
                set[fd / 8] &= !bit;
                left -= 1;
            }
        }
        let _ = put_octets(read.cast(), &set[..self.len]);
        left
    }
}

fn select_well(
    stack: &'static Stack,
    count: c_int,
    sets: &Sets,
    limit: Limit,
    mask: *const sigset_t,
) -> c_int {
    let [read, write, except] = sets.places;
    let wait = |limit: Limit| {
        let time = limit.left_ns().map(time_of);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        sets.restore();
        // SAFETY: the program's own call, but for the time.
        unsafe { pselect_real(count, read, write, except, time, mask) }
    };
    wait_well(stack, limit, wait, |ready| sets.sift(ready))
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
                let Some(stack) = concerned() else {
                    return real();
                };
                let (sets, limit) = (Sets::save(count, [read, write, except]), Limit::of_timeval(timeout));
                let Some((sets, limit)) = sets.zip(limit) else {
                    caught((), || stack.flush_all());
                    return real();
                };
                let ready = select_well(stack, count, &sets, limit, std::ptr::null());
                if let Some(ns) = limit.left_ns() {
                    let (tv_sec, tv_usec) = ((ns / SECOND_NS) as i64, (ns % SECOND_NS / 1000) as i64);
                    // Select tells what is left of the time, where it can.
                    let _ = put(timeout, timeval { tv_sec, tv_usec });
                }
                ready
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
    let Some(stack) = concerned() else {
        return real();
    };
    match Sets::save(count, [read, write, except]).zip(Limit::of_time(timeout)) {
        Some((sets, limit)) => select_well(stack, count, &sets, limit, mask),
        None => {
            caught((), || stack.flush_all());
            real()
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

fn epoll_well(
    stack: &'static Stack,
    epoll: c_int,
    list: *mut epoll_event,
    most: c_int,
    limit: Limit,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call, but for the time.
    let wait = |limit: Limit| unsafe { epoll_real(epoll, list, most, limit.left_ms(), mask) };
    wait_well(stack, limit, wait, |ready| {
        caught(ready, || events::sift(stack, epoll, list, ready))
    })
}

hook!(fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, ms: c_int) -> c_int, real => {
    match concerned() {
        None => real(),
        Some(stack) => epoll_well(stack, epoll, events, most, Limit::of_ms(ms), std::ptr::null()),
    }
});

hook!(fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    ms: c_int,
    mask: *const sigset_t,
) -> c_int, real => {
    match concerned() {
        None => real(),
        Some(stack) => epoll_well(stack, epoll, events, most, Limit::of_ms(ms), mask),
    }
});

hook!(fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int, real => {
    match concerned().zip(Limit::of_time(timeout)) {
        None => real(),
        Some((stack, limit)) => epoll_well(stack, epoll, events, most, limit, mask),
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
    let mine = crate::mine::mine(fd);
    let status = real();
    if let Some(mine) = mine.filter(|_| status == 0) {
        mine.watched(epoll, operation, event.cast());
    }
    status
});
