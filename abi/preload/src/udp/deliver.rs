//! How a datagram comes into the program's memory.

use std::ffi::c_int;

use libc::{msghdr, sockaddr, socklen_t};
use weft_sockets::control;
use weft_sockets::udp::{Datagram, CONTROL_OCTETS};
use weft_sockets::Errno;

use super::room::Room;
use crate::edge::{get, put, put_octets};
use crate::socket::Beside;

/// Hands a datagram over as the call wants it: its octets, where it came from, what the kernel tells of it. Gives the
/// call's result.
///
/// # Errors
/// `EFAULT`: a part of the program's memory is not mapped. `EINVAL`: a length is negative.
#[inline(always)]
pub(super) fn deliver(
    datagram: &Datagram<'_>,
    room: Room<'_>,
    flags: c_int,
    beside: &Beside,
) -> Result<usize, Errno> {
    room.write(datagram.octets)?;
    match *beside {
        Beside::Nothing => {}
        Beside::Name(addr, _) if addr.is_null() => {}
        Beside::Name(addr, len_at) => deliver_name(datagram, addr, len_at)?,
        Beside::Message(at, message) => deliver_message(datagram, flags, at, message)?,
    }
    Ok(datagram.result)
}

fn deliver_name(
    datagram: &Datagram<'_>,
    addr: *mut sockaddr,
    len_at: *mut socklen_t,
) -> Result<(), Errno> {
    let len = get(len_at).ok_or(libc::EFAULT)?;
    // Lengths are signed to the kernel.
    let len = c_int::try_from(len).map_err(|_| libc::EINVAL)?;
    let fits = datagram.name.len().min(len as usize);
    put_octets(addr.cast(), &datagram.name[..fits])?;
    put(len_at, datagram.name.len() as socklen_t)
}

fn deliver_message(
    datagram: &Datagram<'_>,
    flags: c_int,
    at: *mut msghdr,
    mut message: msghdr,
) -> Result<(), Errno> {
    if !message.msg_name.is_null() {
        let len = c_int::try_from(message.msg_namelen).map_err(|_| libc::EINVAL)?;
        let fits = datagram.name.len().min(len as usize);
        put_octets(message.msg_name, &datagram.name[..fits])?;
        message.msg_namelen = datagram.name.len() as socklen_t;
    }
    let mut room = [0; CONTROL_OCTETS];
    let mut len = message.msg_controllen.min(CONTROL_OCTETS);
    if message.msg_control.is_null() {
        len = 0;
    }
    let handed = control::hand_over(datagram.control, &mut room[..len]);
    put_octets(message.msg_control, &room[..handed.len])?;
    message.msg_controllen = handed.len as _;
    let set = |on: bool, flag: c_int| if on { flag } else { 0 };
    message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC
        | set(datagram.truncated, libc::MSG_TRUNC)
        | set(handed.truncated, libc::MSG_CTRUNC);
    put(at, message)
}
