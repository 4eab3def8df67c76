//! How long one call of the program's waits.

use std::ffi::c_int;

use libc::pollfd;
use weft_os::{dgram, stream};
use weft_sockets::Errno;

use crate::calls;
use crate::edge::errno;
use crate::limit::Limit;

/// Up to when a call waits, over all the waits that it takes. The kernel counts a timeout anew in each of them, and a
/// peer that sends framing, or Weft's own datagrams, ends one after the other.
pub struct Timeout {
    /// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    option: c_int,
    /// When the call began to wait, in nanoseconds of the monotonic clock.
    since: Option<u64>,
    /// When it is over, once the call has begun to wait; nothing within for never.
    until: Option<Option<Limit>>,
}

impl Timeout {
    /// Of a call that receives.
    pub fn to_receive() -> Timeout {
        Timeout {
            option: libc::SO_RCVTIMEO,
            since: None,
            until: None,
        }
    }

    /// Of a call that sends.
    pub fn to_send() -> Timeout {
        Timeout {
            option: libc::SO_SNDTIMEO,
            since: None,
            until: None,
        }
    }

    /// The call is about to wait; when it has waited long enough, if ever.
    ///
    /// # Errors
    /// `EAGAIN` where it has.
    pub fn limit(&mut self, fd: c_int) -> Result<Option<Limit>, Errno> {
        self.begin();
        let Timeout {
            option,
            since,
            until,
        } = self;
        let until = until.get_or_insert_with(|| match stream::timeout_ms(fd, *option) {
            0 => None,
            ms => since.map(|since| Limit::of_ms_since(ms, since)),
        });
        match until {
            Some(limit) if limit.left_ns() == Some(0) => Err(libc::EAGAIN),
            until => Ok(*until),
        }
    }

    /// The call begins to wait, if it has not. Whether it had not: how long it may is asked for when that matters.
    pub fn begin(&mut self) -> bool {
        let is_first = self.since.is_none();
        self.since.get_or_insert_with(dgram::now);
        is_first
    }

    /// The same, from a time as [`dgram::now`] counts on, or from now.
    pub fn begin_at(&mut self, since: Option<u64>) {
        self.since
            .get_or_insert_with(|| since.unwrap_or_else(dgram::now));
    }

    /// Whether the call has waited before.
    pub fn has_begun(&self) -> bool {
        self.since.is_some()
    }
}

/// Waits until the socket is ready, as long as the call waits at all, and no longer than to the next signal; the error
/// that the wait ended with.
pub fn wait_once(fd: c_int, events: i16, timeout: &mut Timeout) -> Option<Errno> {
    let ms = match timeout.limit(fd) {
        Ok(limit) => limit.map_or(-1, Limit::left_ms),
        Err(errno) => return Some(errno),
    };
    let mut wait = pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one entry, which is ours.
    match unsafe { calls::poll(&mut wait, 1, ms) } {
        -1 => Some(errno()),
        0 => Some(libc::EAGAIN),
        _ => None,
    }
}
