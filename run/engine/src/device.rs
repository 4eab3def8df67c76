//! The devices of a process: what each says of itself, and which there are (decision 0050).
//!
//! By default there is one, `weft0`, which stands for every address of the machine. The setting `devices` gives
//! interfaces a device each: [`Device`] has a name, an identity and the addresses of its interface ([`gids`]). The
//! engine behind them, its threads and its limits are one.

pub mod gids;

use std::fmt;
use std::sync::OnceLock;

use weft_os::fork::once;
use weft_os::ifaces::{self, Interface};
use weft_settings::devices::Devices;
use weft_settings::{Adapter, Settings};
use weft_verbs::mr::MAX_REGIONS;
use weft_verbs::types::{MAX_CQE, MAX_INLINE, MAX_RD_ATOMIC, MAX_SGE, MAX_WR};

use crate::stats::Total;
pub use gids::{address_of, belongs_at_once, interface_name, AddressGid};

/// What the devices' names begin with; their numbers follow.
pub const NAME: &str = "weft";

/// Who makes the device, where a name of 24 bits that the IEEE gives makers is asked for: `we` behind the bit that says
/// that the name is nobody's. Some programs take zero for a device that could not be asked.
pub const VENDOR: u32 = 0x02_7765;
/// The maker's number for the device.
pub const VENDOR_PART: u32 = 1;

/// The number of a device's one port.
pub const PORT: u8 = 1;

/// Limits of every device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttr {
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

/// The limits of every device.
pub fn attributes() -> DeviceAttr {
    DeviceAttr {
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

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its place among the devices of the process, from 0.
    pub number: usize,
    /// `weft0` and so on.
    pub name: String,
    /// Its one port.
    pub port: Port,
    /// Whether it has the addresses of its port's interface alone, not those of the whole machine.
    pub of_one_interface: bool,
}

/// A device's one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Name of the interface the port stands for.
    pub netdev: String,
    /// Its index; 0 for an interface that is made later.
    pub ifindex: u32,
    /// Octets of the interface's hardware address, or of one that was made up.
    pub mac: [u8; 6],
}

impl Device {
    /// Identity: the EUI-64 of the port's hardware address.
    pub fn guid(&self) -> u64 {
        let [a, b, c, d, e, f] = self.port.mac;
        u64::from_be_bytes([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
    }
}

impl Port {
    /// The GID of a device with iWARP's face: the hardware address and zeros.
    pub fn gid(&self) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..6].copy_from_slice(&self.mac);
        gid
    }
}

/// Interfaces that are named for devices and are not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Those.
    pub named: Vec<String>,
    /// Those that are there.
    pub there: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, there) = (self.named.join(", "), self.there.join(", "));
        write!(
            f,
            "the setting devices (WEFT_DEVICES) names {named}, and this machine's interfaces are {there}: name some of \
             these, or give all or one"
        )
    }
}

/// The devices of this process, by number; none if Weft is off, or if the settings name an interface that is not there,
/// which is said on standard error. Found once: a device keeps its identity, and asking the kernel takes longer than a
/// connect.
pub fn all() -> &'static [Device] {
    static ALL: OnceLock<Vec<Device>> = OnceLock::new();
    once(&ALL, || {
        let settings = Settings::from_env().0;
        if settings.off {
            return Vec::new();
        }
        of_settings(&settings).unwrap_or_else(|missing| {
            crate::log::set_threshold(settings.log);
            crate::error!("there is no device: {missing}");
            Vec::new()
        })
    })
    .as_slice()
}

/// The device that a connection of this local address belongs to: the one whose interface has it, or the first; `None`
/// where there is no device.
pub fn with_address(address: std::net::IpAddr) -> Option<&'static Device> {
    let devices = all();
    // Nothing is asked where there is no choice.
    let has_it = |device: &&Device| {
        let address = address.to_canonical();
        device.gids().iter().any(|gid| gid.address == address)
    };
    let found = match devices {
        [] | [_] => None,
        _ => devices.iter().find(has_it),
    };
    found.or(devices.first())
}

/// The devices that these settings ask for on this machine.
///
/// # Errors
/// Interfaces that are named and not there.
pub fn of_settings(settings: &Settings) -> Result<Vec<Device>, Missing> {
    let adapter = match settings.adapter {
        Adapter::Off => Vec::new(),
        Adapter::Inline => {
            let interfaces = settings.interfaces.iter();
            interfaces.map(|one| one.device.name().to_owned()).collect()
        }
    };
    choose(&settings.devices, &ifaces::interfaces(), adapter)
}

/// The devices among these interfaces and an adapter's, by their names.
fn choose(
    wanted: &Devices,
    machine: &[Interface],
    adapter: Vec<String>,
) -> Result<Vec<Device>, Missing> {
    let names = match wanted {
        Devices::One => Vec::new(),
        Devices::All => {
            let reachable = machine.iter().filter(|one| is_reachable(one));
            let others = reachable.map(|one| one.name.clone());
            let others: Vec<String> = others.filter(|name| !adapter.contains(name)).collect();
            [adapter, others].concat()
        }
        Devices::Named(names) => {
            let there: Vec<String> = machine.iter().map(|one| one.name.clone()).collect();
            let is_missing = |name: &&String| !there.contains(name) && !adapter.contains(name);
            let missing: Vec<String> = names.iter().filter(is_missing).cloned().collect();
            if !missing.is_empty() {
                return Err(Missing {
                    named: missing,
                    there,
                });
            }
            names.clone()
        }
    };
    if names.is_empty() {
        // A machine without a network has a device all the same.
        return Ok(vec![the_one(machine)]);
    }
    let mut devices: Vec<Device> = Vec::new();
    for (number, name) in names.into_iter().enumerate() {
        let interface = machine.iter().find(|one| one.name == name);
        let mac = interface.map_or([0; 6], |one| one.mac);
        // VLANs and their like have their parents' address, and identities have to differ.
        let is_taken = devices.iter().any(|before| before.port.mac == mac);
        let mac = if is_taken { [0; 6] } else { mac };
        let ifindex = interface.map_or(0, |one| one.index);
        devices.push(device(number, name, ifindex, mac, true));
    }
    Ok(devices)
}

/// Others reach the machine by an address of this interface.
fn is_reachable(interface: &Interface) -> bool {
    let has_address = interface.addrs.iter().any(|one| !gids::is_link_local(*one));
    interface.up && !interface.loopback && has_address
}

/// The one device for all addresses: its port stands for the first interface that is up and not loopback, or for the
/// loopback interface where there is no other. Connections use whatever route the kernel has.
fn the_one(machine: &[Interface]) -> Device {
    let outward = |i: &&Interface| i.up && !i.loopback && !i.addrs.is_empty();
    let chosen = machine.iter().find(outward);
    match chosen.or_else(|| machine.iter().find(|i| i.loopback)) {
        Some(i) => device(0, i.name.clone(), i.index, i.mac, false),
        None => device(0, "lo".to_owned(), 1, [0; 6], false),
    }
}

fn device(
    number: usize,
    netdev: String,
    ifindex: u32,
    mac: [u8; 6],
    of_one_interface: bool,
) -> Device {
    let mac = match mac {
        // Locally administered, so that identity and GID are never all zeros.
        [0, 0, 0, 0, 0, 0] => [0x02, b'w', b'e', b'f', b't', number as u8],
        mac => mac,
    };
    let port = Port {
        netdev,
        ifindex,
        mac,
    };
    Device {
        number,
        name: format!("{NAME}{number}"),
        port,
        of_one_interface,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, index: u32, mac: u8, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            index,
            mac: [mac; 6],
            loopback: name == "lo",
            up: true,
            addrs: address
                .split_whitespace()
                .map(|one| one.parse().unwrap())
                .collect(),
        }
    }

    fn machine() -> Vec<Interface> {
        let mut machine = vec![
            interface("lo", 1, 0, "127.0.0.1 ::1"),
            interface("eth0", 2, 7, "192.0.2.7 fe80::7"),
            interface("vlan0", 3, 7, "198.51.100.7"),
            interface("local", 4, 9, "fe80::9 169.254.1.1"),
            interface("tun0", 5, 0, "fd00::5"),
            interface("down0", 6, 8, "203.0.113.7"),
        ];
        machine[5].up = false;
        machine
    }

    fn names(devices: &[Device]) -> Vec<(&str, &str)> {
        let named = devices.iter();
        named
            .map(|one| (one.name.as_str(), one.port.netdev.as_str()))
            .collect()
    }

    #[test]
    fn the_one_device_is_of_the_first_interface_that_leads_outward() {
        let one = choose(&Devices::One, &machine(), Vec::new()).unwrap();
        assert_eq!(names(&one), [("weft0", "eth0")]);
        assert!(!one[0].of_one_interface);
        let alone = choose(&Devices::One, &machine()[..1], Vec::new()).unwrap();
        assert_eq!(names(&alone), [("weft0", "lo")]);
        assert_eq!(alone[0].port.gid()[..6], *b"\x02weft\0");
        assert_eq!(
            names(&choose(&Devices::One, &[], Vec::new()).unwrap()),
            [("weft0", "lo")]
        );
    }

    #[test]
    fn all_are_the_interfaces_by_which_others_reach_the_machine() {
        let all = choose(&Devices::All, &machine(), Vec::new()).unwrap();
        assert_eq!(
            names(&all),
            [("weft0", "eth0"), ("weft1", "vlan0"), ("weft2", "tun0")]
        );
        assert!(all.iter().all(|one| one.of_one_interface));
        assert_eq!(all[0].port.mac, [7; 6]);
        for (at, one) in all.iter().enumerate() {
            assert!(
                all[..at].iter().all(|before| before.guid() != one.guid()),
                "{all:?}"
            );
        }
        let alone = choose(&Devices::All, &machine()[..1], Vec::new()).unwrap();
        assert_eq!(names(&alone), [("weft0", "lo")], "no other leads outward");
        assert!(!alone[0].of_one_interface);
    }

    #[test]
    fn named_interfaces_have_devices_in_their_order_or_there_is_none() {
        let named = |text| Devices::parse(text).unwrap();
        let two = choose(&named("local,eth0"), &machine(), Vec::new()).unwrap();
        assert_eq!(names(&two), [("weft0", "local"), ("weft1", "eth0")]);
        let missing = choose(&named("eth0,eth7"), &machine()[..2], Vec::new()).unwrap_err();
        assert_eq!(missing.named, ["eth7"]);
        let said = missing.to_string();
        assert!(
            said.contains("names eth7, and this machine's interfaces are lo, eth0"),
            "{said}"
        );
    }

    #[test]
    fn an_adapters_interfaces_come_first_even_before_they_are_there() {
        let adapter = || vec!["tap9".to_owned(), "vlan0".to_owned()];
        let all = choose(&Devices::All, &machine(), adapter()).unwrap();
        let expected = [
            ("weft0", "tap9"),
            ("weft1", "vlan0"),
            ("weft2", "eth0"),
            ("weft3", "tun0"),
        ];
        assert_eq!(names(&all), expected);
        let named = Devices::parse("eth0,tap9").unwrap();
        let two = choose(&named, &machine(), adapter()).unwrap();
        assert_eq!(names(&two), [("weft0", "eth0"), ("weft1", "tap9")]);
        assert_eq!(two[1].port.ifindex, 0);
    }
}
