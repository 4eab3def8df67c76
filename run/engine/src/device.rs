//! The device `weft0`: what it says of itself.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use weft_os::fork::once;
use weft_os::ifaces;
use weft_verbs::mr::MAX_REGIONS;
use weft_verbs::types::{MAX_CQE, MAX_INLINE, MAX_RD_ATOMIC, MAX_SGE, MAX_WR};

use crate::stats::Total;

/// The device's name.
pub const NAME: &str = "weft0";

/// Who makes the device, where a name of 24 bits that the IEEE gives makers is asked for: `we` behind the bit that says
/// that the name is nobody's. Some programs take zero for a device that could not be asked.
pub const VENDOR: u32 = 0x02_7765;
/// The maker's number for the device.
pub const VENDOR_PART: u32 = 1;

/// The number of the device's one port.
pub const PORT: u8 = 1;

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

/// Datagrams to this process that were dropped because their Q_Key was not the queue pair's, since it began: a port's
/// counter of Q_Key violations (InfiniBand 14.2.5.6), which stays at its highest value.
pub fn qkey_violations() -> u32 {
    let count = crate::engine::started().map_or(0, |engine| engine.stats.get(Total::WrongQKeys));
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The device's port: it stands for the first interface that is up and not loopback, or for the
/// loopback interface where there is no other. Connections use whatever route the kernel has.
///
/// Looked up once: a device keeps its identity, and asking the kernel takes longer than a connect.
pub fn port() -> &'static Port {
    static PORT: OnceLock<Port> = OnceLock::new();
    once(&PORT, find_port)
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

/// The GIDs of a device with RoCE's face: an adapter's addresses, then the machine's, those by which others reach it
/// first, IPv4 before IPv6. Link-local addresses are left out: they mean nothing without an
/// interface, and a GID has no room for one.
///
/// Asked of the kernel each time: addresses come and go.
pub fn address_gids() -> Vec<AddressGid> {
    let engine = crate::engine::started();
    let own = engine.map_or_else(Vec::new, |engine| engine.network.addresses());
    let table = address_gids_beside(&own);
    let _ = RECENT.try_with(|recent| recent.replace(Some((Instant::now(), table.clone()))));
    table
}

/// The same table for an adapter that has these addresses, each with the name of its interface, whether or not it is
/// running.
pub fn address_gids_beside(adapter: &[(IpAddr, String)]) -> Vec<AddressGid> {
    let interfaces = ifaces::interfaces();
    let index = |name: &str| {
        let named = interfaces.iter().find(|interface| interface.name == name);
        named.map_or(0, |interface| interface.index)
    };
    let of_adapter = adapter.iter().map(|(address, name)| AddressGid {
        address: *address,
        ifindex: index(name),
    });
    let mut found: Vec<(bool, AddressGid)> = of_adapter.map(|gid| (false, gid)).collect();
    for interface in interfaces.iter().filter(|i| i.up) {
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
    table_of(found)
}

/// For so long a thread goes by the table that it has asked for last, where many queue pairs name an index of it one
/// after another: asking takes longer than bringing one up.
const RECENT_FOR: Duration = Duration::from_millis(100);

thread_local! {
    static RECENT: RefCell<Option<(Instant, Vec<AddressGid>)>> = const { RefCell::new(None) };
}

/// The address that an index of [`address_gids`] stands for. A thread that was told of a table goes by that one, or by
/// a later one.
pub fn address_at(index: usize) -> Option<IpAddr> {
    let recent = RECENT.try_with(|recent| {
        let recent = recent.borrow();
        let (asked, table) = recent.as_ref()?;
        let gid = table.get(index)?;
        (asked.elapsed() < RECENT_FOR).then_some(gid.address)
    });
    let recent = recent.ok().flatten();
    recent.or_else(|| Some(address_gids().get(index)?.address))
}

/// The table made of addresses and whether the loopback interface has them.
fn table_of(mut found: Vec<(bool, AddressGid)>) -> Vec<AddressGid> {
    // A program that chooses from the table by itself, by type, by family or the last, means to be
    // reached by others. So 127.0.0.1 and ::1 are left out, but where the machine has nothing else.
    // Other addresses of the loopback interface stay: routers announce such ones.
    if found.iter().any(|(_, gid)| !gid.address.is_loopback()) {
        found.retain(|(_, gid)| !gid.address.is_loopback());
    }
    found.sort_by_key(|(loopback, gid)| (*loopback, gid.address.is_ipv6()));
    found.into_iter().map(|(_, gid)| gid).collect()
}

/// The name of the interface with this index; `None` if there is none.
pub fn interface_name(index: u32) -> Option<String> {
    let all = ifaces::interfaces();
    all.into_iter().find(|i| i.index == index).map(|i| i.name)
}

/// Whether an id that a program binds to this address belongs to the device before it listens or
/// connects.
///
/// No RoCE device owns a loopback address. Programs ask by binding an id to an address, port 0,
/// whether the device has it, and say of the first that it has that others find them there
/// (libfabric). So of a loopback address the answer is no, but where the machine has nothing else.
/// With a port a program means to listen there, and may make its objects before.
pub fn belongs_at_once(bound: SocketAddr) -> bool {
    let ip = bound.ip().to_canonical();
    if ip.is_unspecified() {
        return false;
    }
    bound.port() != 0
        || !ip.is_loopback()
        || address_gids().iter().all(|gid| gid.address.is_loopback())
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

    fn table(found: &[(bool, &str)]) -> Vec<String> {
        let gid = |&(loopback, address): &(bool, &str)| {
            let address = address.parse().unwrap();
            (
                loopback,
                AddressGid {
                    address,
                    ifindex: 1,
                },
            )
        };
        table_of(found.iter().map(gid).collect())
            .iter()
            .map(|gid| gid.address.to_string())
            .collect()
    }

    #[test]
    fn loopback_addresses_are_there_only_where_there_are_no_others() {
        let lo = [(true, "::1"), (true, "127.0.0.1")];
        assert_eq!(table(&lo), ["127.0.0.1", "::1"]);
        let with_eth0 = [lo[0], lo[1], (false, "fd00::7"), (false, "192.0.2.7")];
        assert_eq!(table(&with_eth0), ["192.0.2.7", "fd00::7"]);
        let announced = [lo[0], lo[1], (true, "198.51.100.1"), (false, "fd00::7")];
        assert_eq!(table(&announced), ["fd00::7", "198.51.100.1"]);
        assert!(table(&[]).is_empty());
    }

    #[test]
    fn an_adapters_addresses_come_first_whether_or_not_its_interface_is_there() {
        let adapter = [
            ("192.0.2.7".parse().unwrap(), "lo".to_owned()),
            ("fd00::7".parse().unwrap(), "of-nobody".to_owned()),
        ];
        let gids = address_gids_beside(&adapter);
        let of_the_adapter: Vec<AddressGid> = gids
            .iter()
            .copied()
            .filter(|gid| adapter.iter().any(|(own, _)| *own == gid.address))
            .collect();
        assert_eq!(gids[0].address, adapter[0].0);
        assert_eq!(of_the_adapter.len(), 2);
        assert!(of_the_adapter[0].ifindex != 0, "lo has an index");
        assert_eq!(of_the_adapter[1].ifindex, 0);
        assert!(
            gids.iter().all(|gid| !gid.address.is_loopback()),
            "{gids:?}"
        );
    }

    #[test]
    fn this_machine_has_an_address() {
        assert!(!address_gids().is_empty(), "at least 127.0.0.1");
    }

    #[test]
    fn an_index_is_of_the_table_that_the_thread_was_told_last_and_of_none_that_is_old() {
        let first = address_gids()[0].address;
        assert_eq!(address_at(0), Some(first));
        let elsewhere = AddressGid {
            address: [192, 0, 2, 7].into(),
            ifindex: 1,
        };
        let told = |ago| RECENT.set(Some((Instant::now() - ago, vec![elsewhere])));
        told(Duration::ZERO);
        assert_eq!(address_at(0), Some(elsewhere.address));
        assert_eq!(address_gids()[0].address, first, "the kernel is asked");
        assert_eq!(address_at(0), Some(first));
        told(RECENT_FOR);
        assert_eq!(address_at(0), Some(first), "it was old");
        assert_eq!(address_at(255), None);
    }

    #[test]
    fn an_id_that_asks_about_a_loopback_address_belongs_to_no_device() {
        let alone = address_gids().iter().all(|gid| gid.address.is_loopback());
        for (addr, belongs) in [
            ("127.0.0.1:0", alone),
            ("[::1]:0", alone),
            ("[::ffff:127.0.0.1]:0", alone),
            ("127.0.0.1:7471", true),
            ("192.0.2.7:0", true),
            ("0.0.0.0:7471", false),
            ("[::]:0", false),
        ] {
            assert_eq!(belongs_at_once(addr.parse().unwrap()), belongs, "{addr}");
        }
    }
}
