//! Waits of a thread that cannot go on with a connection over DDP: in the C library's own calls, with nothing held. So
//! timeouts, signals and cancellation are what they were (decision 0029).

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use libc::{pollfd, sigset_t, size_t, ssize_t};
use weft_os::{signals, stream};
use weft_sockets::Errno;

use crate::calls;
use crate::edge::errno;
use crate::limit::{time_of, Limit};
use crate::real::Real;
pub use crate::timeout::wait_once;
use crate::timeout::Timeout;

/// How long a Request is waited for between two looks, in milliseconds.
const WHILE_MS: c_int = 10;
/// How often a sender looks who cannot be woken, in milliseconds.
const LOOK_EVERY_MS: c_int = 1;
/// The same in nanoseconds.
const LOOK_EVERY_NS: u64 = LOOK_EVERY_MS as u64 * 1_000_000;

/// Waits in the C library's `send` as long as a send of an octet would, and sends nothing: the octet is at an address
/// that is never mapped, which the kernel looks at last. Gives what else the call failed with.
pub fn send_nothing(fd: c_int, flags: c_int) -> Option<Errno> {
    type Signature = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"send");
    listed!(REAL);
    const NOWHERE: *const c_void = std::ptr::without_provenance(8);
    let flags = flags & (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: nothing is read: the first page is never mapped.
    let result = unsafe { REAL.get()(fd, NOWHERE, 1, flags) };
    debug_assert!(result < 0);
    Some(errno()).filter(|errno| *errno != libc::EFAULT)
}

/// Waits in the C library's `recv` until so many octets are there, or the end, and takes none.
pub fn wait_to_receive(fd: c_int, octets: usize) -> Result<(), Errno> {
    const FLAGS: c_int = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: with MSG_TRUNC TCP copies nothing (tcp(7)).
    match unsafe { real_recv()(fd, std::ptr::null_mut(), octets, FLAGS) } {
        -1 => Err(errno()),
        _ => Ok(()),
    }
}

/// Waits in the C library's `recv` until more octets are there than are now, or the end, and takes none.
pub fn wait_for_more(fd: c_int) -> Result<(), Errno> {
    const FLAGS: c_int = libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC;
    // SAFETY: as above, however many they are.
    match unsafe { real_recv()(fd, std::ptr::null_mut(), stream::unread(fd) + 1, FLAGS) } {
        -1 => Err(errno()),
        _ => Ok(()),
    }
}

type Receive = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;

fn real_recv() -> Receive {
    static REAL: Real<Receive> = Real::new(c"recv");
    listed!(REAL);
    REAL.get()
}

/// Waits until the socket is readable, as long as the call waits at all: the rest is there of what counts only as a
/// whole; the error that the wait ended with. `is_restarted`: the call may be taken up again after a signal.
pub fn wait_for_the_rest(fd: c_int, is_restarted: bool, timeout: &mut Timeout) -> Option<Errno> {
    let stopped_by = wait_once(fd, libc::POLLIN, timeout)?;
    // A call with a timeout is not taken up again after a signal (signal(7)).
    let is_restarted = is_restarted && matches!(timeout.limit(fd), Ok(None));
    let goes_on = stopped_by == libc::EINTR && is_restarted && signals::restart_after_interrupt();
    (!goes_on).then_some(stopped_by)
}

/// Waits until the peer may have said something, or somebody may have taken what stands before it, as long as the call
/// waits at all; the error that the wait ended with. `is_restarted`: the call may be taken up again after a signal.
///
/// Each wait is a short one. What the peer says may be taken by another call, by the thread of mapped memory or by
/// another process, and then nothing comes any more that would end a wait for octets.
pub fn wait_for_the_peer(fd: c_int, is_restarted: bool, timeout: &mut Timeout) -> Option<Errno> {
    let limit = match timeout.limit(fd) {
        Ok(limit) => limit,
        Err(errno) => return Some(errno),
    };
    let ms = limit
        .map_or(LOOK_EVERY_MS, Limit::left_ms)
        .min(LOOK_EVERY_MS);
    let waited = wait_briefly(fd, ms);
    if waited >= 0 || errno() != libc::EINTR {
        return None;
    }
    // A call with a timeout is not taken up again after a signal (signal(7)).
    let goes_on = limit.is_none() && is_restarted && signals::restart_after_interrupt();
    (!goes_on).then_some(libc::EINTR)
}

/// Waits until a send may go on that was refused for want of room that the peer, its Reply, or the answer to a question
/// gives, as `may_go_on` says; the error that the wait ended with. `is_restarted`: as above.
///
/// Signals are let in while it sleeps alone: one that came while it looks would end no wait.
pub fn wait_for_room(
    fd: c_int,
    is_restarted: bool,
    timeout: &mut Timeout,
    may_go_on: impl Fn() -> bool,
) -> Option<Errno> {
    let limit = match timeout.limit(fd) {
        Ok(limit) => limit,
        Err(errno) => return Some(errno),
    };
    let blocked = Blocked::new();
    while !may_go_on() {
        let left_ns = limit.and_then(Limit::left_ns);
        if left_ns == Some(0) {
            return Some(libc::EAGAIN);
        }
        let time = time_of(left_ns.unwrap_or(LOOK_EVERY_NS).min(LOOK_EVERY_NS));
        let mut wait = for_more(fd);
        // SAFETY: one entry, which is ours; the time and the mask outlive the call.
        let waited = unsafe { calls::ppoll(&mut wait, 1, &time, &blocked.before) };
        if waited >= 0 || errno() != libc::EINTR {
            continue;
        }
        // A call with a timeout is not taken up again after a signal (signal(7)).
        if limit.is_some() || !is_restarted || !signals::restart_after_interrupt() {
            return Some(libc::EINTR);
        }
    }
    None
}

/// The thread's signals, but for those that a fault of its own raises, are kept back as long as this is there.
struct Blocked {
    before: sigset_t,
}

impl Blocked {
    fn new() -> Blocked {
        const OF_FAULTS: [c_int; 6] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGSYS,
        ];
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls fill the sets, and the last one reads the first and fills the second.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in OF_FAULTS {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Blocked {
                before: before.assume_init(),
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: reads the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Waits a few milliseconds, or until something comes. A signal ends it too, and the caller looks again.
pub fn wait_a_while(fd: c_int) -> Option<Errno> {
    wait_briefly(fd, WHILE_MS);
    None
}

/// Waits so many milliseconds, or until something comes; gives what `poll` does.
fn wait_briefly(fd: c_int, ms: c_int) -> c_int {
    let mut wait = for_more(fd);
    // SAFETY: one entry, which is ours.
    unsafe { calls::poll(&mut wait, 1, ms) }
}

/// What is waited for: octets. Those that nobody receives, or the end, are there already and would end every wait for
/// more at once: then it is nothing.
fn for_more(fd: c_int) -> pollfd {
    let is_there = stream::unread(fd) > 0 || stream::has_ended(fd);
    pollfd {
        fd: if is_there { -1 } else { fd },
        events: libc::POLLIN,
        revents: 0,
    }
}
