//! Receives under way at a socket: plain ones, which must not meet what is Weft's own, and those that wait in the
//! kernel's call and take what comes, the program's or Weft's.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use weft_os::dgram;

use super::{Port, LOOKED_AT};

/// How long what has come is left to a receive that waits for it, whose thread may have to wait for a core. One that
/// was cancelled takes nothing: it is waited for once.
const TAKES_WITHIN: Duration = Duration::from_millis(50);

impl Port {
    /// Begins a receive that is the kernel's alone; false where receives are looked at.
    #[inline]
    pub fn begin_plain(&self) -> bool {
        let begun = |before: u32| before + u32::from(before & LOOKED_AT == 0);
        self.receives.update(LOOKED_AT, begun) & LOOKED_AT == 0
    }

    /// Ends it.
    #[inline]
    pub fn end_plain(&self) {
        let ended = |before: u32| match before & !LOOKED_AT {
            // It was begun by the parent of this process.
            0 => before,
            _ => before - 1,
        };
        self.receives.update(LOOKED_AT, ended);
    }

    /// Whether receives are looked at.
    #[inline]
    pub fn is_looked_at(&self) -> bool {
        self.receives.get(LOOKED_AT) & LOOKED_AT != 0
    }

    /// Has receives looked at from now on. Whether none is under way any more that began before: it would hand Weft's
    /// own datagrams to the program. Who waits in one is out of it with the next datagram.
    pub(crate) fn look_at(&self) -> bool {
        let before = self.receives.update(LOOKED_AT, |before| before | LOOKED_AT);
        before & !LOOKED_AT == 0
    }

    /// One that takes what comes is about to wait. Not while somebody holds the head, who has looked at it and takes
    /// what he saw.
    pub(crate) fn begin_take(&self) {
        let _head = self.head();
        self.takes.update(0, |takes| takes + 1);
    }

    /// It is over.
    pub(crate) fn end_take(&self) {
        // It may have begun in the socket's life before.
        self.takes.update(0, |takes| takes.saturating_sub(1));
    }

    /// Whether a receive that waits has taken all there was. Who looks at the head and then takes it asks before that,
    /// or what he takes may be another one than he saw. He holds the head.
    pub(crate) fn is_taken_by_another(&self, fd: RawFd) -> bool {
        let is_waited = || self.takes.get(0) > 0;
        if !is_waited() {
            return false;
        }
        let since = Instant::now();
        while dgram::ready(fd, libc::POLLIN, 0) & libc::POLLIN != 0 {
            if !is_waited() {
                return false;
            }
            if since.elapsed() >= TAKES_WITHIN {
                self.takes.set(0);
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}
