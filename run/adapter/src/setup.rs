//! From settings to a network: interfaces are looked at, claimed and opened, and what is wrong is said in words, with
//! the command that helps.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use weft_engine::carrier::tcp::KernelTcp;
use weft_engine::carrier::Network;
use weft_engine::settings::interfaces::{self, DeviceName};
use weft_engine::settings::{program, Adapter, Settings, TransportRules};
use weft_inet::stack::{Cidr, Mac, Route};
use weft_os::claim::{Claim, Refused};
use weft_os::device::{Device, PacketDevice, PacketOptions, TapDevice};
use weft_os::ifaces;
use weft_os::lowest;
use weft_os::packet::PacketInterface;

use crate::driver::{Driver, Interface};
use crate::network::Inline;

/// Why an adapter cannot be had as it is set.
#[derive(Debug)]
pub enum Wrong {
    /// The adapter is on and has no interface.
    NoInterface,
    /// There is none of this name.
    Missing(String),
    /// It is down.
    Down(String),
    /// Its frames are no Ethernet frames.
    NotEthernet(String),
    /// The kernel has the address.
    OwnedByKernel {
        /// The address.
        address: IpAddr,
        /// Bits of its network.
        bits: u8,
        /// The interface that has it.
        interface: String,
    },
    /// The kernel forwards what arrives there.
    Forwards {
        /// The interface.
        interface: String,
        /// `ipv4` or `ipv6`.
        version: &'static str,
    },
    /// Another process has the address.
    Taken {
        /// The address.
        address: IpAddr,
        /// The process, where the kernel tells it.
        process: Option<u32>,
    },
    /// This user may not.
    NoPrivilege(DeviceName),
    /// The kernel has no TAPs.
    NoTaps,
    /// Somebody is attached to the TAP.
    TapBusy(String),
    /// The interface of this name is no TAP.
    NotTap(String),
    /// The kernel refuses for another reason.
    Refused(DeviceName, io::Error),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::NoInterface => write!(f, "the inline adapter has no interface"),
            Wrong::Missing(name) => {
                write!(f, "there is no interface {name} in this network namespace")
            }
            Wrong::Down(name) => write!(f, "the interface {name} is down"),
            Wrong::NotEthernet(name) => {
                write!(f, "the interface {name} carries no Ethernet frames")
            }
            Wrong::OwnedByKernel {
                address, interface, ..
            } => write!(
                f,
                "the kernel has the address {address} on {interface}, and would answer the adapter's peers with resets"
            ),
            Wrong::Forwards { interface, version } => write!(
                f,
                "the kernel forwards {version} packets that arrive at {interface}, and would send the adapter's on"
            ),
            Wrong::Taken { address, process } => {
                let of = process.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                write!(f, "{of} has the adapter's address {address}")
            }
            Wrong::NoPrivilege(DeviceName::Packet(name)) => {
                write!(f, "a packet socket on {name} needs CAP_NET_RAW, which this user has not")
            }
            Wrong::NoPrivilege(DeviceName::Tap(name)) => {
                write!(f, "the TAP {name} is another user's, or not there and would have to be made")
            }
            Wrong::NoTaps => write!(f, "there is no /dev/net/tun: the kernel has no TAPs"),
            Wrong::TapBusy(name) => write!(f, "another program is attached to the TAP {name}"),
            Wrong::NotTap(name) => write!(f, "the interface {name} is no TAP"),
            Wrong::Refused(device, error) => write!(f, "{device} cannot be opened: {error}"),
        }
    }
}

impl Wrong {
    /// What helps: a command, where there is one.
    pub fn advice(&self) -> String {
        match self {
            Wrong::NoInterface => {
                "name one: --interface packet:veth1 --address 10.1.0.2/24".to_owned()
            }
            Wrong::Missing(name) => format!(
                "`ip link` lists them; `ip link add veth0 type veth peer name {name}` makes a pair"
            ),
            Wrong::Down(name) => format!("ip link set {name} up"),
            Wrong::NotEthernet(_) => {
                "take a veth, a network card or a TAP: `ip -details link` says what each is".to_owned()
            }
            Wrong::OwnedByKernel {
                address,
                bits,
                interface,
            } => format!(
                "give the adapter another one, or take it from the kernel: ip address del {address}/{bits} dev {interface}"
            ),
            Wrong::Forwards { interface, version } => {
                format!("sysctl -w net.{version}.conf.{interface}.forwarding=0")
            }
            Wrong::Taken { .. } => {
                "each program needs an address of its own: give another --address".to_owned()
            }
            Wrong::NoPrivilege(DeviceName::Packet(_)) => {
                "run it in a namespace of your own (unshare -Urn), as root, or by a TAP that was made for you (tap:NAME)"
                    .to_owned()
            }
            Wrong::NoPrivilege(DeviceName::Tap(name)) => {
                format!("sudo ip tuntap add {name} mode tap user $USER && sudo ip link set {name} up")
            }
            Wrong::NoTaps => "modprobe tun".to_owned(),
            Wrong::TapBusy(name) => {
                format!("end the other program, or make another TAP: `ip tuntap` lists them, {name} among them")
            }
            Wrong::NotTap(name) => format!("name it as packet:{name}, or give the name of a TAP"),
            Wrong::Refused(..) => "`weft doctor` looks at the rest of the machine".to_owned(),
        }
    }
}

/// The network that settings ask for, as the engine wants it (`weft_engine::choose_network`).
///
/// # Errors
/// What is wrong and what helps, in a sentence.
pub fn network(settings: &Settings) -> Result<Arc<dyn Network>, String> {
    match open(settings) {
        Ok(Some(inline)) => Ok(Arc::new(inline)),
        Ok(None) => Ok(Arc::new(KernelTcp)),
        Err(wrong) => Err(format!("{wrong} ({})", wrong.advice())),
    }
}

/// The inline adapter that settings ask for; none where they ask for the kernel's TCP.
///
/// # Errors
/// What is wrong.
pub fn open(settings: &Settings) -> Result<Option<Inline>, Wrong> {
    if settings.adapter == Adapter::Off {
        return Ok(None);
    }
    if settings.interfaces.is_empty() {
        return Err(Wrong::NoInterface);
    }
    let (mut drivers, mut claims) = (Vec::new(), Vec::new());
    let names = program::names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rules = settings.tcp.for_program(&names);
    for wanted in &settings.interfaces {
        look(wanted)?;
        claims.extend(claim(wanted)?);
        drivers.push(driver(wanted, &rules)?);
    }
    Ok(Some(Inline::new(drivers, claims)))
}

/// Whether there could be such an adapter now: everything is opened, and closed again.
///
/// # Errors
/// What is wrong.
pub fn check(settings: &Settings) -> Result<(), Wrong> {
    open(settings).map(drop)
}

/// What can be seen without opening anything.
fn look(wanted: &interfaces::Interface) -> Result<(), Wrong> {
    let known = ifaces::interfaces();
    for (address, bits) in &wanted.addresses {
        let mut owners = known.iter();
        if let Some(owner) = owners.find(|interface| interface.addrs.contains(address)) {
            return Err(Wrong::OwnedByKernel {
                address: *address,
                bits: *bits,
                interface: owner.name.clone(),
            });
        }
    }
    let DeviceName::Packet(name) = &wanted.device else {
        return Ok(());
    };
    let interface = find(name)?;
    if !interface.ethernet {
        return Err(Wrong::NotEthernet(name.clone()));
    }
    if !interface.up {
        return Err(Wrong::Down(name.clone()));
    }
    for (version, is_meant) in [
        ("ipv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
        ("ipv6", IpAddr::is_ipv6),
    ] {
        let any = wanted
            .addresses
            .iter()
            .any(|(address, _)| is_meant(address));
        let setting = format!("/proc/sys/net/{version}/conf/{name}/forwarding");
        let forwards = lowest::read_to_string(&setting).is_ok_and(|text| text.trim() != "0");
        if any && forwards {
            return Err(Wrong::Forwards {
                interface: name.clone(),
                version,
            });
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<PacketInterface, Wrong> {
    PacketInterface::find(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => Wrong::Missing(name.to_owned()),
        _ => Wrong::Refused(DeviceName::Packet(name.to_owned()), error),
    })
}

/// The addresses are this process's from now on.
fn claim(wanted: &interfaces::Interface) -> Result<Vec<Claim>, Wrong> {
    let addresses = wanted.addresses.iter();
    addresses
        .map(|(address, _)| {
            let claim = Claim::take(&format!("weft-adapter/{}/{address}", wanted.device));
            claim.map_err(|refused| match refused {
                Refused::Taken(process) => Wrong::Taken {
                    address: *address,
                    process,
                },
                Refused::Error(error) => Wrong::Refused(wanted.device.clone(), error),
            })
        })
        .collect()
}

fn driver(wanted: &interfaces::Interface, rules: &TransportRules) -> Result<Arc<Driver>, Wrong> {
    let (name, device, mac, mtu) = match &wanted.device {
        DeviceName::Packet(name) => {
            let interface = find(name)?;
            let device = packet(&interface, wanted)?;
            (name, device, interface.mac, interface.mtu)
        }
        DeviceName::Tap(name) => {
            let device = tap(name)?;
            let interface = find(name)?;
            if !interface.up {
                return Err(Wrong::Down(name.clone()));
            }
            (name, device, beside(interface.mac), interface.mtu)
        }
    };
    let cidr = |(address, bits): &(IpAddr, u8)| Cidr::new(*address, *bits);
    let route = |gateway: &IpAddr| {
        let everything: IpAddr = match gateway {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        Route {
            destination: Cidr::new(everything, 0),
            gateway: *gateway,
        }
    };
    let interface = Interface {
        name: name.clone(),
        mac,
        mtu,
        addresses: wanted.addresses.iter().map(cidr).collect(),
        routes: wanted.gateways.iter().map(route).collect(),
        dad_transmits: 1,
        rules: rules.clone(),
    };
    Driver::new(interface, Box::new(device))
        .map_err(|error| Wrong::Refused(wanted.device.clone(), error))
}

fn packet(interface: &PacketInterface, wanted: &interfaces::Interface) -> Result<Device, Wrong> {
    let opened = PacketDevice::open(interface, &PacketOptions::default());
    let addresses: Vec<IpAddr> = wanted.addresses.iter().map(|(one, _)| *one).collect();
    let filtered = opened.inspect(|device| {
        // Without the filter the stack ignores what is for others, as it does on any device.
        let _ = device.show_only(&addresses);
    });
    filtered.map(Device::Packet).map_err(|error| {
        let name = interface.name.clone();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Wrong::NoPrivilege(DeviceName::Packet(name)),
            Some(libc::ENETDOWN) => Wrong::Down(name),
            Some(libc::ENODEV | libc::ENXIO) => Wrong::Missing(name),
            _ => Wrong::Refused(DeviceName::Packet(name), error),
        }
    })
}

fn tap(name: &str) -> Result<Device, Wrong> {
    let name = name.to_owned();
    TapDevice::open(&name)
        .map(Device::Tap)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Wrong::NoPrivilege(DeviceName::Tap(name)),
            Some(libc::ENOENT) => Wrong::NoTaps,
            Some(libc::EBUSY) => Wrong::TapBusy(name),
            Some(libc::EINVAL) => Wrong::NotTap(name),
            _ => Wrong::Refused(DeviceName::Tap(name), error),
        })
}

/// A hardware address for who is at the other end of a TAP from the kernel's: not the kernel's own, which a bridge
/// keeps for itself; the same each time, so that peers that remember it find it.
fn beside([first, rest @ .., last]: Mac) -> Mac {
    let [second, third, fourth, fifth] = rest;
    // Locally administered, for one host.
    let first = (first & !1) | 2;
    [first, second, third, fourth, fifth, last ^ 0x55]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(interfaces: &str) -> Settings {
        Settings {
            adapter: Adapter::Inline,
            interfaces: interfaces::parse(interfaces).unwrap(),
            ..Settings::default()
        }
    }

    #[test]
    fn without_an_adapter_the_network_is_the_kernels() {
        assert!(open(&Settings::default()).unwrap().is_none());
        let wrong = check(&settings("none")).unwrap_err();
        assert!(wrong.advice().contains("--interface"), "{wrong}");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_command_that_helps() {
        for (interfaces, said, helps) in [
            (
                "packet:nobody0 address=10.7.0.1/24",
                "no interface nobody0",
                "peer name nobody0",
            ),
            ("packet:lo address=10.7.0.1/24", "no Ethernet", "veth"),
        ] {
            let wrong = check(&settings(interfaces)).unwrap_err();
            assert!(wrong.to_string().contains(said), "{wrong}");
            assert!(wrong.advice().contains(helps), "{}", wrong.advice());
            assert!(network(&settings(interfaces)).unwrap_err().contains(helps));
        }
    }

    #[test]
    fn an_address_of_the_kernels_is_refused() {
        let interfaces = ifaces::interfaces();
        let own = interfaces.iter().flat_map(|one| &one.addrs);
        // A loopback address is none that an interface may be given.
        let Some(own) = own.copied().find(|own| !own.is_loopback()) else {
            return;
        };
        let wanted = format!("packet:nobody0 address={own}/24");
        let wrong = check(&settings(&wanted)).unwrap_err();
        assert!(matches!(wrong, Wrong::OwnedByKernel { .. }), "{wrong}");
        assert!(wrong.advice().contains("ip address del"));
    }

    #[test]
    fn the_other_end_of_a_tap_has_an_address_of_its_own() {
        let other = beside([0xfe, 1, 2, 3, 4, 5]);
        assert_eq!(other, [0xfe, 1, 2, 3, 4, 0x50]);
        assert_eq!(beside([1, 1, 2, 3, 4, 0x50])[0], 2);
    }
}
