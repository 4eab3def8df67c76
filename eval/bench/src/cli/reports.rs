//! `weft bench report`, `compare` and `list`: what is printed of records, and of the plan.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure, Context, Result};
use clap::Parser;

use super::teller::print;
use super::Measure;
use crate::plan::{self, Selection};
use crate::record::Run;
use crate::report::{self, changes, csv, html, picture, Format};
use crate::{environment, path, stack, targets};

#[derive(Parser, Clone, Debug)]
pub(super) struct Report {
    /// Raw JSON of earlier runs
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How to draw it
    #[arg(long, value_enum, default_value_t = Style::Table)]
    format: Style,
    /// Only the table of targets
    #[arg(long)]
    targets: bool,
    /// Only rows whose name contains PATTERN; may be given several times
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Write it there instead of printing it
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Parser, Clone, Debug)]
pub(super) struct Compare {
    /// Raw JSON of the run that others are compared with, then of those
    #[arg(required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// How to draw it
    #[arg(long, value_enum, default_value_t = Style::Table)]
    format: Style,
}

/// How a report is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Style {
    /// As wide as the terminal, and with every column where there is none
    Table,
    /// For a document
    Markdown,
    /// Every figure on a line of its own, for other programs
    Csv,
    /// One page with pictures that needs nothing else
    Html,
    /// One picture of all rows, for a document
    Svg,
}

impl Style {
    /// Of what is drawn as text.
    pub(super) fn format(self) -> Format {
        match self {
            Style::Table => Format::Table {
                width: terminal_width(),
            },
            Style::Markdown | Style::Csv | Style::Html | Style::Svg => Format::Markdown,
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

pub(super) fn print_reports(args: &Report) -> Result<ExitCode> {
    let mut runs = read(&args.files)?;
    for run in runs.iter_mut().filter(|_| !args.only.is_empty()) {
        run.rows
            .retain(|row| args.only.iter().any(|pattern| row.id.contains(pattern)));
        ensure!(
            !run.rows.is_empty(),
            "no row of the run of {} has such a name: without --only it shows which there are",
            run.started
        );
    }
    let text = match args.format {
        Style::Html => html::page(&named(&args.files, &runs)),
        Style::Csv => csv::all(&runs),
        Style::Svg => {
            let [run] = &runs[..] else {
                bail!("a picture is of one run: give one file");
            };
            ensure!(
                run.builds.is_empty(),
                "a picture is of rows with a reference, and a run of two builds has none: draw it as html"
            );
            picture::of(run)
        }
        style => {
            let drawn = runs
                .iter()
                .map(|run| render(run, style.format(), args.targets));
            drawn.collect()
        }
    };
    match &args.output {
        Some(file) => std::fs::write(file, text)
            .with_context(|| format!("cannot write {}", file.display()))?,
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit status says whether any row of the last run is worse than in the first.
pub(super) fn compare(args: &Compare) -> Result<ExitCode> {
    ensure!(
        matches!(args.format, Style::Table | Style::Markdown),
        "a comparison is drawn as table or markdown"
    );
    let runs = read(&args.files)?;
    let (first, others) = runs.split_first().context("there is nothing to compare")?;
    let mut worse = false;
    for (run, file) in others.iter().zip(&args.files[1..]) {
        let changes = changes::between(first, run);
        let title = format!("{} beside {}", shown(file), shown(&args.files[0]));
        print(&changes::table(&changes, &title, args.format.format()))?;
        worse |= changes.iter().any(|c| c.verdict == changes::Verdict::Worse);
    }
    Ok(ExitCode::from(u8::from(worse)))
}

/// Writes the page of a run beside its record.
pub(super) fn html_beside(run: &Run, file: &Path) -> Result<PathBuf> {
    let page = file.with_extension("html");
    let text = html::page(&[(shown(file), run)]);
    std::fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

fn read(files: &[PathBuf]) -> Result<Vec<Run>> {
    files.iter().map(|file| Run::read(file)).collect()
}

fn named<'r>(files: &[PathBuf], runs: &'r [Run]) -> Vec<(String, &'r Run)> {
    files.iter().map(|file| shown(file)).zip(runs).collect()
}

/// A file without the folders of this machine.
fn shown(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

pub(super) fn print_environment() -> Result<ExitCode> {
    let told =
        serde_json::json!({ "environment": environment::read(), "sysctls": path::sysctls() });
    print(&format!("{told}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The report of one run as text.
pub(super) fn render(run: &Run, format: Format, targets: bool) -> String {
    if targets {
        report::only_targets(run, format)
    } else {
        report::full(run, format)
    }
}

pub(super) fn list(args: &Measure, prefix: &[OsString]) -> Result<ExitCode> {
    let stacks = stack::all(&super::programs(args, prefix, Path::new(""))?);
    let mut text = String::new();
    for path in args.paths() {
        let wide = plan::workloads(path, false, &args.given());
        let selection = Selection {
            full: true,
            ..args.selection()
        };
        for row in plan::groups(path, &stacks, &selection).iter().flatten() {
            let names: Vec<String> = row.stacks.iter().map(|&i| stacks[i].name()).collect();
            let id = row.workload.id();
            let is_wide = wide.iter().any(|workload| workload.id() == id);
            let when = match (plan::is_telling(row), targets::needs(&id), is_wide) {
                _ if row.workload.on_request() => "--only",
                (.., false) => "--full",
                (true, ..) => "default",
                (_, true, _) => "--targets",
                _ => "--wide",
            };
            text += &format!("{:<34} {when:<9} {}\n", row.id(), names.join(", "));
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
