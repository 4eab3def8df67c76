//! A buffer that a program hands over for longer than one call.

use super::UserBuffers;

/// A range of a program's octets that it hands over for longer than a call: until it says that it has it back.
#[derive(Clone, Copy, Debug)]
pub struct UserRange {
    addr: usize,
    len: usize,
}

impl UserRange {
    /// The range.
    ///
    /// # Safety
    /// As for [`UserBuffers::one`], while the value, a copy or what was made of them is used.
    pub const unsafe fn new(addr: usize, len: usize) -> UserRange {
        UserRange { addr, len }
    }

    /// How many octets it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether both are the same octets.
    pub fn is_same(&self, other: &UserRange) -> bool {
        (self.addr, self.len) == (other.addr, other.len)
    }

    /// So many of its octets, from `at` on.
    ///
    /// # Panics
    /// There are not so many.
    #[must_use]
    pub fn part(&self, at: usize, len: usize) -> UserRange {
        assert!(at <= self.len && len <= self.len - at);
        UserRange {
            addr: self.addr.wrapping_add(at),
            len,
        }
    }

    /// It as the buffer of one call.
    pub fn buffers(&self) -> UserBuffers {
        // SAFETY: whoever made the range vouches for its octets as long as it is used.
        unsafe { UserBuffers::one(self.addr, self.len) }
    }
}

impl From<&'static mut [u8]> for UserRange {
    /// Memory of ours that is given away for ever, in place of a program's.
    fn from(octets: &'static mut [u8]) -> UserRange {
        UserRange {
            addr: octets.as_mut_ptr() as usize,
            len: octets.len(),
        }
    }
}
