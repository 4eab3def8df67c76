//! A host of its own on an interface: frames for it in, frames of it out.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use super::{Batch, RECEIVED_OCTETS_MAX};
use crate::packet::{self, set_option, PacketInterface, ReceivedFrame, Ring, OFFLOAD_LEN};
use crate::private::Private;
use crate::sys;

/// How a [`PacketDevice`] is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketOptions {
    /// Slots of the receive ring, each for a frame of 64 kB: how many frames may come while nobody looks. Rounded up to
    /// a multiple of 15 slots, a megabyte. 0 is no ring: the socket's queue, which `net.core.rmem_default` bounds, and
    /// a copy of each frame.
    pub ring_slots: usize,
    /// Frames leave without passing the interface's queueing discipline.
    pub bypass_queue: bool,
    /// Take frames for other hardware addresses than the interface's too.
    pub promiscuous: bool,
}

impl Default for PacketOptions {
    /// 240 slots in 16 MB, by no queue, for the interface's own hardware address.
    fn default() -> PacketOptions {
        PacketOptions {
            ring_slots: 240,
            bypass_queue: true,
            promiscuous: false,
        }
    }
}

/// Where frames that arrived are.
#[derive(Debug)]
enum Inbox {
    Ring(Ring),
    /// The virtio-net header and the frame that came last.
    Queue(Vec<u8>),
}

/// A packet socket that sends and receives whole Ethernet frames, with segmentation and checksums left to whoever is at
/// the other end (a virtio-net header stands before each).
///
/// Frames for the interface's hardware address and for groups arrive; those that this machine sends by the interface do
/// not. The kernel sees the same frames: it must not own the addresses that are spoken for here.
#[derive(Debug)]
pub struct PacketDevice {
    // The ring goes before its socket.
    inbox: Inbox,
    fd: Private,
    interface: PacketInterface,
}

impl PacketDevice {
    /// Begins to receive.
    ///
    /// # Errors
    /// `EPERM`: no `CAP_NET_RAW`; `ENOMEM`: no memory for the ring; `ENETDOWN`, `ENODEV`: the interface is down, gone,
    /// or speaks no Ethernet.
    pub fn open(interface: &PacketInterface, options: &PacketOptions) -> io::Result<PacketDevice> {
        if !interface.ethernet {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let fd = packet::open()?;
        set_option(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        set_option(
            fd.as_fd(),
            libc::PACKET_QDISC_BYPASS,
            &i32::from(options.bypass_queue),
        )?;
        let inbox = if options.ring_slots > 0 {
            Inbox::Ring(Ring::map(fd.as_fd(), options.ring_slots)?)
        } else {
            set_option(fd.as_fd(), libc::PACKET_VNET_HDR, &1i32)?;
            Inbox::Queue(vec![0; OFFLOAD_LEN + RECEIVED_OCTETS_MAX])
        };
        packet::bind(fd.as_fd(), interface, libc::ETH_P_ALL as u16)?;
        // Neighbour discovery asks groups.
        packet::join(fd.as_fd(), interface, libc::PACKET_MR_ALLMULTI)?;
        if options.promiscuous {
            packet::join(fd.as_fd(), interface, libc::PACKET_MR_PROMISC)?;
        }
        Ok(PacketDevice {
            inbox,
            fd,
            interface: interface.clone(),
        })
    }

    /// From here on leaves out packets for other addresses than these: the kernel's own, which would be copied here,
    /// too. Of IPv6 those for groups and for any link-local address still arrive, and so does everything that is not
    /// IP.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM`: more addresses than a filter may have instructions for; nothing is left out then.
    pub fn show_only(&self, addresses: &[IpAddr]) -> io::Result<()> {
        packet::show_only(self.fd.as_fd(), addresses)
    }

    /// The interface as it was when it was opened.
    pub fn interface(&self) -> &PacketInterface {
        &self.interface
    }

    /// Frames that may come while nobody looks; 0 where there is no ring and octets are bounded instead. More are
    /// dropped, and counted.
    pub fn ring_slots(&self) -> usize {
        match &self.inbox {
            Inbox::Ring(ring) => ring.slots(),
            Inbox::Queue(_) => 0,
        }
    }

    /// Shows frames that are there to `each`, `most` at most, in the order they came: in the slot where the kernel put
    /// them. Returns how many there were; does not wait.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface went down or away. With a ring only [`PacketDevice::wait`] tells that.
    pub fn receive(
        &mut self,
        most: usize,
        mut each: impl FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        let buffer = match &mut self.inbox {
            Inbox::Ring(ring) => return Ok(ring.receive(most, each)),
            Inbox::Queue(buffer) => buffer,
        };
        for count in 0..most {
            let Some(len) = receive_into(self.fd.as_fd(), buffer)? else {
                return Ok(count);
            };
            if let Some(frame) = packet::split_offload(&buffer[..len.min(buffer.len())], len) {
                each(&frame);
            }
        }
        Ok(most)
    }

    /// A frame is there, as far as one sees without a system call: always false where there is no ring.
    #[inline]
    pub fn has_frame(&self) -> bool {
        match &self.inbox {
            Inbox::Ring(ring) => ring.has_frame(),
            Inbox::Queue(_) => false,
        }
    }

    /// Sends the frames of a batch in order, up to the first that is refused, and empties it. Returns how many were
    /// taken. Does not wait.
    ///
    /// # Errors
    /// What became of the first frame: `ENOBUFS`, `EAGAIN` the device is busy, `EMSGSIZE` it is longer than the MTU
    /// without saying how to cut it, `EINVAL` its virtio-net header does not fit it, `EFAULT` registered memory in it
    /// was unmapped, `ENETDOWN` the interface is down, `ENXIO` it is gone.
    pub fn send(&self, batch: &mut Batch<'_>) -> io::Result<usize> {
        batch.send_messages(self.fd.as_fd(), false)
    }

    /// Waits until a frame is there, at most `timeout`. Says whether there is.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface went down or away; `EINTR` when a signal handler ran.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        if self.has_frame() {
            return Ok(true);
        }
        packet::wait(self.fd.as_fd(), timeout)
    }

    /// Frames that were dropped because nobody looked in time, since this was last asked.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn take_drops(&self) -> io::Result<u64> {
        packet::take_drops(self.fd.as_fd())
    }
}

impl AsFd for PacketDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes the next message of a socket into a buffer. Gives its whole length, also where the buffer is shorter; none
/// where there is no message.
fn receive_into(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let args = [
        fd.as_raw_fd() as usize,
        buffer.as_mut_ptr() as usize,
        buffer.len(),
        (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as usize,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most as many octets to the buffer as it has.
    match unsafe { sys::call(libc::SYS_recvfrom, args) } {
        Ok(len) => Ok(Some(len)),
        Err(libc::EAGAIN) => Ok(None),
        Err(error) => Err(io::Error::from_raw_os_error(error)),
    }
}
