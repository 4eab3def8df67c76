//! Whether a thread that polls in vain gives its core to threads of other processes.
//!
//! Ranks of MPI may be more than the cores they have, and so may the two ends of a connection: a polling thread then
//! spins for a whole slice of the scheduler, milliseconds, while the one that has its message waits for the core. So it
//! yields now and then, and sees by how long that takes who else wants the core. Nobody: the yield returns at once, and
//! the next one is far off. Others that wait by polling, or that have little to do: it has the core back soon, and goes
//! on yielding. A program that computes: it would lose a slice with each yield, so it spins for a long time before the
//! next one, and shares the core as the scheduler has it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A yield that takes no longer went to nobody.
const NOBODY_MAX: Duration = Duration::from_micros(2);
/// One that takes no longer went to threads that do not keep the core. Slices are longer.
const SHORT_MAX: Duration = Duration::from_millis(1);
/// Looks from one yield to the next, at most: alone, and beside a program that computes.
const APART_ALONE: u32 = 64;
const APART_BESIDE_WORK: u32 = 2048;

/// What one thread knows.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// Looks until it yields, and from then until it does again.
    left: u32,
    apart: u32,
}

const AT_FIRST: Own = Own {
    left: APART_ALONE,
    apart: APART_ALONE,
};

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(AT_FIRST) };
}

/// The calling thread has looked in vain: gives way where others want its core.
#[inline]
pub fn look() {
    let mut own = OWN.get();
    own.look(|| {
        let begun = Instant::now();
        std::thread::yield_now();
        begun.elapsed()
    });
    OWN.set(own);
}

impl Own {
    /// `gives_way` tells how long it took.
    #[inline]
    fn look(&mut self, gives_way: impl FnOnce() -> Duration) {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return;
        }
        self.apart = match gives_way() {
            took if took <= NOBODY_MAX => (2 * self.apart).min(APART_ALONE),
            took if took <= SHORT_MAX => 1,
            _ => APART_BESIDE_WORK,
        };
        self.left = self.apart;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Duration = Duration::from_nanos(400);
    const POLLER: Duration = Duration::from_micros(30);
    const WORK: Duration = Duration::from_millis(3);

    /// Yields among so many looks that each take so long.
    fn yields(own: &mut Own, looks: u32, took: Duration) -> u32 {
        let yields = Cell::new(0);
        for _ in 0..looks {
            own.look(|| {
                yields.set(yields.get() + 1);
                took
            });
        }
        yields.get()
    }

    #[test]
    fn who_polls_alone_hardly_yields() {
        let mut own = AT_FIRST;
        assert_eq!(yields(&mut own, 64 * 100, NOBODY), 100);
    }

    #[test]
    fn who_polls_beside_another_poller_yields_at_each_look_until_that_has_gone() {
        let mut own = AT_FIRST;
        yields(&mut own, APART_ALONE, POLLER);
        assert_eq!(yields(&mut own, 100, POLLER), 100);
        // 1, 2, 4 ... looks apart, and then 64.
        assert_eq!(yields(&mut own, 1 + 2 + 4 + 8 + 16 + 32 + 64, NOBODY), 7);
        assert_eq!(yields(&mut own, 640, NOBODY), 10);
    }

    #[test]
    fn who_polls_beside_work_keeps_its_slices() {
        let mut own = AT_FIRST;
        yields(&mut own, APART_ALONE, WORK);
        assert_eq!(yields(&mut own, 10 * APART_BESIDE_WORK, WORK), 10);
        yields(&mut own, APART_BESIDE_WORK, NOBODY);
        assert_eq!(yields(&mut own, 640, NOBODY), 10);
    }
}
