//! What the kernel knows of an interface.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::descriptors;
use crate::lowest;
use crate::private::Private;
use crate::sys;

/// A network interface as it was when it was looked up.
///
/// Asked of the kernel by name and not read from `/sys`, which shows the interfaces of the network namespace it was
/// mounted in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketInterface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Index.
    pub index: u32,
    /// Octets of the longest IP packet.
    pub mtu: u32,
    /// It is up (administratively; a cable may still be missing).
    pub up: bool,
    /// Its frames are Ethernet frames. Those of a tunnel begin with the IP header, loopback is apart.
    pub ethernet: bool,
    /// Hardware address; zero where it has none.
    pub mac: [u8; 6],
}

impl PacketInterface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// `ENODEV`: there is none of this name in this network namespace; or no descriptor is left.
    pub fn find(name: &str) -> io::Result<PacketInterface> {
        lowest::ours(|| PacketInterface::look_up(name))
    }

    fn look_up(name: &str) -> io::Result<PacketInterface> {
        let flags = SocketFlags::CLOEXEC;
        let open = || net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
        let socket = Private::from(descriptors::open(open)?);
        let ask = |request| Request::ask(std::os::fd::AsFd::as_fd(&socket), name, request);
        let hardware = ask(libc::SIOCGIFHWADDR)?;
        Ok(PacketInterface {
            name: name.to_owned(),
            index: ask(libc::SIOCGIFINDEX)?.number() as u32,
            mtu: ask(libc::SIOCGIFMTU)?.number() as u32,
            up: i32::from(ask(libc::SIOCGIFFLAGS)?.short()) & libc::IFF_UP != 0,
            ethernet: hardware.short() as u16 == libc::ARPHRD_ETHER,
            mac: hardware.mac(),
        })
    }
}

/// The structure by which the kernel is asked, with its answer (netdevice(7)).
struct Request(libc::ifreq);

impl Request {
    fn ask(socket: BorrowedFd<'_>, name: &str, request: libc::c_ulong) -> io::Result<Request> {
        // SAFETY: all-zero is a value of the plain structure.
        let mut asked: libc::ifreq = unsafe { zeroed() };
        asked.ifr_name = named(name)?;
        let args = [
            socket.as_raw_fd() as usize,
            request as usize,
            std::ptr::from_mut(&mut asked) as usize,
            0,
            0,
            0,
        ];
        // SAFETY: these requests read the name and write the rest of the structure, which is ours.
        unsafe { sys::call(libc::SYS_ioctl, args) }.map_err(io::Error::from_raw_os_error)?;
        Ok(Request(asked))
    }

    fn number(&self) -> i32 {
        // SAFETY: every variant of the union is plain data, and all of it was initialised.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    fn mac(&self) -> [u8; 6] {
        // SAFETY: every variant of the union is plain data, and all of it was initialised.
        let address = unsafe { self.0.ifr_ifru.ifru_hwaddr };
        let octets = address.sa_data.map(|octet| octet as u8);
        [
            octets[0], octets[1], octets[2], octets[3], octets[4], octets[5],
        ]
    }

    /// Flags, or the family at the head of a hardware address.
    fn short(&self) -> i16 {
        // SAFETY: every variant of the union is plain data, and all of it was initialised.
        unsafe { self.0.ifr_ifru.ifru_flags }
    }
}

/// A name as the structure has it.
pub(super) fn named(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut field = [0; libc::IFNAMSIZ];
    // A name as long as the field leaves no room for the end of the string.
    if name.is_empty() || name.len() >= field.len() {
        return Err(rustix::io::Errno::NODEV.into());
    }
    for (to, from) in field.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_ethernet() {
        let lo = PacketInterface::find("lo").unwrap();
        assert!(!lo.ethernet);
        assert!(lo.mtu >= 1500 && lo.index > 0);
    }

    #[test]
    fn a_name_that_nobody_has_is_no_device() {
        for name in ["", "nobody0", "a-name-much-too-long-for-an-interface"] {
            let error = PacketInterface::find(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
