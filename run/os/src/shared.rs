//! Values in memory that a family of processes shares, each behind a lock that outlives its holder.
//!
//! The memory is mapped before the first fork and stays where it is, so that every process of the family has it at the
//! same address. A value has no pointer in it, and any octets make one: a process may end while it changes it.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{memfd_create, MemfdFlags, SealFlags, Stat};
use rustix::mm::{madvise, mmap, mmap_anonymous, Advice, MapFlags, ProtFlags};
use zerocopy::{FromBytes, FromZeros};

use crate::lock::{futex_wait, futex_wake};
use crate::process;

const FREE: u32 = 0;
/// Beside the holder: somebody waits.
const WAITED_FOR: u32 = 1 << 31;
/// How often a waiter looks whether the holder still lives.
const LOOK_EVERY_NS: u64 = 50_000_000;
/// Octets of a page, the least that can be given back.
const PAGE: usize = 4096;

/// A value that several processes change, one at a time.
#[repr(C)]
#[derive(Debug, FromZeros)]
pub struct Shared<T> {
    /// The thread that holds it ([`process::member_thread`]).
    word: AtomicU32,
    padding: u32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time in all processes; it is plain
// data.
unsafe impl<T: FromBytes + Send> Sync for Shared<T> {}

/// What came of asking for a value.
#[derive(Debug)]
pub enum Taken<'a, T> {
    /// It is held now.
    Held(Holding<'a, T>),
    /// It is held now; whoever held it before ended in the middle of a change.
    Inherited(Holding<'a, T>),
    /// This thread holds it already: a signal handler came in between.
    Again,
}

/// Gives the value back when dropped.
#[derive(Debug)]
pub struct Holding<'a, T> {
    shared: &'a Shared<T>,
}

impl<T: FromBytes> Shared<T> {
    /// Takes the value; waits for another thread of any process, never for the calling one.
    #[inline]
    pub fn take(&self) -> Taken<'_, T> {
        let own = thread();
        let free = self
            .word
            .compare_exchange(FREE, own, Ordering::Acquire, Ordering::Relaxed);
        match free {
            Ok(_) => Taken::Held(Holding { shared: self }),
            Err(_) => self.contend(own),
        }
    }

    /// Takes the value, if no living thread of another process or of this one holds it: does not wait.
    pub fn try_take(&self) -> Option<Taken<'_, T>> {
        let own = thread();
        let word = self.word.load(Ordering::Relaxed);
        let holder = word & !WAITED_FOR;
        if holder == own {
            return Some(Taken::Again);
        }
        let is_free = holder == FREE;
        if (is_free || !process::exists(holder)) && self.change(word, own | word & WAITED_FOR) {
            let holding = Holding { shared: self };
            return Some(match is_free {
                true => Taken::Held(holding),
                false => Taken::Inherited(holding),
            });
        }
        None
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn contend(&self, own: u32) -> Taken<'_, T> {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let holder = word & !WAITED_FOR;
            if holder == own {
                return Taken::Again;
            }
            if holder == FREE {
                if self.change(word, own | WAITED_FOR) {
                    return Taken::Held(Holding { shared: self });
                }
                continue;
            }
            let waited_for = word | WAITED_FOR;
            if word != waited_for && !self.change(word, waited_for) {
                continue;
            }
            futex_wait(&self.word, waited_for, Some(LOOK_EVERY_NS));
            let is_as_before = self.word.load(Ordering::Relaxed) == waited_for;
            // A parent that waits here does not ask how its child ended.
            if is_as_before
                && process::has_ended(holder)
                && self.change(waited_for, own | WAITED_FOR)
            {
                return Taken::Inherited(Holding { shared: self });
            }
        }
    }
}

impl<T> Deref for Holding<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.shared.value.get() }
    }
}

impl<T> DerefMut for Holding<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed mutably.
        unsafe { &mut *self.shared.value.get() }
    }
}

impl<T> Drop for Holding<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.shared.word;
        if word.swap(FREE, Ordering::Release) & WAITED_FOR != 0 {
            futex_wake(word, 1);
        }
    }
}

/// The calling thread's number, which differs between all threads of all processes of a family, whatever PID namespace
/// they are in.
fn thread() -> u32 {
    thread_local! {
        /// The generation it was asked in, and the number.
        static KNOWN: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }
    let generation = process::generation();
    let known = KNOWN.get();
    // A forked child begins with a copy of its parent's, and may have its parent's number in a namespace of its own.
    if known.0 == generation && generation != 0 {
        return known.1;
    }
    let number = process::member_thread();
    KNOWN.set((generation, number));
    number
}

/// Memory for ever that a family of processes shares: every process forked from the one that made it, and where it has
/// a file, programs that one of them becomes, if they are handed it ([`crate::handing_on`]).
#[derive(Debug)]
pub struct Region {
    addr: usize,
    len: usize,
    /// The descriptor of its file; nothing where it has none.
    file: Option<i32>,
}

/// Numbers of descriptors of regions begin here, where there may be so many: a program counts on having the lowest.
const FILES_FROM: i32 = 512;

impl Region {
    /// Zeroed memory of this process and those that will be forked from it.
    pub fn new(len: usize) -> Option<Region> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other.
        let addr = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection(), flags) };
        Some(Region {
            addr: addr.ok()? as usize,
            len,
            file: None,
        })
    }

    /// The same with a file of this name, by which a program that is handed it finds the memory. Without where the
    /// process may have none.
    pub fn with_file(name: &str, len: usize) -> Option<Region> {
        let make = || {
            if !crate::shm::is_file_allowed(len) {
                return None;
            }
            let low = memfd_create(name, MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).ok()?;
            rustix::fs::ftruncate(&low, len as u64).ok()?;
            rustix::fs::fcntl_add_seals(&low, SealFlags::SHRINK | SealFlags::GROW).ok()?;
            Region::map(raised(low), len)
        };
        make().or_else(|| Region::new(len))
    }

    /// The file of the one that a program before this had, of this name. Allocates.
    pub fn inherited_file(name: &str) -> Option<i32> {
        let wanted = format!("/memfd:{name} (deleted)");
        let entries = std::fs::read_dir("/proc/self/fd").ok()?;
        entries.flatten().find_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let is_it = target.as_os_str() == wanted.as_str();
            is_it
                .then(|| entry.file_name().to_str()?.parse().ok())
                .flatten()
        })
    }

    /// The one that a program before this had, of this name and length, under the same user. Allocates.
    pub fn inherited(name: &str, len: usize) -> Option<Region> {
        let number = Region::inherited_file(name)?;
        // SAFETY: the descriptor was found open, and nothing of this process closes it: it has no owner but this.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        let is_ours = |stat: Stat| {
            // What another user may write is not to be believed.
            stat.st_size as usize == len && stat.st_uid == rustix::process::geteuid().as_raw()
        };
        let is_whole = rustix::fs::fstat(&file).is_ok_and(is_ours);
        let sealed = rustix::fs::fcntl_get_seals(&file);
        if !is_whole || !sealed.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            std::mem::forget(file);
            return None;
        }
        Region::map(file, len)
    }

    fn map(file: OwnedFd, len: usize) -> Option<Region> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other. The file's size is sealed.
        let addr = unsafe { mmap(std::ptr::null_mut(), len, protection(), flags, &file, 0) };
        Some(Region {
            addr: addr.ok()? as usize,
            len,
            file: Some(file.into_raw_fd()),
        })
    }

    /// The descriptor of its file, which nobody may close.
    pub fn file(&self) -> Option<i32> {
        self.file
    }

    /// So many values, from this octet on; nothing where they do not lie in it.
    ///
    /// # Panics
    /// A `T` is not made of whole pages, or does not begin with one.
    pub fn values<T: FromZeros + Sync>(&self, offset: usize, count: usize) -> Option<&'static [T]> {
        let size = std::mem::size_of::<T>();
        assert!(size > 0 && size.is_multiple_of(PAGE) && std::mem::align_of::<T>() <= PAGE);
        assert!(offset.is_multiple_of(PAGE));
        let end = size.checked_mul(count)?.checked_add(offset)?;
        if end > self.len {
            return None;
        }
        // SAFETY: the mapping was zeroed, is aligned to a page, long enough and never unmapped, and zeros make a `T`;
        // what other processes of the family have made of it they made as `&T` too, of which any octets make one.
        Some(unsafe { std::slice::from_raw_parts((self.addr + offset) as *const T, count) })
    }
}

/// The same file under a high number.
fn raised(file: OwnedFd) -> OwnedFd {
    let args = [
        file.as_raw_fd() as usize,
        libc::F_DUPFD_CLOEXEC as usize,
        FILES_FROM as usize,
        0,
        0,
        0,
    ];
    // SAFETY: names no memory.
    match unsafe { crate::sys::call(libc::SYS_fcntl, args) } {
        // SAFETY: the kernel has just made it for this call.
        Ok(high) => unsafe { OwnedFd::from_raw_fd(high as i32) },
        Err(_) => file,
    }
}

fn protection() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// Zeroed values for ever, shared with every process that is forked from this one; nothing when the kernel has no room
/// for them. Pages cost memory once they are written.
///
/// # Panics
/// As of [`Region::values`].
pub fn values<T: FromZeros + Sync>(count: usize) -> Option<&'static [T]> {
    Region::new(std::mem::size_of::<T>().checked_mul(count)?)?.values(0, count)
}

/// Gives the whole pages of `octets` back to the kernel; they are zero from then on, in every process.
pub fn give_back(octets: &mut [u8]) {
    let addr = octets.as_mut_ptr() as usize;
    let (begin, end) = (
        addr.next_multiple_of(PAGE),
        (addr + octets.len()) / PAGE * PAGE,
    );
    if begin < end {
        // SAFETY: the range is part of `octets`, which is borrowed mutably: any octets make it, zeros among them. The
        // kernel refuses where the memory is not shared.
        let _ = unsafe { madvise(begin as *mut _, end - begin, Advice::LinuxRemove) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::BorrowedFd;

    #[repr(C, align(4096))]
    #[derive(FromZeros)]
    struct Page {
        count: Shared<u64>,
    }

    fn page() -> &'static Page {
        process::watch();
        &values::<Page>(1).unwrap()[0]
    }

    fn held<'a, T>(taken: Taken<'a, T>) -> Holding<'a, T> {
        match taken {
            Taken::Held(holding) => holding,
            Taken::Inherited(_) => panic!("inherited"),
            Taken::Again => panic!("held already"),
        }
    }

    /// Runs `work` in a forked child; gives its process number once it has ended.
    fn in_child(work: impl FnOnce()) {
        // SAFETY: the child makes system calls and changes shared memory only, and leaves at once.
        let child = unsafe { crate::forking::bare_fork() };
        if child == 0 {
            work();
            // SAFETY: leaves without running anybody's handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }

    #[test]
    fn processes_and_threads_exclude_each_other() {
        let page = page();
        let work = || (0..10_000).for_each(|_| *held(page.count.take()) += 1);
        std::thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
            in_child(work);
        });
        assert_eq!(*held(page.count.take()), 30_000);
    }

    #[test]
    fn what_another_namespace_holds_is_neither_free_nor_ones_own() {
        let page = page();
        let own = thread();
        // The same number, elsewhere.
        page.count.word.store(own ^ 1 << 30, Ordering::Relaxed);
        assert!(page.count.try_take().is_none());
        page.count
            .word
            .store(1 << 22 | own >> 23 << 23, Ordering::Relaxed);
        assert!(
            matches!(page.count.try_take(), Some(Taken::Inherited(_))),
            "nobody has it"
        );
    }

    #[test]
    fn a_thread_that_comes_back_is_told() {
        let page = page();
        let holding = held(page.count.take());
        assert!(matches!(page.count.take(), Taken::Again));
        drop(holding);
        held(page.count.take());
    }

    #[test]
    fn who_does_not_wait_is_told_that_another_holds_it() {
        let page = page();
        assert!(matches!(page.count.try_take(), Some(Taken::Held(_))));
        let holding = held(page.count.take());
        assert!(matches!(page.count.try_take(), Some(Taken::Again)));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(page.count.try_take().is_none()));
        });
        drop(holding);
        in_child(|| std::mem::forget(page.count.take()));
        assert!(matches!(page.count.try_take(), Some(Taken::Inherited(_))));
        held(page.count.take());
    }

    #[test]
    fn who_takes_over_from_the_dead_knows_it() {
        let page = page();
        in_child(|| {
            let mut holding = held(page.count.take());
            *holding = 7;
            std::mem::forget(holding);
        });
        let Taken::Inherited(holding) = page.count.take() else {
            panic!("nobody died");
        };
        assert_eq!(*holding, 7);
        drop(holding);
        held(page.count.take());
    }

    #[test]
    fn who_takes_over_need_not_have_asked_how_the_dead_ended() {
        let page = page();
        // SAFETY: the child makes system calls and changes shared memory only, and leaves at once.
        let child = unsafe { crate::forking::bare_fork() };
        if child == 0 {
            std::mem::forget(page.count.take());
            // SAFETY: leaves without running anybody's handlers.
            unsafe { libc::_exit(0) };
        }
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: fills `info`, and leaves the child to be asked for.
        let waited = unsafe { libc::waitid(libc::P_PID, child as u32, info.as_mut_ptr(), flags) };
        assert_eq!(waited, 0);
        assert!(process::exists(child as u32), "nobody has asked");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = sender.send(matches!(page.count.take(), Taken::Inherited(_)));
        });
        let inherited = receiver.recv_timeout(std::time::Duration::from_secs(10));
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(inherited, Ok(true));
    }

    #[test]
    fn what_another_user_made_is_not_inherited() {
        const NAME: &str = "weft-test-of-inherited";
        let region = Region::with_file(NAME, PAGE).unwrap();
        let number = region.file().unwrap();
        assert_eq!(Region::inherited_file(NAME), Some(number));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // SAFETY: nobody closes the file of a region.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::fs::fchown(file, Some(rustix::process::Uid::from_raw(9)), None).unwrap();
        assert!(Region::inherited(NAME, PAGE).is_none());
        rustix::fs::fchown(file, Some(rustix::process::Uid::ROOT), None).unwrap();
        let inherited = Region::inherited(NAME, PAGE).expect("it is there, and ours");
        assert_eq!(inherited.file(), Some(number));
    }

    #[test]
    fn pages_that_are_given_back_are_zero() {
        #[repr(C, align(4096))]
        #[derive(FromZeros)]
        struct Pages {
            octets: Shared<[u8; 3 * PAGE - 8]>,
        }
        let pages = &values::<Pages>(1).unwrap()[0];
        let mut octets = held(pages.octets.take());
        octets.fill(9);
        give_back(&mut octets[..]);
        assert_eq!((octets[0], octets[PAGE], octets[3 * PAGE - 9]), (9, 0, 0));
    }
}
