//! The ways between server and client: loopback, network namespaces that the bench makes itself, and machines that the
//! user names. Never this machine's own interfaces unasked: its neighbours were not.

mod emulator;
mod facts;
mod holder;
mod hosts;
mod namespaces;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::far::Far;
use crate::job::{Seat, Side};
use crate::record::{HostRecord, PathRecord};
use emulator::Emulator;
use facts::measured;
pub use facts::sysctls;
use holder::Holder;
pub use hosts::{here, this_host, Hosts, Named};

/// A path by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathKind {
    /// 127.0.0.1.
    Loopback,
    /// Two network namespaces joined by a veth pair with an MTU of 1500 octets.
    Veth,
    /// The same with `weft link` between them, as a network in a building: 10 Gbit/s, 50 us there and back.
    Lan,
    /// As a network in a city: 1 Gbit/s, 5 ms there and back.
    Metro,
    /// As a network between continents: 10 Gbit/s, 100 ms there and back.
    LongHaul,
    /// Two network namespaces joined by a veth pair, and beside it by two others with a third namespace between them,
    /// where rows have a `weft link` of their own. Its rows tell what the adapter is for.
    Adapter,
    /// Two network namespaces joined by a veth pair whose ends are told what they do for the stacks above them. Its
    /// rows tell what each piece of a stack is worth.
    Ablation,
    /// Eight network namespaces joined by a switch, for programs that run on several machines.
    Cluster,
    /// Two network namespaces joined by two veth pairs of 1 Gbit/s each: hosts with two cards.
    TwoLinks,
    /// The machines that `--hosts` names, and whatever network is between them.
    Hosts,
}

/// Where programs run: the hosts of a path, and the cores they share.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Servers run on the first one, a single client on the last. On loopback they are one.
    pub hosts: Vec<Host>,
    /// Core of servers and of clients; none where pinning is not possible.
    pub cores: Option<(usize, usize)>,
    /// Microseconds that the path adds to a round trip.
    pub round_trip_us: f64,
}

/// A machine, or a network namespace that stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name in records.
    pub name: String,
    /// How to run something there.
    pub side: Side,
    /// Address at which the others reach it.
    pub address: IpAddr,
    /// What starts programs there; none on this machine.
    pub far: Option<Far>,
}

/// The hosts of [`PathKind::Adapter`] by their number. The outer two are joined by a wire, the inner ones, which are
/// the same namespaces with another interface, by what runs in the middle.
pub mod adapter {
    /// The server's end of the emulated link.
    pub const RECEIVER: usize = 1;
    /// Where `weft link` runs, between [`MIDDLE_INTERFACES`].
    pub const MIDDLE: usize = 2;
    /// The client's end of the emulated link.
    pub const SENDER: usize = 3;
    /// Towards the receiver, and towards the sender.
    pub const MIDDLE_INTERFACES: [&str; 2] = ["to-receiver", "to-sender"];
}

/// The hosts of [`PathKind::TwoLinks`] by their number.
pub mod two_links {
    /// The server once more, by its address on the second link.
    pub const SERVER_BY_SECOND: usize = 1;
    /// The client, which reaches both.
    pub const CLIENT: usize = 2;
    /// The server's interface and the client's, by link.
    pub const INTERFACES: [[&str; 2]; 2] = [["weft-s", "weft-c"], ["weft-r", "weft-d"]];

    /// Over which of the links something goes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Links {
        /// The first alone.
        First,
        /// Both at once.
        Both,
    }
}

/// A path that exists as long as this value does.
pub struct OpenPath {
    /// Where to run things.
    pub place: Place,
    /// What to write down about it.
    pub record: PathRecord,
    /// What emulates a link on it.
    emulator: Option<Emulator>,
    /// Last field, so that the namespaces go when everything else has gone.
    _holders: Vec<Holder>,
}

impl OpenPath {
    /// Takes the path down, and tells what is to be written down about it now that it was used.
    pub fn close(mut self) -> PathRecord {
        if let (Some(emulator), Some(link)) = (self.emulator.take(), self.record.links.first_mut())
        {
            let kept_up = match emulator.end() {
                Ok(()) => "yes".to_owned(),
                Err(why) => format!("NO: {why}"),
            };
            link.settings.insert("kept up".to_owned(), kept_up);
        }
        self.record
    }
}

impl PathKind {
    /// Name in records and row ids.
    pub fn name(self) -> &'static str {
        match self {
            PathKind::Loopback => "loopback",
            PathKind::Veth => "veth",
            PathKind::Lan => "lan",
            PathKind::Metro => "metro",
            PathKind::LongHaul => "long-haul",
            PathKind::Adapter => "adapter",
            PathKind::Ablation => "ablation",
            PathKind::Cluster => "cluster",
            PathKind::TwoLinks => "two-links",
            PathKind::Hosts => "hosts",
        }
    }

    /// The path of this name.
    pub fn from_name(name: &str) -> Option<PathKind> {
        PathKind::value_variants()
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
    }

    fn description(self) -> &'static str {
        match self {
            PathKind::Loopback => "127.0.0.1",
            PathKind::Veth => "veth pair between two network namespaces",
            PathKind::Ablation => "veth pair between two network namespaces, whose offloads each column switches",
            PathKind::Lan | PathKind::Metro | PathKind::LongHaul => {
                "two network namespaces with weft link between them"
            }
            PathKind::Adapter => {
                "veth pair between two network namespaces, and beside it one with weft link as rows set it"
            }
            PathKind::Cluster => "eight network namespaces, each joined to a bridge by a veth pair",
            PathKind::TwoLinks => {
                "two veth pairs between two network namespaces, each kept to 1 Gbit/s (tbf)"
            }
            PathKind::Hosts => "machines, and the network between them",
        }
    }

    /// Whether the targets hold for it: nothing lies between the two ends but this machine, and the rows are the usual
    /// ones.
    pub fn is_local(self) -> bool {
        matches!(self, PathKind::Loopback | PathKind::Veth)
    }

    /// What `weft link` emulates on it: one-way delay in microseconds, and the rate in its words.
    fn emulated(self) -> Option<(u32, &'static str)> {
        match self {
            PathKind::Loopback
            | PathKind::Veth
            | PathKind::Adapter
            | PathKind::Ablation
            | PathKind::Cluster
            | PathKind::TwoLinks
            | PathKind::Hosts => None,
            PathKind::Lan => Some((25, "10Gbit")),
            PathKind::Metro => Some((2_500, "1Gbit")),
            PathKind::LongHaul => Some((50_000, "10Gbit")),
        }
    }

    /// Makes the path. `cores` are the server's and the client's; `weft` is the command that emulates links; `machines`
    /// are those of [`PathKind::Hosts`].
    pub fn open(
        self,
        cores: Option<(usize, usize)>,
        weft: &Path,
        machines: Option<&Hosts>,
    ) -> Result<OpenPath> {
        match (self, self.emulated()) {
            (PathKind::Hosts, _) => {
                let machines = machines.context("which machines? --hosts says it: --hosts a,b")?;
                hosts::open(machines, cores)
            }
            (PathKind::Loopback, _) => open_loopback(cores),
            (PathKind::Adapter, _) => namespaces::adapter(cores),
            (PathKind::Cluster, _) => namespaces::cluster(cores),
            (PathKind::TwoLinks, _) => namespaces::two_links(cores),
            (kind, None) => namespaces::veth(kind, cores),
            (kind, Some(link)) => namespaces::emulated(kind, link, cores, weft),
        }
    }

    /// The record of a path that could not be made.
    pub fn skipped(self, reason: String) -> PathRecord {
        PathRecord {
            skipped: Some(reason),
            ..self.record()
        }
    }

    fn record(self) -> PathRecord {
        PathRecord {
            name: self.name().to_owned(),
            description: self.description().to_owned(),
            mtu: None,
            sysctls: BTreeMap::new(),
            skipped: None,
            hosts: Vec::new(),
            links: Vec::new(),
        }
    }
}

impl Host {
    fn record(&self) -> HostRecord {
        HostRecord {
            name: self.name.clone(),
            address: self.address.to_string(),
            environment: None,
        }
    }
}

impl Place {
    /// One host, 127.0.0.1.
    pub fn loopback(cores: Option<(usize, usize)>) -> Place {
        let side = Side {
            namespace: None,
            interface: "lo".to_owned(),
        };
        let host = Host {
            name: "here".to_owned(),
            side,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            far: None,
        };
        Place {
            hosts: vec![host],
            cores,
            round_trip_us: 0.0,
        }
    }

    /// Where servers run.
    pub fn server(&self) -> &Host {
        self.hosts.first().expect("a path has a host")
    }

    /// Where a single client runs.
    pub fn client(&self) -> &Host {
        self.hosts.last().expect("a path has a host")
    }

    /// The host of this number.
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// The core of a seat, where programs can be tied to one.
    pub fn core(&self, seat: Seat) -> Option<usize> {
        let (server, client) = self.cores?;
        Some(match seat {
            Seat::Server => server,
            Seat::Client => client,
        })
    }
}

fn open_loopback(cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let place = Place::loopback(cores);
    let record = measured(PathKind::Loopback, &place)?;
    Ok(OpenPath {
        place,
        record,
        emulator: None,
        _holders: Vec::new(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Eight hosts as those of a cluster, which are not there.
    pub(crate) fn cluster() -> Place {
        let host = |number: u8| Host {
            name: format!("host-{number}"),
            side: Side::default(),
            address: [192, 0, 2, number].into(),
            far: None,
        };
        Place {
            hosts: (1..=8).map(host).collect(),
            cores: None,
            round_trip_us: 0.0,
        }
    }

    #[test]
    fn loopback_knows_its_mtu_and_congestion_control() {
        let path = PathKind::Loopback
            .open(None, Path::new("weft"), None)
            .unwrap();
        assert_eq!(path.record.mtu, Some(65536));
        assert!(path
            .record
            .sysctls
            .contains_key("net.ipv4.tcp_congestion_control"));
    }

    #[test]
    fn every_path_is_found_by_its_name() {
        for kind in PathKind::value_variants() {
            assert_eq!(PathKind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(PathKind::from_name("nowhere"), None);
    }
}
