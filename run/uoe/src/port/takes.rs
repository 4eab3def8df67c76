//! Receives that wait in the kernel's call and take what comes, the program's or Weft's own.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use weft_os::dgram;

use super::Port;

/// How long what has come is left to a receive that waits for it. One whose thread was cancelled takes nothing.
const TAKES_WITHIN: Duration = Duration::from_millis(1);

impl Port {
    /// One is about to wait. Not while somebody holds the head, who has looked at it and takes what he saw.
    pub(crate) fn begin_take(&self) {
        let _head = self.head();
        self.takes.update(0, |takes| takes + 1);
    }

    /// It is over.
    pub(crate) fn end_take(&self) {
        // It may have begun in the socket's life before.
        self.takes.update(0, |takes| takes.saturating_sub(1));
    }

    /// Whether a receive that waits has taken all there was. Who looks at the head, and then takes it, asks before that:
    /// what he takes would be another one than he saw. Holds the head.
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
