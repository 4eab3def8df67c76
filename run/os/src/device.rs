//! Devices that carry whole Ethernet frames of a TCP/IP stack of our own: a packet socket on an interface, or a TAP.
//!
//! Both give and take a virtio-net header with each frame, so that frames of 64 kB cross a veth or a bridge whole and
//! checksums are computed where somebody needs them. Nothing here waits but [`Device::wait`], and nothing keeps a
//! frame: a device that is full or gone loses it, as a wire would.

mod packet;
mod tap;

pub use crate::batch::{Batch, BATCH_FRAMES_MAX};
pub use packet::{PacketDevice, PacketOptions};
pub use tap::TapDevice;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::packet::ReceivedFrame;

/// Octets of the longest frame that arrives: a packet of 65,536 octets, as segmentation offload has it, and the
/// Ethernet header with a VLAN tag.
pub const RECEIVED_OCTETS_MAX: usize = 65_536 + 18;

/// How one waits for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// Look again and again: the shortest latency, and a whole CPU.
    Poll,
    /// Sleep until the kernel wakes: 20 to 30 us more for each frame, and no CPU.
    #[default]
    Sleep,
}

/// A device.
#[derive(Debug)]
pub enum Device {
    /// A packet socket.
    Packet(PacketDevice),
    /// A TAP.
    Tap(TapDevice),
}

impl Device {
    /// Shows frames that are there to `each`, `most` at most, in the order they came; they are gone when this returns.
    /// Returns how many there were; does not wait.
    ///
    /// # Errors
    /// The interface went down or away.
    pub fn receive(
        &mut self,
        most: usize,
        each: impl FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        match self {
            Device::Packet(device) => device.receive(most, each),
            Device::Tap(device) => device.receive(most, each),
        }
    }

    /// Sends the frames of a batch in order, up to the first that is refused, and empties it. Returns how many were
    /// taken.
    ///
    /// # Errors
    /// What became of the first frame, see [`PacketDevice::send`].
    pub fn send(&self, batch: &mut Batch<'_>) -> io::Result<usize> {
        match self {
            Device::Packet(device) => device.send(batch),
            Device::Tap(device) => device.send(batch),
        }
    }

    /// Whether a frame may be there. Where one sees that without a system call it is so; elsewhere always true.
    #[inline]
    pub fn may_have_frame(&self) -> bool {
        match self {
            Device::Packet(device) if device.ring_slots() > 0 => device.has_frame(),
            _ => true,
        }
    }

    /// Waits until a frame is there, at most `timeout`, awake or asleep. Says whether there is.
    ///
    /// # Errors
    /// The interface went down or away; `EINTR` when a signal handler ran.
    pub fn wait(&self, how: Waiting, timeout: Duration) -> io::Result<bool> {
        match (how, self) {
            (Waiting::Poll, Device::Packet(device)) if device.ring_slots() > 0 => {
                // Looking costs no system call; whether the interface is still there is asked at the end.
                let end = Instant::now() + timeout;
                loop {
                    for _ in 0..LOOKS_BETWEEN_CLOCKS {
                        if device.has_frame() {
                            return Ok(true);
                        }
                        std::hint::spin_loop();
                    }
                    if Instant::now() >= end {
                        return self.asleep(Duration::ZERO);
                    }
                }
            }
            (Waiting::Poll, _) => {
                let end = Instant::now() + timeout;
                while !self.asleep(Duration::ZERO)? {
                    if Instant::now() >= end {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Waiting::Sleep, _) => self.asleep(timeout),
        }
    }

    fn asleep(&self, timeout: Duration) -> io::Result<bool> {
        match self {
            Device::Packet(device) => device.wait(timeout),
            Device::Tap(device) => device.wait(timeout),
        }
    }

    /// Frames that were dropped because nobody looked in time, since this was last asked.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn take_drops(&mut self) -> io::Result<u64> {
        match self {
            Device::Packet(device) => device.take_drops(),
            Device::Tap(device) => device.take_drops(),
        }
    }

    /// Full frames that may wait until somebody looks; more are dropped. What is offered to peers in windows has to
    /// fit.
    pub fn waiting_frames_max(&self) -> usize {
        match self {
            // A socket's queue is bounded in octets: three of the largest frames in the usual 212,992.
            Device::Packet(device) => device.ring_slots().max(3),
            Device::Tap(device) => device.queue_len(),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Device::Packet(device) => device.as_fd(),
            Device::Tap(device) => device.as_fd(),
        }
    }
}

/// A look at the ring costs a nanosecond or two, at the clock twenty.
const LOOKS_BETWEEN_CLOCKS: u32 = 64;
