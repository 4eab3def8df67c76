//! Tiles of a picture through MPI-IO on several machines, with the access pattern of MPI-Tile-IO: each host has the
//! striped files mounted, and a process of a program of MPI that reads or writes its tile there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use tempfile::TempDir;

use super::made::Made;
use super::sockets::{carries, printed};
use super::striped::{client, store, CLIENTS};
use super::Workload;
use crate::exec::Output;
use crate::job::{Invocation, Job, Ready, Role, Seat};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::compiled::{Source, MPICC};
use crate::stack::{need, Site, Stack, Weft, PLAIN_CLIENT, TCP};

const SOURCE: Source = Source {
    name: "mpi_tile",
    compiler: MPICC,
    text: include_str!("../../c/mpi_tile.c"),
    libraries: &[],
};

/// Starts the processes, and is the role that measures: the first process prints the figures through it.
const MPIEXEC: &str = "mpiexec";
const MPIEXEC_MPICH: &str = "mpiexec.mpich";

/// Of the picture: tiles across and down, their size, and octets of a pixel, as of the rows with a client of their own.
const PICTURE: [(&str, u32); 7] = [
    ("nr_tiles_x", 2),
    ("nr_tiles_y", 2),
    ("sz_tile_x", 1024),
    ("sz_tile_y", 768),
    ("sz_element", 3),
    ("overlap_x", 0),
    ("overlap_y", 0),
];
/// The store has no locks, so ROMIO must not read, change and write back what lies between the rows of a tile.
const NO_LOCKS: &str = "romio_ds_write=disable";

/// Runs a command on the host with this address, as a remote shell would. It is in the hosts' user namespace already,
/// where they have one.
const LAUNCHER: &str = r#"#!/bin/sh
for host in $MPI_TILE_HOSTS; do
    case $host in "$1="*) holder=${host#*=} ;; esac
done
[ -n "$holder" ] || { echo "no host has the address $1" >&2; exit 1; }
shift
exec nsenter -t "$holder" -m -n -- sh -c "$*"
"#;
const HOSTS: &str = "MPI_TILE_HOSTS";

/// Mounts nothing that could be used, where nobody sees it: whether the kernel lets this user.
const TRIAL: &str = r#"exec 3<>/dev/fuse && exec mount -i -t fuse -o \
fd=3,rootmode=40000,user_id=0,group_id=0 trial "$1""#;

/// That the processes read and write together, as the program has it.
const COLLECTIVE: &str = "--collective";

/// How long the processes of MPI may take to start, to find each other and to end.
const MPI_START: Duration = Duration::from_secs(30);

/// A manager, three servers, and four hosts with a mount and a process of MPI each.
#[derive(Debug)]
pub(super) struct MpiTile {
    name: &'static str,
    /// What a figure is, for people.
    what: &'static str,
    /// What the processes do, in their words.
    words: &'static [&'static str],
    /// Whether they exchange what they write and read, and not just meet.
    exchanges: bool,
    made: Rc<Made>,
}

/// Every row.
pub(super) fn all() -> [MpiTile; 4] {
    let made = Rc::new(Made::new(make));
    let row = |name, what, words: &'static [&str]| MpiTile {
        name,
        what,
        words,
        exchanges: words.contains(&COLLECTIVE),
        made: made.clone(),
    };
    [
        row(
            "mpi-tile-write",
            "four processes write a tile each through MPI-IO to a mount, row by row",
            &["--write"],
        ),
        row(
            "mpi-tile-read",
            "four processes read a tile each through MPI-IO from a mount, with what lies between its rows",
            &[],
        ),
        row(
            "mpi-tile-write-all",
            "four processes write a tile each through MPI-IO to a mount, collectively",
            &["--write", COLLECTIVE],
        ),
        row(
            "mpi-tile-read-all",
            "four processes read a tile each through MPI-IO from a mount, collectively",
            &[COLLECTIVE],
        ),
    ]
}

fn make() -> Result<TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    need(MPIEXEC_MPICH, "mpich")?;
    SOURCE.compile(folder.path())?;
    mounts(folder.path())?;
    let launcher = folder.path().join("launcher");
    let written = fs::write(&launcher, LAUNCHER).and_then(|()| {
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&launcher, everybody)
    });
    written.with_context(|| format!("cannot write {}", launcher.display()))?;
    Ok(folder)
}

/// Whether a file system of a program can be mounted in the namespaces of a path.
fn mounts(folder: &Path) -> Result<()> {
    let own_user = ["-U", "-r"].as_slice();
    let is_root = rustix::process::geteuid().is_root();
    let output = Command::new("unshare")
        .args(if is_root { &[] } else { own_user })
        .args(["-m", "sh", "-c", TRIAL, "trial"])
        .arg(folder)
        .output()
        .context("cannot run unshare (Debian package util-linux)")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "no file system of a program can be mounted here (FUSE): /dev/fuse has to be there and open to this user \
         (modprobe fuse), and a container has to allow mounting: {}",
        said.trim()
    );
    Ok(())
}

impl Workload for MpiTile {
    fn id(&self) -> String {
        self.name.to_owned()
    }

    fn describe(&self) -> String {
        format!("goodput together: {}", self.what)
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        let is_of_sockets = carries(stack) && stack.name() != PLAIN_CLIENT;
        let is_of_mpi = self.exchanges && stack.under_ranks().is_some();
        path == PathKind::Cluster && (is_of_sockets || is_of_mpi)
    }

    fn ready(&self) -> Result<()> {
        let made = self.made.folder();
        let others =
            "striped-tile-write and striped-tile-read have the same tiles by a client of their own";
        made.map(drop)
            .with_context(|| format!("{others}; through MPI-IO"))
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        // Of one name at all hosts, each of which has a mount of its own there.
        let at = self.made.file(&format!("files-{}", site.port));
        let (weft, stack) = match stack.under_ranks() {
            Some((weft, sockets)) => (Some(weft), sockets),
            None => (None, stack),
        };
        let mut roles = store(stack, site);
        for (number, host) in (1..).zip(CLIENTS) {
            let words = [format!("--at={}", at.display())];
            roles.push(Role {
                ready: Ready::Says("mounted".to_owned()),
                told_to_end: true,
                ..client(
                    stack,
                    site,
                    "mount",
                    format!("mount-{number}"),
                    host,
                    &words,
                )
            });
        }
        roles.push(Role {
            name: MPIEXEC.to_owned(),
            host: CLIENTS[0],
            seat: Seat::Client,
            program: self.mpiexec(site, &at, weft),
            ready: Ready::AtOnce,
            measures: true,
            told_to_end: false,
        });
        Job {
            roles,
            pinned: false,
            timeout: site.timeout() + MPI_START,
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.role(MPIEXEC), "the program of MPI")
    }

    fn pinned(&self) -> bool {
        false
    }
}

impl MpiTile {
    /// The command that starts a process on each of the clients' hosts. What they say to each other goes by the
    /// network: by the device of `weft`, or on the kernel's TCP where there is none.
    fn mpiexec(&self, site: &Site, at: &Path, weft: Option<&Weft>) -> Invocation {
        let (mut addresses, mut holders) = (Vec::new(), Vec::new());
        for host in CLIENTS.map(|host| site.place.host(host)) {
            addresses.push(host.address.to_string());
            let holder = host.side.namespace.map_or(0, |namespace| namespace.holder);
            holders.push(format!("{}={holder}", host.address));
        }
        let interface = site.place.host(CLIENTS[0]).side.interface.as_str();
        let (transports, device) = match weft {
            Some(_) => ("rc,self", "weft0:1"),
            None => ("tcp,self", interface),
        };
        let under = weft.map(|weft| weft.run(&[]));
        let under = under.into_iter().flat_map(|run| {
            let program = std::iter::once(run.program.into_os_string());
            program.chain(run.args).collect::<Vec<_>>()
        });
        let count = CLIENTS.len().to_string();
        let picture = PICTURE.map(|(name, value)| format!("--{name}={value}"));
        Invocation::new(MPIEXEC_MPICH, ["-launcher", "rsh", "-launcher-exec"])
            .args([self.made.file("launcher")])
            .args(["-hosts", &addresses.join(",")])
            .args(["-n", &count, "-genv", "UCX_TLS", transports])
            .args(["-genv", "UCX_NET_DEVICES", device])
            .args(under)
            .args([SOURCE.program(self.made.folder().unwrap_or(Path::new("")))])
            .args([format!("--file=ufs:{}", at.join("picture").display())])
            .args(picture)
            .args([format!("--hint={NO_LOCKS}")])
            .args([format!("--seconds={}", site.seconds)])
            .args(self.words)
            .env(HOSTS, holders.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::{programs, raw_tcp};

    fn parsed(printed: &str) -> Result<Metrics> {
        let row = &all()[0];
        row.parse(&raw_tcp(), &Output::of(&[(MPIEXEC, printed)]))
    }

    #[test]
    fn the_figures_are_what_the_first_process_printed() {
        let line = "{\"goodput_gbit_s\": 0.94723, \"request_us\": 80496.9, \"p99_us\": 110290.4, \"operations\": 52}\n";
        let metrics = parsed(line).unwrap();
        assert_eq!(
            (metrics["goodput_gbit_s"], metrics["operations"]),
            (0.94723, 52.0)
        );
        assert_eq!(metrics["p99_us"], 110_290.4);
    }

    #[test]
    fn messages_of_mpi_go_by_the_device_where_there_are_some() {
        let stacks = crate::stack::all(&programs());
        let stack = |name: &str| {
            let mut all = stacks.iter();
            all.find(|stack| stack.name() == name).unwrap().as_ref()
        };
        let rows = all();
        let serve = |name, path| rows.each_ref().map(|row| row.serves(stack(name), path));
        let cluster = PathKind::Cluster;
        assert_eq!(serve("tcp", cluster), [true; 4]);
        assert_eq!(serve("tcp, mpi weft", cluster), [false, false, true, true]);
        assert_eq!(serve("tcp, mpi weft", PathKind::Veth), [false; 4]);
    }

    #[test]
    fn what_is_no_figure_is_told_so() {
        for text in [
            "",
            "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n",
            "{}{}\n",
        ] {
            let complaint = parsed(text).unwrap_err().to_string();
            assert!(
                complaint.contains("the program of MPI printed no metrics"),
                "{complaint}"
            );
        }
    }

    #[test]
    fn the_launcher_runs_a_command_where_the_address_says_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let launcher = folder.path().join("launcher");
        fs::write(&launcher, LAUNCHER).unwrap();
        // In place of the program that enters a namespace: tells what it was asked.
        let nsenter = folder.path().join("nsenter");
        fs::write(&nsenter, "#!/bin/sh\necho \"$*\"\n").unwrap();
        fs::set_permissions(&nsenter, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let launched = |address: &str| {
            Command::new("sh")
                .arg(&launcher)
                .args([address, "hydra_pmi_proxy", "--control-port", "a:1"])
                .env("PATH", format!("{}:{path}", folder.path().display()))
                .env(HOSTS, "192.0.2.5=17 192.0.2.55=18")
                .output()
                .unwrap()
        };
        let done = launched("192.0.2.5");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(
            said,
            "-t 17 -m -n -- sh -c hydra_pmi_proxy --control-port a:1\n"
        );
        for nobody in ["192.0.2.6", "192.0.2", ""] {
            let done = launched(nobody);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(
                !done.status.success() && said.contains("no host has the address"),
                "{said}"
            );
        }
    }
}
