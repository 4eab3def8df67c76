//! Packet sockets: whole Ethernet frames from and to a network interface (packet(7)).
//!
//! Three types: [`PacketInterface`] says what the kernel knows of an interface, [`PacketReceiver`] takes the frames
//! that arrive there, [`PacketSender`] sends frames out of it. Opening either socket needs `CAP_NET_RAW` in the user
//! namespace that owns the network namespace; `unshare -rn` gives that to an ordinary user.

mod interface;
mod receiver;
mod sender;

pub use interface::PacketInterface;
pub use receiver::{PacketReceiver, ReceivedFrame, VlanTag, OFFLOAD_LEN};
pub use sender::{PacketSender, SEND_MOST};

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::descriptors;
use crate::private::Private;
use crate::sys;

/// A packet socket that receives nothing yet.
fn open() -> io::Result<Private> {
    let flags = SocketFlags::CLOEXEC;
    let socket = || net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
    Ok(descriptors::open(socket)?.into())
}

/// Ties a packet socket to an interface. `protocol` is an EtherType in host byte order, `ETH_P_ALL` for all; 0 receives
/// nothing.
fn bind(fd: BorrowedFd<'_>, interface: &PacketInterface, protocol: u16) -> io::Result<()> {
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
fn set_option<T: Copy>(fd: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
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
