//! Buffers that a program hands over for the length of one call.
//!
//! They may be unmapped, may overlap, and other threads may change them: only guarded copies and the
//! kernel touch them.

mod range;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, Range};

use crate::guard;
use crate::sys::IoVec;

pub use crate::mem::Unmapped;
pub use range::UserRange;

/// Ranges a list holds; who brings more is served by the kernel alone.
pub const RANGES_MAX: usize = 16;
/// Octets of which all can be read or none.
const PAGE: usize = 4096;

/// A gather or scatter list of the program's.
#[derive(Debug)]
pub struct UserBuffers {
    /// The first `count` are set: most lists have one range, and the others would be written for nothing.
    ranges: [MaybeUninit<IoVec>; RANGES_MAX],
    count: usize,
    octets: usize,
}

/// Makes later guarded copies answer for bad addresses instead of ending the program.
pub fn guard_copies() {
    guard::install();
}

/// A plain value at an address of the program's; nothing if it is not mapped.
///
/// # Safety
/// `T` is a structure of C for which every bit pattern is a value, and nobody relies on the memory being
/// unread.
pub unsafe fn get<T: Copy>(addr: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    let len = std::mem::size_of::<T>();
    // SAFETY: the target is ours and as long as the copy; the caller vouches that any bits make a `T`.
    unsafe {
        guard::copy(value.as_mut_ptr().cast(), addr as *const u8, len).then(|| value.assume_init())
    }
}

/// Writes a plain value to an address of the program's; false if it is not mapped.
///
/// # Safety
/// The program handed the memory over to be overwritten.
#[must_use]
pub unsafe fn put<T: Copy>(addr: usize, value: T) -> bool {
    let len = std::mem::size_of::<T>();
    // SAFETY: the source is ours; the caller vouches for the target.
    unsafe { guard::copy(addr as *mut u8, std::ptr::from_ref(&value).cast(), len) }
}

/// Writes octets to an address of the program's; false if it is not mapped.
///
/// # Safety
/// As for [`put`].
#[must_use]
pub unsafe fn put_octets(addr: usize, octets: &[u8]) -> bool {
    // SAFETY: as above.
    unsafe { guard::copy(addr as *mut u8, octets.as_ptr(), octets.len()) }
}

/// Reads octets at an address of the program's; false if it is not mapped.
///
/// # Safety
/// Nobody relies on the memory being unread.
#[must_use]
pub unsafe fn get_octets(addr: usize, octets: &mut [u8]) -> bool {
    // SAFETY: as above.
    unsafe { guard::copy(octets.as_mut_ptr(), addr as *const u8, octets.len()) }
}

impl UserBuffers {
    /// One range.
    ///
    /// # Safety
    /// While the value lives nobody may rely on these octets staying as they are, and no Rust
    /// reference to them may exist. They need not be mapped.
    #[inline]
    pub unsafe fn one(addr: usize, len: usize) -> UserBuffers {
        let mut ranges = [const { MaybeUninit::uninit() }; RANGES_MAX];
        ranges[0].write(IoVec { base: addr, len });
        UserBuffers {
            ranges,
            count: 1,
            octets: len,
        }
    }

    /// No range.
    pub const fn none() -> UserBuffers {
        UserBuffers {
            ranges: [const { MaybeUninit::uninit() }; RANGES_MAX],
            count: 0,
            octets: 0,
        }
    }

    /// The ranges that `count` iovecs at `addr` name; nothing if the list is too long, not mapped, or
    /// names more octets than there can be.
    ///
    /// # Safety
    /// As for [`UserBuffers::one`], of each range and of the list itself.
    pub unsafe fn list(addr: usize, count: usize) -> Option<UserBuffers> {
        if count > RANGES_MAX {
            return None;
        }
        let mut list = UserBuffers {
            ranges: [const { MaybeUninit::uninit() }; RANGES_MAX],
            count,
            octets: 0,
        };
        let octets = count * std::mem::size_of::<IoVec>();
        let target = list.ranges.as_mut_ptr().cast();
        // SAFETY: the target is ours and large enough.
        let copied = unsafe { guard::copy(target, addr as *const u8, octets) };
        if !copied {
            return None;
        }
        list.octets = list
            .ranges()
            .iter()
            .try_fold(0usize, |sum, range| sum.checked_add(range.len))
            .filter(|total| *total <= isize::MAX as usize)?;
        Some(list)
    }

    #[inline]
    fn ranges(&self) -> &[IoVec] {
        let set = &self.ranges[..self.count];
        // SAFETY: the first `count` were set when the list was made; any bits make an `IoVec`.
        unsafe { &*(std::ptr::from_ref(set) as *const [IoVec]) }
    }

    /// Octets in all ranges.
    #[inline]
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Address and length of the only range of the list, as that of nearly every call is.
    #[inline]
    pub fn only_range(&self) -> Option<(usize, usize)> {
        let [range] = self.ranges() else { return None };
        Some((range.base, range.len))
    }

    /// The parts of the list that hold these of its octets.
    pub(crate) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = IoVec> + '_ {
        let mut at = 0;
        self.ranges().iter().filter_map(move |part| {
            let begin = range.start.clamp(at, at + part.len) - at;
            let end = range.end.clamp(at, at + part.len) - at;
            at += part.len;
            (begin < end).then(|| IoVec {
                base: part.base.wrapping_add(begin),
                len: end - begin,
            })
        })
    }

    /// These octets where the list is one range, as that of nearly every call is.
    #[inline]
    fn of_only_part(&self, range: &Range<usize>) -> Option<IoVec> {
        let [part] = self.ranges() else { return None };
        (range.start < range.end && range.end <= part.len).then(|| IoVec {
            base: part.base.wrapping_add(range.start),
            len: range.end - range.start,
        })
    }

    /// How many of these octets can be read, from the first on: one of each page is looked at.
    pub fn readable(&self, range: Range<usize>) -> usize {
        let mut readable = 0;
        for part in self.parts(range) {
            let mut at = 0;
            while at < part.len {
                let addr = part.base.wrapping_add(at);
                // SAFETY: whoever made the list vouches that nobody relies on its octets being unread.
                if unsafe { get::<u8>(addr) }.is_none() {
                    return readable + at;
                }
                at = (at + PAGE - addr % PAGE).min(part.len);
            }
            readable += part.len;
        }
        readable
    }

    /// Whether all of these octets can be written: one of each page is, with what it has.
    #[inline]
    pub fn is_writable(&self, range: Range<usize>) -> bool {
        match self.of_only_part(&range) {
            Some(part) => self.is_part_writable(part),
            None => self.parts(range).all(|part| self.is_part_writable(part)),
        }
    }

    /// Whether all octets of this part of the list, which has some, can be written.
    fn is_part_writable(&self, part: IoVec) -> bool {
        // SAFETY: whoever made the list handed its octets over to be overwritten. Of the word that an octet is in the
        // others are in the same page, and nothing changes: the exchange is one step.
        let is_mapped = |addr: usize| unsafe {
            guard::compare_exchange((addr & !7) as *mut u64, 0, 0).is_some()
        };
        let last = part.base.wrapping_add(part.len - 1);
        let mut addr = part.base;
        while addr / PAGE != last / PAGE {
            if !is_mapped(addr) {
                return false;
            }
            addr = (addr / PAGE + 1).wrapping_mul(PAGE);
        }
        is_mapped(last)
    }

    /// Copies these octets of the list to the front of `out`.
    ///
    /// # Errors
    /// Not mapped.
    ///
    /// # Panics
    /// `out` is shorter than the range.
    #[inline]
    pub fn read_range(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), Unmapped> {
        let Some(part) = self.of_only_part(&range) else {
            return self.read_parts(range, out);
        };
        let out = &mut out[..part.len];
        // SAFETY: the target is `out`, which is as long as the part.
        let copied = unsafe { guard::copy(out.as_mut_ptr(), part.base as *const u8, part.len) };
        copied.then_some(()).ok_or(Unmapped)
    }

    #[inline(never)]
    fn read_parts(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), Unmapped> {
        let mut at = 0;
        for part in self.parts(range) {
            let out = &mut out[at..at + part.len];
            // SAFETY: the target is `out`, which is as long as the part.
            let copied = unsafe { guard::copy(out.as_mut_ptr(), part.base as *const u8, part.len) };
            copied.then_some(()).ok_or(Unmapped)?;
            at += part.len;
        }
        Ok(())
    }

    /// Copies `octets` to the place of these octets of the list; no more than those.
    ///
    /// # Errors
    /// Not mapped.
    #[inline]
    pub fn write_range(&self, range: Range<usize>, octets: &[u8]) -> Result<(), Unmapped> {
        let Some(part) = self.of_only_part(&range) else {
            return self.write_parts(range, octets);
        };
        let octets = &octets[..part.len.min(octets.len())];
        // SAFETY: the target is the program's buffer, handed over to be overwritten.
        let copied = unsafe { guard::copy(part.base as *mut u8, octets.as_ptr(), octets.len()) };
        copied.then_some(()).ok_or(Unmapped)
    }

    #[inline(never)]
    fn write_parts(&self, range: Range<usize>, octets: &[u8]) -> Result<(), Unmapped> {
        let mut left = octets;
        for part in self.parts(range) {
            let (now, behind) = left.split_at(part.len.min(left.len()));
            // SAFETY: the target is the program's buffer, handed over to be overwritten.
            let copied = unsafe { guard::copy(part.base as *mut u8, now.as_ptr(), now.len()) };
            copied.then_some(()).ok_or(Unmapped)?;
            left = behind;
        }
        Ok(())
    }

    /// Copies everything to the front of `out`.
    ///
    /// # Errors
    /// Not mapped.
    ///
    /// # Panics
    /// `out` is shorter than the list.
    #[inline]
    pub fn read(&self, out: &mut [u8]) -> Result<(), Unmapped> {
        let mut at = 0;
        for range in self.ranges() {
            let part = &mut out[at..at + range.len];
            // SAFETY: the target is `part`, which is as long as the range.
            let copied =
                unsafe { guard::copy(part.as_mut_ptr(), range.base as *const u8, range.len) };
            copied.then_some(()).ok_or(Unmapped)?;
            at += range.len;
        }
        Ok(())
    }

    /// Copies as much of `octets` as there is room for; gives how much that was.
    ///
    /// # Errors
    /// Not mapped.
    #[inline]
    pub fn write(&self, octets: &[u8]) -> Result<usize, Unmapped> {
        let mut at = 0;
        for range in self.ranges() {
            let part = &octets[at..];
            let len = part.len().min(range.len);
            // SAFETY: the target is the program's buffer, handed over to be overwritten.
            let copied = unsafe { guard::copy(range.base as *mut u8, part.as_ptr(), len) };
            copied.then_some(()).ok_or(Unmapped)?;
            at += len;
        }
        Ok(at)
    }
}

/// A buffer of ours in place of a program's.
#[derive(Debug)]
pub struct OwnBuffer<'a> {
    buffers: UserBuffers,
    octets: PhantomData<&'a mut [u8]>,
}

impl<'a> From<&'a mut [u8]> for OwnBuffer<'a> {
    fn from(octets: &'a mut [u8]) -> OwnBuffer<'a> {
        OwnBuffer {
            // SAFETY: the octets are borrowed mutably for as long as the list can be reached.
            buffers: unsafe { UserBuffers::one(octets.as_mut_ptr() as usize, octets.len()) },
            octets: PhantomData,
        }
    }
}

impl OwnBuffer<'static> {
    /// So many octets at an address where nothing is.
    pub fn unmapped(octets: usize) -> OwnBuffer<'static> {
        OwnBuffer {
            // SAFETY: nothing is mapped in the first page, so nothing is read or written.
            buffers: unsafe { UserBuffers::one(1, octets.min(PAGE - 1)) },
            octets: PhantomData,
        }
    }
}

impl Deref for OwnBuffer<'_> {
    type Target = UserBuffers;

    fn deref(&self) -> &UserBuffers {
        &self.buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_in_order() {
        let mut a = [1u8, 2, 3];
        let mut b = [4u8, 5];
        let vec = [
            IoVec {
                base: a.as_mut_ptr() as usize,
                len: 3,
            },
            IoVec { base: 0, len: 0 },
            IoVec {
                base: b.as_mut_ptr() as usize,
                len: 2,
            },
        ];
        // SAFETY: the arrays live to the end of the test and are not otherwise looked at until then.
        let list = unsafe { UserBuffers::list(vec.as_ptr() as usize, 3) }.unwrap();
        assert_eq!(list.octets(), 5);
        let mut out = [0; 6];
        list.read(&mut out).unwrap();
        assert_eq!(out, [1, 2, 3, 4, 5, 0]);
        assert_eq!(list.write(&[9, 8, 7, 6]).unwrap(), 4);
        assert_eq!((a, b), ([9, 8, 7], [6, 5]));
    }

    #[test]
    fn ranges_of_a_list_are_found_across_its_parts() {
        let (mut a, mut b) = ([1u8, 2, 3], [4u8, 5]);
        let part = |octets: &mut [u8]| IoVec {
            base: octets.as_mut_ptr() as usize,
            len: octets.len(),
        };
        let vec = [part(&mut a), part(&mut b)];
        // SAFETY: the arrays live to the end of the test and are not otherwise looked at until then.
        let list = unsafe { UserBuffers::list(vec.as_ptr() as usize, 2) }.unwrap();
        let mut out = [0; 3];
        list.read_range(1..4, &mut out).unwrap();
        assert_eq!(out, [2, 3, 4]);
        list.write_range(2..5, &[7, 8]).unwrap();
        assert_eq!(list.readable(0..5), 5);
        assert_eq!(list.parts(3..3).count(), 0);
        assert_eq!((a, b), ([1, 2, 7], [8, 5]));
    }

    #[test]
    fn what_can_be_read_is_counted_to_the_first_page_that_cannot() {
        guard_copies();
        // SAFETY: a new mapping at an address of the kernel's choice touches no other; its end cannot be read.
        let addr = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let addr = libc::mmap(std::ptr::null_mut(), 3 * PAGE, prot, flags, -1, 0) as usize;
            libc::mprotect((addr + PAGE) as *mut _, 2 * PAGE, libc::PROT_NONE);
            addr
        };
        // SAFETY: nobody relies on these octets.
        let list = unsafe { UserBuffers::one(addr + 100, 2 * PAGE) };
        assert_eq!(list.readable(0..2 * PAGE), PAGE - 100);
        assert_eq!(list.readable(50..60), 10);
        assert_eq!(list.readable(PAGE..PAGE + 9), 0);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_can_be_written_keeps_what_it_has() {
        guard_copies();
        // SAFETY: a new mapping at an address of the kernel's choice touches no other; its second page cannot be
        // written, and its third not be reached.
        let addr = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let addr = libc::mmap(std::ptr::null_mut(), 3 * PAGE, prot, flags, -1, 0) as usize;
            libc::mprotect((addr + PAGE) as *mut _, PAGE, libc::PROT_READ);
            libc::mprotect((addr + 2 * PAGE) as *mut _, PAGE, libc::PROT_NONE);
            addr
        };
        // SAFETY: nobody relies on these octets.
        let list = unsafe { UserBuffers::one(addr, 3 * PAGE) };
        list.write_range(PAGE - 2..PAGE, &[7, 8]).unwrap();
        assert!(list.is_writable(0..PAGE) && list.is_writable(PAGE - 1..PAGE));
        let mut after = [0; 2];
        list.read_range(PAGE - 2..PAGE, &mut after).unwrap();
        assert_eq!(after, [7, 8]);
        assert!(!list.is_writable(PAGE - 1..PAGE + 1) && !list.is_writable(2 * PAGE..2 * PAGE + 1));
        assert!(list.is_writable(PAGE..PAGE), "none of them");
    }

    #[test]
    fn bad_addresses_are_errors() {
        guard_copies();
        // SAFETY: nothing is mapped there, which is what is tested.
        let bad = unsafe { UserBuffers::one(16, 100) };
        assert_eq!(bad.read(&mut [0; 100]), Err(Unmapped));
        assert_eq!(bad.write(&[0; 100]), Err(Unmapped));
        // SAFETY: as above.
        assert!(unsafe { UserBuffers::list(16, 2) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { UserBuffers::list(16, RANGES_MAX + 1) }.is_none());
    }
}
