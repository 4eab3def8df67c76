//! The command line: what there is, and the words that teach it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};

use crate::link::{self, LinkArgs};
use crate::setting_flags::SettingFlags;

const ABOUT: &str = "RDMA for programs on machines without an RDMA device";

const LONG_ABOUT: &str = "\
RDMA for programs on machines without an RDMA device.

Weft is iWARP in user space: it gives an unmodified RDMA program a device, weft0, that works over \
the network the machine already has. No kernel module, no root, no change to the program. Unmodified \
UDP programs it gives segmentation offload or a connection for their datagrams (--udp), and the \
TCP sockets of unmodified programs it puts on DDP (--ddp), where they are told to have it.";

const EXAMPLES: &str = "\
Examples:
  weft run -- rping -s -a 127.0.0.1 -v -C 10     one end of a ping, on this machine
  weft run -- rping -c -a 127.0.0.1 -v -C 10     the other, in another terminal
  weft run -- ib_write_bw                        perftest, with -R (rdma_cm) or without (GID and number)
  weft run -- ib_write_bw 192.0.2.1              and its client, from another machine
  weft run --udp gso -- iperf3 -c 192.0.2.1 -u   a program of UDP sockets, with segmentation offload
  weft doctor ib_write_bw                        will it work, and if not why
  weft stat                                      what is going over Weft right now
  weft link veth-a veth-b --delay 50ms           an emulated link between two interfaces

Start with `weft run --help`.";

const RUN_LONG_ABOUT: &str = "\
Run a program so that its RDMA calls come to Weft.

Weft sets a few environment variables and then becomes the program (exec): same process, same \
terminal, so signals reach the program itself and its exit status is the one you see. Programs \
that it starts in turn are served too. If the program cannot be started the exit status is 127 \
(not found) or 126 (may not run); 125 says that Weft itself could not do its part.";

const RUN_AFTER: &str = "\
Settings are taken from, first to last: the flag, the environment variable, weft.toml, the \
default. weft.toml is the first of: the file given by --config, ./weft.toml, \
$XDG_CONFIG_HOME/weft/weft.toml (~/.config if unset), /etc/weft.toml. For example:

  [iwarp]
  crc = \"off\"

  [run]
  log = \"info\"

Examples:
  weft run -- ibv_devinfo                        the device a program finds
  weft run -- rping -s -a 0.0.0.0 -v             a server for any address
  weft run --crc off -- ib_write_bw -R           without the CRC (both ends)
  weft run --log info -- PROGRAM                 say what is served and what is not
  weft run --show -- PROGRAM                     only say what would be set, and why
  weft run --off -- PROGRAM                      as if Weft were not there
  weft run --adapter inline --interface packet:veth1 --address 10.1.0.2/24 -- PROGRAM  a TCP of Weft's own
  weft run -- bash                               a shell in which everything is served";

const DOCTOR_LONG_ABOUT: &str = "\
Say whether a program will be served by Weft, and if not why and what to do.

Nothing is started. Doctor reads the program and every library it needs, as the dynamic loader \
would, and the limits of this shell. The exit status is 0 when the last line says yes, else 1. \
The program's own arguments may stand behind it and are ignored, so that `run` can be replaced by \
`doctor` in a command line. Without a program it looks at the installation and the machine alone.";

const DOCTOR_AFTER: &str = "\
Examples:
  weft doctor rping
  weft doctor --json ./my-program | jq .verdict
  weft doctor                                    the installation and the machine alone";

const CHECK_LONG_ABOUT: &str = "\
Say whether every setting is understood, and what each comes to.

It reads weft.toml and the environment as `weft run` would and prints each setting that is set, with \
the line or the variable it comes from, and each rule as it is understood. When all of it is right the \
last line is `ok` and the exit status 0. Else every mistake is told on standard error, with its place and \
what to do, and the exit status is 1.";

const CONFIG_AFTER: &str = "\
Examples:
  weft config check                              what a program under `weft run` would have
  weft config check ./weft.toml                  this file, as --config would take it";

const STAT_LONG_ABOUT: &str = "\
Show what goes over Weft: for each process its connections, queue pairs, octets and operations in \
each direction, errors, and rates since the last look. Programs with a rule of --ddp or --udp 'uoe ...' have tables \
of their own: how the octets of their sockets go, and with a PID why. On a terminal it looks again every second until \
Ctrl-C; elsewhere, and as JSON, it prints once and ends, unless --watch or --interval is given.

The figures are read from memory that each served process keeps (turned off by WEFT_STAT=off); \
reading costs those processes nothing. Processes of other users can be seen by root alone.";

const STAT_AFTER: &str = "\
Examples:
  weft stat                                      on a terminal refreshed every second, until Ctrl-C
  weft stat --once 4711                          one process, once
  weft stat --json | jq '.processes[0]'
  weft stat --json --interval 10 >> stat.jsonl   a line every ten seconds, until it is ended";

const BENCH_AFTER: &str = "\
Examples:
  weft bench                                     the usual rows, five times each
  weft bench --quick --path loopback             a first impression, in a minute or two
  weft bench list                                the rows, and what serves them
  weft bench report out/bench/*.json             the tables of earlier runs";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "weft", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program so that its RDMA calls come to Weft
    #[command(
        long_about = RUN_LONG_ABOUT,
        after_help = RUN_AFTER,
        override_usage = "weft run [OPTIONS] [--] PROGRAM [ARGS]...\n       weft run --show [OPTIONS]"
    )]
    Run(RunArgs),
    /// Say whether a program will be served, and if not why
    #[command(
        long_about = DOCTOR_LONG_ABOUT,
        after_help = DOCTOR_AFTER,
        override_usage = "weft doctor [OPTIONS] [--] [PROGRAM]..."
    )]
    Doctor(DoctorArgs),
    /// Look at the settings
    #[command(after_help = CONFIG_AFTER)]
    Config {
        /// What to look at.
        #[command(subcommand)]
        what: ConfigCommand,
    },
    /// Show live what goes over Weft, per process
    #[command(long_about = STAT_LONG_ABOUT, after_help = STAT_AFTER)]
    Stat(StatArgs),
    // Described where its arguments are, in weft-bench.
    #[command(after_help = BENCH_AFTER)]
    Bench(Box<weft_bench::cli::Args>),
    /// Join two network interfaces by an emulated link
    #[command(long_about = link::LONG_ABOUT, after_help = link::AFTER)]
    Link(Box<LinkArgs>),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  weft completions bash > ~/.local/share/bash-completion/completions/weft
  weft completions zsh  > \"${fpath[1]}/_weft\"
  weft completions fish > ~/.config/fish/completions/weft.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "Examples:\n  weft man ~/.local/share/man/man1 && man weft-run")]
    Man {
        /// Where to; made if it is not there
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Print a generated page of the documentation
    #[command(hide = true)]
    Docs {
        /// Which
        page: DocsPage,
    },
}

/// `weft config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether every setting is understood, and what each comes to
    #[command(long_about = CHECK_LONG_ABOUT, after_help = CONFIG_AFTER)]
    Check {
        /// The file, instead of the first weft.toml found
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
}

/// A page of `docs/` that is generated.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum DocsPage {
    /// `docs/settings.md`
    Settings,
}

/// `weft run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Only say what would be set, and why
    #[arg(long)]
    pub show: bool,

    /// Start the program even if it cannot be served itself
    ///
    /// For programs that are static or foreign themselves and start others that can be served.
    #[arg(long)]
    pub anyway: bool,

    /// Where the settings come from and what they are.
    #[command(flatten)]
    pub sources: Sources,

    /// The program and its arguments; put `--` in front when they start with a dash
    #[arg(
        value_name = "PROGRAM [ARGS]",
        required_unless_present = "show",
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// Where settings come from.
#[derive(Debug, clap::Args)]
pub struct Sources {
    /// Take settings from this file instead of the first weft.toml found
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// The flags made from the table of settings.
    #[command(flatten)]
    pub flags: SettingFlags,
}

/// `weft doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,

    /// Where the settings come from and what they are.
    #[command(flatten)]
    pub sources: Sources,

    /// The program; arguments behind it are ignored
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// `weft stat`.
#[derive(Debug, clap::Args)]
pub struct StatArgs {
    /// Print once and end, on a terminal too
    #[arg(long, conflicts_with_all = ["watch", "interval"])]
    pub once: bool,

    /// Look again and again, where there is no terminal too
    #[arg(long)]
    pub watch: bool,

    /// Print JSON: one object on a line for each look
    #[arg(long)]
    pub json: bool,

    /// Seconds between looks [default: 1]; implies --watch
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<std::time::Duration>,

    /// Only this process
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
}

fn interval(text: &str) -> Result<std::time::Duration, String> {
    const LEAST: f64 = 0.1;
    const MOST: f64 = 3600.0;
    let seconds: f64 = text.parse().map_err(|_| "give a number".to_owned())?;
    if (LEAST..=MOST).contains(&seconds) {
        Ok(std::time::Duration::from_secs_f64(seconds))
    } else {
        Err(format!("give a number from {LEAST} to {MOST}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_programs_own_flags_stay_its_own() {
        for words in [
            &["weft", "run", "rping", "-s", "--help"][..],
            &["weft", "run", "--", "rping", "-s", "--help"],
        ] {
            let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else {
                panic!("{words:?} is not run");
            };
            assert_eq!(run.command, ["rping", "-s", "--help"]);
        }
    }

    #[test]
    fn run_wants_a_program_unless_it_only_shows() {
        assert!(Cli::try_parse_from(["weft", "run"]).is_err());
        assert!(Cli::try_parse_from(["weft", "run", "--show"]).is_ok());
    }

    /// The commands that the help shows, as words.
    fn examples(command: &clap::Command) -> Vec<Vec<String>> {
        let after = command.get_after_help().map(ToString::to_string);
        let mut found = Vec::new();
        for line in after.unwrap_or_default().lines() {
            let Some(line) = line.strip_prefix("  weft ") else {
                continue;
            };
            // Up to the remark, or to what the shell makes of it.
            let example = line.split("  ").next().unwrap();
            let own = example.split(['|', '>', '&']).next().unwrap();
            let words = own.split_whitespace().map(str::to_owned);
            found.push(std::iter::once("weft".to_owned()).chain(words).collect());
        }
        found
    }

    #[test]
    fn every_example_of_the_help_is_understood() {
        let command = Cli::command();
        let mut all = examples(&command);
        for sub in command.get_subcommands() {
            let of_it = examples(sub);
            assert!(
                sub.is_hide_set() || !of_it.is_empty(),
                "{} has no example",
                sub.get_name()
            );
            all.extend(of_it);
        }
        for words in all {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{words:?}: {error}");
            }
        }
    }

    #[test]
    fn once_and_again_and_again_do_not_go_together() {
        assert!(Cli::try_parse_from(["weft", "stat", "--once", "--watch"]).is_err());
        assert!(Cli::try_parse_from(["weft", "stat", "--once", "--interval", "1"]).is_err());
    }

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(interval("0.5"), Ok(std::time::Duration::from_millis(500)));
        for bad in ["0", "-1", "x", "NaN", "1e9"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
