//! A measurement as two programs: what to start, where, and for how long at most.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A program, its arguments and what it adds to the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Name to be found on `PATH`, or a path.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of the bench's own.
    pub env: Vec<(String, String)>,
}

/// A server and a client that measures against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Started first; ready once it listens on `port`.
    pub server: Invocation,
    /// Started when the server is ready; what it prints is the measurement.
    pub client: Invocation,
    /// TCP port on which the server listens.
    pub port: u16,
    /// Whether each program is tied to its side's core.
    pub pinned: bool,
    /// Both programs are killed after this.
    pub timeout: Duration,
}

/// One end of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The network namespace to run in; none is the bench's own.
    pub namespace: Option<Namespace>,
    /// Core for pinned jobs; none where pinning is not possible.
    pub core: Option<usize>,
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
            p.file_name()
                .unwrap_or(p.as_os_str())
                .to_string_lossy()
                .into_owned()
        };
        let env = self.env.iter().map(|(k, v)| format!("{k}={v}"));
        let args = self.args.iter().map(|a| match Path::new(a) {
            path if path.is_absolute() => name(path),
            _ => a.to_string_lossy().into_owned(),
        });
        env.chain([name(&self.program)])
            .chain(args)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl Side {
    /// The command that runs `invocation` on this side, without redirections.
    pub fn command(&self, invocation: &Invocation, pinned: bool) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(namespace) = self.namespace {
            words.extend(namespace.enter());
        }
        if let (Some(core), true) = (self.core, pinned) {
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
            core: Some(1),
            interface: String::new(),
        };
        let invocation = Invocation::new("iperf3", ["-s"]);
        assert_eq!(
            words(&side.command(&invocation, true)),
            "nsenter -t 42 -m -n -U --preserve-credentials -- taskset -c 1 iperf3 -s"
        );
        assert_eq!(
            words(&side.command(&invocation, false)),
            "nsenter -t 42 -m -n -U --preserve-credentials -- iperf3 -s"
        );
    }

    #[test]
    fn command_lines_in_records_name_no_folder_of_this_machine() {
        let invocation = Invocation::new("/home/someone/weft", ["run", "--", "ib_send_lat"])
            .env("WEFT_CRC", "off");
        assert_eq!(invocation.display(), "WEFT_CRC=off weft run -- ib_send_lat");
    }
}
