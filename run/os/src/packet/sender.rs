//! Frames that leave by an interface.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};

use super::{set_option, PacketInterface};
use crate::batch::Batch;
use crate::private::Private;

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
        set_option(fd.as_fd(), libc::PACKET_VNET_HDR, &1i32)?;
        super::bind(fd.as_fd(), interface, 0)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(STUCK_AFTER))?;
        Ok(PacketSender { fd })
    }

    /// Sends the frames of a batch in order, up to the first that is refused, and empties it. Returns how many were
    /// taken; waits where the device is busy.
    ///
    /// # Errors
    /// What became of the first frame, which did not leave: `EMSGSIZE` is longer than the MTU, `EINVAL` its virtio-net
    /// header does not fit it, `ENOBUFS` the device dropped it, `EAGAIN` the device is stuck, `ENETDOWN` the interface
    /// is down, `ENXIO` it is gone.
    pub fn send(&self, batch: &mut Batch<'_>) -> io::Result<usize> {
        batch.send_messages(self.fd.as_fd(), true)
    }
}
