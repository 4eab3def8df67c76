//! A measurement as two programs: what to start, where, and for how long at most.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Name of the role that others connect to.
pub const SERVER: &str = "server";
/// Name of the role that measures against a server.
pub const CLIENT: &str = "client";

/// A program, its arguments and what it adds to the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// Name to be found on `PATH`, or a path.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of the bench's own.
    pub env: Vec<(String, String)>,
}

/// A measurement: a cast of programs, started one after another, each when those before it are ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// In the order of their start; their names differ.
    pub roles: Vec<Role>,
    /// Whether each program is tied to the core of its seat.
    pub pinned: bool,
    /// All programs are killed after this.
    pub timeout: Duration,
}

/// A program of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name in records and messages: `server`, `client-3`.
    pub name: String,
    /// Which host of the path it runs on, counted from 0.
    pub host: usize,
    /// Which of the two cores it is tied to.
    pub seat: Seat,
    /// What it runs.
    pub program: Invocation,
    /// When those behind it may start.
    pub ready: Ready,
    /// Whether the job lasts until it has ended. The others get a moment to follow, and are ended then.
    pub measures: bool,
    /// Whether it is told to end (SIGTERM) once those that measure have: it would not by itself.
    pub told_to_end: bool,
}

/// Which of the two cores of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// The servers'.
    Server,
    /// The clients'.
    Client,
}

/// When a role is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// As soon as it runs.
    AtOnce,
    /// Once something on its host listens on this TCP port.
    Listens(u16),
    /// Once a UDP socket on its host is bound to this port.
    Binds(u16),
    /// Once it has printed this on a line of its own, wherever.
    Says(String),
}

/// One end of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The network namespace to run in; none is the bench's own.
    pub namespace: Option<Namespace>,
    /// Network interface the traffic uses.
    pub interface: String,
}

/// A network namespace with a mount namespace of its own, named by a process that lives in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Process id of the holder.
    pub holder: u32,
    /// Whether the holder also has a user namespace that has to be entered.
    pub user: bool,
}

impl Invocation {
    /// `program args...` with nothing added to the environment.
    pub fn new(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Invocation {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
        }
    }

    /// With one more variable.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// With more arguments behind those it has.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The command line for a reader: programs by name, without the folders of this machine.
    pub fn display(&self) -> String {
        let name = |p: &Path| {
            let name = p.file_name().unwrap_or(p.as_os_str());
            plain(&name.to_string_lossy())
        };
        let env = self.env.iter().map(|(k, v)| format!("{k}={v}"));
        let args = self.args.iter().map(|a| match Path::new(a) {
            path if path.is_absolute() => name(path),
            path => match path.strip_prefix("file:///") {
                Ok(path) => format!("file://{}", name(path)),
                Err(_) => a.to_string_lossy().into_owned(),
            },
        });
        env.chain([name(&self.program)])
            .chain(args)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A name without what a terminal would obey: files are the user's.
fn plain(name: &str) -> String {
    match name.contains(char::is_control) {
        true => name.escape_debug().to_string(),
        false => name.to_owned(),
    }
}

impl Job {
    /// A server on the first host, ready once it listens on `port`, and a client on the last that measures against it.
    pub fn pair(server: Invocation, client: Invocation, port: u16, hosts: usize) -> Job {
        let server = Role {
            name: SERVER.to_owned(),
            host: 0,
            seat: Seat::Server,
            program: server,
            ready: Ready::Listens(port),
            measures: false,
            told_to_end: false,
        };
        let client = Role {
            name: CLIENT.to_owned(),
            host: hosts - 1,
            seat: Seat::Client,
            program: client,
            ready: Ready::AtOnce,
            measures: true,
            told_to_end: false,
        };
        Job {
            roles: vec![server, client],
            pinned: true,
            timeout: Duration::from_secs(60),
        }
    }

    /// The same, with a server that would go on for ever: it is told to end once the client has.
    pub fn of_lasting_server(mut self) -> Job {
        for role in self.roles.iter_mut().filter(|role| role.name == SERVER) {
            role.told_to_end = true;
        }
        self
    }

    /// The program of the role of this name.
    pub fn program(&self, role: &str) -> Option<&Invocation> {
        let found = self.roles.iter().find(|r| r.name == role)?;
        Some(&found.program)
    }
}

impl Side {
    /// The command that runs `invocation` on this side, tied to `core` if there is one, without redirections.
    pub fn command(&self, invocation: &Invocation, core: Option<usize>) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(namespace) = self.namespace {
            words.extend(namespace.enter());
        }
        if let Some(core) = core {
            words.extend(["taskset".into(), "-c".into(), core.to_string().into()]);
        }
        words.push(invocation.program.clone().into());
        words.extend(invocation.args.iter().cloned());

        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .envs(invocation.env.iter().map(|(k, v)| (k, v)));
        command
    }
}

impl Namespace {
    /// The words that, before a command, run it in this namespace.
    pub fn enter(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            "nsenter".into(),
            "-t".into(),
            self.holder.to_string().into(),
            "-m".into(),
            "-n".into(),
        ];
        if self.user {
            words.extend(["-U".into(), "--preserve-credentials".into()]);
        }
        words.push("--".into());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let args = command.get_args().map(|a| a.to_string_lossy().into_owned());
        [command.get_program().to_string_lossy().into_owned()]
            .into_iter()
            .chain(args)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_namespace_comes_before_the_core_and_the_core_before_the_program() {
        let side = Side {
            namespace: Some(Namespace {
                holder: 42,
                user: true,
            }),
            interface: String::new(),
        };
        let invocation = Invocation::new("iperf3", ["-s"]);
        assert_eq!(
            words(&side.command(&invocation, Some(1))),
            "nsenter -t 42 -m -n -U --preserve-credentials -- taskset -c 1 iperf3 -s"
        );
        assert_eq!(
            words(&side.command(&invocation, None)),
            "nsenter -t 42 -m -n -U --preserve-credentials -- iperf3 -s"
        );
    }

    #[test]
    fn command_lines_in_records_name_no_folder_of_this_machine() {
        let invocation = Invocation::new("/home/someone/weft", ["run", "--", "ib_send_lat"])
            .env("WEFT_CRC", "off");
        assert_eq!(invocation.display(), "WEFT_CRC=off weft run -- ib_send_lat");
        let by_uri = Invocation::new("srt", ["file:///home/someone/source", "srt://192.0.2.1:7"]);
        assert_eq!(by_uri.display(), "srt file://source srt://192.0.2.1:7");
    }
}
