//! Frames that arrive at an interface, in a ring that the kernel writes and this process reads.
//!
//! A ring and not a queue of the socket: the length of the latter is bounded by `net.core.rmem_max`, which an ordinary
//! user cannot raise and which a few large frames fill. And the kernel notes in the ring when each frame came, so that
//! a reader that comes late still knows.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::ring::{ReceivedFrame, Ring, SLOTS_PER_BLOCK};
use super::{set_option, PacketInterface};
use crate::private::Private;

/// With 1020 slots a reader may stand still for 12 ms while full frames arrive at 1 Gbit/s. They take 71 MB.
const SLOTS: usize = 68 * SLOTS_PER_BLOCK;

/// A packet socket that receives every frame that arrives at an interface, whoever it is for.
#[derive(Debug)]
pub struct PacketReceiver {
    fd: Private,
    ring: Ring,
}

impl PacketReceiver {
    /// Begins to receive. The interface is promiscuous as long as the socket is open; frames that this machine sends
    /// by it are left out.
    ///
    /// # Errors
    /// `EPERM`: no `CAP_NET_RAW`; `ENOMEM`: no memory for the ring; the interface is down or gone.
    pub fn open(interface: &PacketInterface) -> io::Result<PacketReceiver> {
        let fd = super::open()?;
        set_option(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        let ring = Ring::map(fd.as_fd(), SLOTS)?;
        let receiver = PacketReceiver { fd, ring };
        super::bind(receiver.fd.as_fd(), interface, libc::ETH_P_ALL as u16)?;
        super::join(receiver.fd.as_fd(), interface, libc::PACKET_MR_PROMISC)?;
        Ok(receiver)
    }

    /// Shows frames that are there to `each`, `most` at most, in the order they came. Returns how many there were;
    /// does not wait.
    pub fn receive(&mut self, most: usize, each: impl FnMut(&ReceivedFrame<'_>)) -> usize {
        self.ring.receive(most, each)
    }

    /// Waits until a frame is there, at most `timeout`.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface went down or away; `EINTR` when a signal handler ran.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        super::wait(self.fd.as_fd(), timeout).map(drop)
    }

    /// Frames that were dropped, because the ring was full, since this was last asked.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn take_drops(&self) -> io::Result<u64> {
        super::take_drops(self.fd.as_fd())
    }
}
