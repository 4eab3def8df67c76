//! Open MPI over what carries its messages: its own TCP and shared memory, UCX's TCP, and Weft's device by UCX.

use std::fs;
use std::path::PathBuf;

use anyhow::{bail, Context, Result};

use super::compiled::{Compiler, Source};
use super::{need, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::two_links::{self, Links};
use crate::path::{Host, PathKind};
use crate::record::Metrics;
use crate::verbs::Verbs;

/// Name of Open MPI over its own TCP.
pub const TCP: &str = "mpi tcp";
/// Name of Open MPI over Weft's device.
pub(super) const WEFT: &str = "mpi weft";

const SOURCE: Source = Source {
    name: "mpi_rows",
    text: include_str!("../../c/mpi_rows.c"),
    compiler: Compiler {
        program: "mpicc.openmpi",
        package: "libopenmpi-dev",
        headers: "libopenmpi-dev",
    },
    libraries: &[],
};

const LAUNCHER: &str = "mpirun.openmpi";

/// Starts a command on another host, as ssh would, for the launcher: HOST COMMAND. The variable has, for each host and
/// apart by semicolons, its address, an equals sign and the words that enter it.
const SHELL: &str = r#"#!/bin/sh
host=$1
shift
enter=$(echo "$ENTER_HOSTS" | tr ';' '\n' | sed -n "s/^$host=//p")
exec ${enter:?there is no host $host} sh -c "$*"
"#;
const SHELL_NAME: &str = "on-another-host";
const ENTER: &str = "ENTER_HOSTS";

/// What carries the messages between the ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Open MPI's own TCP.
    Tcp,
    /// Open MPI's own shared memory, where both ranks are on one host.
    SharedMemory,
    /// UCX over its own TCP: what the library makes out by itself.
    UcxTcp,
    /// UCX over Weft's device.
    Weft {
        /// Whether ranks on one host may pass messages through memory that they share.
        same_host: bool,
    },
}

/// Ranks over one of them: two on one host, or one on each of several.
pub(super) struct Mpi {
    weft: Weft,
    scratch: PathBuf,
    over: Over,
}

impl Mpi {
    pub(super) fn new(programs: &Programs, over: Over) -> Mpi {
        Mpi {
            weft: programs.weft.clone(),
            scratch: programs.scratch.clone(),
            over,
        }
    }

    fn shell(&self) -> PathBuf {
        self.scratch.join(SHELL_NAME)
    }

    /// Where the ranks are, in the launcher's words.
    fn hosts(&self, launcher: Invocation, hosts: &[&Host]) -> Invocation {
        if hosts.len() < 2 {
            return launcher;
        }
        let addresses: Vec<String> = hosts.iter().map(|one| one.address.to_string()).collect();
        // The launcher is on the first one.
        let ways: Vec<String> = hosts[1..].iter().map(|one| way_to(one)).collect();
        launcher
            .args(["--host", &addresses.join(",")])
            .args(["--mca", "plm_rsh_agent"])
            .args([self.shell()])
            .env(ENTER, ways.join(";"))
    }

    /// What carries the messages, in the launcher's words.
    fn carrier(&self, launcher: Invocation, links: Option<Links>, site: &Site) -> Invocation {
        let (first, last) = (site.place.server(), site.place.client());
        let own =
            |launcher: Invocation, btl| launcher.args(["--mca", "pml", "ob1", "--mca", "btl", btl]);
        // By itself Open MPI takes UCX for the devices that it knows, which are real ones.
        let ucx = |launcher: Invocation, transport: &str, devices: &str| {
            launcher
                .args(["--mca", "pml", "ucx"])
                .args(["--mca", "opal_common_ucx_tls", "any"])
                .args(["--mca", "opal_common_ucx_devices", "any"])
                .args(["-x", &format!("UCX_TLS={transport},self")])
                .args(["-x", &format!("UCX_NET_DEVICES={devices}")])
                // A message goes in as many parts at once as there are links.
                .args(match links {
                    Some(Links::Both) => &["-x", "UCX_MAX_RNDV_RAILS=2"][..],
                    _ => &[],
                })
        };
        match self.over {
            // It leaves the loopback interface out unless it is named.
            Over::Tcp if first == last => own(launcher, "tcp,self").args([
                "--mca",
                "btl_tcp_if_include",
                &first.side.interface,
            ]),
            Over::Tcp if links == Some(Links::First) => {
                let network = format!("{}/24", first.address);
                own(launcher, "tcp,self").args(["--mca", "btl_tcp_if_include", &network])
            }
            Over::Tcp => own(launcher, "tcp,self"),
            Over::SharedMemory => own(launcher, "vader,self"),
            Over::UcxTcp if first == last => ucx(launcher, "tcp", &first.side.interface),
            Over::UcxTcp if links == Some(Links::Both) => {
                ucx(launcher, "tcp", &two_links::INTERFACES.concat().join(","))
            }
            // Each rank finds one of the two, and warns of the other.
            Over::UcxTcp => {
                let mut names = vec![first.side.interface.as_str(), &last.side.interface];
                names.dedup();
                ucx(launcher, "tcp", &names.join(","))
            }
            Over::Weft { .. } if links == Some(Links::Both) => {
                ucx(launcher, "rc", "weft0:1,weft1:1")
            }
            Over::Weft { .. } => ucx(launcher, "rc", "weft0:1"),
        }
    }

    /// The program as each rank starts it.
    fn rank(&self, links: Option<Links>) -> Invocation {
        let program = SOURCE.program(&self.scratch);
        match (self.over, links) {
            (Over::Weft { same_host: false }, _) => {
                self.weft.run(&["--same-host", "off"]).args([program])
            }
            // A device for each link, of which the carrier takes one or both.
            (Over::Weft { .. }, Some(_)) => self.weft.run(&["--devices", "all"]).args([program]),
            (Over::Weft { .. }, None) => self.weft.run(&[]).args([program]),
            _ => Invocation::new(program, [""; 0]),
        }
    }
}

impl Stack for Mpi {
    fn name(&self) -> String {
        match self.over {
            Over::Tcp => TCP,
            Over::SharedMemory => "mpi shared memory",
            Over::UcxTcp => "mpi ucx tcp",
            Over::Weft { same_host: true } => WEFT,
            Over::Weft { same_host: false } => "mpi weft same-host=off",
        }
        .to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        if let Over::Weft { .. } = self.over {
            self.weft.ready()?;
        }
        need(LAUNCHER, "openmpi-bin")?;
        SOURCE.compile(&self.scratch)?;
        executable(&self.shell(), SHELL)
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(LAUNCHER, [""; 0]);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("there is no program of MPI for {}", workload.id())
    }

    fn carries_ranks(&self, path: PathKind) -> bool {
        match self.over {
            // What is compiled here is on no other machine.
            _ if path == PathKind::Hosts => false,
            Over::SharedMemory | Over::Weft { same_host: false } => path == PathKind::Loopback,
            _ => true,
        }
    }

    fn ranks(&self, words: &[String], links: Option<Links>, site: &Site) -> Option<Invocation> {
        let hosts = hosts_of_ranks(&site.place.hosts);
        let ranks = hosts.len().max(2);
        // Ranks tie themselves to the two cores: the launcher would have to be told of each host's.
        let cores = site
            .place
            .cores
            .filter(|(first, second)| first != second && ranks == 2);
        let yields = if cores.is_some() { "0" } else { "1" };
        let launcher = Invocation::new(LAUNCHER, ["-n", &ranks.to_string(), "--bind-to", "none"])
            // A machine has room for a rank a core by its own count. Ranks that spin let each other run where they
            // have no core for themselves.
            .args(["--oversubscribe", "--mca", "mpi_yield_when_idle", yields])
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // What it leaves behind when it is ended goes with the folder.
            .env("TMPDIR", self.scratch.to_string_lossy());
        let launcher = self.carrier(self.hosts(launcher, &hosts), links, site);
        let rank = self.rank(links);
        let cores = cores.map(|(first, second)| [first, second].map(|core| core.to_string()));
        Some(
            launcher
                .args([rank.program])
                .args(rank.args)
                .args(words)
                .args(cores.into_iter().flatten()),
        )
    }
}

/// The hosts that have a rank each: those in namespaces of their own, each by its first address.
fn hosts_of_ranks(hosts: &[Host]) -> Vec<&Host> {
    let mut found: Vec<&Host> = Vec::new();
    for host in hosts.iter().filter(|host| host.side.namespace.is_some()) {
        let is_known = |known: &&Host| known.side.namespace == host.side.namespace;
        if !found.iter().any(is_known) {
            found.push(host);
        }
    }
    found
}

/// The words that enter a host, behind its address.
fn way_to(host: &Host) -> String {
    let enter = host.side.namespace.map(|namespace| namespace.enter());
    let words = enter.into_iter().flatten();
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    format!("{}={}", host.address, words.join(" "))
}

/// Writes a file that can be run.
fn executable(path: &std::path::Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Namespace, Side};
    use crate::path::Place;

    fn shown(over: Over, place: &Place) -> String {
        shown_over(over, None, place)
    }

    fn shown_over(over: Over, links: Option<Links>, place: &Place) -> String {
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp/scratch".into(),
        };
        let site = Site {
            place,
            port: 7000,
            seconds: 1,
        };
        let words = ["ping-pong", "8", "1"].map(str::to_owned);
        let ranks = Mpi::new(&programs, over)
            .ranks(&words, links, &site)
            .unwrap();
        ranks.display()
    }

    /// So many hosts in namespaces.
    fn hosts(count: u8) -> Place {
        let host = |number: u8| Host {
            name: format!("host-{number}"),
            side: Side {
                namespace: Some(Namespace {
                    holder: number.into(),
                    user: false,
                }),
                interface: format!("if-{number}"),
            },
            address: [192, 0, 2, number].into(),
            far: None,
        };
        Place {
            hosts: (1..=count).map(host).collect(),
            cores: Some((0, 1)),
            round_trip_us: 0.0,
        }
    }

    fn two_hosts() -> Place {
        hosts(2)
    }

    #[test]
    fn each_of_several_hosts_has_a_rank_and_none_a_core() {
        let mut place = hosts(4);
        // The second one once more, by another address.
        let again = Host {
            address: [198, 51, 100, 2].into(),
            ..place.hosts[1].clone()
        };
        place.hosts.push(again);
        let tcp = shown(Over::Tcp, &place);
        assert!(
            tcp.contains("-n 4 ") && tcp.contains("mpi_yield_when_idle 1"),
            "{tcp}"
        );
        assert!(
            tcp.contains("--host 192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4 "),
            "{tcp}"
        );
        assert!(tcp.contains(";192.0.2.4=nsenter -t 4 -m -n --"), "{tcp}");
        assert!(tcp.ends_with("mpi_rows ping-pong 8 1"), "{tcp}");
    }

    #[test]
    fn on_one_host_each_way_names_its_interface() {
        let place = Place::loopback(Some((2, 3)));
        let tcp = shown(Over::Tcp, &place);
        assert!(
            tcp.ends_with(
                "--mca btl tcp,self --mca btl_tcp_if_include lo mpi_rows ping-pong 8 1 2 3"
            ),
            "{tcp}"
        );
        assert!(
            tcp.contains("mpi_yield_when_idle 0") && !tcp.contains("--host "),
            "{tcp}"
        );
        let ucx = shown(Over::UcxTcp, &place);
        assert!(
            ucx.contains("-x UCX_TLS=tcp,self -x UCX_NET_DEVICES=lo "),
            "{ucx}"
        );
        let weft = shown(Over::Weft { same_host: false }, &place);
        assert!(
            weft.contains(
                "UCX_TLS=rc,self -x UCX_NET_DEVICES=weft0:1 weft run --same-host off -- mpi_rows"
            ),
            "{weft}"
        );
    }

    #[test]
    fn a_rank_on_another_host_is_started_there() {
        let weft = shown(Over::Weft { same_host: true }, &two_hosts());
        assert!(
            weft.contains("ENTER_HOSTS=192.0.2.2=nsenter -t 2 -m -n --"),
            "{weft}"
        );
        assert!(
            weft.contains("--host 192.0.2.1,192.0.2.2 --mca plm_rsh_agent on-another-host"),
            "{weft}"
        );
        assert!(
            weft.ends_with("weft run -- mpi_rows ping-pong 8 1 0 1"),
            "{weft}"
        );
        let tcp = shown(Over::Tcp, &two_hosts());
        assert!(!tcp.contains("btl_tcp_if_include"), "{tcp}");
    }

    #[test]
    fn of_two_links_ranks_use_one_or_both() {
        let over = |over, links| shown_over(over, Some(links), &two_hosts());
        let weft = over(Over::Weft { same_host: true }, Links::First);
        assert!(weft.contains("UCX_NET_DEVICES=weft0:1 "), "{weft}");
        assert!(
            weft.contains("weft run --devices all -- mpi_rows"),
            "{weft}"
        );
        let weft = over(Over::Weft { same_host: true }, Links::Both);
        assert!(
            weft.contains("UCX_NET_DEVICES=weft0:1,weft1:1 -x UCX_MAX_RNDV_RAILS=2 "),
            "{weft}"
        );
        let tcp = over(Over::Tcp, Links::First);
        assert!(tcp.contains("btl_tcp_if_include 192.0.2.1/24 "), "{tcp}");
        assert!(!over(Over::Tcp, Links::Both).contains("btl_tcp_if_include"));
        let ucx = over(Over::UcxTcp, Links::First);
        assert!(ucx.contains("UCX_NET_DEVICES=if-1,if-2 "), "{ucx}");
        let ucx = over(Over::UcxTcp, Links::Both);
        assert!(
            ucx.contains("UCX_NET_DEVICES=weft-s,weft-c,weft-r,weft-d "),
            "{ucx}"
        );
    }

    #[test]
    fn on_one_core_ranks_let_each_other_run() {
        let place = Place::loopback(Some((0, 0)));
        let shown = shown(Over::SharedMemory, &place);
        assert!(shown.contains("mpi_yield_when_idle 1"), "{shown}");
        assert!(shown.ends_with("mpi_rows ping-pong 8 1"), "{shown}");
    }
}
