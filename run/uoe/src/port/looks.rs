//! What a look at the queues has shown, for the program's next call.

use std::sync::atomic::Ordering;

use super::Port;

/// Where a datagram waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the kernel's queue.
    Kernel,
    /// In the one of what came over carriers.
    Inlet,
}

impl Port {
    /// The program has looked at the datagram that is next there, or has taken it.
    #[inline]
    pub(crate) fn note_look(&self, place: Option<Place>) {
        let word = match place {
            None => 0,
            Some(Place::Kernel) => 1,
            Some(Place::Inlet) => 2,
        };
        self.looked_at_in.store(word, Ordering::Relaxed);
    }

    /// Where the datagram lies that it has looked at.
    #[inline]
    pub(crate) fn looked_at_in(&self) -> Option<Place> {
        match self.looked_at_in.load(Ordering::Relaxed) {
            1 => Some(Place::Kernel),
            2 => Some(Place::Inlet),
            _ => None,
        }
    }

    /// Every how many receives look at the kernel's queue first.
    #[inline]
    pub(crate) fn kernel_turn(&self) -> u32 {
        self.kernel_turn.load(Ordering::Relaxed).max(1)
    }

    pub(crate) fn set_kernel_turn(&self, every: u32) {
        self.kernel_turn.store(every, Ordering::Relaxed);
    }

    /// An error was met that is the program's to hear of.
    pub(crate) fn set_pending(&self, errno: i32) {
        self.pending.store(errno, Ordering::Release);
    }

    /// The error that the program's next call is to give.
    #[inline]
    pub fn take_pending(&self) -> Option<i32> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.pending.swap(0, Ordering::AcqRel)).filter(|errno| *errno != 0)
    }
}
