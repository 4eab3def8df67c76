//! When a wait is over, in each form in which programs say it.

use std::ffi::c_int;

use libc::{timespec, timeval};
use weft_os::dgram;

use crate::edge::get;

/// A moment up to which somebody waits.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Nanoseconds of the monotonic clock; nothing for never.
    at: Option<u64>,
}

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

impl Limit {
    /// It looks once and does not wait.
    pub const NOW: Limit = Limit { at: Some(0) };

    fn after(ns: u64) -> Limit {
        Limit {
            at: Some(dgram::now().saturating_add(ns)),
        }
    }

    /// So many milliseconds from now; a negative number is for ever.
    pub fn of_ms(ms: c_int) -> Limit {
        match u64::try_from(ms) {
            Ok(ms) => Limit::after(ms * 1_000_000),
            Err(_) => Limit { at: None },
        }
    }

    /// So many milliseconds from a moment of the monotonic clock, in nanoseconds.
    pub fn of_ms_since(ms: u64, since: u64) -> Limit {
        Limit {
            at: Some(since.saturating_add(ms.saturating_mul(1_000_000))),
        }
    }

    /// So long from now; a null pointer is for ever. Nothing for what only the kernel can answer: it is no time, or not
    /// mapped.
    pub fn of_time(time: *const timespec) -> Option<Limit> {
        if time.is_null() {
            return Some(Limit { at: None });
        }
        let time = get(time)?;
        Limit::of_parts(time.tv_sec, time.tv_nsec, SECOND_NS as i64)
    }

    /// The same for `select`.
    pub fn of_timeval(time: *const timeval) -> Option<Limit> {
        if time.is_null() {
            return Some(Limit { at: None });
        }
        let time = get(time)?;
        Limit::of_parts(time.tv_sec, time.tv_usec, 1_000_000)
    }

    fn of_parts(seconds: i64, part: i64, parts: i64) -> Option<Limit> {
        let seconds = u64::try_from(seconds).ok()?;
        let part = u64::try_from(part).ok().filter(|_| part < parts)?;
        let ns = part * (SECOND_NS / parts as u64);
        Some(Limit::after(
            seconds.saturating_mul(SECOND_NS).saturating_add(ns),
        ))
    }

    /// Nanoseconds that are left; nothing where it never ends.
    pub fn left_ns(self) -> Option<u64> {
        self.at.map(|at| at.saturating_sub(dgram::now()))
    }

    /// As the kernel's milliseconds, rounded up.
    pub fn left_ms(self) -> c_int {
        let ms = self.left_ns().map(|ns| ns.div_ceil(1_000_000));
        ms.map_or(-1, |ms| c_int::try_from(ms).unwrap_or(c_int::MAX))
    }
}

/// As the kernel takes it.
pub fn time_of(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / SECOND_NS) as libc::time_t,
        tv_nsec: (ns % SECOND_NS) as libc::c_long,
    }
}
