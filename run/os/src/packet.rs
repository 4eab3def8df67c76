//! Packet sockets: whole Ethernet frames from and to a network interface (packet(7)).
//!
//! [`PacketInterface`] says what the kernel knows of an interface. Who stands between two interfaces has a
//! [`PacketReceiver`], which takes every frame that arrives, and a [`PacketSender`]; who is a host of its own on one
//! has a [`crate::device::PacketDevice`], which does both. Opening either socket needs `CAP_NET_RAW` in the user
//! namespace that owns the network namespace; `unshare -rn` gives that to an ordinary user.
//!
//! [`Features`] are what an interface does for the stack above it.

mod features;
mod filter;
mod interface;
mod receiver;
mod ring;
mod sender;

pub use crate::batch::OFFLOAD_LEN;
pub use features::Features;
pub(crate) use filter::show_only;
pub use interface::PacketInterface;
pub use receiver::PacketReceiver;
pub(crate) use ring::Ring;
pub use ring::{ReceivedFrame, VlanTag};
pub use sender::PacketSender;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::descriptors;
use crate::private::Private;
use crate::sys;

/// A packet socket that receives nothing yet.
pub(crate) fn open() -> io::Result<Private> {
    let flags = SocketFlags::CLOEXEC;
    let socket = || net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
    descriptors::open_apart(socket)
}

/// Ties a packet socket to an interface. `protocol` is an EtherType in host byte order, `ETH_P_ALL` for all; 0 receives
/// nothing.
pub(crate) fn bind(
    fd: BorrowedFd<'_>,
    interface: &PacketInterface,
    protocol: u16,
) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface.index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let args = [
        fd.as_raw_fd() as usize,
        std::ptr::from_ref(&address) as usize,
        size_of::<libc::sockaddr_ll>(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads the address, which outlives the call.
    unsafe { sys::call(libc::SYS_bind, args) }
        .map(drop)
        .map_err(io::Error::from_raw_os_error)
}

/// Sets an option of packet sockets to a plain structure of the kernel's.
pub(crate) fn set_option<T: Copy>(fd: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
    let args = [
        fd.as_raw_fd() as usize,
        libc::SOL_PACKET as usize,
        name as usize,
        std::ptr::from_ref(value) as usize,
        size_of::<T>(),
        0,
    ];
    // SAFETY: the kernel reads as many octets of the value as it has.
    unsafe { sys::call(libc::SYS_setsockopt, args) }
        .map(drop)
        .map_err(io::Error::from_raw_os_error)
}

/// Has an interface receive more than what is for its own address: `kind` is one of `PACKET_MR_*`. Ends with the
/// socket.
pub(crate) fn join(fd: BorrowedFd<'_>, interface: &PacketInterface, kind: i32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: interface.index as i32,
        mr_type: kind as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Waits until there is something to read, at most `timeout`. Says whether there is.
///
/// # Errors
/// `ENETDOWN`: the interface went down or away; `EINTR` when a signal handler ran.
pub(crate) fn wait(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as _,
        tv_nsec: i64::from(timeout.subsec_nanos()) as _,
    };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let ready = poll(&mut fds, Some(&timeout))? > 0;
    if fds[0].revents().contains(PollFlags::ERR) {
        if let Err(error) = net::sockopt::socket_error(fd)? {
            return Err(error.into());
        }
    }
    Ok(ready)
}

/// Frames that a packet socket dropped, because its ring or queue was full, since this was last asked.
pub(crate) fn take_drops(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stats = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut len = size_of::<libc::tpacket_stats>() as u32;
    let args = [
        fd.as_raw_fd() as usize,
        libc::SOL_PACKET as usize,
        libc::PACKET_STATISTICS as usize,
        std::ptr::from_mut(&mut stats) as usize,
        std::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes at most `len` octets to `stats`, and the length.
    unsafe { sys::call(libc::SYS_getsockopt, args) }.map_err(io::Error::from_raw_os_error)?;
    Ok(stats.tp_drops.into())
}

/// A frame that came with its virtio-net header before it, `len` octets in all, of which these were kept.
pub(crate) fn split_offload(octets: &[u8], len: usize) -> Option<ReceivedFrame<'_>> {
    let (offload, frame) = octets.split_first_chunk::<OFFLOAD_LEN>()?;
    Some(ReceivedFrame {
        octets: frame,
        missing: len - octets.len(),
        offload: *offload,
        vlan: None,
        at: Duration::ZERO,
    })
}
