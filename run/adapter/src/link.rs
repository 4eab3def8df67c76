//! What carries a driver's frames.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use weft_os::device::{Batch, Device, Waiting};
pub use weft_os::packet::ReceivedFrame;

/// A device, or what stands for one in a test.
///
/// Frames have a virtio-net header and may be of 64 kB: their checksums are computed, and they are cut, where somebody
/// needs that. A link loses frames, as a wire does, and never waits.
pub trait Link: Debug + Send {
    /// Shows frames that are there to `each`, `most` at most, in the order they came. Returns how many there were.
    ///
    /// # Errors
    /// The interface went down or away.
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize>;

    /// Sends the frames of a batch in order, up to the first that is refused, and empties it. Returns how many were
    /// taken.
    ///
    /// # Errors
    /// What became of the first frame; `EFAULT`: memory in it is not mapped.
    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize>;

    /// Whether a frame may be there. Costs no system call where it can be known without one.
    fn may_have_frame(&self) -> bool;

    /// Waits until a frame is there, at most `timeout`. Says whether there is.
    ///
    /// # Errors
    /// The interface went down or away; told once.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;

    /// Ready while frames are there, or when the interface went down or away.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Frames that may wait until somebody looks; more are lost.
    fn waiting_frames_max(&self) -> usize;

    /// Frames that were lost so since this was last asked.
    fn take_drops(&mut self) -> u64;
}

impl Link for Device {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        Device::receive(self, most, each)
    }

    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize> {
        Device::send(self, batch)
    }

    #[inline]
    fn may_have_frame(&self) -> bool {
        Device::may_have_frame(self)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        Device::wait(self, Waiting::Sleep, timeout)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn waiting_frames_max(&self) -> usize {
        Device::waiting_frames_max(self)
    }

    fn take_drops(&mut self) -> u64 {
        // Of one that is gone nobody can say.
        Device::take_drops(self).unwrap_or(0)
    }
}
