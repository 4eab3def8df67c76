//! The ways between server and client. Loopback, and network namespaces the bench makes itself:
//! never the machine's own interfaces, whose neighbours nobody asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};

use anyhow::{bail, Context, Result};
use clap::ValueEnum;

use crate::job::{Namespace, Side};
use crate::record::PathRecord;

/// A path by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathKind {
    /// 127.0.0.1.
    Loopback,
    /// Two network namespaces joined by a veth pair with an MTU of 1500 octets.
    Veth,
}

/// Both ends of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where servers run.
    pub server: Side,
    /// Where clients run.
    pub client: Side,
    /// Address at which clients reach servers.
    pub address: IpAddr,
}

/// A path that exists as long as this value does.
pub struct OpenPath {
    /// Where to run things.
    pub place: Place,
    /// What to write down about it.
    pub record: PathRecord,
    /// Last field, so that the namespaces go when everything else has gone.
    _holders: Vec<Holder>,
}

/// MTU of the veth path in octets: what Ethernet and most clouds give.
const VETH_MTU: u32 = 1500;
/// From the block reserved for documentation, in namespaces of our own.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SERVER_INTERFACE: &str = "weft-s";
const CLIENT_INTERFACE: &str = "weft-c";

/// What a holder runs. Programs that look for interfaces in /sys see those of the namespace that
/// mounted it; where that is not allowed they see the wrong ones and say so.
const HOLD: &str = "mount -t sysfs sysfs /sys 2>/dev/null; echo ready; exec cat";

const SYSCTLS: [&str; 9] = [
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_no_metrics_save",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
];

impl PathKind {
    /// Name in records and row ids.
    pub fn name(self) -> &'static str {
        match self {
            PathKind::Loopback => "loopback",
            PathKind::Veth => "veth",
        }
    }

    /// The path of this name.
    pub fn from_name(name: &str) -> Option<PathKind> {
        [PathKind::Loopback, PathKind::Veth]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    fn description(self) -> &'static str {
        match self {
            PathKind::Loopback => "127.0.0.1",
            PathKind::Veth => "veth pair between two network namespaces",
        }
    }

    /// Makes the path. `cores` are the server's and the client's.
    pub fn open(self, cores: Option<(usize, usize)>) -> Result<OpenPath> {
        match self {
            PathKind::Loopback => open_loopback(cores),
            PathKind::Veth => open_veth(cores),
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
        }
    }
}

impl Place {
    /// Both ends on 127.0.0.1.
    pub fn loopback(cores: Option<(usize, usize)>) -> Place {
        let side = |core| Side {
            namespace: None,
            core,
            interface: "lo".to_owned(),
        };
        Place {
            server: side(cores.map(|c| c.0)),
            client: side(cores.map(|c| c.1)),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

fn open_loopback(cores: Option<(usize, usize)>) -> Result<OpenPath> {
    let place = Place::loopback(cores);
    let record = measured(PathKind::Loopback, &place.server)?;
    Ok(OpenPath {
        place,
        record,
        _holders: Vec::new(),
    })
}

fn open_veth(cores: Option<(usize, usize)>) -> Result<OpenPath> {
    // Without privilege the first holder brings a user namespace in which we are root, and the
    // second joins it.
    let user = !rustix::process::geteuid().is_root();
    let server = Holder::start(None, user)?;
    let client = Holder::start(user.then_some(&server), user)?;
    let side = |holder: &Holder, core, interface: &str| Side {
        namespace: Some(holder.namespace),
        core,
        interface: interface.to_owned(),
    };
    let place = Place {
        server: side(&server, cores.map(|c| c.0), SERVER_INTERFACE),
        client: side(&client, cores.map(|c| c.1), CLIENT_INTERFACE),
        address: IpAddr::V4(SERVER),
    };

    let mtu = VETH_MTU.to_string();
    let peer_namespace = client.namespace.holder.to_string();
    server.ip(&[
        "link",
        "add",
        SERVER_INTERFACE,
        "mtu",
        &mtu,
        "type",
        "veth",
        "peer",
        "name",
        CLIENT_INTERFACE,
        "mtu",
        &mtu,
        "netns",
        &peer_namespace,
    ])?;
    for (holder, interface, address) in [
        (&server, SERVER_INTERFACE, SERVER),
        (&client, CLIENT_INTERFACE, CLIENT),
    ] {
        holder.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
        holder.ip(&["link", "set", interface, "up"])?;
        holder.ip(&["link", "set", "lo", "up"])?;
    }

    let record = measured(PathKind::Veth, &place.server)?;
    Ok(OpenPath {
        place,
        record,
        _holders: vec![server, client],
    })
}

/// Kernel settings that bear on TCP, as seen in the network that this process is in.
pub fn sysctls() -> BTreeMap<String, String> {
    sysctls_of(&Side::default())
}

fn sysctls_of(side: &Side) -> BTreeMap<String, String> {
    let read = |file: &str| -> Option<String> {
        let invocation = crate::job::Invocation::new("cat", [file]);
        let output = side
            .command(&invocation, false)
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout)
            .split_ascii_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    SYSCTLS
        .iter()
        .filter_map(|name| Some((name.replace('/', "."), read(&format!("/proc/sys/{name}"))?)))
        .collect()
}

/// What the kernel says about a path that stands, asked from one of its ends.
fn measured(kind: PathKind, side: &Side) -> Result<PathRecord> {
    // Not from /sys, which shows the namespace it was mounted in.
    let link = side
        .command(
            &crate::job::Invocation::new("ip", ["-o", "link", "show", &side.interface]),
            false,
        )
        .output()
        .context("cannot run ip (Debian package iproute2)")?;
    let mtu = mtu_of(&String::from_utf8_lossy(&link.stdout));
    Ok(PathRecord {
        mtu,
        sysctls: sysctls_of(side),
        ..kind.record()
    })
}

fn mtu_of(link: &str) -> Option<u32> {
    link.split_ascii_whitespace()
        .skip_while(|word| *word != "mtu")
        .nth(1)?
        .parse()
        .ok()
}

/// A process that does nothing but hold a network namespace. It reads a pipe of ours, so it ends
/// when we do, however that comes about, and the kernel then takes down the namespace with
/// everything in it: there is nothing to clean up.
struct Holder {
    child: Child,
    namespace: Namespace,
}

impl Holder {
    fn start(join: Option<&Holder>, user: bool) -> Result<Holder> {
        let first = join.map(|first| first.namespace.holder.to_string());
        let mut words: Vec<&str> = Vec::new();
        match &first {
            Some(first) => words.extend([
                "nsenter",
                "-t",
                first,
                "-U",
                "--preserve-credentials",
                "--",
                "unshare",
            ]),
            None if user => words.extend(["unshare", "-U", "-r"]),
            None => words.push("unshare"),
        }
        words.extend(["-n", "-m", "sh", "-c", HOLD]);

        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run unshare (Debian package util-linux)")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.trim() != "ready" {
            let output = child.wait_with_output()?;
            bail!(
                "no network namespace to be had: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let namespace = Namespace {
            holder: child.id(),
            user,
        };
        Ok(Holder { child, namespace })
    }

    fn ip(&self, args: &[&str]) -> Result<()> {
        let side = Side {
            namespace: Some(self.namespace),
            ..Side::default()
        };
        let output = side
            .command(&crate::job::Invocation::new("ip", args), false)
            .output()
            .context("cannot run nsenter (Debian package util-linux)")?;
        if !output.status.success() {
            bail!(
                "ip {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Invocation;

    #[test]
    fn loopback_knows_its_mtu_and_congestion_control() {
        let path = PathKind::Loopback.open(None).unwrap();
        assert_eq!(path.record.mtu, Some(65536));
        assert!(path
            .record
            .sysctls
            .contains_key("net.ipv4.tcp_congestion_control"));
    }

    #[test]
    fn the_veth_ends_reach_each_other_and_leave_with_the_path() {
        let path = match PathKind::Veth.open(None) {
            Ok(path) => path,
            // Containers and hardened kernels give out no namespaces; the bench then says so in its
            // record.
            Err(reason) => return eprintln!("no veth path here: {reason:#}"),
        };
        assert_eq!(path.record.mtu, Some(1500));

        let route = Invocation::new("ip", ["route", "get", &SERVER.to_string()]);
        let output = path.place.client.command(&route, false).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(&format!("dev {CLIENT_INTERFACE} src {CLIENT}")),
            "{text}"
        );

        let holder = path.place.server.namespace.unwrap().holder;
        drop(path);
        assert!(!std::path::Path::new(&format!("/proc/{holder}")).exists());
        let ours = Command::new("ip").args(["link", "show"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&ours.stdout).contains(SERVER_INTERFACE));
    }

    #[test]
    fn the_mtu_is_the_word_behind_mtu() {
        assert_eq!(
            mtu_of("2: weft-s@if2: <UP> mtu 1500 qdisc noqueue"),
            Some(1500)
        );
        assert_eq!(mtu_of(""), None);
    }
}
