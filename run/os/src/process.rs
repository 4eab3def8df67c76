//! Which process this is, whatever way it was forked.
//!
//! `pthread_atfork` is told of `fork` alone. A page that the kernel wipes in every forked child
//! (`MADV_WIPEONFORK`) also tells of `_Fork` and of bare system calls, and reading it costs one load.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};

use crate::sys;

/// Address of the page; 0 before [`watch`].
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// The process the page was last marked for.
static PID: AtomicU32 = AtomicU32::new(0);

/// How often this process's memory came to be another process's, and one: what is known of a process is asked anew.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The mark of the process's PID namespace, with the generation that it was asked in above it.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// Bits of a number that the kernel gives a process or thread: its greatest is below 2^22.
const NUMBER_BITS: u32 = 23;
/// Marks of namespaces, from 1 on: what is left of 31 bits, as a lock needs one.
const MARKS: u64 = 255;

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
    GENERATION.fetch_add(1, Ordering::Relaxed);
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

/// Changes whenever [`id`] belongs to another process than before, by way of a fork.
#[inline]
pub fn generation() -> u32 {
    id();
    GENERATION.load(Ordering::Relaxed)
}

/// The process's number for memory that several processes share, where some may be in another PID namespace (`unshare`,
/// containers): the kernel's number, which means nothing there, and a mark of its namespace. Below 2^31, never 0.
#[inline]
pub fn member() -> u32 {
    id() | namespace_mark() << NUMBER_BITS
}

/// The calling thread's number, likewise. Asks the kernel.
pub fn member_thread() -> u32 {
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    number | namespace_mark() << NUMBER_BITS
}

/// What differs between most PID namespaces; 0 where nobody can tell.
#[inline]
fn namespace_mark() -> u32 {
    let (generation, known) = (generation(), NAMESPACE.load(Ordering::Acquire));
    match known >> 32 == generation.into() {
        true => known as u32,
        false => ask_for_namespace(generation, known),
    }
}

/// The program is about to confine itself (seccomp), and may forbid every call: what is asked for when it is first
/// needed is asked for now.
pub fn confine() {
    namespace_mark();
}

#[cold]
fn ask_for_namespace(generation: u32, known: u64) -> u32 {
    // A child whose parent it can see is where that is. It may be confined, and is asked for no more than that.
    let is_where_parent_is = known != 0 && rustix::process::getppid().is_some();
    let mark = match is_where_parent_is {
        true => known as u32,
        false => mark_of(rustix::fs::stat(c"/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)),
    };
    let word = u64::from(generation) << 32 | u64::from(mark);
    NAMESPACE.store(word, Ordering::Release);
    mark
}

/// The kernel numbers namespaces one after the other, so those of one family rarely have the same.
fn mark_of(inode: u64) -> u32 {
    match inode {
        0 => 0,
        inode => (inode % MARKS) as u32 + 1,
    }
}

/// The number as the kernel has it in this namespace; nothing where it is one of another.
fn number_here(number: u32) -> Option<u32> {
    let mark = number >> NUMBER_BITS;
    let is_from_here = mark == 0 || mark == namespace_mark();
    is_from_here.then_some(number & ((1 << NUMBER_BITS) - 1))
}

/// Whether there is a process, or a thread, with this number; one that has ended is there until its parent has asked.
/// Of one in another namespace ([`member`]) nobody can tell here: it counts as living, as to take what a living process
/// holds destroys it.
pub fn exists(number: u32) -> bool {
    let Some(number) = number_here(number) else {
        return true;
    };
    // SAFETY: signal 0 reaches nobody.
    unsafe { sys::call(libc::SYS_kill, [number as usize, 0, 0, 0, 0, 0]) != Err(libc::ESRCH) }
}

/// Whether the thread with this number runs no more, and may only be waiting for its parent to ask how it ended. Needs
/// a descriptor for a moment; where there is none, whoever has the number counts as running, as one in another
/// namespace does.
pub fn has_ended(number: u32) -> bool {
    let Some(number) = number_here(number) else {
        return false;
    };
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
        let child = unsafe { crate::forking::bare_fork() };
        if child == 0 {
            let well = id() == getpid() && id() != parent;
            // SAFETY: leaves without running anybody's handlers.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(id(), parent);
    }

    #[test]
    fn nobody_of_another_namespace_is_called_dead() {
        assert!(watch());
        let mark = namespace_mark();
        assert!((1..=255).contains(&mark), "{mark}");
        assert_eq!(member(), getpid() | mark << NUMBER_BITS);
        // No process has this number: it is the kernel's greatest, and one.
        let nobody = 1 << 22;
        for number in [nobody, nobody | mark << NUMBER_BITS] {
            assert!(!exists(number) && has_ended(number));
        }
        for number in [member(), member_thread()] {
            assert!(exists(number) && !has_ended(number));
        }
        let elsewhere = nobody | (mark % 255 + 1) << NUMBER_BITS;
        assert!(exists(elsewhere) && !has_ended(elsewhere));
    }

    #[test]
    fn namespaces_that_follow_each_other_have_marks_of_their_own() {
        let marks: std::collections::HashSet<u32> =
            (0..255).map(|more| mark_of(4_026_531_836 + more)).collect();
        assert_eq!(marks.len(), 255);
        assert!(marks.iter().all(|mark| (1..=255).contains(mark)));
        assert_eq!(mark_of(0), 0);
    }

    #[test]
    fn a_child_in_a_namespace_of_its_own_knows_it() {
        assert!(watch());
        let parent = member();
        let run = || {
            // SAFETY: changes what the children of this process are in, which is a child itself.
            if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
                return true;
            }
            let namespace = member() >> NUMBER_BITS;
            status_of(|| {
                member() >> NUMBER_BITS != namespace && exists(parent) && !has_ended(parent)
            })
        };
        assert!(status_of(run));
    }

    #[test]
    fn a_confined_program_is_not_asked_where_it_is() {
        assert!(watch());
        let mark = member() >> NUMBER_BITS;
        let confined = || {
            // As a program that confines itself before it has anything that processes share.
            NAMESPACE.store(0, Ordering::Release);
            confine();
            deadly(&[
                libc::SYS_getppid,
                libc::SYS_newfstatat,
                #[cfg(target_arch = "x86_64")]
                libc::SYS_stat,
                libc::SYS_statx,
            ]);
            member() >> NUMBER_BITS == mark
        };
        assert!(status_of(confined));
    }

    /// Makes each of these calls the end of the process. Nothing is allocated: in a child that was made by a bare fork
    /// another thread may have had the allocator's lock for ever.
    fn deadly<const CALLS: usize>(calls: &[libc::c_long; CALLS]) {
        const LENGTH_MAX: usize = 16;
        let step = |code: u32, k: u32, jt, jf| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let allow = step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0);
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        let mut filter = [allow; LENGTH_MAX];
        filter[0] = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
        for (call, steps) in calls.iter().zip(filter[1..].as_chunks_mut::<2>().0) {
            let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
            steps[0] = step(equals, *call as u32, 0, 1);
            steps[1] = step(libc::BPF_RET | libc::BPF_K, kill, 0, 0);
        }
        const { assert!(2 * CALLS + 2 <= LENGTH_MAX) };
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: both concern the calling process, which is a test's own child; the filter lives through the call.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(
                libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program
                ),
                0
            );
        }
    }

    /// Whether `work` says so in a forked child.
    fn status_of(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes system calls only, and leaves at once.
        let child = unsafe { crate::forking::bare_fork() };
        if child == 0 {
            let well = work();
            // SAFETY: leaves without running anybody's handlers.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        status == 0
    }
}
