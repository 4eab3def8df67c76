//! Memory straight from the kernel: for code that may run inside a signal handler or a call of
//! `malloc`, and so must not call it itself.

use std::sync::atomic::AtomicU32;

use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

/// Zeroed memory for ever, page-aligned; nothing when the kernel has none.
///
/// Pages cost memory once they are written.
pub fn octets(len: usize) -> Option<&'static mut [u8]> {
    let addr = map(len, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
    // SAFETY: the mapping is new, `len` octets long, zeroed, and never unmapped.
    Some(unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, len) })
}

/// Zeroed words for ever, of this process alone.
pub fn words(count: usize) -> Option<&'static [AtomicU32]> {
    atomics(count, MapFlags::PRIVATE | MapFlags::NORESERVE)
}

/// Zeroed words for ever, shared with every process that is forked from this one.
pub fn shared_words(count: usize) -> Option<&'static [AtomicU32]> {
    atomics(count, MapFlags::SHARED | MapFlags::NORESERVE)
}

/// Puts `value` into memory of its own, for ever.
pub fn place<T: Send>(value: T) -> Option<&'static mut T> {
    const PAGE: usize = 4096;
    assert!(std::mem::align_of::<T>() <= PAGE);
    let size = std::mem::size_of::<T>().max(1);
    let addr = map(size, MapFlags::PRIVATE)? as *mut T;
    // SAFETY: the mapping is new, large enough, aligned to a page and never unmapped; it holds a
    // `T` from here on.
    unsafe {
        addr.write(value);
        Some(&mut *addr)
    }
}

/// Zeroed memory that goes back to the kernel when it is dropped.
#[derive(Debug)]
pub struct Temporary {
    addr: usize,
    len: usize,
}

impl Temporary {
    /// So many octets; nothing when the kernel has none.
    pub fn new(len: usize) -> Option<Temporary> {
        let addr = map(len, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        Some(Temporary { addr, len })
    }

    /// They.
    pub fn octets(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` octets long, this value's alone, and there as long as this is.
        unsafe { std::slice::from_raw_parts_mut(self.addr as *mut u8, self.len) }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // SAFETY: nobody else has the mapping.
        let _ = unsafe { munmap(self.addr as *mut _, self.len) };
    }
}

fn atomics(count: usize, flags: MapFlags) -> Option<&'static [AtomicU32]> {
    let addr = map(count * 4, flags)?;
    // SAFETY: the mapping is new, zeroed, aligned, long enough and never unmapped; it is only
    // ever accessed as atomic words, for which zero is a value.
    Some(unsafe { std::slice::from_raw_parts(addr as *const AtomicU32, count) })
}

fn map(len: usize, flags: MapFlags) -> Option<usize> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no other.
    let addr = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) };
    addr.ok().map(|addr| addr as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn memory_is_zeroed_and_ours() {
        let memory = octets(100_000).unwrap();
        assert!(memory.iter().all(|octet| *octet == 0));
        memory[99_999] = 7;
        assert_eq!(words(5).unwrap()[4].load(Ordering::Relaxed), 0);
        assert_eq!(*place([3u64; 700]).unwrap(), [3u64; 700]);
        let mut some = Temporary::new(5000).unwrap();
        assert_eq!(some.octets(), [0; 5000]);
        some.octets()[4999] = 7;
    }
}
