//! How many descriptors stand for a socket, and which socket of the kernel it is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weft_os::atomic::try_update;

/// The references to one socket. They are part of its record, and of the next socket's that has the record.
#[derive(Debug, Default)]
pub struct References {
    /// Descriptors; 0 while the record has no socket.
    count: AtomicU32,
    inode: AtomicU64,
}

impl References {
    /// Those of a record without a socket.
    pub const fn new() -> References {
        References {
            count: AtomicU32::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// From now on those of the socket with this inode, of which one descriptor is known. The record is ready.
    pub fn begin(&self, inode: u64) {
        self.inode.store(inode, Ordering::Relaxed);
        self.count.store(1, Ordering::Release);
    }

    /// Whether there is any.
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// The socket's inode.
    pub fn inode(&self) -> u64 {
        self.inode.load(Ordering::Relaxed)
    }

    /// One descriptor more, if the socket with this inode still has any: another thread may have closed the last.
    pub fn add(&self, inode: u64) -> bool {
        let more = |count: u32| (count > 0).then(|| count + 1);
        self.inode() == inode && try_update(&self.count, more).is_ok()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether there is only one.
    pub fn is_last(&self) -> bool {
        self.count() == 1
    }

    /// Whether there are so many, or fewer.
    pub fn are_no_more_than(&self, count: u32) -> bool {
        self.count.load(Ordering::Acquire) <= count
    }

    /// One descriptor less; whether it was the last.
    pub fn remove(&self) -> bool {
        self.count.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_descriptor_is_noticed_and_none_joins_it() {
        let references = References::new();
        assert!(!references.is_used());
        assert!(!references.add(0), "a record without a socket is nobody's");
        references.begin(77);
        assert!(!references.add(78), "that of another socket");
        assert!(references.add(77));
        assert!(!references.remove());
        assert!(references.is_used());
        assert!(references.remove());
        assert!(!references.is_used());
        assert!(!references.add(77));
    }
}
