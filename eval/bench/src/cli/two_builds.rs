//! `weft bench --beside PATH`: a second build of Weft measured in turn with this one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::measuring::{measure_paths, Groups, Keeper};
use super::teller::{say, Teller};
use super::Measure;
use crate::beside::{Beside, Counting};
use crate::build::Build;
use crate::comparison::{comparisons, is_worse};
use crate::exec::Executor;
use crate::pairs::{Estimate, Interval, Rule, MOST_PAIRS};
use crate::path::Place;
use crate::plan::Group;
use crate::record::{RowRecord, Run};
use crate::sample::{Progress, Sampler};
use crate::stack::{self, Programs};

/// Exit status where a row is slower, or gave no figure.
const WORSE: u8 = 1;

/// What is said of a second build.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TwoBuilds {
    /// Measure the build of Weft at PATH in turn with this one, pair by pair, and nothing else: before and after in
    /// one run. PATH is its folder (target/release), the prefix it is installed under, its `weft`, or a folder with
    /// its libweft.so. The exit status is 1 when a row is slower
    #[arg(long, value_name = "PATH")]
    pub(super) beside: Option<PathBuf>,
    /// Pairs of a row at most, with --beside
    #[arg(long, value_name = "N", requires = "beside", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PAIRS)))]
    pub(super) pairs: u32,
    /// Pairs of a row go on until the 95 % interval of the ratio is within this much of it, with --beside
    #[arg(long, value_name = "PERCENT", requires = "beside", default_value = "2%", value_parser = parse_percent)]
    until: f64,
    /// Rows that have the instructions of a message counted as well (with callgrind), with --beside
    #[arg(
        long,
        value_enum,
        value_name = "ROWS",
        requires = "beside",
        default_value = "undecided"
    )]
    instructions: Counting,
}

impl TwoBuilds {
    /// The precision as a part of one; none where there is no second build.
    pub(super) fn precision(&self) -> Option<f64> {
        self.beside.as_ref().map(|_| self.until)
    }
}

/// Measures this build and the one at `path` in turn.
pub(super) fn measure<E: Executor>(
    args: &Measure,
    path: &Path,
    programs: &Programs,
    executor: E,
    keeper: &mut Keeper,
    teller: &mut Teller,
) -> Result<()> {
    let this = Build::this(&programs.weft.command, args.weft.as_deref())?;
    let beside = Build::beside(path, &programs.weft.command)?;
    if this.is(&beside)? {
        teller.say(
            "Both builds are the same one: what the ratios show is the noise of this machine.",
        );
    }
    let [own, other] = [&this, &beside].map(|b| stack::of_weft(&b.programs(&programs.scratch)));
    let mut runner = Beside {
        sampler: Sampler::new(executor, args.seconds),
        builds: [&own, &other],
        rule: Rule {
            most: args.two_builds.pairs,
            precision: args.two_builds.until,
        },
        counting: args.two_builds.instructions,
    };
    keeper.run.builds = vec![this.record, beside.record];
    measure_paths(
        args,
        &programs.weft.command,
        &own,
        &mut runner,
        keeper,
        teller,
    )
}

impl<E: Executor> Groups for Beside<'_, E> {
    fn expected(&self, groups: &[Group]) -> Duration {
        Beside::expected(self, groups)
    }
    /// Such a run is not gone on with, so there are no rows of an earlier part.
    fn run(
        &mut self,
        groups: &[Group],
        place: &Place,
        _earlier: &[RowRecord],
        progress: Progress,
        keep: &mut dyn FnMut(&[RowRecord]),
    ) -> Vec<RowRecord> {
        Beside::run(self, groups, place, progress, keep)
    }
}

/// The exit status of a run that was not interrupted; says on standard error why it is not zero.
pub(super) fn status(run: &Run) -> ExitCode {
    let compared = comparisons(run);
    let worse: Vec<_> = compared
        .iter()
        .filter(|row| is_worse(row.verdict))
        .collect();
    for row in &worse {
        let what = match row.estimate {
            Some(Estimate {
                ratio,
                interval: Some(Interval { low, high }),
            }) => format!("slower than the build beside it: {ratio:.3} ({low:.3} to {high:.3})"),
            _ => "there is no pair with a figure of both builds".to_owned(),
        };
        say(&format!("{} {}: {what}", row.row.id, row.this.stack));
    }
    match worse.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(WORSE),
    }
}

/// `2%`, `2 %` or `2`, as a part of one.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("a percentage above 0 and below 100, such as 2%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(parse_percent("2%"), Ok(0.02));
        assert_eq!(parse_percent(" 0.5 % "), Ok(0.005));
        for wrong in ["0", "100%", "-1%", "two", "", "nan", "2%%x"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }
}
