//! Lines on stderr, by the level of `WEFT_LOG`.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_os::fork::PerProcess;

use crate::LogLevel;

/// How loud; a level includes those above it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something does not work.
    Error = 1,
    /// Something is probably not as it should be.
    Warn = 2,
    /// What happens, a line for each connection.
    Info = 3,
    /// Every step outside the fast path.
    Debug = 4,
}

static THRESHOLD: AtomicU8 = AtomicU8::new(Level::Warn as u8);

/// Sets the threshold from the settings.
pub fn set_threshold(level: LogLevel) {
    let threshold = match level {
        LogLevel::Off => 0,
        LogLevel::Error => 1,
        LogLevel::Warn => 2,
        LogLevel::Info => 3,
        LogLevel::Debug => 4,
    };
    THRESHOLD.store(threshold, Ordering::Relaxed);
}

/// Whether a line of this level is printed.
pub fn enabled(level: Level) -> bool {
    level as u8 <= THRESHOLD.load(Ordering::Relaxed)
}

/// Lines that peers can cause, so that none of them fills a disk: so many at once, and then one in each
/// [`PEER_LINE_EVERY`].
const PEER_LINES: u32 = 20;
const PEER_LINE_EVERY: Duration = Duration::from_secs(1);

/// How many lines may be printed, and how many were left out.
#[derive(Debug)]
struct Budget {
    lines: u32,
    as_of: Option<Instant>,
    left_out: u64,
}

impl Budget {
    const FULL: Budget = Budget {
        lines: PEER_LINES,
        as_of: None,
        left_out: 0,
    };

    /// Whether a line may be printed; gives how many were left out before it.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let as_of = *self.as_of.get_or_insert(now);
        let earned = now.saturating_duration_since(as_of).as_secs() / PEER_LINE_EVERY.as_secs();
        if earned > 0 {
            self.lines = self.lines.saturating_add(earned.min(1 << 16) as u32);
            self.lines = self.lines.min(PEER_LINES);
            self.as_of = Some(as_of + PEER_LINE_EVERY * earned.min(1 << 16) as u32);
        }
        if self.lines == 0 {
            self.left_out += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

static PEER_BUDGET: PerProcess<Mutex<Budget>> = PerProcess::new();

/// Prints a warning of what a peer did, unless peers have caused too many of late.
pub fn peer_line(text: fmt::Arguments<'_>) {
    if !enabled(Level::Warn) {
        return;
    }
    let budget = PEER_BUDGET.get_or_init(|| Mutex::new(Budget::FULL));
    let taken = budget.lock().take(Instant::now());
    match taken {
        None => {}
        Some(0) => line(Level::Warn, text),
        Some(left_out) => line(
            Level::Warn,
            format_args!("{text} ({left_out} lines about peers left out before this one)"),
        ),
    }
}

/// Prints one line if its level is enabled.
pub fn line(level: Level, text: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    let name = match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    weft_os::stderr::line(&format!("weft: {name}: {text}\n"));
}

/// Prints a line that stands ready, from `weft: ` to its end of line, if its level is enabled. Allocates nothing: for
/// what a program's own call runs into, which may be one in a signal handler.
pub fn ready_line(level: Level, line: &'static str) {
    if enabled(level) {
        weft_os::stderr::line(line);
    }
}

/// Prints an error line.
#[macro_export]
macro_rules! error {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Error, format_args!($($arg)*)) };
}

/// Prints a warning line.
#[macro_export]
macro_rules! warn {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Warn, format_args!($($arg)*)) };
}

/// Prints a warning line of what a peer did; of many only some.
#[macro_export]
macro_rules! warn_of_peer {
    ($($arg:tt)*) => { $crate::log::peer_line(format_args!($($arg)*)) };
}

/// Prints an information line.
#[macro_export]
macro_rules! info {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Info, format_args!($($arg)*)) };
}

/// Prints a debug line.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Debug, format_args!($($arg)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_cannot_fill_a_disk() {
        let mut budget = Budget::FULL;
        let start = Instant::now();
        let printed = (0..1000).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(printed as u32, PEER_LINES);
        let soon = start + PEER_LINE_EVERY;
        assert_eq!(budget.take(soon), Some(980), "says what was left out");
        assert_eq!(budget.take(soon), None);
        let later = start + 1000 * PEER_LINE_EVERY;
        let printed = (0..1000).filter(|_| budget.take(later).is_some()).count();
        assert_eq!(printed as u32, PEER_LINES);
    }
}
