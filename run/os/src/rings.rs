//! Memory that two processes share for the octets of one connection: a memfd of a size that cannot change, with a page
//! of words and two areas of octets.
//!
//! Either process may write anything anywhere in it at any moment. So no Rust reference to the areas is ever made:
//! octets are copied in and out, at addresses that are computed from numbers of this process alone. The words are
//! atomic, and what they say is the caller's to check.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{memfd_create, MemfdFlags, SealFlags};
use rustix::mm::{madvise, mmap, munmap, Advice, MapFlags, ProtFlags};

use crate::fork::Generation;
use crate::guard;
use crate::lists::{Gather, Scatter};
use crate::mem::Unmapped;
use crate::shm::is_file_allowed;
use crate::sys::IoVec;

/// Octets of a page, and of the words at the front.
const PAGE_OCTETS: usize = 4096;
/// Words at the front.
pub const WORDS: usize = PAGE_OCTETS / 8;
/// Octets of an area: a power of two.
pub const AREA_OCTETS: usize = 256 * 1024;
/// Octets of the whole: what a connection costs at most.
pub const OCTETS: usize = PAGE_OCTETS + 2 * AREA_OCTETS;
/// Its name, as `/proc/PID/maps` has it.
const NAME: &str = "weft-rings";

/// The memory, mapped.
#[derive(Debug)]
pub struct SharedRings {
    addr: usize,
    /// The process that mapped it: a forked child has no such mapping.
    of: Generation,
}

/// Which of the two areas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// The one behind the words.
    First,
    /// The one behind that.
    Second,
}

/// A descriptor that the other process makes the same memory of.
#[derive(Debug)]
pub struct RingsToShare(OwnedFd);

impl AsFd for RingsToShare {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SharedRings {
    /// New memory, zeroed, and what to hand to the other process.
    ///
    /// # Errors
    /// Descriptors or memory are short, or the process may not write files of this size (RLIMIT_FSIZE).
    pub fn create() -> io::Result<(SharedRings, RingsToShare)> {
        if !is_file_allowed(OCTETS) {
            return Err(rustix::io::Errno::FBIG.into());
        }
        let fd = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, OCTETS as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((SharedRings::map(&fd)?, RingsToShare(fd)))
    }

    /// Memory that another process made.
    ///
    /// # Errors
    /// It is not such memory, or its size may change: then a page that is there now could be gone at the next access.
    pub fn open(fd: OwnedFd) -> io::Result<SharedRings> {
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        let stat = rustix::fs::fstat(&fd)?;
        let is_fixed = seals.contains(SealFlags::SHRINK | SealFlags::GROW);
        // Larger pages may be missing when they are first touched, which is a signal; these come from common memory.
        let is_plain = stat.st_blksize as usize == PAGE_OCTETS;
        if !is_fixed || !is_plain || stat.st_size as usize != OCTETS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a connection's shared memory: another size, or one that may change",
            ));
        }
        SharedRings::map(&fd)
    }

    fn map(fd: &OwnedFd) -> io::Result<SharedRings> {
        guard::install();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no other.
        let addr = unsafe { mmap(std::ptr::null_mut(), OCTETS, prot, MapFlags::SHARED, fd, 0)? };
        // SAFETY: advice about the mapping just made. A child of a fork has none of it: it could only do harm there.
        let _ = unsafe { madvise(addr, OCTETS, Advice::LinuxDontFork) };
        Ok(SharedRings {
            addr: addr as usize,
            of: Generation::now(),
        })
    }

    /// Whether this process is a child of the one that mapped it. Nothing else may be asked of it then.
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.of.is_over()
    }

    /// The words at the front.
    ///
    /// # Panics
    /// [Foreign](SharedRings::is_foreign).
    #[inline]
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        assert!(
            !self.is_foreign(),
            "a forked child uses its parent's connection"
        );
        // SAFETY: the mapping begins with a page that is aligned, cannot shrink (sealed), lives as long as `self` in
        // this process, and is only ever accessed as atomic words, here and in the other process.
        unsafe { &*(self.addr as *const [AtomicU64; WORDS]) }
    }

    /// The two runs of an area that `len` octets from `position` on are: to the area's end, and from its beginning.
    #[inline]
    fn runs(&self, area: Area, position: u64, len: usize) -> [(usize, usize); 2] {
        assert!(len <= AREA_OCTETS && !self.is_foreign());
        let base = self.addr + PAGE_OCTETS + AREA_OCTETS * usize::from(area == Area::Second);
        let at = position as usize % AREA_OCTETS;
        let first = len.min(AREA_OCTETS - at);
        [(base + at, first), (base, len - first)]
    }

    /// Copies octets in, at a position that is taken modulo the area's size.
    ///
    /// # Errors
    /// The kernel has no page for them.
    ///
    /// # Panics
    /// They are more than the area has; or the memory is [foreign](SharedRings::is_foreign).
    #[inline]
    pub fn put(&self, area: Area, position: u64, octets: &[u8]) -> Result<(), Unmapped> {
        let mut source = octets.as_ptr();
        for (target, len) in self.runs(area, position, octets.len()) {
            // SAFETY: the target is inside of the area, to which no reference exists; the source is borrowed. The copy
            // is guarded where a page is missing.
            if len > 0 && !unsafe { guard::copy(target as *mut u8, source, len) } {
                return Err(Unmapped);
            }
            source = source.wrapping_add(len);
        }
        Ok(())
    }

    /// Copies octets out.
    ///
    /// # Errors
    /// As for [`SharedRings::put`].
    ///
    /// # Panics
    /// As for [`SharedRings::put`].
    #[inline]
    pub fn take(&self, area: Area, position: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        let mut target = out.as_mut_ptr();
        for (source, len) in self.runs(area, position, out.len()) {
            // SAFETY: the source is inside of the area; what the other process writes there meanwhile is taken as it
            // comes, and any octets are octets. The target is borrowed. The copy is guarded where a page is missing.
            if len > 0 && !unsafe { guard::copy(target, source as *const u8, len) } {
                return Err(Unmapped);
            }
            target = target.wrapping_add(len);
        }
        Ok(())
    }

    /// Copies up to `most` octets of a list in, behind the first `skip` of it; how many.
    ///
    /// # Errors
    /// Memory in the list is not mapped, or the kernel has no page. What is before it may have been copied.
    ///
    /// # Panics
    /// As for [`SharedRings::put`].
    #[inline]
    pub fn put_list(
        &self,
        area: Area,
        position: u64,
        list: &Gather<'_>,
        (skip, most): (usize, usize),
    ) -> Result<usize, Unmapped> {
        let mut put = 0;
        for (source, len) in parts(list.as_slice(), skip, most) {
            let mut source = source;
            for (target, len) in self.runs(area, position.wrapping_add(put as u64), len) {
                // SAFETY: the target is inside of the area. The list holds borrowed octets and ranges of registered
                // memory, for which the copy is guarded.
                if len > 0 && !unsafe { guard::copy(target as *mut u8, source as *const u8, len) } {
                    return Err(Unmapped);
                }
                source += len;
            }
            put += len;
        }
        Ok(put)
    }

    /// Copies up to `most` octets out into a list, behind the first `skip` of it; how many.
    ///
    /// # Errors
    /// Memory in the list is not mapped, or the kernel has no page. What is before it may have been written.
    ///
    /// # Panics
    /// As for [`SharedRings::put`].
    #[inline]
    pub fn take_list(
        &self,
        area: Area,
        position: u64,
        list: &Scatter<'_>,
        (skip, most): (usize, usize),
    ) -> Result<usize, Unmapped> {
        let mut taken = 0;
        for (target, len) in parts(list.as_slice(), skip, most) {
            let mut target = target;
            for (source, len) in self.runs(area, position.wrapping_add(taken as u64), len) {
                // SAFETY: the source is inside of the area. Every element is a mutably borrowed buffer or registered
                // memory, which may be overwritten; the copy is guarded where nothing is mapped.
                if len > 0 && !unsafe { guard::copy(target as *mut u8, source as *const u8, len) } {
                    return Err(Unmapped);
                }
                target += len;
            }
            taken += len;
        }
        Ok(taken)
    }
}

/// The parts of a list that `most` octets behind the first `skip` are: addresses and lengths.
#[inline]
fn parts(list: &[IoVec], skip: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let (mut skip, mut left) = (skip, most);
    list.iter().map_while(move |element| {
        let passed = skip.min(element.len);
        skip -= passed;
        let len = left.min(element.len - passed);
        left -= len;
        (len > 0 || left > 0).then_some((element.base + passed, len))
    })
}

impl Drop for SharedRings {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: the mapping is ours and no borrow of it outlives `self`.
            let _ = unsafe { munmap(self.addr as *mut _, OCTETS) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::mem::{unmapped, Registered};

    fn pair() -> (SharedRings, SharedRings) {
        let (one, shared) = SharedRings::create().unwrap();
        (one, SharedRings::open(shared.0).unwrap())
    }

    #[test]
    fn either_end_sees_the_others_words_and_octets() {
        let (one, other) = pair();
        one.words()[7].store(42, Ordering::Relaxed);
        assert_eq!(other.words()[7].load(Ordering::Relaxed), 42);
        for position in [0, 5, AREA_OCTETS as u64 - 3, u64::MAX - 4] {
            one.put(Area::Second, position, b"octets").unwrap();
            let mut out = [0; 6];
            other.take(Area::Second, position, &mut out).unwrap();
            assert_eq!(&out, b"octets", "at {position}");
            other.take(Area::First, position, &mut out).unwrap();
            assert_eq!(out, [0; 6], "the areas are apart");
        }
    }

    #[test]
    fn lists_go_in_and_out_across_the_end_of_an_area() {
        let (one, other) = pair();
        let memory = Registered::allocate(64).unwrap();
        memory.write(8, b"registered").unwrap();
        let mut gather = Gather::default();
        gather.push(b"head");
        gather.push_registered(&memory, 8, 10);
        gather.push(b"tail");
        let at = AREA_OCTETS as u64 - 7;
        assert_eq!(one.put_list(Area::First, at, &gather, (0, 9)), Ok(9));
        assert_eq!(one.put_list(Area::First, at + 9, &gather, (9, 7)), Ok(7));
        assert_eq!(one.put_list(Area::First, at + 16, &gather, (16, 7)), Ok(2));
        let mut head = [0; 5];
        let mut scatter = Scatter::default();
        scatter.push(&mut head);
        scatter.push_registered(&memory, 30, 20);
        assert_eq!(other.take_list(Area::First, at, &scatter, (0, 3)), Ok(3));
        let rest = other.take_list(Area::First, at + 3, &scatter, (3, 13));
        assert_eq!(rest, Ok(13));
        let mut placed = [0; 12];
        memory.read(30, &mut placed).unwrap();
        assert_eq!((&head, &placed), (b"headr", b"egisteredta\0"));
    }

    #[test]
    fn memory_that_is_gone_is_an_error() {
        let (one, _other) = pair();
        let gone = unmapped(4096);
        let mut gather = Gather::default();
        gather.push_registered(&gone, 0, 4096);
        assert_eq!(
            one.put_list(Area::First, 0, &gather, (0, 4096)),
            Err(Unmapped)
        );
        let mut scatter = Scatter::default();
        scatter.push_registered(&gone, 0, 4096);
        assert_eq!(
            one.take_list(Area::First, 0, &scatter, (0, 1)),
            Err(Unmapped)
        );
    }

    #[test]
    fn what_another_process_could_take_away_is_not_mapped() {
        let open = |octets: usize, seals: SealFlags, flags: MemfdFlags| {
            let fd = memfd_create("test", flags | MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, octets as u64).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            SharedRings::open(fd)
        };
        let fixed = SealFlags::SHRINK | SealFlags::GROW;
        let plain = MemfdFlags::empty();
        assert!(open(OCTETS, fixed, plain).is_ok());
        assert!(open(OCTETS, SealFlags::GROW, plain).is_err());
        assert!(open(OCTETS, SealFlags::SHRINK, plain).is_err());
        assert!(open(OCTETS - 4096, fixed, plain).is_err());
        assert!(open(OCTETS, fixed | SealFlags::WRITE, plain).is_err());
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(SharedRings::open(counter).is_err());
    }

    #[test]
    fn a_forked_child_has_none_of_it() {
        crate::fork::watch();
        let (one, _other) = pair();
        assert!(!one.is_foreign());
        let status = crate::fork::tests::in_a_child(|| {
            let is_foreign = one.is_foreign();
            drop(one);
            is_foreign
        });
        assert_eq!(status, 0);
    }
}
