//! The command line of `weft bench`.

mod measuring;
mod reports;
mod slide;
mod teller;
mod two_builds;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use weft_applications::ApplicationArgs;

use crate::exec;
use crate::native::{self, NativeArgs};
use crate::offloads::{self, OffloadsArgs};
use crate::path::{Hosts, Named, PathKind};
use crate::plan::Selection;
use crate::probe::{self, ProbeArgs};
use crate::raw::{self, RawArgs};
use crate::record::Options;
use crate::stack::{self, Programs, Weft};
use crate::workload::{Given, GivenSlide, LinkRate};
use reports::{Compare, Report};
use teller::say;
use two_builds::TwoBuilds;

/// How to get to other machines: no question is asked that nobody would answer, and one that is gone is noticed.
const RSH: &str = "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";

/// Measure Weft beside raw TCP, iperf3, libfabric and UCX.
///
/// Runs each workload on each stack in turn, several times, on loopback and between two network
/// namespaces of its own; writes every sample to a JSON file; then prints medians, ratios and how
/// they stand to the targets.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    measure: Measure,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Print the tables of earlier runs, or write their page
    Report(Report),
    /// Say what changed from one run to others: the exit status is 1 when a row is worse
    Compare(Compare),
    /// List rows, and the stacks that serve each
    List,
    /// Print what a record says of this machine and of the network it is asked in, for runners that write records
    #[command(hide = true)]
    Environment,
    /// Start programs for a bench on another machine, which speaks over standard input and output
    #[command(hide = true)]
    FarEnd,
    #[command(hide = true)]
    Raw(RawArgs),
    #[command(hide = true)]
    Native(NativeArgs),
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Switch what an interface does for the stack above it
    #[command(hide = true)]
    Offloads(OffloadsArgs),
    #[command(hide = true)]
    Application(ApplicationArgs),
}

#[derive(clap::Args, Clone, Debug)]
struct Measure {
    /// Measure each cell once
    #[arg(long, conflicts_with_all = ["full", "repetitions", "beside"])]
    quick: bool,
    /// Every row of the usual sizes and modes but those on request, not only those that tell most: an hour and a half
    #[arg(long)]
    wide: bool,
    /// Every row, size and mode, ten repetitions
    #[arg(long)]
    full: bool,
    /// Only the rows that the design's targets need, and only the table of targets
    #[arg(long)]
    targets: bool,
    /// Times each cell is measured [default: 5; 10 with --full; 1 with --quick]
    #[arg(long, short = 'n', conflicts_with = "beside", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Seconds a cell measures for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Only rows whose name contains PATTERN (see `list`); may be given several times
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only stacks whose name contains PATTERN, and what they are compared with; may be given
    /// several times
    #[arg(long = "stack", value_name = "PATTERN")]
    stacks: Vec<String>,
    /// Only this path; may be given several times
    #[arg(long = "path", value_enum, value_name = "PATH")]
    paths: Vec<PathKind>,
    /// Between these machines, each [USER@]NAME[=ADDRESS] and reached by a remote shell, `localhost` without one:
    /// servers on the first, a single client on the last. ADDRESS is where the others reach it, unless that is what
    /// NAME says. Each has to have weft; nothing stays there
    #[arg(
        long,
        value_name = "HOST,...",
        value_delimiter = ',',
        conflicts_with = "beside"
    )]
    hosts: Vec<Named>,
    /// The remote shell that leads to --hosts
    #[arg(long, value_name = "COMMAND", requires = "hosts", default_value = RSH)]
    rsh: String,
    /// Rate of the links that rows of the path `adapter` have emulated, where a machine does not keep 1Gbit: 300Mbit
    #[arg(long, value_name = "RATE", default_value_t = LinkRate::default())]
    link_rate: LinkRate,
    /// A TIFF file that the microscopes of the path `cluster` look at, instead of a slide that is drawn from a seed:
    /// RGB or grey of 8 bits, in strips or tiles, 8 by 8 pixels at least and 4 294 967 296 at most. It is read to its
    /// end before anything is measured
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    slide: Option<PathBuf>,
    /// How long it took to decode all of the slide
    #[arg(skip)]
    decoded_in: Duration,
    /// Core of the servers and core of the clients
    #[arg(long, value_name = "SERVER,CLIENT", default_value = "0,1", value_parser = parse_cores)]
    cores: (usize, usize),
    /// Folder for the raw JSON
    #[arg(long, default_value = "out/bench", value_name = "FOLDER")]
    output: PathBuf,
    /// The weft command to measure [default: the one beside this program; with --hosts the `weft` of each]
    #[arg(long, value_name = "FILE")]
    weft: Option<PathBuf>,
    /// Go on with the run of FILE, which was ended before it was through: what it asked for, and only what is missing
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "quick", "wide", "full", "targets", "repetitions", "seconds", "only", "stacks", "paths", "cores", "output", "beside", "link_rate",
    ])]
    resume: Option<PathBuf>,
    #[command(flatten)]
    two_builds: TwoBuilds,
}

/// Runs `weft bench`.
pub fn run(args: Args) -> Result<ExitCode> {
    run_as(args, &["bench".into()])
}

/// Runs the bench in an executable in which `prefix` are the words before the bench's own.
pub fn run_as(args: Args, prefix: &[OsString]) -> Result<ExitCode> {
    match args.command {
        None => measuring::measure(&args.measure, prefix),
        Some(Command::Report(report)) => reports::print_reports(&report),
        Some(Command::Compare(compare)) => reports::compare(&compare),
        Some(Command::List) => reports::list(&args.measure, prefix),
        Some(Command::Environment) => reports::print_environment(),
        Some(Command::FarEnd) => exec::serve().map(|()| ExitCode::SUCCESS),
        Some(Command::Raw(raw)) => raw::run(&raw).map(|()| ExitCode::SUCCESS),
        Some(Command::Native(native)) => native::run(&native).map(|()| ExitCode::SUCCESS),
        Some(Command::Application(application)) => {
            weft_applications::run(&application).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Offloads(args)) => offloads::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Probe(probe)) => probe::run(&probe).map(|()| ExitCode::SUCCESS),
    }
}

fn programs(args: &Measure, prefix: &[OsString], scratch: &Path) -> Result<Programs> {
    if let Some(hosts) = args.hosts() {
        // By the name that it has on each of them.
        return Ok(Programs {
            bench: (hosts.weft.clone(), vec!["bench".into()]),
            weft: Weft::new(hosts.weft),
            scratch: scratch.to_owned(),
        });
    }
    let this = std::env::current_exe().context("cannot tell which program this is")?;
    let weft = args
        .weft
        .clone()
        .unwrap_or_else(|| this.with_file_name("weft"));
    // Programs run in folders of their own choosing.
    let weft =
        std::path::absolute(&weft).with_context(|| format!("cannot resolve {}", weft.display()))?;
    Ok(Programs {
        bench: (this, prefix.to_vec()),
        weft: Weft::new(weft),
        scratch: scratch.to_owned(),
    })
}

impl Measure {
    fn options(&self) -> Options {
        let default = match self.two_builds.beside {
            Some(_) => self.two_builds.pairs,
            None if self.quick => 1,
            None => [5, 10][usize::from(self.full)],
        };
        let online = std::thread::available_parallelism().map_or(1, usize::from);
        let possible = stack::on_path("taskset") && self.cores.0.max(self.cores.1) < online;
        if !possible {
            say(&format!(
                "not pinned: {online} cores, and taskset has to be installed (Debian package util-linux)"
            ));
        }
        Options {
            repetitions: self.repetitions.unwrap_or(default),
            precision: self.two_builds.precision(),
            cell_seconds: Some(self.seconds),
            cores: possible.then_some(self.cores),
            only: self.only.clone(),
            stacks: self.stacks.clone(),
            full: self.full,
            wide: self.wide,
            targets: self.targets,
            paths: self
                .paths
                .iter()
                .map(|path| path.name().to_owned())
                .collect(),
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            full: self.full,
            wide: self.wide,
            targets: self.targets,
            only: self.only.clone(),
            stacks: self.stacks.clone(),
            given: self.given(),
        }
    }

    fn given(&self) -> Given {
        Given {
            link_rate: self.link_rate,
            slide: self.slide.clone().map(|file| GivenSlide {
                file,
                decoded_in: self.decoded_in,
            }),
        }
    }

    /// The machines to measure between, where the user names some.
    fn hosts(&self) -> Option<Hosts> {
        (!self.hosts.is_empty()).then(|| Hosts {
            named: self.hosts.clone(),
            shell: self.rsh.split_whitespace().map(str::to_owned).collect(),
            weft: self.weft.clone().unwrap_or_else(|| "weft".into()),
        })
    }

    fn paths(&self) -> Vec<PathKind> {
        if !self.paths.is_empty() {
            return self.paths.clone();
        }
        if !self.hosts.is_empty() {
            return vec![PathKind::Hosts];
        }
        // A row's whole name has its path in it.
        let named = self.only.iter().filter_map(|name| {
            let (path, _) = name.split_once('/')?;
            PathKind::from_name(path)
        });
        let mut paths = vec![PathKind::Loopback, PathKind::Veth];
        named.for_each(|path| {
            if !paths.contains(&path) {
                paths.push(path);
            }
        });
        paths
    }
}

fn parse_cores(text: &str) -> Result<(usize, usize), String> {
    let parse = |word: &str| word.trim().parse::<usize>().ok();
    text.split_once(',')
        .and_then(|(server, client)| Some((parse(server)?, parse(client)?)))
        .ok_or_else(|| "two core numbers with a comma between them, such as 0,1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["bench"], words].concat()).map(|line| line.bench)
    }

    #[test]
    fn repetitions_follow_the_plan_unless_given() {
        let n = |words: &[&str]| parse(words).unwrap().measure.options().repetitions;
        assert_eq!(
            [
                n(&[]),
                n(&["--quick"]),
                n(&["--full"]),
                n(&["--full", "-n", "3"])
            ],
            [5, 1, 10, 3]
        );
        assert!(parse(&["--quick", "--full"]).is_err());
        assert!(parse(&["-n", "0"]).is_err());
    }

    #[test]
    fn pairs_replace_repetitions_where_two_builds_are_compared() {
        let options = |words: &[&str]| parse(words).unwrap().measure.options();
        let usual = options(&["--beside", "old"]);
        assert_eq!((usual.repetitions, usual.precision), (30, Some(0.02)));
        let own = options(&["--beside", "old", "--pairs", "8", "--until", "0.5%"]);
        assert_eq!((own.repetitions, own.precision), (8, Some(0.005)));
        assert_eq!(options(&[]).precision, None);
        for words in [
            &["--beside", "old", "-n", "3"][..],
            &["--beside", "old", "--quick"],
            &["--pairs", "8"],
            &["--until", "2%"],
            &["--beside", "old", "--until", "0"],
            &["--beside", "old", "--pairs", "0"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn cores_are_two_numbers() {
        assert_eq!(parse_cores("2, 3"), Ok((2, 3)));
        assert!(parse_cores("2").is_err());
    }

    #[test]
    fn a_report_takes_no_measuring_options() {
        assert!(parse(&["report", "a.json"]).is_ok());
        assert!(parse(&["--quick", "report", "a.json"]).is_err());
        assert!(parse(&["report"]).is_err());
    }
}
