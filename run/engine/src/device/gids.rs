//! GIDs that stand for addresses: the table of a device with RoCE's face.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weft_os::ifaces::{self, Interface};

use super::Device;

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

impl Device {
    /// Its GIDs with RoCE's face: an adapter's addresses, then the machine's, those by which others reach it first,
    /// IPv4 before IPv6; of these the ones that its interface has, if it is of one. Link-local addresses are left out:
    /// they mean nothing without an interface, and a GID has no room for one.
    ///
    /// Asked of the kernel each time: addresses come and go.
    pub fn gids(&self) -> Vec<AddressGid> {
        let interface = self.of_one_interface.then_some(self.port.netdev.as_str());
        let table = gids_now(interface);
        let told = Told {
            device: self.number,
            at: Instant::now(),
            table: table.clone(),
        };
        let _ = RECENT.try_with(|recent| recent.replace(Some(told)));
        table
    }

    /// The same for an adapter that has these addresses, each with the name of its interface, whether or not it is
    /// running.
    pub fn gids_beside(&self, adapter: &[(IpAddr, String)]) -> Vec<AddressGid> {
        let interface = self.of_one_interface.then_some(self.port.netdev.as_str());
        gids_of(&ifaces::interfaces(), adapter, interface)
    }

    /// The address that an index of [`Device::gids`] stands for. A thread that was told of a table goes by that one, or
    /// by a later one.
    pub fn address_at(&self, index: usize) -> Option<IpAddr> {
        let recent = RECENT.try_with(|recent| {
            let recent = recent.borrow();
            let told = recent.as_ref().filter(|told| told.device == self.number)?;
            let gid = told.table.get(index)?;
            (told.at.elapsed() < RECENT_FOR).then_some(gid.address)
        });
        let recent = recent.ok().flatten();
        recent.or_else(|| Some(self.gids().get(index)?.address))
    }
}

/// For so long a thread goes by the table that it has asked for last, where many queue pairs name an index of it one
/// after another: asking takes longer than bringing one up.
const RECENT_FOR: Duration = Duration::from_millis(100);

/// A table that a thread was told, of which device and when.
struct Told {
    device: usize,
    at: Instant,
    table: Vec<AddressGid>,
}

thread_local! {
    static RECENT: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// The addresses of the running adapter and of the machine, or those of one interface.
fn gids_now(interface: Option<&str>) -> Vec<AddressGid> {
    let engine = crate::engine::started();
    let adapter = engine.map_or_else(Vec::new, |engine| engine.network.addresses());
    gids_of(&ifaces::interfaces(), &adapter, interface)
}

fn gids_of(
    machine: &[Interface],
    adapter: &[(IpAddr, String)],
    interface: Option<&str>,
) -> Vec<AddressGid> {
    let is_wanted = |name: &str| interface.is_none_or(|wanted| wanted == name);
    let index = |name: &str| {
        let named = machine.iter().find(|interface| interface.name == name);
        named.map_or(0, |interface| interface.index)
    };
    let of_adapter = adapter.iter().filter(|(_, name)| is_wanted(name));
    let of_adapter = of_adapter.map(|(address, name)| AddressGid {
        address: *address,
        ifindex: index(name),
    });
    let mut found: Vec<(bool, AddressGid)> = of_adapter.map(|gid| (false, gid)).collect();
    for interface in machine.iter().filter(|i| i.up && is_wanted(&i.name)) {
        let usable = interface.addrs.iter().filter(|one| !is_link_local(**one));
        let gids = usable.map(|address| AddressGid {
            address: *address,
            ifindex: interface.index,
        });
        found.extend(gids.map(|gid| (interface.loopback, gid)));
    }
    table_of(found)
}

/// An address that means nothing without an interface.
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
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

/// Whether an id that a program binds to this address belongs to a device before it listens or
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
        || gids_now(None).iter().all(|gid| gid.address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device that stands for every address of the machine.
    fn the_one() -> Device {
        super::super::of_settings(&weft_settings::Settings::default()).unwrap()[0].clone()
    }

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
        let gids = the_one().gids_beside(&adapter);
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
        assert!(!the_one().gids().is_empty(), "at least 127.0.0.1");
    }

    #[test]
    fn an_index_is_of_the_table_that_the_thread_was_told_last_and_of_none_that_is_old() {
        let device = the_one();
        let first = device.gids()[0].address;
        assert_eq!(device.address_at(0), Some(first));
        let elsewhere = AddressGid {
            address: [192, 0, 2, 7].into(),
            ifindex: 1,
        };
        let told = |device, ago| {
            let table = vec![elsewhere];
            let at = Instant::now() - ago;
            RECENT.set(Some(Told { device, at, table }));
        };
        told(0, Duration::ZERO);
        assert_eq!(device.address_at(0), Some(elsewhere.address));
        assert_eq!(device.gids()[0].address, first, "the kernel is asked");
        assert_eq!(device.address_at(0), Some(first));
        told(0, RECENT_FOR);
        assert_eq!(device.address_at(0), Some(first), "it was old");
        told(1, Duration::ZERO);
        assert_eq!(device.address_at(0), Some(first), "it was another device's");
        assert_eq!(device.address_at(255), None);
    }

    #[test]
    fn an_id_that_asks_about_a_loopback_address_belongs_to_no_device() {
        let alone = the_one().gids().iter().all(|gid| gid.address.is_loopback());
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

    #[test]
    fn a_device_of_one_interface_has_its_addresses_and_the_adapters_there() {
        let interface = |name: &str, index, address: &str| Interface {
            name: name.to_owned(),
            index,
            mac: [0; 6],
            loopback: name == "lo",
            up: true,
            addrs: address
                .split_whitespace()
                .map(|one| one.parse().unwrap())
                .collect(),
        };
        let machine = [
            interface("lo", 1, "127.0.0.1"),
            interface("eth0", 2, "fd00::7 192.0.2.7 fe80::7"),
            interface("eth1", 3, "198.51.100.7"),
        ];
        let adapter = [("203.0.113.7".parse().unwrap(), "eth1".to_owned())];
        let addresses = |interface| {
            let gids = gids_of(&machine, &adapter, interface);
            gids.iter()
                .map(|gid| gid.address.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(addresses(Some("eth0")), ["192.0.2.7", "fd00::7"]);
        assert_eq!(addresses(Some("eth1")), ["203.0.113.7", "198.51.100.7"]);
        assert_eq!(addresses(Some("lo")), ["127.0.0.1"]);
        assert!(addresses(Some("eth2")).is_empty());
        assert_eq!(addresses(None).len(), 4);
    }
}
