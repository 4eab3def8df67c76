//! What is known of the other processes that have a socket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_os::process;

use crate::marked::Marked;

/// How long what a look has shown is believed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a socket is left alone that another process has received from, doubled each time.
const REST_MIN: Duration = Duration::from_secs(1);
/// The most.
const REST_MAX: Duration = Duration::from_secs(3600);
/// This process holds the name.
const HELD: u32 = 1;
/// Another one did when it was looked for last.
const OTHERS: u32 = 2;

/// What is known of one socket's other processes.
#[derive(Debug)]
pub(crate) struct Owning {
    state: Marked,
    /// When it was looked for them last, in nanoseconds; 0 for never.
    looked_at: AtomicU64,
    /// The process that did.
    looked_in: AtomicU64,
    /// No channels of others come to it until then, in nanoseconds, and how long that was.
    rests_until: AtomicU64,
    rest: AtomicU64,
}

impl Owning {
    pub(crate) const fn new() -> Owning {
        Owning {
            state: Marked::new(0),
            looked_at: AtomicU64::new(0),
            looked_in: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
            rest: AtomicU64::new(0),
        }
    }

    /// From here on another socket's.
    pub(crate) fn begin(&self) {
        self.state.set(0);
        for word in [
            &self.looked_at,
            &self.looked_in,
            &self.rests_until,
            &self.rest,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// This process holds the name, or does no longer.
    pub(crate) fn set_held(&self, is_held: bool) {
        let held = if is_held { HELD } else { 0 };
        self.state.update(0, |before| before & !HELD | held);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.get(0) & HELD != 0
    }

    pub(crate) fn set_others(&self, are_there: bool) {
        let others = if are_there { OTHERS } else { 0 };
        self.state.update(0, |before| before & !OTHERS | others);
    }

    /// Whether another process held the name when it was looked for last.
    pub(crate) fn has_others(&self) -> bool {
        self.state.get(0) & OTHERS != 0
    }

    /// Whether it is to be looked for others again; if so, that is done now.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let (now, own) = (now.as_nanos() as u64, u64::from(process::id()));
        let is_own = self.looked_in.swap(own, Ordering::Relaxed) == own;
        let since = now.saturating_sub(self.looked_at.load(Ordering::Relaxed));
        if is_own && since < LOOK_EVERY.as_nanos() as u64 {
            return false;
        }
        self.looked_at.store(now, Ordering::Relaxed);
        true
    }

    /// Another process receives from the socket, too: it is left alone for a while.
    pub(crate) fn rest(&self, now: Duration) {
        let before = Duration::from_nanos(self.rest.load(Ordering::Relaxed));
        let rest = (before * 2).clamp(REST_MIN, REST_MAX);
        self.rest.store(rest.as_nanos() as u64, Ordering::Relaxed);
        let until = (now + rest).as_nanos() as u64;
        self.rests_until.store(until, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(crate) fn rests(&self, now: Duration) -> bool {
        (now.as_nanos() as u64) < self.rests_until.load(Ordering::Relaxed)
    }
}
