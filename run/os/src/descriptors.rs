//! How many descriptors the process may have.
//!
//! A queue pair of an adapter takes no descriptor, so programs with a thousand of them run under the usual soft limit,
//! 1024. Here each has a socket. What this crate opens therefore raises the soft limit, step by step and no further
//! than the hard one, once it comes to its half: the other half is the program's.
//!
//! What is opened in a program that asked for nothing of ours lies *apart*: programs count on getting the lowest number
//! that is free.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use crate::guarded::Held;
use crate::lowest;
use crate::private::Private;
pub use crate::private::{any_is_ours, is_ours};

/// A step multiplies the soft limit by this.
const STEP: u64 = 4;
/// More than any process needs, where the hard limit is none (the kernel's own is 2^20).
const DESCRIPTORS_WANTED_MAX: u64 = 1 << 20;

/// Numbers from here on are apart from those that a program counts on: the lowest.
pub const APART: i32 = 256;

/// The soft limit when it was last looked at; 0: not yet.
static SOFT: AtomicU64 = AtomicU64::new(0);
/// The soft limit that the program began with; 0: it was not noted.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// A second descriptor of what another one stands for, to wait on where the first is behind a lock. A forked child has
/// no copy.
#[derive(Debug)]
pub struct Watched(Private);

impl Watched {
    /// Of what `fd` stands for.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Watched> {
        Ok(Watched(
            open(|| rustix::io::fcntl_dupfd_cloexec(fd, 0))?.into(),
        ))
    }

    /// Of what the program's descriptor with this number stands for, apart from the program's own.
    ///
    /// # Errors
    /// It stands for nothing, or no descriptor is left.
    pub fn apart(number: RawFd) -> io::Result<Watched> {
        if number < 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the number is used for one call, which copies the descriptor or fails.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let copy = || rustix::io::fcntl_dupfd_cloexec(fd, APART);
        Ok(Watched(open(copy)?.into()))
    }
}

impl Held for Watched {
    fn abandon(self) {
        self.0.abandon();
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The limits, soft and hard.
pub fn limits() -> (u64, u64) {
    let now = getrlimit(Resource::Nofile);
    let hard = now.maximum.unwrap_or(DESCRIPTORS_WANTED_MAX);
    (now.current.unwrap_or(hard), hard)
}

/// Opens a descriptor, and sees to it that there is room for more.
pub(crate) fn open(open: impl Fn() -> rustix::io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    let opened = match open() {
        Err(Errno::MFILE) if raise() => open(),
        result => result,
    };
    let fd = opened?;
    make_room(fd.as_raw_fd() as u64);
    Ok(fd)
}

/// A descriptor of this number was opened.
pub(crate) fn make_room(number: u64) {
    let mut soft = SOFT.load(Ordering::Relaxed);
    if soft == 0 {
        soft = limits().0;
        SOFT.store(soft, Ordering::Relaxed);
    }
    if number >= soft / 2 {
        raise();
    }
}

/// Opens a descriptor of this process alone, whose number is apart from the program's.
pub(crate) fn open_apart(open: impl Fn() -> rustix::io::Result<OwnedFd>) -> io::Result<Private> {
    lowest::ours(|| moved_apart(self::open(open)?))
}

/// Moves a descriptor apart. Where the limit leaves no room there it stays where it is, unless the program lowered the
/// limit: it counts on every number below.
fn moved_apart(fd: OwnedFd) -> io::Result<Private> {
    match rustix::io::fcntl_dupfd_cloexec(&fd, APART) {
        Ok(moved) => Ok(Private::from(moved)),
        Err(error) if is_lowered(limits().0) => Err(error.into()),
        Err(_) => Ok(Private::from(fd)),
    }
}

/// Prepares for descriptors apart, while the program has one thread: as it begins, and before a thread of ours does.
///
/// It notes the limit that the program begins with, and has the kernel's table of descriptors grow. Before a table that
/// threads share grows the kernel waits for a grace period (RCU), some ten milliseconds; all that time a descriptor
/// that is being moved apart would have the lowest number.
pub fn prepare() {
    let _ = FIRST.compare_exchange(0, limits().0, Ordering::Relaxed, Ordering::Relaxed);
    let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    drop(open_apart(event));
}

/// Whether a soft limit is the program's own: lower than the one it began with, and so low that nothing is apart.
fn is_lowered(soft: u64) -> bool {
    soft <= APART as u64 && soft < FIRST.load(Ordering::Relaxed)
}

/// One step up; whether there was one.
pub(crate) fn raise() -> bool {
    let (soft, hard) = limits();
    let higher = soft.saturating_mul(STEP).min(hard);
    let wanted = Rlimit {
        current: Some(higher),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let raised = higher > soft && !is_lowered(soft) && setrlimit(Resource::Nofile, wanted).is_ok();
    // A limit that cannot be raised is not asked for again at each descriptor.
    let known = if raised { higher } else { u64::MAX };
    SOFT.store(known, Ordering::Relaxed);
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    fn an_eventfd() -> rustix::io::Result<OwnedFd> {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
    }

    /// In a process of its own: the limit is the process's.
    #[test]
    fn the_soft_limit_gives_way_and_the_hard_one_does_not() {
        let name = "descriptors::tests::the_soft_limit_gives_way_and_the_hard_one_does_not";
        if !crate::alone::is_alone(name) {
            return;
        }
        let small = Rlimit {
            current: Some(64),
            maximum: Some(200),
        };
        setrlimit(Resource::Nofile, small).unwrap();
        let mut held = Vec::new();
        let refused = loop {
            match open(an_eventfd) {
                Ok(fd) => held.push(fd),
                Err(error) => break error,
            }
            let (soft, _) = limits();
            let number = held.last().unwrap().as_raw_fd() as u64;
            assert!(number < soft / 2 || soft == 200, "{number} of {soft}");
        };
        assert!(held.len() > 150, "{}", held.len());
        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
        assert_eq!(limits(), (200, 200));
    }
}
