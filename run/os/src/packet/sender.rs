//! Frames that leave by an interface.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};

use super::PacketInterface;
use crate::private::Private;
use crate::sys::{self, IoVec};

/// Frames that one call sends at most.
pub const SEND_MOST: usize = 64;
/// A device that takes no frame for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_millis(100);

/// A packet socket that only sends.
#[derive(Debug)]
pub struct PacketSender {
    fd: Private,
}

impl PacketSender {
    /// A socket that sends by `interface`.
    ///
    /// # Errors
    /// `EPERM`: no `CAP_NET_RAW`; the interface is gone, or no descriptor is left.
    pub fn open(interface: &PacketInterface) -> io::Result<PacketSender> {
        let fd = super::open()?;
        super::bind(fd.as_fd(), interface, 0)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(STUCK_AFTER))?;
        Ok(PacketSender { fd })
    }

    /// Sends whole Ethernet frames, [`SEND_MOST`] at most, in order. Returns how many were taken; waits where the
    /// device is busy.
    ///
    /// # Errors
    /// What became of the first frame, which did not leave: `EMSGSIZE` is longer than the MTU, `ENOBUFS` the device
    /// dropped it, `EAGAIN` the device is stuck, `ENETDOWN` the interface is down, `ENXIO` it is gone.
    pub fn send(&self, frames: &[impl AsRef<[u8]>]) -> io::Result<usize> {
        let count = frames.len().min(SEND_MOST);
        let mut parts = [IoVec { base: 0, len: 0 }; SEND_MOST];
        // SAFETY: all-zero is a value of the plain structure.
        let mut messages: [libc::mmsghdr; SEND_MOST] = unsafe { zeroed() };
        for (part, frame) in parts.iter_mut().zip(frames) {
            let frame = frame.as_ref();
            part.base = frame.as_ptr() as usize;
            part.len = frame.len();
        }
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            message.msg_hdr.msg_iov = std::ptr::from_mut(part).cast();
            message.msg_hdr.msg_iovlen = 1;
        }
        let args = [
            self.fd.as_raw_fd() as usize,
            messages.as_mut_ptr() as usize,
            count,
            0,
            0,
            0,
        ];
        // SAFETY: the frames are only read; they, `parts` and `messages`, where the kernel writes the lengths sent,
        // outlive the call.
        unsafe { sys::call(libc::SYS_sendmmsg, args) }.map_err(io::Error::from_raw_os_error)
    }
}
