//! Weft's own option of UDP sockets: the rate at which a socket's carriers send.

use std::ffi::{c_int, c_void};

use libc::socklen_t;
use weft_sockets::udp::RATE_OCTETS;
use weft_sockets::verdict::Verdict;

use super::UdpSocket;
use crate::edge::{give_own_option, set_own_option};

impl UdpSocket {
    /// Whether its datagrams may take carriers, which alone have the option.
    pub fn has_carriers(self) -> bool {
        self.sockets().has_carriers()
    }

    /// `setsockopt` at Weft's level.
    pub fn set_option(self, option: c_int, value: *const c_void, len: socklen_t) -> Verdict {
        set_own_option::<RATE_OCTETS>(value, len, |given| {
            self.sockets().set_option(self.record, option, given)
        })
    }

    /// `getsockopt` at Weft's level.
    pub fn option(self, option: c_int, value: *mut c_void, len_at: *mut socklen_t) -> Verdict {
        give_own_option(value, len_at, || self.sockets().option(self.record, option))
    }
}
