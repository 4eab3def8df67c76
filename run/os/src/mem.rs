//! Registered memory.
//!
//! The program, the peer and this process's other threads may change registered memory at any
//! moment, so no Rust reference to it is ever made: it is copied from and to, or named in [lists](crate::lists).

use std::sync::Arc;

use crate::guard;

/// The memory is registered but not mapped (any more).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmapped;

/// Why an atomic operation was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicError {
    /// Outside the range, or not mapped.
    Unmapped,
    /// The address is not a multiple of eight.
    Unaligned,
}

/// A range of memory that was given to the device.
#[derive(Clone, Debug)]
pub struct Registered {
    addr: usize,
    len: usize,
    /// Keeps memory alive that came from [`Registered::allocate`].
    _owner: Option<Arc<Mapping>>,
}

impl Registered {
    /// Memory of the program's: `len` octets at `addr`.
    ///
    /// # Safety
    /// Until the last copy of the value is gone, nobody may rely on these octets staying as they
    /// are, and no Rust reference to them may exist. Unmapping them is allowed.
    pub unsafe fn new(addr: *mut u8, len: usize) -> Registered {
        guard::install();
        Registered {
            addr: addr as usize,
            len,
            _owner: None,
        }
    }

    /// Zeroed, page-aligned memory of its own.
    ///
    /// # Errors
    /// The kernel has none to give.
    pub fn allocate(len: usize) -> std::io::Result<Registered> {
        guard::install();
        let mapping = Mapping::new(len.max(1))?;
        Ok(Registered {
            addr: mapping.addr,
            len,
            _owner: Some(Arc::new(mapping)),
        })
    }

    /// Address of the first octet.
    pub fn addr(&self) -> u64 {
        self.addr as u64
    }

    /// Octets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no octets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of `[offset, offset + len)`, if that is inside.
    #[inline]
    pub(crate) fn range(&self, offset: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| self.addr + offset)
    }

    /// Copies octets out.
    ///
    /// # Errors
    /// Outside the range, or not mapped.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        let source = self.range(offset, out.len()).ok_or(Unmapped)?;
        // SAFETY: the target is `out`; the source is inside the registered range.
        let copied = unsafe { guard::copy(out.as_mut_ptr(), source as *const u8, out.len()) };
        copied.then_some(()).ok_or(Unmapped)
    }

    /// Appends a copy of `len` octets to `out`.
    ///
    /// # Errors
    /// Outside the range, or not mapped; `out` is then as before.
    #[inline]
    pub fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Unmapped> {
        let source = self.range(offset, len).ok_or(Unmapped)?;
        out.reserve(len);
        // SAFETY: `reserve` made room for `len` octets behind the vector's end, and they are
        // initialised by the copy before the length says so.
        unsafe {
            let target = out.as_mut_ptr().add(out.len());
            if !guard::copy(target, source as *const u8, len) {
                return Err(Unmapped);
            }
            out.set_len(out.len() + len);
        }
        Ok(())
    }

    /// Copies octets in, the first one first.
    ///
    /// # Errors
    /// Outside the range, or not mapped.
    #[inline]
    pub fn write(&self, offset: u64, octets: &[u8]) -> Result<(), Unmapped> {
        let target = self.range(offset, octets.len()).ok_or(Unmapped)?;
        // SAFETY: the target is inside the registered range, which may be overwritten.
        let copied = unsafe { guard::copy(target as *mut u8, octets.as_ptr(), octets.len()) };
        copied.then_some(()).ok_or(Unmapped)
    }

    /// Replaces the 64-bit value at `offset` by what `change` makes of it, in one step to every
    /// other atomic operation of any process that has the memory; gives what it was.
    ///
    /// # Errors
    /// See [`AtomicError`]; nothing is changed then.
    pub fn update(&self, offset: u64, change: impl Fn(u64) -> u64) -> Result<u64, AtomicError> {
        let target = self.range(offset, 8).ok_or(AtomicError::Unmapped)?;
        if !target.is_multiple_of(8) {
            return Err(AtomicError::Unaligned);
        }
        // A guess; the first exchange that finds another value says which.
        let mut expected = 0;
        loop {
            let new = change(expected);
            // SAFETY: the target is aligned and inside the registered range, which may be
            // overwritten.
            let found = unsafe { guard::compare_exchange(target as *mut u64, expected, new) };
            match found.ok_or(AtomicError::Unmapped)? {
                found if found == expected => return Ok(found),
                found => expected = found,
            }
        }
    }
}

/// An anonymous mapping.
#[derive(Debug)]
struct Mapping {
    addr: usize,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> std::io::Result<Mapping> {
        Mapping::near(0, len)
    }

    /// At that address or, when it is taken or zero, at one of the kernel's choice.
    fn near(addr: usize, len: usize) -> std::io::Result<Mapping> {
        use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
        // SAFETY: a new private mapping that replaces none touches no other.
        let addr = unsafe {
            mmap_anonymous(
                addr as *mut _,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Ok(Mapping {
            addr: addr as usize,
            len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its last user is gone.
        let _ = unsafe { rustix::mm::munmap(self.addr as *mut _, self.len) };
    }
}

/// Memory whose address stays unmapped once it is dropped: far from where the kernel maps next, and
/// no two the same. What the kernel places itself, another test's thread gets at once.
#[cfg(test)]
fn apart(len: usize) -> Mapping {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 45);
    let addr = NEXT.fetch_add(1 << 30, Ordering::Relaxed);
    let mapping = Mapping::near(addr, len).unwrap();
    assert_eq!(mapping.addr, addr, "taken");
    mapping
}

/// Registered memory that is unmapped already.
#[cfg(test)]
pub(crate) fn unmapped(len: usize) -> Registered {
    let mapping = apart(len);
    // SAFETY: nobody else knows the mapping; that it is unmapped is what is tested.
    unsafe { Registered::new(mapping.addr as *mut u8, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_small_size_are_exact() {
        let memory = Registered::allocate(8192).unwrap();
        for len in (0..600).chain([4095, 4096, 8000]) {
            let octets: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            memory.write(3, &octets).unwrap();
            let mut back = vec![0xEE];
            memory.append_to(3, len, &mut back).unwrap();
            assert_eq!(back[1..], octets, "{len} octets");
        }
    }

    #[test]
    fn nothing_outside_the_range_is_reached() {
        let memory = Registered::allocate(16).unwrap();
        assert_eq!(memory.write(15, &[1, 2]), Err(Unmapped));
        assert_eq!(memory.write(u64::MAX, &[1]), Err(Unmapped));
        assert_eq!(memory.read(17, &mut []), Err(Unmapped));
        assert_eq!(memory.read(16, &mut []), Ok(()));
        assert!(!crate::lists::Gather::default().push_registered(&memory, 8, 9));
    }

    #[test]
    fn updates_of_several_threads_lose_nothing() {
        let memory = Registered::allocate(64).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        memory.update(8, |old| old.wrapping_add(3)).unwrap();
                    }
                });
            }
        });
        assert_eq!(memory.update(8, |old| old), Ok(120_000));
        assert_eq!(memory.update(8, |old| old ^ u64::MAX), Ok(120_000));
        let mut octets = [0; 8];
        memory.read(8, &mut octets).unwrap();
        assert_eq!(u64::from_ne_bytes(octets), !120_000);
        assert_eq!(memory.update(4, |old| old), Err(AtomicError::Unaligned));
        assert_eq!(memory.update(60, |old| old), Err(AtomicError::Unmapped));
    }

    #[test]
    fn unmapped_memory_is_an_error_to_a_thread_that_blocks_every_signal() {
        let gone = unmapped(4096);
        let outcomes = std::thread::spawn(move || {
            // SAFETY: the set is initialised by sigfillset; the mask is this thread's own.
            unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
            }
            let added = gone.update(0, |n| n + 1);
            (gone.read(0, &mut [0; 8]), gone.write(0, &[1; 100]), added)
        });
        let (read, written, added) = outcomes.join().unwrap();
        assert_eq!((read, written), (Err(Unmapped), Err(Unmapped)));
        assert_eq!(added, Err(AtomicError::Unmapped));
    }

    #[test]
    fn unmapped_memory_is_an_error_and_not_a_signal() {
        let mapping = apart(8192);
        // SAFETY: nobody else knows the mapping; that it is unmapped is what is tested.
        let memory = unsafe { Registered::new(mapping.addr as *mut u8, 8192) };
        memory.write(0, &[1; 64]).unwrap();
        drop(mapping);
        for len in [1, 7, 8, 40, 600, 4096] {
            let mut out = vec![0; len];
            assert_eq!(memory.read(0, &mut out), Err(Unmapped), "read {len}");
            assert_eq!(
                memory.write(8, &out[..len.min(8000)]),
                Err(Unmapped),
                "write {len}"
            );
            let mut appended = vec![9];
            assert_eq!(memory.append_to(0, len, &mut appended), Err(Unmapped));
            assert_eq!(appended, [9], "untouched");
        }
        assert_eq!(memory.update(8, |old| old + 1), Err(AtomicError::Unmapped));
    }
}
