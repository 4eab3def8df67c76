//! Descriptors of ours in a program that may close any number.
//!
//! A daemon closes all numbers there are, and the next file that it opens gets one that was ours. Whoever uses a
//! descriptor that lives on in a program's process looks first whether it still is what it was.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use crate::dgram::inode;

/// What holds a descriptor of ours.
pub trait Held: AsFd {
    /// Lets go of the number without closing it: it stands for something else now.
    fn abandon(self);
}

/// Something with a descriptor, and what that was when it was made.
#[derive(Debug)]
pub struct Guarded<T: Held> {
    held: Option<T>,
    number: RawFd,
    inode: Option<u64>,
}

impl<T: Held> Guarded<T> {
    /// Guards it from now on.
    pub fn new(held: T) -> Guarded<T> {
        let number = held.as_fd().as_raw_fd();
        Guarded {
            held: Some(held),
            number,
            inode: inode(number),
        }
    }

    /// The number, whatever it stands for.
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Whether the number stands for what it did.
    pub fn is_there(&self) -> bool {
        self.inode.is_some() && inode(self.number) == self.inode
    }

    /// What is guarded, if it is still there.
    pub fn get(&mut self) -> Option<&mut T> {
        match self.is_there() {
            true => self.held.as_mut(),
            false => None,
        }
    }
}

impl<T: Held> Drop for Guarded<T> {
    fn drop(&mut self) {
        let is_there = self.is_there();
        if let Some(held) = self.held.take().filter(|_| !is_there) {
            held.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Waker;

    #[test]
    fn a_number_that_the_program_took_is_left_alone() {
        let mut guarded = Guarded::new(Waker::new().unwrap());
        assert!(guarded.get().is_some());
        let number = guarded.number();
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the number is the waker's, which is not used any more.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        assert!(guarded.get().is_none());
        drop(guarded);
        // SAFETY: asks for the flags of the number, then closes what the test put there.
        unsafe {
            assert!(
                libc::fcntl(number, libc::F_GETFD) >= 0,
                "closed what was not ours"
            );
            libc::close(number);
        }
    }

    #[test]
    fn what_is_still_there_is_closed() {
        let guarded = Guarded::new(Waker::new().unwrap());
        let number = guarded.number();
        let before = inode(number);
        drop(guarded);
        assert!(before.is_some());
        // Another test's thread may have the number by now; the same file it cannot be.
        assert!(
            inode(number).is_none()
                || std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok()
        );
    }
}
