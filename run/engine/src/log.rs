//! Lines on stderr, by the level of `WEFT_LOG`.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::settings::LogLevel;

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
pub(crate) fn set_threshold(level: LogLevel) {
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
    // One write, so that lines of several threads do not mix; a closed stderr is no reason to fail.
    let text = format!("weft: {name}: {text}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
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
