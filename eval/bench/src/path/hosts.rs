//! Hosts that are machines: this one, and others that a remote shell leads to.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use super::{sysctls, Host, OpenPath, PathKind, Place};
use crate::environment;
use crate::far::{Far, Here, Interface, PROTOCOL};
use crate::job::Side;
use crate::record::{HostRecord, LinkRecord};

/// The name that stands for the machine that the bench runs on.
pub const THIS: &str = "localhost";
/// A port for names to be looked up with: nobody is connected to.
const ANY_PORT: u16 = 9;
/// What stands between hosts of which nothing is known but that they reach each other.
const NETWORK: &str = "network";

/// A host as the user names it: `[USER@]NAME[=ADDRESS]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What the remote shell is given: `USER@NAME`.
    destination: String,
    /// At which the other hosts reach it, where that is not what its name says.
    address: Option<IpAddr>,
}

/// Which machines, and how to get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The first one has the servers, the last one a single client.
    pub named: Vec<Named>,
    /// The remote shell, in words. Behind them stand the host and the command.
    pub shell: Vec<String>,
    /// The weft command there, on each the same.
    pub weft: PathBuf,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let (destination, address) = match text.split_once('=') {
            Some((destination, address)) => {
                let address = address.parse().map_err(|_| {
                    format!("{address:?} is no address; it is NAME=ADDRESS, such as a=192.0.2.1")
                })?;
                (destination, Some(address))
            }
            None => (text, None),
        };
        // A remote shell would take it for an option of its own.
        let is_name = !destination.is_empty() && !destination.starts_with('-');
        match is_name && destination.chars().all(|c| c.is_ascii_graphic()) {
            true => Ok(Named {
                destination: destination.to_owned(),
                address,
            }),
            false => Err(format!("{destination:?} is no host's name")),
        }
    }
}

impl Named {
    fn is_this(&self) -> bool {
        self.destination == THIS
    }

    fn name(&self) -> &str {
        let behind = self.destination.rsplit_once('@');
        behind.map_or(&self.destination, |(_, name)| name)
    }
}

/// A host that has answered.
struct Found {
    named: Named,
    far: Option<Far>,
    here: Here,
}

/// Makes a path of machines.
pub(super) fn open(hosts: &Hosts, cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let found = hosts
        .named
        .iter()
        .map(|named| found(named, hosts))
        .collect::<Result<Vec<Found>>>()?;
    let (mut places, mut records) = (Vec::new(), Vec::new());
    let mut mtu: Option<u32> = None;
    for one in &found {
        let address = address(&one.named, &hosts.named)?;
        let interface = one.here.interface_of(address).with_context(|| {
            format!(
                "{} has no interface with the address {address}, at which the others are to reach it: say another one, \
                 {}=ADDRESS",
                one.named.name(),
                one.named.destination
            )
        })?;
        mtu = Some(mtu.map_or(interface.mtu, |least| least.min(interface.mtu)));
        places.push(Host {
            name: one.named.name().to_owned(),
            side: Side {
                namespace: None,
                interface: interface.name.clone(),
            },
            address,
            far: one.far.clone(),
        });
        records.push(HostRecord {
            name: one.named.name().to_owned(),
            address: address.to_string(),
            environment: Some(one.here.environment.clone()),
        });
    }
    let sysctls = found.first().map(|one| one.here.sysctls.clone());
    let mut record = PathKind::Hosts.record();
    (record.mtu, record.sysctls) = (mtu, sysctls.unwrap_or_default());
    record.links = links(&records);
    record.hosts = records;
    Ok(OpenPath {
        place: Place {
            hosts: places,
            cores,
            round_trip_us: 0.0,
        },
        record,
        emulator: None,
        _holders: Vec::new(),
    })
}

fn links(hosts: &[HostRecord]) -> Vec<LinkRecord> {
    let pairs = hosts.windows(2);
    pairs
        .map(|pair| LinkRecord {
            between: (pair[0].name.clone(), pair[1].name.clone()),
            kind: NETWORK.to_owned(),
            settings: BTreeMap::new(),
        })
        .collect()
}

fn found(named: &Named, hosts: &Hosts) -> Result<Found> {
    let (far, here) = match named.is_this() {
        true => (None, here()),
        false => {
            let words = words(&hosts.shell, &named.destination, &hosts.weft)?;
            let (far, here) = Far::connect(&named.destination, &words).with_context(|| {
                format!(
                    "the command there is {} bench far-end; --weft says where weft is on each host, --rsh how to get \
                     there",
                    hosts.weft.display()
                )
            })?;
            (Some(far), here)
        }
    };
    Ok(Found {
        named: named.clone(),
        far,
        here,
    })
}

/// The command that starts the far end at a host.
fn words(shell: &[String], destination: &str, weft: &Path) -> Result<Vec<String>> {
    // The host would be taken for the command.
    ensure!(
        !shell.is_empty(),
        "--rsh names no command that leads to {destination}"
    );
    let weft = weft.to_str().context("weft's path is no text")?;
    // Some remote shells give the words to a shell there, and some do not: quotes would be taken away, or not.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    ensure!(
        !weft.is_empty() && weft.chars().all(is_plain),
        "{weft:?}: on other hosts the path of weft may have letters, digits and / . _ - + @ : alone"
    );
    // A shell there begins in another folder.
    ensure!(
        weft.starts_with('/') || !weft.contains('/'),
        "{weft:?}: on other hosts weft is a name on their PATH, or a path from / on"
    );
    let command = [destination, weft, "bench", "far-end"];
    let shell = shell.iter().map(String::as_str);
    Ok(shell.chain(command).map(str::to_owned).collect())
}

/// At which the other hosts reach this one.
fn address(named: &Named, all: &[Named]) -> Result<IpAddr> {
    if let Some(address) = named.address {
        return Ok(address);
    }
    if named.is_this() {
        let other = all.iter().find(|other| !other.is_this());
        let Some(other) = other else {
            return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
        };
        return towards(address(other, all)?);
    }
    let name = named.name();
    let found = (name, ANY_PORT).to_socket_addrs();
    let found: Vec<IpAddr> = found
        .with_context(|| {
            format!(
                "{name} has no address that is known here: say it, {}=ADDRESS",
                named.destination
            )
        })?
        .map(|at| at.ip())
        .collect();
    let address = found.iter().find(|at| at.is_ipv4()).or(found.first());
    match address {
        Some(address) if !address.is_loopback() => Ok(*address),
        _ => bail!(
            "{name} is an address of this machine's own here, and no other reaches it there: say another, {}=ADDRESS",
            named.destination
        ),
    }
}

/// The address of this machine from which it reaches another.
fn towards(other: IpAddr) -> Result<IpAddr> {
    let any: SocketAddr = match other {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let found = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect((other, ANY_PORT))?;
        socket.local_addr()
    };
    let found = found().with_context(|| format!("this machine has no way to {other}"))?;
    Ok(found.ip())
}

/// This machine, as a far end tells of it.
pub fn here() -> Here {
    Here {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: environment::read(),
        sysctls: sysctls(),
        interfaces: interfaces(),
    }
}

/// This machine as a host whose programs nobody needs an address of.
pub fn this_host() -> Host {
    Host {
        name: THIS.to_owned(),
        side: Side::default(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        far: None,
    }
}

/// An interface as `ip -j address` has it.
#[derive(Deserialize)]
struct Link {
    ifname: String,
    mtu: u32,
    #[serde(default)]
    addr_info: Vec<LinkAddress>,
}

#[derive(Deserialize)]
struct LinkAddress {
    local: Option<IpAddr>,
}

/// The interfaces of this machine; none where nothing tells.
fn interfaces() -> Vec<Interface> {
    let told = Command::new("ip").args(["-j", "address", "show"]).output();
    let links: Vec<Link> = told
        .ok()
        .and_then(|told| serde_json::from_slice(&told.stdout).ok())
        .unwrap_or_default();
    links
        .into_iter()
        .map(|link| Interface {
            name: link.ifname,
            mtu: link.mtu,
            addresses: link.addr_info.iter().filter_map(|one| one.local).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_with_a_user_or_an_address_or_both() {
        let named: Named = "somebody@a.example=192.0.2.1".parse().unwrap();
        assert_eq!(
            (named.destination.as_str(), named.name()),
            ("somebody@a.example", "a.example")
        );
        assert_eq!(address(&named, &[]).unwrap(), IpAddr::from([192, 0, 2, 1]));
        for wrong in ["", "=192.0.2.1", "-a", "a b", "a=b", "a=192.0.2.1/24"] {
            assert!(wrong.parse::<Named>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_that_means_this_machine_here_is_no_address_for_others() {
        let named: Named = "ip6-localhost=::1".parse().unwrap();
        assert!(address(&named, &[]).is_ok(), "who says it means it");
        let named: Named = "127.0.1.1".parse().unwrap();
        let why = address(&named, &[]).unwrap_err().to_string();
        assert!(why.contains("127.0.1.1=ADDRESS"), "{why}");
    }

    #[test]
    fn this_machine_has_the_address_from_which_it_reaches_the_other() {
        let all: Vec<Named> = ["localhost", "a=127.0.0.7"]
            .map(|name| name.parse().unwrap())
            .into();
        assert_eq!(address(&all[0], &all).unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(address(&all[0], &all[..1]).unwrap(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn the_remote_command_needs_no_quotes() {
        let shell = ["ssh".to_owned(), "-T".to_owned()];
        let said = words(&shell, "a", Path::new("/opt/weft-1.2/weft")).unwrap();
        assert_eq!(
            said,
            ["ssh", "-T", "a", "/opt/weft-1.2/weft", "bench", "far-end"]
        );
        assert!(
            words(&[], "a", Path::new("weft")).is_err(),
            "the host is no command"
        );
        assert!(words(&shell, "a", Path::new("weft")).is_ok());
        for wrong in [
            "",
            "/opt/my weft",
            "weft;id",
            "$(id)",
            "target/release/weft",
        ] {
            assert!(words(&shell, "a", Path::new(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn this_machine_tells_of_its_interfaces() {
        let here = here();
        let lo = here.interface_of(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!((lo.name.as_str(), lo.mtu), ("lo", 65536));
    }
}
