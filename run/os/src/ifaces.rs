//! Addresses of the machine.

use std::net::IpAddr;

use nix::ifaddrs::{getifaddrs, InterfaceAddress};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::lowest;

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

/// The machine's interfaces, in the kernel's order; none where the kernel does not say.
pub fn interfaces() -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    for entry in lowest::ours(getifaddrs).into_iter().flatten() {
        let index = position_of(&mut found, &entry);
        if let Some(address) = entry.address {
            note_address(&mut found[index], &address);
        }
    }
    found
}

/// The kernel names an interface once for each of its addresses.
fn position_of(found: &mut Vec<Interface>, entry: &InterfaceAddress) -> usize {
    let name = &entry.interface_name;
    if let Some(index) = found.iter().position(|i| i.name == *name) {
        return index;
    }
    found.push(Interface {
        name: name.clone(),
        index: 0,
        mac: [0; 6],
        loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        up: entry.flags.contains(InterfaceFlags::IFF_UP),
        addrs: Vec::new(),
    });
    found.len() - 1
}

fn note_address(interface: &mut Interface, address: &SockaddrStorage) {
    if let Some(v4) = address.as_sockaddr_in() {
        interface.addrs.push(v4.ip().into());
    } else if let Some(v6) = address.as_sockaddr_in6() {
        interface.addrs.push(v6.ip().into());
    } else if let Some(link) = address.as_link_addr() {
        interface.index = link.ifindex() as u32;
        interface.mac = link.addr().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
