//! The command line of `weft bench`.

mod two_builds;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::{Parser, Subcommand};
use jiff::Timestamp;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exec::{Executor, Processes};
use crate::native::{self, NativeArgs};
use crate::path::{self, PathKind, Place};
use crate::plan::{self, Group, Selection};
use crate::raw::{self, RawArgs};
use crate::record::{make_folder, Options, PathRecord, RowRecord, Run, SCHEMA, VERSION};
use crate::report::{self, Format};
use crate::runner::Runner;
use crate::sample::Progress;
use crate::stack::{self, Programs, Stack, Weft};
use crate::{environment, targets};
use two_builds::TwoBuilds;

/// Exit status of a run that a signal ended: what a shell gives for SIGINT.
const INTERRUPTED: u8 = 130;

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
    /// Print the tables of earlier runs
    Report(Report),
    /// List rows, and the stacks that serve each
    List,
    /// Print what a record says of this machine and of the network it is asked in, for runners that write records
    #[command(hide = true)]
    Environment,
    #[command(hide = true)]
    Raw(RawArgs),
    #[command(hide = true)]
    Native(NativeArgs),
}

#[derive(clap::Args, Clone, Debug)]
struct Measure {
    /// Measure each cell once
    #[arg(long, conflicts_with_all = ["full", "repetitions", "beside"])]
    quick: bool,
    /// Every size and mode, ten repetitions
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
    /// Core of the servers and core of the clients
    #[arg(long, value_name = "SERVER,CLIENT", default_value = "0,1", value_parser = parse_cores)]
    cores: (usize, usize),
    /// Folder for the raw JSON
    #[arg(long, default_value = "out/bench", value_name = "FOLDER")]
    output: PathBuf,
    /// The weft command to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    weft: Option<PathBuf>,
    #[command(flatten)]
    two_builds: TwoBuilds,
}

#[derive(Parser, Clone, Debug)]
struct Report {
    /// Raw JSON of earlier runs
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How to draw it
    #[arg(long, value_enum, default_value_t = Style::Table)]
    format: Style,
    /// Only the table of targets
    #[arg(long)]
    targets: bool,
}

/// How a report is drawn.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Style {
    /// As wide as the terminal, and with every column where there is none
    Table,
    /// For a document
    Markdown,
}

impl Style {
    fn format(self) -> Format {
        match self {
            Style::Table => Format::Table {
                width: terminal_width(),
            },
            Style::Markdown => Format::Markdown,
        }
    }
}

/// Columns of the terminal that standard output is; nothing when it is none.
fn terminal_width() -> Option<usize> {
    // What a terminal has that does not know its size.
    const USUAL: usize = 80;
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(match usize::from(size.ws_col) {
        0 => USUAL,
        columns => columns,
    })
}

/// Runs `weft bench`.
pub fn run(args: Args) -> Result<ExitCode> {
    run_as(args, &["bench".into()])
}

/// Runs the bench in an executable in which `prefix` are the words before the bench's own.
pub fn run_as(args: Args, prefix: &[OsString]) -> Result<ExitCode> {
    match args.command {
        None => measure(&args.measure, prefix),
        Some(Command::Report(report)) => print_reports(&report),
        Some(Command::List) => list(&args.measure, prefix),
        Some(Command::Environment) => print_environment(),
        Some(Command::Raw(raw)) => raw::run(&raw).map(|()| ExitCode::SUCCESS),
        Some(Command::Native(native)) => native::run(&native).map(|()| ExitCode::SUCCESS),
    }
}

fn measure(args: &Measure, prefix: &[OsString]) -> Result<ExitCode> {
    make_folder(&args.output)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone())
            .context("cannot handle signals")?;
    }
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let programs = programs(args, prefix, scratch.path())?;
    let executor = Processes::new(interrupted.clone());
    let started = Timestamp::now();
    let options = args.options();
    let environment = environment::read();

    let (builds, (paths, rows)) = match &args.two_builds.beside {
        Some(path) => two_builds::measure(args, path, &options, &programs, executor)?,
        None => {
            let stacks = stack::all(&programs);
            let mut runner = Runner::new(executor, &stacks, options.repetitions, args.seconds);
            (
                Vec::new(),
                measure_paths(args, &options, &stacks, &mut runner)?,
            )
        }
    };
    let record = Run {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        started: second(started),
        finished: second(Timestamp::now()),
        interrupted: interrupted.load(Ordering::Relaxed),
        options,
        builds,
        environment,
        paths,
        rows,
    };
    finish(&record, args)
}

/// Raw data first: only when it is on disk is anything computed from it.
fn finish(record: &Run, args: &Measure) -> Result<ExitCode> {
    let file = record.write(&args.output)?;
    print!("{}", render(record, Style::Table.format(), args.targets));
    println!("\nRaw data: {}", file.display());
    Ok(match record.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false => two_builds::status(record),
    })
}

/// Runs the groups of one path after another, however it does that.
trait Groups {
    /// About how long they will take.
    fn expected(&self, groups: &[Group]) -> Duration;
    /// Runs those of one path.
    fn run(&mut self, groups: &[Group], place: &Place, progress: Progress) -> Vec<RowRecord>;
}

impl<E: Executor> Groups for Runner<'_, E> {
    fn expected(&self, groups: &[Group]) -> Duration {
        Runner::expected(self, groups)
    }
    fn run(&mut self, groups: &[Group], place: &Place, progress: Progress) -> Vec<RowRecord> {
        Runner::run(self, groups, place, progress)
    }
}

type Measured = (Vec<PathRecord>, Vec<RowRecord>);

fn measure_paths(
    args: &Measure,
    options: &Options,
    stacks: &[Box<dyn Stack>],
    runner: &mut dyn Groups,
) -> Result<Measured> {
    let selection = args.selection();
    let plans: Vec<_> = args
        .paths()
        .into_iter()
        .map(|path| (path, plan::groups(path, stacks, &selection)))
        .collect();
    let plans: Vec<_> = plans
        .into_iter()
        .filter(|(_, groups)| !groups.is_empty())
        .collect();
    ensure!(
        !plans.is_empty(),
        "no row matches (`weft bench list` names them)"
    );
    let expected: u64 = plans
        .iter()
        .map(|(_, groups)| runner.expected(groups).as_secs())
        .sum();
    let bound = match args.two_builds.beside {
        Some(_) => "At most",
        None => "About",
    };
    eprintln!(
        "{bound} {} minutes. Ctrl-C ends it early and keeps what was measured.",
        expected.div_ceil(60)
    );

    let (mut paths, mut rows) = (Vec::new(), Vec::new());
    for (kind, groups) in plans {
        match kind.open(options.cores) {
            Ok(open) => {
                rows.extend(runner.run(&groups, &open.place, &mut |line| eprintln!("{line}")));
                paths.push(open.record);
            }
            Err(error) => {
                eprintln!("path {} skipped: {error:#}", kind.name());
                paths.push(kind.skipped(format!("{error:#}")));
            }
        }
    }
    Ok((paths, rows))
}

fn print_reports(args: &Report) -> Result<ExitCode> {
    for file in &args.files {
        print!(
            "{}",
            render(&Run::read(file)?, args.format.format(), args.targets)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn print_environment() -> Result<ExitCode> {
    let told =
        serde_json::json!({ "environment": environment::read(), "sysctls": path::sysctls() });
    println!("{told}");
    Ok(ExitCode::SUCCESS)
}

fn render(run: &Run, format: Format, targets: bool) -> String {
    if targets {
        report::only_targets(run, format)
    } else {
        report::full(run, format)
    }
}

fn list(args: &Measure, prefix: &[OsString]) -> Result<ExitCode> {
    let stacks = stack::all(&programs(args, prefix, Path::new(""))?);
    for path in args.paths() {
        let selection = Selection {
            full: true,
            ..args.selection()
        };
        let default = plan::workloads(false);
        for row in plan::groups(path, &stacks, &selection).iter().flatten() {
            let names: Vec<String> = row.stacks.iter().map(|&i| stacks[i].name()).collect();
            let when = match (
                targets::needs(&row.workload),
                default.contains(&row.workload),
            ) {
                (true, _) => "target",
                (_, true) => "default",
                _ => "--full",
            };
            println!("{:<34} {when:<8} {}", row.id(), names.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn programs(args: &Measure, prefix: &[OsString], scratch: &Path) -> Result<Programs> {
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
            eprintln!("not pinned: {online} cores, and taskset has to be installed (Debian package util-linux)");
        }
        Options {
            repetitions: self.repetitions.unwrap_or(default),
            precision: self.two_builds.precision(),
            cell_seconds: Some(self.seconds),
            cores: possible.then_some(self.cores),
            only: self.only.clone(),
            stacks: self.stacks.clone(),
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            full: self.full,
            targets: self.targets,
            only: self.only.clone(),
            stacks: self.stacks.clone(),
        }
    }

    fn paths(&self) -> Vec<PathKind> {
        if self.paths.is_empty() {
            return vec![PathKind::Loopback, PathKind::Veth];
        }
        self.paths.clone()
    }
}

/// RFC 3339 in whole seconds.
fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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
