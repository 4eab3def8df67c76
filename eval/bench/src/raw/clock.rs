//! Clocks, in nanoseconds.

use rustix::time::{clock_gettime, ClockId};

/// The machine's, which all processes share, in whatever network namespace.
pub(super) fn nanoseconds() -> u64 {
    of(ClockId::Monotonic)
}

/// Time on a core of all threads of this process.
pub(super) fn cpu_nanoseconds() -> u64 {
    of(ClockId::ProcessCPUTime)
}

fn of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
