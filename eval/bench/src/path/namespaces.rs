//! Hosts that are network namespaces: two with nothing but a wire between them, or with an emulated link; and several
//! at a switch.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result};

use super::emulator::Emulator;
use super::facts::measured;
use super::holder::Holder;
use super::{adapter, two_links, Host, OpenPath, PathKind, Place};
use crate::job::Side;
use crate::record::LinkRecord;

/// MTU in octets: what Ethernet and most clouds give.
const VETH_MTU: u32 = 1500;
/// From the block reserved for documentation, in namespaces of our own.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SERVER_INTERFACE: &str = "weft-s";
const CLIENT_INTERFACE: &str = "weft-c";

/// The ends of the two wires that the emulator joins.
const EMULATED: [&str; 2] = ["left", "right"];

/// Two hosts and a wire.
pub(super) fn veth(kind: PathKind, cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let ends = Ends::make()?;
    let peer = ends.client.namespace.holder.to_string();
    wire(&ends.server, SERVER_INTERFACE, CLIENT_INTERFACE, &peer)?;
    ends.up()?;
    let place = ends.place(cores, 0.0);
    let mut record = measured(kind, &place)?;
    record.links.push(link("veth", []));
    Ok(OpenPath {
        place,
        record,
        emulator: None,
        _holders: vec![ends.server, ends.client],
    })
}

/// The addresses beside the emulated link, from another such block.
const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SENDER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const RECEIVER_INTERFACE: &str = "weft-r";
const SENDER_INTERFACE: &str = "weft-d";

/// Two hosts and a wire, and beside it a wire from each to a third one, where rows emulate a link.
pub(super) fn adapter(cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let ends = Ends::make()?;
    let middle = Holder::start(ends.user.then_some(&ends.server), ends.user)?;
    let peer = ends.client.namespace.holder.to_string();
    wire(&ends.server, SERVER_INTERFACE, CLIENT_INTERFACE, &peer)?;
    ends.up()?;
    let peer = middle.namespace.holder.to_string();
    let [to_receiver, to_sender] = adapter::MIDDLE_INTERFACES;
    for (holder, interface, address, other) in [
        (&ends.server, RECEIVER_INTERFACE, RECEIVER, to_receiver),
        (&ends.client, SENDER_INTERFACE, SENDER, to_sender),
    ] {
        wire(holder, interface, other, &peer)?;
        middle.ip(&["link", "set", other, "up"])?;
        holder.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
        holder.ip(&["link", "set", interface, "up"])?;
    }
    // The adapter's control, unless it is told otherwise; a machine's own may be one that takes no loss for congestion.
    for holder in [&ends.server, &ends.client] {
        // A namespace may have what the machine allows to everybody.
        holder.sysctl("net.ipv4.tcp_congestion_control=cubic").context(
            "the kernel's TCP has no CUBIC in a namespace here; on the machine, as root: sysctl -w \
             net.ipv4.tcp_allowed_congestion_control=\"reno cubic\"",
        )?;
    }
    let mut place = ends.place(cores, 0.0);
    let inner = [
        host("receiver", &ends.server, RECEIVER_INTERFACE, RECEIVER),
        // What runs there names its interfaces, and has no address.
        host("middle", &middle, "", Ipv4Addr::UNSPECIFIED),
        host("sender", &ends.client, SENDER_INTERFACE, SENDER),
    ];
    place.hosts.splice(1..1, inner);
    let mut record = measured(PathKind::Adapter, &place)?;
    record.links.push(link("veth", []));
    Ok(OpenPath {
        place,
        record,
        emulator: None,
        _holders: vec![ends.server, ends.client, middle],
    })
}

/// Rate of each of two wires, far below what two cores take.
const SLOW: &str = "1gbit";

/// Two hosts and two wires.
pub(super) fn two_links(cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let ends = Ends::make()?;
    let peer = ends.client.namespace.holder.to_string();
    let [first, second] = two_links::INTERFACES;
    for [at_server, at_client] in [first, second] {
        wire(&ends.server, at_server, at_client, &peer)?;
    }
    ends.up()?;
    for (holder, first, interface, address) in [
        (&ends.server, first[0], second[0], RECEIVER),
        (&ends.client, first[1], second[1], SENDER),
    ] {
        holder.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
        holder.ip(&["link", "set", interface, "up"])?;
        holder.keep_to(first, SLOW)?;
        holder.keep_to(interface, SLOW)?;
    }
    let mut place = ends.place(cores, 0.0);
    let by_second = host(
        "server by the second link",
        &ends.server,
        second[0],
        RECEIVER,
    );
    place.hosts.insert(1, by_second);
    let mut record = measured(PathKind::TwoLinks, &place)?;
    let limited = || link("veth", [("rate", SLOW)]);
    record.links.extend([limited(), limited()]);
    Ok(OpenPath {
        place,
        record,
        emulator: None,
        _holders: vec![ends.server, ends.client],
    })
}

/// Two hosts, each with a wire to a third one, where `weft link` joins the wires.
pub(super) fn emulated(
    kind: PathKind,
    (delay_us, rate): (u32, &str),
    cores: Option<(usize, usize)>,
    weft: &Path,
) -> Result<OpenPath> {
    let ends = Ends::make()?;
    let middle = Holder::start(ends.user.then_some(&ends.server), ends.user)?;
    let peer = middle.namespace.holder.to_string();
    for (holder, interface, other) in [
        (&ends.server, SERVER_INTERFACE, EMULATED[0]),
        (&ends.client, CLIENT_INTERFACE, EMULATED[1]),
    ] {
        wire(holder, interface, other, &peer)?;
        middle.ip(&["link", "set", other, "up"])?;
    }
    ends.up()?;
    let delay = format!("{delay_us}us");
    let emulator = Emulator::start(&middle, weft, EMULATED, &delay, rate)?;
    let place = ends.place(cores, 2.0 * f64::from(delay_us));
    let mut record = measured(kind, &place)?;
    record.links.push(link(
        "emulated",
        [("delay", delay.as_str()), ("rate", rate)],
    ));
    Ok(OpenPath {
        place,
        record,
        emulator: Some(emulator),
        _holders: vec![ends.server, ends.client, middle],
    })
}

/// Hosts of a cluster.
const CLUSTER: u8 = 8;
const CLUSTER_INTERFACE: &str = "weft-h";
const SWITCH: &str = "switch";

/// Hosts that are joined by a bridge, which is in a namespace of its own.
pub(super) fn cluster(cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let user = !rustix::process::geteuid().is_root();
    let switch = Holder::start(None, user)?;
    let peer = switch.namespace.holder.to_string();
    switch.ip(&["link", "add", SWITCH, "type", "bridge"])?;
    switch.ip(&["link", "set", SWITCH, "up"])?;
    let (mut hosts, mut links, mut holders) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=CLUSTER {
        let holder = Holder::start(user.then_some(&switch), user)?;
        let (name, port) = (format!("host-{number}"), format!("port-{number}"));
        let address = Ipv4Addr::new(192, 0, 2, number);
        wire(&holder, CLUSTER_INTERFACE, &port, &peer)?;
        switch.ip(&["link", "set", &port, "master", SWITCH, "up"])?;
        let with_prefix = format!("{address}/24");
        holder.ip(&["address", "add", &with_prefix, "dev", CLUSTER_INTERFACE])?;
        holder.ip(&["link", "set", CLUSTER_INTERFACE, "up"])?;
        holder.ip(&["link", "set", "lo", "up"])?;
        hosts.push(host(&name, &holder, CLUSTER_INTERFACE, address));
        links.push(LinkRecord {
            between: (name, SWITCH.to_owned()),
            ..link("veth", [])
        });
        holders.push(holder);
    }
    holders.push(switch);
    let place = Place {
        hosts,
        cores,
        round_trip_us: 0.0,
    };
    let mut record = measured(PathKind::Cluster, &place)?;
    record.links = links;
    Ok(OpenPath {
        place,
        record,
        emulator: None,
        _holders: holders,
    })
}

/// The two hosts.
struct Ends {
    server: Holder,
    client: Holder,
    user: bool,
}

impl Ends {
    fn make() -> Result<Ends> {
        // Without privilege the first holder brings a user namespace in which we are root, and the
        // others join it.
        let user = !rustix::process::geteuid().is_root();
        let server = Holder::start(None, user)?;
        let client = Holder::start(user.then_some(&server), user)?;
        Ok(Ends {
            server,
            client,
            user,
        })
    }

    /// Gives the hosts their addresses.
    fn up(&self) -> Result<()> {
        for (holder, interface, address) in [
            (&self.server, SERVER_INTERFACE, SERVER),
            (&self.client, CLIENT_INTERFACE, CLIENT),
        ] {
            holder.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
            holder.ip(&["link", "set", interface, "up"])?;
            holder.ip(&["link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn place(&self, cores: Option<(usize, usize)>, round_trip_us: f64) -> Place {
        Place {
            hosts: vec![
                host("server", &self.server, SERVER_INTERFACE, SERVER),
                host("client", &self.client, CLIENT_INTERFACE, CLIENT),
            ],
            cores,
            round_trip_us,
        }
    }
}

fn host(name: &str, holder: &Holder, interface: &str, address: Ipv4Addr) -> Host {
    Host {
        name: name.to_owned(),
        side: Side {
            namespace: Some(holder.namespace),
            interface: interface.to_owned(),
        },
        address: IpAddr::V4(address),
        far: None,
    }
}

/// A veth pair from `interface` here to `other` in the namespace of the process `peer`.
fn wire(holder: &Holder, interface: &str, other: &str, peer: &str) -> Result<()> {
    let mtu = VETH_MTU.to_string();
    holder.ip(&[
        "link", "add", interface, "mtu", &mtu, "type", "veth", "peer", "name", other, "mtu", &mtu,
        "netns", peer,
    ])
}

fn link<'a>(kind: &str, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> LinkRecord {
    let mut all = BTreeMap::from([("mtu".to_owned(), VETH_MTU.to_string())]);
    let own = settings.into_iter();
    all.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    LinkRecord {
        between: ("server".to_owned(), "client".to_owned()),
        kind: kind.to_owned(),
        settings: all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Invocation;
    use std::process::Command;

    #[test]
    fn the_hosts_of_the_adapters_path_are_where_their_numbers_say() {
        let path = match adapter(None) {
            Ok(path) => path,
            Err(reason) => return eprintln!("no such path here: {reason:#}"),
        };
        let names: Vec<&str> = path
            .place
            .hosts
            .iter()
            .map(|host| host.name.as_str())
            .collect();
        assert_eq!(names, ["server", "receiver", "middle", "sender", "client"]);
        let of = |number| path.place.host(number);
        assert_eq!(of(adapter::RECEIVER).address, IpAddr::V4(RECEIVER));
        assert_eq!(of(adapter::SENDER).side.interface, SENDER_INTERFACE);
        assert_eq!(of(adapter::RECEIVER).side.namespace, of(0).side.namespace);
        let shown = of(adapter::MIDDLE)
            .side
            .command(&Invocation::new("ip", ["-o", "link", "show", "up"]), None)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let there = adapter::MIDDLE_INTERFACES.map(|name| shown.contains(name));
        assert_eq!(there, [true, true], "{shown}");
    }

    #[test]
    fn two_links_are_two_ways_and_neither_is_faster_than_it_is_to_be() {
        let path = match two_links(None) {
            Ok(path) => path,
            Err(reason) => return eprintln!("no such path here: {reason:#}"),
        };
        let place = &path.place;
        let side = &place.client().side;
        let said = |program: &str, words: &[&str]| {
            let asked = Invocation::new(program, words);
            let output = side.command(&asked, None).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let by_second = &place.hosts[super::super::two_links::SERVER_BY_SECOND];
        for (host, interface) in [
            (place.server(), CLIENT_INTERFACE),
            (by_second, SENDER_INTERFACE),
        ] {
            let route = said("ip", &["route", "get", &host.address.to_string()]);
            assert!(route.contains(&format!("dev {interface}")), "{route}");
            let kept = said("tc", &["qdisc", "show", "dev", interface]);
            assert!(
                kept.contains("tbf") && kept.contains("rate 1Gbit"),
                "{kept}"
            );
        }
    }

    #[test]
    fn every_host_of_a_cluster_reaches_the_others() {
        let path = match cluster(None) {
            Ok(path) => path,
            Err(reason) => return eprintln!("no such path here: {reason:#}"),
        };
        let (first, last) = (path.place.server(), path.place.client());
        assert_eq!(
            (first.name.as_str(), last.name.as_str()),
            ("host-1", "host-8")
        );
        let address = first.address.to_string();
        // Waits for the neighbour's answer, where a datagram would leave without one.
        let connect = Invocation::new("bash", ["-c", &format!("exec 3<>/dev/tcp/{address}/9")]);
        let output = last.side.command(&connect, None).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("Connection refused"), "{said}");
    }

    #[test]
    fn the_veth_ends_reach_each_other_and_leave_with_the_path() {
        let path = match veth(PathKind::Veth, None) {
            Ok(path) => path,
            // Containers and hardened kernels give out no namespaces; the bench then says so in its
            // record.
            Err(reason) => return eprintln!("no veth path here: {reason:#}"),
        };
        assert_eq!(path.record.mtu, Some(1500));

        let route = Invocation::new("ip", ["route", "get", &SERVER.to_string()]);
        let output = path
            .place
            .client()
            .side
            .command(&route, None)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(&format!("dev {CLIENT_INTERFACE} src {CLIENT}")),
            "{text}"
        );

        let holder = path.place.server().side.namespace.unwrap().holder;
        drop(path);
        assert!(!std::path::Path::new(&format!("/proc/{holder}")).exists());
        let ours = Command::new("ip").args(["link", "show"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&ours.stdout).contains(SERVER_INTERFACE));
    }
}
