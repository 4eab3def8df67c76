//! `weft bench`: measuring, and keeping what was measured.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use jiff::Timestamp;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::reports::{html_beside, render, Style};
use super::teller::{print, Teller};
use super::{slide, two_builds, Measure};
use crate::environment;
use crate::exec::{Executor, Processes};
use crate::path::{OpenPath, PathKind, Place};
use crate::plan::{self, Group};
use crate::record::{make_folder, Environment, Options, RowRecord, Run, SCHEMA, VERSION};
use crate::runner::Runner;
use crate::sample::Progress;
use crate::stack::{self, Stack};

/// Exit status of a run that a signal ended: what a shell gives for SIGINT.
const INTERRUPTED: u8 = 130;

/// Measures what the arguments ask for, or goes on with a run that was ended.
pub(super) fn measure(args: &Measure, prefix: &[OsString]) -> Result<ExitCode> {
    not_one_of_several(|name| std::env::var(name).ok())?;
    let (mut args, mut keeper) = match &args.resume {
        Some(file) => resumed(args, file)?,
        None => {
            make_folder(&args.output)?;
            (args.clone(), Keeper::new(args.options(), &args.output))
        }
    };
    let (begun, is_begun) = (keeper.run.slide.take(), args.resume.is_some());
    keeper.run.slide = slide::read(&mut args, begun.as_ref(), is_begun)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone())
            .context("cannot handle signals")?;
    }
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let programs = super::programs(&args, prefix, scratch.path())?;
    let executor = Processes::new(interrupted.clone());
    let mut teller = Teller::new(interrupted.clone());

    match &args.two_builds.beside {
        Some(path) => {
            two_builds::measure(&args, path, &programs, executor, &mut keeper, &mut teller)?;
        }
        None => {
            let stacks = stack::all(&programs);
            let options = &keeper.run.options;
            let mut runner = Runner::new(executor, &stacks, options.repetitions, args.seconds);
            runner.sampler.before = keeper.before()?;
            measure_paths(
                &args,
                &programs.weft.command,
                &stacks,
                &mut runner,
                &mut keeper,
                &mut teller,
            )?;
        }
    }
    teller.end();
    keeper.run.interrupted = interrupted.load(Ordering::Relaxed);
    finish(&keeper, &args)
}

/// Launchers of jobs tell how many processes they have started; those that tell it of the whole job tell it of a single
/// process in it, too, and are not asked.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// An error where a launcher has started several of this: they would measure beside each other, and none between two.
fn not_one_of_several(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    let sizes = SIZES
        .iter()
        .filter_map(|name| variable(name)?.parse::<u32>().ok());
    let size = sizes.max().unwrap_or(1);
    ensure!(
        size == 1,
        "{size} of weft bench were started together: start one, and say where the others are to be: weft bench --hosts \
         a,b --rsh 'mpirun --bind-to none -n 1 --host', or --rsh 'srun --overlap -N 1 -n 1 -w'"
    );
    Ok(())
}

/// Raw data first: only when it is on disk is anything computed from it.
fn finish(keeper: &Keeper, args: &Measure) -> Result<ExitCode> {
    keeper.write()?;
    let run = &keeper.run;
    let report = render(run, Style::Table.format(), args.targets);
    let html = html_beside(run, &keeper.file)?;
    let file = keeper.file.display();
    let mut text = format!(
        "{report}\nRaw data: {file}\nWith pictures: {}\n",
        html.display()
    );
    if run.interrupted && run.builds.is_empty() {
        text += &format!("To go on: weft bench --resume {file}\n");
    }
    print(&text)?;
    Ok(match run.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false => two_builds::status(run),
    })
}

/// A record that is on disk again and again while it grows: what a machine that stops in the middle leaves.
pub(super) struct Keeper {
    /// What there is so far; *interrupted* until all is there.
    pub(super) run: Run,
    file: PathBuf,
    /// Rows that an earlier part of the run has begun.
    earlier: Vec<RowRecord>,
}

impl Keeper {
    fn new(options: Options, folder: &Path) -> Keeper {
        let started = second(Timestamp::now());
        let run = Run {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            finished: started.clone(),
            started,
            interrupted: true,
            options,
            builds: Vec::new(),
            slide: None,
            environment: environment::read(),
            paths: Vec::new(),
            rows: Vec::new(),
        };
        Keeper {
            file: folder.join(run.file_name()),
            run,
            earlier: Vec::new(),
        }
    }

    /// Seconds that have passed since the run began.
    fn before(&self) -> Result<f64> {
        let started: Timestamp = self.run.started.parse().context("the record's start")?;
        let since = Timestamp::now().duration_since(started).as_secs_f64();
        Ok(if self.earlier.is_empty() {
            0.0
        } else {
            since.max(0.0)
        })
    }

    fn write(&self) -> Result<()> {
        let mut run = self.run.clone();
        run.finished = second(Timestamp::now());
        run.write_to(&self.file)
    }
}

/// What an earlier run asked for, and what it has.
fn resumed(args: &Measure, file: &Path) -> Result<(Measure, Keeper)> {
    let name = file.display();
    let mut run = Run::read(file)?;
    ensure!(
        run.builds.is_empty(),
        "{name} compares two builds, and such a run cannot be gone on with: begin a new one"
    );
    let here = environment::read();
    if let Some(difference) = differs(&run.environment, &here) {
        bail!(
            "{name} cannot be gone on with here, as its rows would be of two things: {difference}"
        );
    }
    let options = &run.options;
    let paths: Option<Vec<PathKind>> = options
        .paths
        .iter()
        .map(|p| PathKind::from_name(p))
        .collect();
    let (Some(paths), Some(seconds)) = (paths, options.cell_seconds) else {
        bail!(
            "{name} was written by another runner than weft bench, which alone can go on with it"
        );
    };
    let args = Measure {
        quick: false,
        full: options.full,
        wide: options.wide,
        targets: options.targets,
        repetitions: Some(options.repetitions),
        seconds,
        only: options.only.clone(),
        stacks: options.stacks.clone(),
        paths,
        cores: options.cores.unwrap_or(args.cores),
        ..args.clone()
    };
    run.interrupted = true;
    run.paths.clear();
    let earlier = std::mem::take(&mut run.rows);
    let keeper = Keeper {
        run,
        file: file.to_owned(),
        earlier,
    };
    Ok((args, keeper))
}

/// What samples of two machines or builds must not be mixed for.
fn differs(then: &Environment, now: &Environment) -> Option<String> {
    let of = |e: &Environment| {
        [
            ("kernel", e.kernel.clone()),
            ("CPU", e.cpu.clone()),
            ("cores", e.cores.to_string()),
            ("revision", e.revision.clone().unwrap_or_default()),
            (
                "build",
                if e.optimised {
                    "optimised"
                } else {
                    "not optimised"
                }
                .to_owned(),
            ),
        ]
    };
    let pairs = of(then).into_iter().zip(of(now));
    pairs
        .filter(|(then, now)| then != now)
        .map(|((what, then), (_, now))| format!("the {what} was {then:?} and is {now:?}"))
        .next()
}

/// Runs the groups of one path after another, however it does that.
pub(super) trait Groups {
    /// About how long they will take.
    fn expected(&self, groups: &[Group]) -> Duration;
    /// Runs those of one path, and tells all rows so far after each.
    fn run(
        &mut self,
        groups: &[Group],
        place: &Place,
        earlier: &[RowRecord],
        progress: Progress,
        keep: &mut dyn FnMut(&[RowRecord]),
    ) -> Vec<RowRecord>;
}

impl<E: Executor> Groups for Runner<'_, E> {
    fn expected(&self, groups: &[Group]) -> Duration {
        Runner::expected(self, groups)
    }
    fn run(
        &mut self,
        groups: &[Group],
        place: &Place,
        earlier: &[RowRecord],
        progress: Progress,
        keep: &mut dyn FnMut(&[RowRecord]),
    ) -> Vec<RowRecord> {
        Runner::run(self, groups, place, earlier, progress, keep)
    }
}

/// Measures the rows of every path into the record of `keeper`.
pub(super) fn measure_paths(
    args: &Measure,
    weft: &Path,
    stacks: &[Box<dyn Stack>],
    runner: &mut dyn Groups,
    keeper: &mut Keeper,
    teller: &mut Teller,
) -> Result<()> {
    let selection = args.selection();
    let plans: Vec<_> = args
        .paths()
        .into_iter()
        .map(|path| (path, plan::groups(path, stacks, &selection)))
        .filter(|(_, groups)| !groups.is_empty())
        .collect();
    ensure!(
        !plans.is_empty(),
        "no row matches (`weft bench list` names them)"
    );
    let expected: Duration = plans
        .iter()
        .map(|(_, groups)| runner.expected(groups))
        .sum();
    let bound = match args.two_builds.beside {
        Some(_) => "At most",
        None => "About",
    };
    teller.say(&format!(
        "{bound} {} minutes. Ctrl-C ends it early and keeps what was measured.",
        expected.as_secs().div_ceil(60)
    ));
    teller.begin(expected);
    let hosts = args.hosts();
    for (kind, groups) in plans {
        match kind.open(keeper.run.options.cores, weft, hosts.as_ref()) {
            Ok(open) => measure_path(open, &groups, runner, keeper, teller),
            // Whoever names machines wants those and no others.
            Err(error) if kind == PathKind::Hosts => return Err(error),
            Err(error) => {
                teller.say(&format!("path {} skipped: {error:#}", kind.name()));
                keeper.run.paths.push(kind.skipped(format!("{error:#}")));
            }
        }
    }
    Ok(())
}

fn measure_path(
    open: OpenPath,
    groups: &[Group],
    runner: &mut dyn Groups,
    keeper: &mut Keeper,
    teller: &Teller,
) {
    keeper.run.paths.push(open.record.clone());
    let before = keeper.run.rows.clone();
    let earlier = keeper.earlier.clone();
    let rows = runner.run(
        groups,
        &open.place,
        &earlier,
        &mut |told| teller.told(told),
        &mut |rows| {
            keeper.run.rows = [&before[..], rows].concat();
            if let Err(error) = keeper.write() {
                teller.say(&format!("{error:#}; it is tried again after the next rows"));
            }
        },
    );
    keeper.run.rows = [before, rows].concat();
    if let Some(path) = keeper.run.paths.last_mut() {
        *path = open.close();
    }
}

/// RFC 3339 in whole seconds.
fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_that_a_launcher_has_started_several_of_says_how_to_start_one() {
        let of = |size: &'static str| {
            not_one_of_several(move |name| (name == "PMI_SIZE").then(|| size.to_owned()))
        };
        assert!(of("1").is_ok() && of("none").is_ok());
        let why = of("4").unwrap_err().to_string();
        assert!(
            why.contains("4 of weft bench") && why.contains("--hosts"),
            "{why}"
        );
        assert!(not_one_of_several(|_| None).is_ok());
    }

    #[test]
    fn a_run_is_not_gone_on_with_on_another_machine_or_build() {
        let then = Environment {
            revision: Some("one".to_owned()),
            ..Environment::default()
        };
        let load = Environment {
            load: vec![9.0],
            ..then.clone()
        };
        assert_eq!(differs(&then, &load), None);
        let now = Environment {
            revision: Some("two".to_owned()),
            ..then.clone()
        };
        assert_eq!(
            differs(&then, &now).unwrap(),
            "the revision was \"one\" and is \"two\""
        );
    }
}
