//! Waiting: before a thread sleeps, what it gathered leaves; and a socket whose readiness is framing alone is none that
//! is ready.
//!
//! Readiness of datagrams is the kernel's and right as it is: those that wait to be split are still in its queue. A
//! stream over DDP has octets in its socket now and then that are none of the program's.

use std::ffi::c_int;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use weft_sockets::stack::{Kind, Stack};

use crate::calls;
use crate::edge::{caught, get, put};
use crate::limit::{time_of, Limit, SECOND_NS};
use crate::looking::wait_looking;
use crate::mine::known;
use crate::sets::Sets;
use crate::sifted::Sifted;
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
///
/// `mask`: the signals that are blocked meanwhile, as of `ppoll`.
fn wait_well(
    stack: &'static Stack,
    limit: Limit,
    mask: *const sigset_t,
    mut wait: impl FnMut(Limit) -> c_int,
    sift: impl Fn(c_int) -> Sifted,
) -> c_int {
    if stack.anything_waits() {
        let ready = wait(Limit::NOW);
        let ready = if ready > 0 { sift(ready).left } else { ready };
        if ready != 0 {
            return ready;
        }
        caught((), || {
            stack.flush_all();
            stack.kinds().datagrams.note_sleep();
        });
        if limit.left_ns() == Some(0) {
            return 0;
        }
    }
    loop {
        let ready = wait_looking(stack, limit, &mut wait);
        if ready <= 0 {
            return ready;
        }
        let sifted = sift(ready);
        if sifted.left > 0 || limit.left_ns() == Some(0) {
            return sifted.left;
        }
        if sifted.looks_again && pause(limit, mask) < 0 {
            return -1;
        }
    }
}

/// How long nobody looks whether a peer has given room, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000;

/// Waits for nothing, a moment, as the program's call would: what is ready would end every wait for something.
fn pause(limit: Limit, mask: *const sigset_t) -> c_int {
    let time = time_of(limit.left_ns().unwrap_or(PAUSE_NS).min(PAUSE_NS));
    // SAFETY: no entries, and the program's own mask.
    unsafe { calls::ppoll(std::ptr::null_mut(), 0, &time, mask) }
}

/// Whether the program can receive from the descriptor, of which the kernel says so.
fn is_readable(fd: c_int) -> bool {
    known(fd).is_none_or(|mine| caught(true, || mine.is_readable()))
}

/// Whether the program can send to the descriptor, of which the kernel says so.
fn is_writable(fd: c_int) -> bool {
    known(fd).is_none_or(|mine| caught(true, || mine.is_writable()))
}

/// Whether what is hidden of it may be shown soon.
fn is_asking(fd: c_int) -> bool {
    known(fd).is_some_and(|mine| mine.is_asking())
}

const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;
const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Takes the readiness of descriptors away that cannot be received from, or sent to.
fn sift_polled(fds: *mut pollfd, count: nfds_t, ready: c_int) -> Sifted {
    let mut sifted = Sifted::nothing(ready);
    for number in 0..count as usize {
        let at = fds.wrapping_add(number);
        let of_interest = |polled: &pollfd| polled.revents & (READABLE | WRITABLE) != 0;
        let Some(polled) = get(at).filter(of_interest) else {
            continue;
        };
        let mut revents = polled.revents;
        if polled.fd >= 0 && revents & READABLE != 0 && !is_readable(polled.fd) {
            revents &= !READABLE;
            sifted.looks_again |= is_asking(polled.fd);
        }
        if polled.fd >= 0 && revents & WRITABLE != 0 && !is_writable(polled.fd) {
            revents &= !WRITABLE;
            sifted.looks_again = true;
        }
        if revents != polled.revents {
            let _ = put(at, pollfd { revents, ..polled });
            sifted.left -= c_int::from(revents == 0);
        }
    }
    sifted
}

/// The program is about to wait until it can receive from the descriptor.
fn await_readable(fd: c_int) {
    if let Some(mine) = known(fd) {
        mine.awaited();
    }
}

fn poll_well(
    stack: &'static Stack,
    fds: *mut pollfd,
    count: nfds_t,
    limit: Limit,
    mask: *const sigset_t,
) -> c_int {
    let polled = (0..count as usize).filter_map(|number| get(fds.wrapping_add(number)));
    let read = polled.filter(|polled| polled.fd >= 0 && polled.events & READABLE != 0);
    read.for_each(|polled| await_readable(polled.fd));
    let wait = |limit: Limit| {
        let time = limit.left_ns().map(time_of);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the program's own call, but for the time.
        unsafe { calls::ppoll(fds, count, time, mask) }
    };
    wait_well(stack, limit, mask, wait, |ready| {
        sift_polled(fds, count, ready)
    })
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

fn select_well(
    stack: &'static Stack,
    count: c_int,
    sets: &Sets,
    limit: Limit,
    mask: *const sigset_t,
) -> c_int {
    let [read, write, except] = sets.places;
    sets.each_to_read(await_readable);
    let wait = |limit: Limit| {
        let time = limit.left_ns().map(time_of);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        sets.restore();
        // SAFETY: the program's own call, but for the time.
        unsafe { pselect_real(count, read, write, except, time, mask) }
    };
    wait_well(stack, limit, mask, wait, |ready| {
        sets.sift(ready, is_readable, is_writable, is_asking)
    })
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
    // A socket that was entered before it had a port may have one by now.
    caught((), || {
        let sockets = &stack.kinds().datagrams;
        let is_its = |fd, number| stack.is_known_as(fd, Kind::Datagrams, number);
        sockets.await_watched(is_its);
    });
    // SAFETY: the program's own call, but for the time.
    let wait = |limit: Limit| unsafe { epoll_real(epoll, list, most, limit.left_ms(), mask) };
    wait_well(stack, limit, mask, wait, |ready| {
        let unsifted = Sifted::nothing(ready);
        caught(unsifted, || events::sift(stack, epoll, list, ready))
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
