//! Which process this is, whatever way it was forked.
//!
//! `pthread_atfork` is told of `fork` alone. A page that the kernel wipes in every forked child
//! (`MADV_WIPEONFORK`) also tells of `_Fork` and of bare system calls, and reading it costs one load.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};

use crate::sys;

/// Address of the page; 0 before [`watch`].
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// The process the page was last marked for.
static PID: AtomicU32 = AtomicU32::new(0);

/// Begins to watch. Without a page that is wiped (kernels before 4.14) forks go unnoticed here,
/// and this answers false.
pub fn watch() -> bool {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice touches no other.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, prot, MapFlags::PRIVATE) };
    let Ok(page) = page else { return false };
    // SAFETY: the advice concerns the new mapping alone.
    if unsafe { madvise(page, 4096, Advice::LinuxWipeOnFork) }.is_err() {
        return false;
    }
    PAGE.store(page as usize, Ordering::Relaxed);
    mark();
    true
}

fn mark() {
    PID.store(getpid(), Ordering::Relaxed);
    if let Some(word) = word() {
        word.store(1, Ordering::Release);
    }
}

fn word() -> Option<&'static AtomicU32> {
    let addr = PAGE.load(Ordering::Relaxed);
    // SAFETY: once set, the address is that of a page that stays mapped and holds this word.
    (addr != 0).then(|| unsafe { &*(addr as *const AtomicU32) })
}

/// The process's id as the kernel has it, by a system call.
pub fn getpid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// The process's id, by a load from memory; in a child that shares its parent's memory (vfork)
/// it is the parent's.
#[inline]
pub fn id() -> u32 {
    match word() {
        Some(word) if word.load(Ordering::Acquire) == 0 => {
            // The threads of a new child may come here together; each writes the same.
            mark();
            PID.load(Ordering::Relaxed)
        }
        _ => PID.load(Ordering::Relaxed),
    }
}

/// Whether this is a child that runs in its parent's memory, or one that nobody told us of.
pub fn is_borrowed() -> bool {
    id() != getpid()
}

/// Whether there is a process, or a thread, with this number; one that has ended is there until its parent has asked.
pub fn exists(number: u32) -> bool {
    // SAFETY: signal 0 reaches nobody.
    unsafe { sys::call(libc::SYS_kill, [number as usize, 0, 0, 0, 0, 0]) != Err(libc::ESRCH) }
}

/// Whether the thread with this number runs no more, and may only be waiting for its parent to ask how it ended. Needs
/// a descriptor for a moment; where there is none, whoever has the number counts as running.
pub fn has_ended(number: u32) -> bool {
    if !exists(number) {
        return true;
    }
    // Of any thread where the kernel knows such (6.9), else of those that are a process's first.
    let pidfd = pidfd_of(number, libc::O_EXCL).or_else(|_| pidfd_of(number, 0));
    match pidfd {
        // Readable: it has ended.
        Ok(pidfd) => crate::dgram::ready(pidfd.as_raw_fd(), libc::POLLIN, 0) != 0,
        Err(errno) => errno == libc::ESRCH,
    }
}

fn pidfd_of(number: u32, flags: i32) -> Result<OwnedFd, i32> {
    let args = [number as usize, flags as usize, 0, 0, 0, 0];
    // SAFETY: names no memory.
    let fd = unsafe { sys::call(libc::SYS_pidfd_open, args) }?;
    // SAFETY: the kernel has just made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Something that differs between the threads of a process, at the cost of a load.
#[inline]
pub fn thread() -> usize {
    // SAFETY: pthread_self has no preconditions and takes no lock.
    unsafe { libc::pthread_self() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_knows_itself() {
        assert!(watch());
        let parent = id();
        assert_eq!(parent, getpid());
        // SAFETY: the child makes system calls only, and leaves at once.
        let child = unsafe { libc::syscall(libc::SYS_fork) };
        if child == 0 {
            let well = id() == getpid() && id() != parent;
            // SAFETY: leaves without running anybody's handlers.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child as i32, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(id(), parent);
    }
}
