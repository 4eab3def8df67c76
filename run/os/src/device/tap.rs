//! A TAP: a network interface whose cable ends in this process (tuntap of the kernel's documentation).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{openat, Mode, OFlags, CWD};

use super::{Batch, RECEIVED_OCTETS_MAX};
use crate::descriptors;
use crate::packet::{self, ReceivedFrame, OFFLOAD_LEN};
use crate::private::Private;
use crate::sys;

/// Frames that a TAP keeps for a reader that is late, unless its `txqueuelen` says otherwise.
const QUEUE_LEN: usize = 1000;

/// One end of a TAP; the other is a network interface of the kernel's.
#[derive(Debug)]
pub struct TapDevice {
    fd: Private,
    name: String,
    /// The virtio-net header and the frame that came last.
    buffer: Vec<u8>,
    /// Drops that were told already.
    dropped: u64,
}

impl TapDevice {
    /// Attaches to the TAP of this name, or makes it. `ip tuntap add NAME mode tap user UID` makes one that an
    /// ordinary user may attach to; to make one takes `CAP_NET_ADMIN`, which `unshare -rn` gives.
    ///
    /// # Errors
    /// `EPERM`: the TAP is another user's, or would have to be made; `EBUSY`: somebody is attached to it; `EINVAL`: the
    /// name is no TAP's; `ENOENT`: the kernel has no TAPs (module `tun`).
    pub fn open(name: &str) -> io::Result<TapDevice> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || openat(CWD, "/dev/net/tun", flags, Mode::empty());
        let fd = descriptors::open_apart(open)?;
        // SAFETY: all-zero is a value of the plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(rustix::io::Errno::INVAL.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: the request reads and writes the structure, which is ours.
        unsafe {
            control(
                fd.as_fd(),
                libc::TUNSETIFF as usize,
                std::ptr::from_mut(&mut request) as usize,
            )?;
        }
        // Frames of 64 kB come whole only when the reader says that it takes them.
        let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: the argument is a number.
        unsafe { control(fd.as_fd(), libc::TUNSETOFFLOAD as usize, offload as usize)? };
        Ok(TapDevice {
            fd,
            name: name.to_owned(),
            buffer: vec![0; OFFLOAD_LEN + RECEIVED_OCTETS_MAX],
            dropped: 0,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Frames that wait for a reader at most; more are dropped.
    pub fn queue_len(&self) -> usize {
        QUEUE_LEN
    }

    /// Shows frames that are there to `each`, `most` at most, in the order they came. Returns how many there were; does
    /// not wait.
    ///
    /// # Errors
    /// `EIO`: the interface is down; `EBADFD`: it was removed.
    pub fn receive(
        &mut self,
        most: usize,
        mut each: impl FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        for count in 0..most {
            match rustix::io::read(&self.fd, &mut self.buffer[..]) {
                Ok(len) => {
                    if let Some(frame) = packet::split_offload(&self.buffer[..len], len) {
                        each(&frame);
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(count),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(most)
    }

    /// Sends the frames of a batch in order, each by a call of its own, and empties it. Returns how many were taken.
    ///
    /// # Errors
    /// What became of the first: `EIO` the interface is down, `EINVAL` its virtio-net header does not fit it.
    pub fn send(&self, batch: &mut Batch<'_>) -> io::Result<usize> {
        batch.write_each(self.fd.as_fd())
    }

    /// Waits until a frame is there, at most `timeout`. Says whether there is.
    ///
    /// # Errors
    /// `EINTR` when a signal handler ran.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        packet::wait(self.fd.as_fd(), timeout)
    }

    /// Frames that were dropped because nobody looked in time, since this was last asked.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn take_drops(&mut self) -> io::Result<u64> {
        // The interface sends what we receive.
        let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        let dropped = transmit_drops(&table, &self.name)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        Ok(dropped - std::mem::replace(&mut self.dropped, dropped).min(dropped))
    }
}

impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// # Safety
/// The argument has to be what the request takes.
unsafe fn control(fd: BorrowedFd<'_>, request: usize, argument: usize) -> io::Result<()> {
    let args = [fd.as_raw_fd() as usize, request, argument, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { sys::call(libc::SYS_ioctl, args) }
        .map(drop)
        .map_err(io::Error::from_raw_os_error)
}

/// The column of frames dropped on the way out, in a table of `/proc/net/dev`.
fn transmit_drops(table: &str, name: &str) -> Option<u64> {
    let mut rows = table.lines().filter_map(|line| line.split_once(':'));
    let (_, columns) = rows.find(|(interface, _)| interface.trim() == name)?;
    // Eight columns of what was received, then octets, packets, errors, drops.
    columns.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_stand_in_the_twelfth_column() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  tap0:  0 0 0 0 0 0 0 0 500 5 0 3 0 0 0 0\n";
        assert_eq!(transmit_drops(table, "tap0"), Some(3));
        assert_eq!(transmit_drops(table, "lo"), Some(12));
        assert_eq!(transmit_drops(table, "tap"), None);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        for name in ["", "a-name-much-too-long-for-an-interface"] {
            // Without the kernel's TAPs there is nothing to refuse it.
            let error = TapDevice::open(name).unwrap_err();
            let code = error.raw_os_error();
            assert!(
                matches!(code, Some(libc::EINVAL | libc::ENOENT | libc::EACCES)),
                "{error}"
            );
        }
    }
}
