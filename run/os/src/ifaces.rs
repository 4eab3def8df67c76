//! Addresses of the machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network interface and its addresses.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Index.
    pub index: u32,
    /// Hardware address, zero where there is none.
    pub mac: [u8; 6],
    /// It is the loopback interface.
    pub loopback: bool,
    /// It is up.
    pub up: bool,
    /// Addresses.
    pub addrs: Vec<IpAddr>,
}

/// The machine's interfaces, in the kernel's order.
pub fn interfaces() -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs stores a list that is ours until freeifaddrs.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return found;
    }
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is an element of the list; its name is a C string.
        let (entry, name) = unsafe {
            let entry = &*at;
            let name = std::ffi::CStr::from_ptr(entry.ifa_name);
            (entry, name.to_string_lossy().into_owned())
        };
        let index = position_of(&mut found, &name, entry.ifa_flags);
        note_address(&mut found[index], entry.ifa_addr);
        at = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs and is not used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

fn position_of(found: &mut Vec<Interface>, name: &str, flags: u32) -> usize {
    if let Some(index) = found.iter().position(|i| i.name == name) {
        return index;
    }
    let has = |flag: i32| flags & flag as u32 != 0;
    found.push(Interface {
        name: name.to_owned(),
        index: 0,
        mac: [0; 6],
        loopback: has(libc::IFF_LOOPBACK),
        up: has(libc::IFF_UP),
        addrs: Vec::new(),
    });
    found.len() - 1
}

fn note_address(interface: &mut Interface, addr: *const libc::sockaddr) {
    if addr.is_null() {
        return;
    }
    // SAFETY: the kernel's family field says which structure the address is; each is read
    // unaligned as exactly that structure.
    unsafe {
        match i32::from((*addr).sa_family) {
            libc::AF_INET => {
                let v4 = addr.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                interface.addrs.push(ip.into());
            }
            libc::AF_INET6 => {
                let v6 = addr.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                interface.addrs.push(ip.into());
            }
            libc::AF_PACKET => {
                let link = addr.cast::<libc::sockaddr_ll>().read_unaligned();
                interface.index = link.sll_ifindex as u32;
                interface.mac.copy_from_slice(&link.sll_addr[..6]);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let all = interfaces();
        let lo = all
            .iter()
            .find(|i| i.loopback)
            .expect("a loopback interface");
        assert!(lo.addrs.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(lo.index > 0);
    }
}
