//! Descriptors that are no business of a forked child.
//!
//! A connection ends for its peer when the last copy of its descriptor is closed. A child that held copies of its
//! parent's would keep them open after the parent's end, and the ports of its listeners taken. So it closes them as
//! it begins, in the handler of `fork`, where no lock can be taken and no memory had: which numbers they are stands
//! in a table of bits.
//!
//! The objects that the child inherited keep the numbers, which will be those of other descriptors; so they must not
//! be used there, and dropping one closes nothing.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::generation::Generation;

/// Numbers that the table has a bit for: as many as the kernel gives a process unless told otherwise (`fs.nr_open`).
/// Descriptors beyond stay open in a child.
const DESCRIPTOR_NUMBER_MAX: usize = 1 << 20;
/// One bit for each number; 128 KiB of which only touched pages exist.
static OURS: [AtomicU64; DESCRIPTOR_NUMBER_MAX / 64] =
    [const { AtomicU64::new(0) }; DESCRIPTOR_NUMBER_MAX / 64];
/// No bit is set in words from here on.
static END: AtomicUsize = AtomicUsize::new(0);
/// Threads that are making or closing one of them, and those that are forking.
static CHANGING: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicU32 = AtomicU32::new(0);
/// So often one waits for the other at most: a signal's handler that forks amid a change of its own thread would wait
/// for good.
const LOOKS_MAX: u32 = 2000;
/// The first of them without sleeping in between.
const LOOKS_AT_ONCE: u32 = 100;

/// A descriptor of this process alone.
#[derive(Debug)]
pub(crate) struct Private {
    fd: ManuallyDrop<OwnedFd>,
    of: Generation,
}

impl Private {
    /// Lets go of the number without closing it: the program has closed it, and may have given it to something else.
    pub(crate) fn abandon(self) {
        let this = ManuallyDrop::new(self);
        if !this.of.is_over() {
            unmark(this.fd.as_raw_fd() as usize);
        }
    }
}

/// A forked child closes this number.
pub(crate) fn mark(number: usize) {
    if let Some(word) = OURS.get(number / 64) {
        END.fetch_max(number / 64 + 1, Ordering::Relaxed);
        word.fetch_or(1 << (number % 64), Ordering::Release);
    }
}

/// It does so no longer.
pub(crate) fn unmark(number: usize) {
    if let Some(word) = OURS.get(number / 64) {
        word.fetch_and(!(1 << (number % 64)), Ordering::Release);
    }
}

/// No fork comes amid what is done between this and [`end_change`]: fork copies the descriptors before the memory, so a
/// child could have a descriptor and not its mark.
pub(crate) fn begin_change() {
    for look in 0..LOOKS_MAX {
        CHANGING.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            return;
        }
        CHANGING.fetch_sub(1, Ordering::SeqCst);
        pause(look);
    }
    CHANGING.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn end_change() {
    CHANGING.fetch_sub(1, Ordering::SeqCst);
}

/// Closes a number that is marked, by `close`. The mark goes first: in the other order a child could close what another
/// thread has opened under the number since.
pub(crate) fn close_marked(number: usize, close: impl FnOnce()) {
    begin_change();
    unmark(number);
    close();
    end_change();
}

/// The calling thread is about to fork: nobody changes anything when this returns, nor until [`after_fork`].
pub(crate) fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    for look in 0..LOOKS_MAX {
        if CHANGING.load(Ordering::SeqCst) == 0 {
            return;
        }
        pause(look);
    }
}

/// Between two looks: what is waited for takes a system call or two, unless its thread has no core.
fn pause(look: u32) {
    match look {
        0..LOOKS_AT_ONCE => std::thread::yield_now(),
        _ => crate::sched::pause(Duration::from_micros(100)),
    }
}

/// It has forked, in the parent.
pub(crate) fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Whether a number is one of ours: the program never opened it, and would not miss it if it were not there.
pub fn is_ours(number: RawFd) -> bool {
    let word = usize::try_from(number)
        .ok()
        .and_then(|at| OURS.get(at / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (number % 64) != 0)
}

/// Whether one of the numbers from `first` to `last` is one of ours.
pub fn any_is_ours(first: u32, last: u32) -> bool {
    let end = (END.load(Ordering::Relaxed) * 64) as u32;
    (first..=last.min(end)).any(|number| is_ours(number as RawFd))
}

impl From<OwnedFd> for Private {
    fn from(fd: OwnedFd) -> Private {
        mark(fd.as_raw_fd() as usize);
        Private {
            fd: ManuallyDrop::new(fd),
            of: Generation::now(),
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if self.of.is_over() {
            return;
        }
        close_marked(self.fd.as_raw_fd() as usize, || {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        });
    }
}

impl AsFd for Private {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Private {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Closes this process's copies of all of them; in a child that has just begun.
pub(crate) fn close_all() {
    // Those threads are the parent's.
    CHANGING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    for (at, word) in OURS.iter().enumerate().take(END.load(Ordering::Relaxed)) {
        let mut bits = word.swap(0, Ordering::Acquire);
        while bits != 0 {
            let number = at * 64 + bits.trailing_zeros() as usize;
            // SAFETY: a descriptor that this module has open under that number; the objects that hold it are of a
            // generation that is over, and close nothing. Or there is none, and the call fails: fork copies the
            // descriptors before the memory, so a mark may be of one that another thread opened in between.
            unsafe { libc::close(number as RawFd) };
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::{tests::in_a_child, watch};

    fn is_open(number: RawFd) -> bool {
        // SAFETY: asks for flags of a number; one that is not open is an error.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_child_does_not_mind_a_mark_without_its_descriptor() {
        watch();
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let number = rustix::io::fcntl_dupfd_cloexec(&fd, 500).unwrap();
        let marked = Private::from(number);
        // SAFETY: a descriptor of the test's own, which nobody else uses; the object that holds it is forgotten below.
        unsafe { libc::close(marked.as_raw_fd()) };
        assert_eq!(in_a_child(|| true), 0);
        OURS[marked.as_raw_fd() as usize / 64]
            .fetch_and(!(1 << (marked.as_raw_fd() % 64)), Ordering::Release);
        std::mem::forget(marked);
    }

    #[test]
    fn a_child_has_no_copy_and_closes_nobody_elses() {
        watch();
        let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        let shared = event().unwrap();
        let inherited = Private::from(event().unwrap());
        let gone = Private::from(event().unwrap());
        let number = inherited.as_raw_fd();
        drop(gone);
        // Takes the lowest number that is free, and may be that of the one that is gone.
        let successor = event().unwrap();
        let status = in_a_child(|| {
            let closed = !is_open(number);
            let kept = is_open(shared.as_raw_fd()) && is_open(successor.as_raw_fd());
            let mut others = Vec::new();
            while !others.iter().any(|fd: &OwnedFd| fd.as_raw_fd() == number) {
                others.push(event().unwrap());
            }
            drop(inherited);
            closed && kept && is_open(number)
        });
        assert_eq!(status, 0);
    }

    /// Descriptors of this process for a file of that name.
    fn copies_of(name: &std::path::Path) -> usize {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let is_it = |link: &std::path::PathBuf| std::fs::read_link(link).is_ok_and(|to| to == name);
        links.map(|link| link.unwrap().path()).filter(is_it).count()
    }

    /// Another thread makes and closes copies all the time: no child has one.
    #[test]
    fn no_fork_comes_amid_a_change() {
        watch();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = socket.as_raw_fd();
        let name = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        let goes_on = AtomicU32::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while goes_on.load(Ordering::Relaxed) == 1 {
                    crate::file::close(crate::file::duplicate(number, 0).unwrap());
                }
            });
            let holds_more = |_: &u32| in_a_child(|| copies_of(&name) == 1) != 0;
            let children = (0..2000).filter(holds_more).count();
            goes_on.store(0, Ordering::Relaxed);
            assert_eq!(children, 0, "so many have a copy");
        });
    }
}
