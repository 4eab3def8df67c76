//! How long one call of the program's waits.

use std::ffi::c_int;

use libc::pollfd;
use weft_os::stream;
use weft_sockets::Errno;

use crate::calls;
use crate::edge::errno;
use crate::limit::Limit;

/// Up to when a call waits, over all the waits that it takes. The kernel counts a timeout anew in each of them, and a
/// peer that sends framing, or Weft's own datagrams, ends one after the other.
pub struct Timeout {
    /// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    option: c_int,
    /// When it is over, once the call has begun to wait; nothing within for never.
    until: Option<Option<Limit>>,
}

impl Timeout {
    /// Of a call that receives.
    pub fn to_receive() -> Timeout {
        Timeout {
            option: libc::SO_RCVTIMEO,
            until: None,
        }
    }

    /// Of a call that sends.
    pub fn to_send() -> Timeout {
        Timeout {
            option: libc::SO_SNDTIMEO,
            until: None,
        }
    }

    /// The call is about to wait; when it has waited long enough, if ever.
    ///
    /// # Errors
    /// `EAGAIN` where it has.
    pub fn limit(&mut self, fd: c_int) -> Result<Option<Limit>, Errno> {
        let option = self.option;
        let until = self
            .until
            .get_or_insert_with(|| match stream::timeout_ms(fd, option) {
                0 => None,
                ms => Some(Limit::of_ms(c_int::try_from(ms).unwrap_or(c_int::MAX))),
            });
        match until {
            Some(limit) if limit.left_ns() == Some(0) => Err(libc::EAGAIN),
            until => Ok(*until),
        }
    }

    /// Whether the call has waited before.
    pub fn has_begun(&self) -> bool {
        self.until.is_some()
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
