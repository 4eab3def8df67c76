//! Tables for people, made from a record and nothing else.

mod beside;
pub mod changes;
pub mod csv;
mod details;
mod environment;
pub mod html;
mod losing;
pub mod picture;
mod pieces;
mod plot;
mod table;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::cost::{self, Cost};
use crate::metric::Metric;
use crate::record::{CellRecord, LinkRecord, RowRecord, Run};
use crate::summary::{self, CellSummary, Ratio, RowSummary, Standing};
use table::{wrapped, Column, Table};

/// How a report is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For reading as it is.
    Table {
        /// Columns of the terminal; what does not fit is left out or goes on the next line. Without one there is room
        /// for all.
        width: Option<usize>,
    },
    /// For a document.
    Markdown,
}

/// Environment, rows and targets.
pub fn full(run: &Run, format: Format) -> String {
    let mut text = environment::lines(run, format) + &losing::table(run, format);
    for path in &run.paths {
        let reason = path
            .skipped
            .as_deref()
            .map(|r| format!(": SKIPPED, {r}"))
            .unwrap_or_default();
        let mtu = path
            .mtu
            .map(|mtu| format!(", MTU {mtu}"))
            .unwrap_or_default();
        let links: String = path.links.iter().map(link).collect();
        let title = format!(
            "Path {}: {}{mtu}{links}{reason}",
            path.name, path.description
        );
        text += &heading(&title, format);
        if run.rows.iter().any(|row| row.path == path.name) {
            text += &match run.builds.is_empty() {
                true => {
                    rows(run, &path.name, format)
                        + &details::table(run, &path.name, format)
                        + &pieces::table(run, &path.name, format)
                }
                false => beside::rows(run, &path.name, format),
            };
        }
    }
    text + &legend(run, format)
        + &skipped(run, format)
        + &failures(run, format)
        + &standing_of(run, format)
}

/// The settings of an emulated link, and whether it kept up: else the figures are its own.
fn link(link: &LinkRecord) -> String {
    let own = link.settings.iter().filter(|(name, _)| *name != "mtu");
    own.map(|(name, value)| format!(", {name} {value}"))
        .collect()
}

/// What the columns say; nothing for two builds, whose table has words of its own.
fn legend(run: &Run, format: Format) -> String {
    if !run.builds.is_empty() || run.rows.is_empty() {
        return String::new();
    }
    let lines = [
        "ratio: of medians, to the row's reference. wins, LOSES: the whole 95 % interval (bootstrap over the \
         repetitions) is on one side of 1; open: too few repetitions for an interval, and in brackets the least and \
         the greatest.",
        "noise: what two measurements of one stack under two names differ by on the row.",
        "CPU µs/op: of all programs with their children, user and kernel, for an operation. disturbed: samples during \
         which others were on the cores.",
    ];
    heading("How to read it", format) + &list(lines.map(str::to_owned), format)
}

/// Only the targets, and what went wrong. Of a run of two builds, which has none of what targets are held against, how
/// one stands to the other.
pub fn only_targets(run: &Run, format: Format) -> String {
    let tables = match run.builds.is_empty() {
        true => String::new(),
        false => beside::tables(run, format),
    };
    let standing = match standing_of(run, format) {
        none if none.is_empty() => heading("No row of this record has a target", format),
        standing => standing,
    };
    tables + &skipped(run, format) + &failures(run, format) + &standing
}

fn standing_of(run: &Run, format: Format) -> String {
    match run.builds.is_empty() {
        true => targets::table(run, format),
        false => beside::conclusion(run, format),
    }
}

fn rows(run: &Run, path: &str, format: Format) -> String {
    let mut table = Table::new(&[
        Column::title("workload"),
        Column::words("stack"),
        Column::number("median"),
        Column::number("±").spared(3),
        Column::number("min to max").spared(4),
        Column::number("p99").spared(1),
        Column::number("n").spared(5),
        Column::number("ratio"),
        Column::number("95 % interval").spared(2),
        Column::number("CPU µs/op").spared(6),
        Column::words(""),
    ]);
    for record in run.rows.iter().filter(|row| row.path == path) {
        let row = summary::row(record);
        let noise = row.noise.map_or(String::new(), |noise| {
            format!("; noise {:.1} %", noise * 100.0)
        });
        let title = format!(
            "{} ({}{noise})",
            record.workload.describe(),
            row.metric.unit
        );
        for (i, cell) in row.cells.iter().enumerate() {
            // A document's column has it once.
            let again = i > 0 && format == Format::Markdown;
            let mut words = vec![if again { String::new() } else { title.clone() }];
            let cost = cost::of(record, &record.cells[i], run.options.cell_seconds);
            words.extend(cell_words(&row, cell, cost));
            table.add(words);
        }
    }
    table.draw(format)
}

fn cell_words(row: &RowSummary, cell: &CellSummary, cost: Option<Cost>) -> [String; 10] {
    let [ratio, spread, standing] = match (&cell.ratio, row.reference.as_ref() == Some(&cell.stack))
    {
        (Some(r), _) => [
            format!("{:.2}", r.of_medians),
            interval(r),
            standing(r, row, cell),
        ],
        (None, true) => ["1".to_owned(), String::new(), "reference".to_owned()],
        (None, false) => ["-", "-", ""].map(str::to_owned),
    };
    let remark = match (&cell.skipped, cell.failures) {
        (Some(_), _) => "skipped".to_owned(),
        (None, 0) => standing,
        (None, n) => format!("{standing} {n} FAILED").trim().to_owned(),
    };
    let remark = match cell.disturbed {
        0 => remark,
        n => format!("{remark} ({n} disturbed)").trim().to_owned(),
    };
    let cpu = cost.and_then(|cost| cost.total.per_operation_us);
    let [median, mad, range, n] = match &cell.estimate {
        Some(e) if e.n == 1 => [
            number(e.median),
            String::new(),
            String::new(),
            "1".to_owned(),
        ],
        Some(e) => [
            number(e.median),
            number(e.mad),
            format!("{} to {}", number(e.min), number(e.max)),
            e.n.to_string(),
        ],
        None => ["-", "-", "-", "0"].map(str::to_owned),
    };
    let p99 = cell.p99.map_or("-".to_owned(), number);
    [
        cell.stack.clone(),
        median,
        mad,
        range,
        p99,
        n,
        ratio,
        spread,
        cpu.map_or(String::new(), |us| format!("{us:.2}")),
        remark,
    ]
}

/// Why cells are empty, each reason once.
fn skipped(run: &Run, format: Format) -> String {
    let cells = run.rows.iter().flat_map(|row| &row.cells);
    let reasons: BTreeSet<String> = cells
        .filter_map(|cell| Some(format!("{}: {}", cell.label(), cell.skipped.as_ref()?)))
        .collect();
    if reasons.is_empty() {
        return String::new();
    }
    heading("Skipped", format) + &list(reasons, format)
}

fn list(lines: impl IntoIterator<Item = String>, format: Format) -> String {
    lines
        .into_iter()
        .map(|line| match format {
            Format::Markdown => format!("- {line}\n"),
            Format::Table { width } => wrapped(&format!("  {line}"), "    ", width) + "\n",
        })
        .collect()
}

/// What failed, once per stack and reason, with the last lines of the programs the first time it
/// happened.
fn failures(run: &Run, format: Format) -> String {
    let mut alike: BTreeMap<(String, &str), Vec<(&RowRecord, &CellRecord)>> = BTreeMap::new();
    for row in &run.rows {
        for cell in &row.cells {
            if let Some(failure) = cell.failures().next() {
                let same = alike.entry((cell.label(), &failure.reason)).or_default();
                same.push((row, cell));
            }
        }
    }
    let mut text = String::new();
    for ((stack, reason), cells) in alike {
        let rows: Vec<&str> = cells.iter().map(|(row, _)| row.id.as_str()).collect();
        let _ = writeln!(text, "{stack}: {reason} ({})", rows.join(", "));
        let (_, cell) = cells[0];
        let tail = cell
            .failures()
            .next()
            .map_or(&[][..], |failure| &failure.tail);
        let commands = cell.commands.iter().map(|c| format!("$ {}", c.command));
        for line in commands.chain(tail.iter().cloned()) {
            let _ = writeln!(text, "    {line}");
        }
    }
    match (text.is_empty(), format) {
        (true, _) => String::new(),
        (false, Format::Table { .. }) => heading("Failures", format) + &text,
        (false, Format::Markdown) => format!("{}```text\n{text}```\n", heading("Failures", format)),
    }
}

/// A part of one in per cent, without the noise of binary fractions.
fn percent(part: f64) -> f64 {
    (part * 1e6).round() / 1e4
}

fn heading(title: &str, format: Format) -> String {
    match format {
        Format::Table { width } => format!("\n{}\n", wrapped(title, "  ", width)),
        Format::Markdown => format!("\n### {title}\n\n"),
    }
}

fn standing(ratio: &Ratio, row: &RowSummary, cell: &CellSummary) -> String {
    if cell.again.is_some() {
        return "noise".to_owned();
    }
    let standing = ratio.standing(row.metric.better);
    let word = standing.to_string();
    match ratio.is_within(row.noise) {
        true if standing != Standing::Open => format!("{} within noise", word.to_lowercase()),
        _ => word,
    }
}

/// The interval, or in brackets the least and the greatest ratio where there are too few repetitions for one.
fn interval(ratio: &Ratio) -> String {
    match ratio.interval {
        Some(i) => format!("{:.2} to {:.2}", i.low, i.high),
        None if ratio.min == ratio.max => String::new(),
        None => format!("({})", spread(ratio)),
    }
}

/// Empty for a single repetition.
fn spread(ratio: &Ratio) -> String {
    if ratio.min == ratio.max {
        return String::new();
    }
    format!("{:.2} to {:.2}", ratio.min, ratio.max)
}

fn with_unit(value: f64, metric: Metric) -> String {
    format!("{} {}", number(value), metric.unit)
}

/// Three significant digits or more; thousands grouped.
fn number(value: f64) -> String {
    match value {
        v if v >= 10_000.0 => grouped(v.round() as u64),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn grouped(value: u64) -> String {
    match value {
        0..=999 => value.to_string(),
        _ => format!("{} {:03}", grouped(value / 1000), value % 1000),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{
        CommandRecord, Environment, Options, PathRecord, RowRecord, SCHEMA, VERSION,
    };
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::Verbs;

    pub(crate) fn run_of(rows: Vec<RowRecord>) -> Run {
        let path = |name: &str, skipped: Option<&str>| PathRecord {
            name: name.to_owned(),
            description: "a path".to_owned(),
            mtu: Some(1500),
            sysctls: Default::default(),
            skipped: skipped.map(str::to_owned),
            hosts: vec![],
            links: vec![],
        };
        Run {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            started: "2026-01-02T03:04:05Z".to_owned(),
            finished: "2026-01-02T03:05:05Z".to_owned(),
            interrupted: false,
            options: Options {
                repetitions: 1,
                precision: None,
                cell_seconds: Some(1),
                cores: Some((0, 1)),
                only: vec![],
                stacks: vec![],
                full: false,
                wide: false,
                targets: false,
                paths: vec![],
            },
            builds: vec![],
            slide: None,
            environment: Environment::default(),
            paths: vec![
                path("loopback", None),
                path("veth", Some("no namespaces here")),
            ],
            rows,
        }
    }

    fn text() -> String {
        let mut broken = cell_of("weft crc=off", "connect_us", &[None]);
        broken.commands = vec![CommandRecord {
            role: "client".to_owned(),
            host: "here".to_owned(),
            core: None,
            command: "cm_connect 1".to_owned(),
        }];
        let cells = vec![
            cell_of("raw-tcp", "connect_us", &[Some(10.0); 6]),
            cell_of("weft crc=on", "connect_us", &[Some(40.0); 6]),
            broken,
        ];
        full(
            &run_of(vec![row_of("loopback", Verbs::Connect, cells)]),
            Format::Markdown,
        )
    }

    pub(crate) fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
        text.lines()
            .find(|l| words.iter().all(|w| l.contains(w)))
            .unwrap_or_else(|| panic!("no {words:?} in\n{text}"))
    }

    #[test]
    fn a_losing_cell_says_so() {
        let text = text();
        line(&text, &["| weft crc=on", "40.0", "LOSES"]);
        line(&text, &["| loopback/connect | weft crc=on", " 4.00 |"]);
        assert!(
            text.find("Where it loses") < text.find("Path loopback"),
            "{text}"
        );
        assert!(line(&text, &["rdma_connect", "weft crc=on"]).contains("FALLS SHORT"));
    }

    #[test]
    fn what_failed_and_what_was_skipped_shows() {
        let text = text();
        assert!(line(&text, &["| weft crc=off"]).contains("1 FAILED"));
        line(&text, &["weft crc=off: no (loopback/connect)"]);
        line(&text, &["    $ cm_connect 1"]);
        line(&text, &["Path veth", "SKIPPED, no namespaces here"]);
        line(&text, &["BUILT WITHOUT OPTIMISATION"]);
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(
            [3.456, 34.56, 345.6, 3456.0].map(number),
            ["3.46", "34.6", "346", "3456"]
        );
        assert_eq!(number(1_234_567.8), "1 234 568");
    }
}
