//! The device `weft0`: what it says of itself.

use std::net::IpAddr;
use std::sync::OnceLock;

use weft_os::ifaces;
use weft_verbs::mr::MAX_REGIONS;
use weft_verbs::types::{MAX_CQE, MAX_INLINE, MAX_RD_ATOMIC, MAX_SGE, MAX_WR};

/// The device's name.
pub const NAME: &str = "weft0";

/// Limits of the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttr {
    /// Identity: EUI-64 of the port's hardware address.
    pub guid: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Elements of a scatter/gather list.
    pub max_sge: u32,
    /// Elements of a Read's scatter list.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of a queue.
    pub max_cqe: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Octets of a memory region.
    pub max_mr_size: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Elements of a shared receive's scatter list.
    pub max_srq_sge: u32,
    /// Reads outstanding, inbound and outbound.
    pub max_qp_rd_atom: u16,
    /// Octets of inline data.
    pub max_inline: u32,
    /// Octets of a message.
    pub max_msg_size: u32,
}

/// The device's one port.
#[derive(Clone, Debug)]
pub struct Port {
    /// The GID: the hardware address and zeros, as iWARP devices have it.
    pub gid: [u8; 16],
    /// Name of the interface the port stands for.
    pub netdev: String,
    /// Its index.
    pub ifindex: u32,
    /// Octets of the interface's hardware address.
    pub mac: [u8; 6],
}

/// The device's limits.
pub fn attributes() -> DeviceAttr {
    DeviceAttr {
        guid: guid_of(port().mac),
        max_qp: 65_536,
        max_qp_wr: MAX_WR,
        max_sge: MAX_SGE as u32,
        max_sge_rd: MAX_SGE as u32,
        max_cq: 65_536,
        max_cqe: MAX_CQE,
        max_ah: 1 << 20,
        max_mr: MAX_REGIONS as u32 - 1,
        max_mr_size: i64::MAX as u64,
        max_pd: 65_536,
        max_srq: 65_536,
        max_srq_wr: MAX_WR,
        max_srq_sge: MAX_SGE as u32,
        max_qp_rd_atom: MAX_RD_ATOMIC,
        max_inline: MAX_INLINE as u32,
        max_msg_size: 1 << 30,
    }
}

/// The device's port: it stands for the first interface that is up and not loopback, or for the
/// loopback interface where there is no other. Connections use whatever route the kernel has.
///
/// Looked up once: a device keeps its identity, and asking the kernel takes longer than a connect.
pub fn port() -> Port {
    static PORT: OnceLock<Port> = OnceLock::new();
    PORT.get_or_init(find_port).clone()
}

fn find_port() -> Port {
    let all = ifaces::interfaces();
    let chosen = all
        .iter()
        .find(|i| i.up && !i.loopback && !i.addrs.is_empty())
        .or_else(|| all.iter().find(|i| i.loopback));
    let (mut mac, netdev, ifindex) = match chosen {
        Some(i) => (i.mac, i.name.clone(), i.index),
        None => ([0; 6], "lo".to_owned(), 1),
    };
    if mac == [0; 6] {
        // Locally administered, so that identity and GID are never all zeros.
        mac = [0x02, b'w', b'e', b'f', b't', 0];
    }
    let mut gid = [0; 16];
    gid[..6].copy_from_slice(&mac);
    Port {
        gid,
        netdev,
        ifindex,
        mac,
    }
}

/// A GID that stands for an address of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressGid {
    /// The address.
    pub address: IpAddr,
    /// The interface that has it.
    pub ifindex: u32,
}

impl AddressGid {
    /// The GID's octets: the IPv6 address, or the IPv4 address mapped into IPv6.
    pub fn octets(&self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }
}

/// The address that a GID stands for.
pub fn address_of(gid: [u8; 16]) -> IpAddr {
    let v6 = std::net::Ipv6Addr::from(gid);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// The GIDs of a device with RoCE's face: the machine's addresses, those by which others reach it
/// first, IPv4 before IPv6, and the loopback addresses last. Link-local addresses are left out:
/// they mean nothing without an interface, and a GID has no room for one.
///
/// Asked of the kernel each time: addresses come and go.
pub fn address_gids() -> Vec<AddressGid> {
    let mut found: Vec<(bool, AddressGid)> = Vec::new();
    for interface in ifaces::interfaces().iter().filter(|i| i.up) {
        for address in &interface.addrs {
            let link_local = match address {
                IpAddr::V4(v4) => v4.is_link_local(),
                IpAddr::V6(v6) => v6.is_unicast_link_local(),
            };
            if !link_local {
                let gid = AddressGid {
                    address: *address,
                    ifindex: interface.index,
                };
                found.push((interface.loopback, gid));
            }
        }
    }
    found.sort_by_key(|(loopback, gid)| (*loopback, gid.address.is_ipv6()));
    found.into_iter().map(|(_, gid)| gid).collect()
}

fn guid_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_an_address_and_back() {
        let v4: IpAddr = "192.0.2.7".parse().unwrap();
        let gid = AddressGid {
            address: v4,
            ifindex: 2,
        };
        assert_eq!(gid.octets()[10..], [0xFF, 0xFF, 192, 0, 2, 7]);
        assert_eq!(address_of(gid.octets()), v4);
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        let gid = AddressGid {
            address: v6,
            ifindex: 2,
        };
        assert_eq!(address_of(gid.octets()), v6);
    }

    #[test]
    fn loopback_addresses_come_last() {
        let gids = address_gids();
        assert!(!gids.is_empty(), "at least 127.0.0.1");
        let loopback: Vec<bool> = gids.iter().map(|g| g.address.is_loopback()).collect();
        assert!(loopback.is_sorted(), "{gids:?}");
    }
}
