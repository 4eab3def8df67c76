//! Weft's own option of UDP sockets: the rate at which a socket's carriers send.

use std::ffi::{c_int, c_void};

use libc::socklen_t;
use weft_sockets::udp::RATE_OCTETS;
use weft_sockets::verdict::Verdict;

use super::UdpSocket;
use crate::edge::{caught, get, get_octets, put, put_octets};

impl UdpSocket {
    /// Whether its datagrams may take carriers, which alone have the option.
    pub fn has_carriers(self) -> bool {
        self.sockets().has_carriers()
    }

    /// `setsockopt` at Weft's level.
    pub fn set_option(self, option: c_int, value: *const c_void, len: socklen_t) -> Verdict {
        let mut octets = [0; RATE_OCTETS];
        let given = match len as usize {
            RATE_OCTETS if !get_octets(value, &mut octets) => {
                return Verdict::Done(Err(libc::EFAULT))
            }
            RATE_OCTETS => &octets[..],
            // Of any other length it is none.
            _ => &[],
        };
        let set = || self.sockets().set_option(self.record, option, given);
        Verdict::Done(caught(Err(libc::EIO), set).map(|()| 0))
    }

    /// `getsockopt` at Weft's level: as much as there is room for.
    pub fn option(self, option: c_int, value: *mut c_void, len_at: *mut socklen_t) -> Verdict {
        let give = || {
            let room = get(len_at).ok_or(libc::EFAULT)?;
            let room = usize::try_from(room.cast_signed()).map_err(|_| libc::EINVAL)?;
            let found = || self.sockets().option(self.record, option);
            let rate = caught(Err(libc::EIO), found)?;
            let given = &rate[..room.min(RATE_OCTETS)];
            put(len_at, given.len() as socklen_t)?;
            put_octets(value, given)
        };
        Verdict::Done(give().map(|()| 0))
    }
}
