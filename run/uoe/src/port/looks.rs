//! What a look at the queues has shown, for the program's next call.

use std::sync::atomic::Ordering;

use super::Port;

/// Of so many receives at least one looks at the kernel's queue first, so that plain peers are heard beside busy
/// carriers, once something was found there. It takes some calls, as a bell stands before what else is there: where
/// nothing else is, it is done less often, up to the maximum. Where something is each time, every second receive does:
/// that queue may be long, and what comes behind a mark waits for it.
const KERNEL_TURN: u32 = 32;
const KERNEL_TURN_MIN: u32 = 2;
const KERNEL_TURN_MAX: u32 = 1024;

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

    /// One has; `has_plain`: and something was there.
    pub(crate) fn note_kernel_turn(&self, has_plain: bool) {
        let every = match has_plain {
            true => (self.kernel_turn() / 2).clamp(KERNEL_TURN_MIN, KERNEL_TURN),
            false => (self.kernel_turn() * 2).min(KERNEL_TURN_MAX),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_queue_has_half_of_the_receives_while_something_is_there_and_few_where_nothing_is(
    ) {
        let port = Port::new();
        let turns = |has_plain: bool, count: usize| {
            let noted = (0..count).map(|_| {
                port.note_kernel_turn(has_plain);
                port.kernel_turn()
            });
            noted.collect::<Vec<u32>>()
        };
        assert_eq!(port.kernel_turn(), 1);
        assert_eq!(turns(true, 2), [2, 2]);
        assert_eq!(turns(false, 3), [4, 8, 16]);
        assert_eq!(turns(false, 8).last(), Some(&1024));
        assert_eq!(turns(true, 7), [32, 16, 8, 4, 2, 2, 2]);
    }
}
