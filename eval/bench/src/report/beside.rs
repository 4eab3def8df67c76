//! Two builds of Weft beside each other: before and after.

use std::collections::BTreeSet;

use super::table::{Column, Table};
use super::{heading, list, number, percent, Format};
use crate::comparison::{comparisons, too_few, Comparison, Verdict, MOST_INSTRUCTIONS};
use crate::comparison::{is_worse, SLOWER_BELOW};
use crate::pairs::Estimate;
use crate::record::{BuildRecord, Options, Run};

/// A line that says which build it is.
pub(super) fn build(build: &BuildRecord) -> String {
    let revision = match &build.revision {
        Some(revision) => format!("in a tree at {revision}"),
        None => "of unknown revision".to_owned(),
    };
    let built = build.built.as_deref().unwrap_or("an unknown time");
    let path = match &build.path {
        Some(path) => format!(" ({path})"),
        None => String::new(),
    };
    let what = match &build.version {
        Some(version) => format!("weft {version}"),
        None => "libraries alone".to_owned(),
    };
    format!("{}{path}: {what}, {revision}, built {built}", build.name)
}

/// How often the cells were measured, of one build or of two.
pub(super) fn how_often(options: &Options) -> String {
    let (times, seconds) = (options.repetitions, options.cell_seconds);
    let what = if options.precision.is_some() {
        "each"
    } else {
        "a cell"
    };
    let each = seconds.map_or(String::new(), |seconds| format!(" of {seconds} s {what}"));
    match options.precision {
        None => format!("{times} repetitions{each}"),
        Some(precision) => format!(
            "pairs{each} until the 95 % interval is within {} % of the ratio, {times} at most",
            percent(precision)
        ),
    }
}

/// The tables of every path.
pub(super) fn tables(run: &Run, format: Format) -> String {
    let paths = run.paths.iter().filter(|path| path.skipped.is_none());
    let of_path = |name: &str| heading(&format!("Path {name}"), format) + &rows(run, name, format);
    paths.map(|path| of_path(&path.name)).collect()
}

/// The table of one path.
pub(super) fn rows(run: &Run, path: &str, format: Format) -> String {
    let mut table = Table::new(&[
        Column::title("workload"),
        Column::words("stack"),
        Column::number("this").spared(3),
        Column::number("beside").spared(3),
        Column::number("ratio"),
        Column::number("95 % interval"),
        Column::number("pairs").spared(1),
        Column::number("instructions").spared(2),
        Column::words("verdict"),
    ]);
    let compared = comparisons(run);
    let of_path = compared.iter().filter(|c| c.row.path == path);
    let measured = of_path.filter(|c| c.verdict != Verdict::Skipped);
    let mut above = "";
    for c in measured {
        let title = format!("{} ({})", c.row.workload.describe(), c.metric.unit);
        // A document's column has it once.
        let again = above == c.row.id && format == Format::Markdown;
        above = &c.row.id;
        let [this, beside] = c.medians.map(|m| m.map_or("-".to_owned(), number));
        table.add(vec![
            if again { String::new() } else { title },
            c.this.stack.clone(),
            this,
            beside,
            c.estimate
                .map_or("-".to_owned(), |e| format!("{:.3}", e.ratio)),
            interval(c.estimate),
            c.pairs.to_string(),
            instructions(c),
            words(c.verdict),
        ]);
    }
    table.draw(format)
}

/// What the columns say, why instructions are missing, and how many rows are what.
pub(super) fn conclusion(run: &Run, format: Format) -> String {
    let compared = comparisons(run);
    let precision = percent(run.options.precision.unwrap_or_default());
    let mut lines = vec![
        "ratio: this build over the one beside it, turned so that above 1 this build is the better one, for latencies \
         as for rates. It is taken within each pair; the figure is the Hodges-Lehmann estimate of the logarithms, the \
         interval Wilcoxon's signed-rank one. The other figures are medians."
            .to_owned(),
        format!(
            "no slower: the interval does not lie below {SLOWER_BELOW}, and it is within {precision} % of the ratio or \
             nowhere below {SLOWER_BELOW}. How much slower a row may still be is its lower end."
        ),
    ];
    if compared.iter().any(|c| c.instructions.is_some()) {
        lines.push(format!(
            "instructions: for a message with both ends, this build over the one beside it (callgrind, through the C \
             face); below 1 are fewer, {MOST_INSTRUCTIONS} is the bound."
        ));
    }
    let cells = compared.iter().flat_map(|c| [c.this, c.beside]);
    let reasons: BTreeSet<&String> = cells
        .filter_map(|cell| cell.instructions.as_ref()?.skipped.as_ref())
        .collect();
    lines.extend(
        reasons
            .into_iter()
            .map(|reason| format!("instructions not counted: {reason}")),
    );
    lines.push(counts(&compared));
    heading("This build and the one beside it", format) + &list(lines, format)
}

/// How many rows have which verdict, the bad ones by name.
fn counts(compared: &[Comparison]) -> String {
    let of = |wanted: &dyn Fn(Verdict) -> bool| {
        let found: Vec<&Comparison> = compared.iter().filter(|c| wanted(c.verdict)).collect();
        found
    };
    let no_slower = |v| matches!(v, Verdict::NoSlower | Verdict::NoMoreInstructions);
    let worse = of(&is_worse);
    let names: Vec<String> = worse
        .iter()
        .map(|c| format!("{} {} ({})", c.row.id, c.this.stack, words(c.verdict)))
        .collect();
    let named = match names.is_empty() {
        true => String::new(),
        false => format!(": {}", names.join(", ")),
    };
    let open = of(&|v| matches!(v, Verdict::TooWide | Verdict::TooFewPairs));
    let skipped = of(&|v| v == Verdict::Skipped);
    format!(
        "{} no slower, {} not decided, {} not compared, {} worse{named}",
        of(&no_slower).len(),
        open.len(),
        skipped.len(),
        worse.len()
    )
}

fn interval(estimate: Option<Estimate>) -> String {
    match estimate.and_then(|e| e.interval) {
        Some(interval) => format!("{:.3} to {:.3}", interval.low, interval.high),
        None => "-".to_owned(),
    }
}

fn instructions(c: &Comparison) -> String {
    match c.instructions {
        Some([this, beside]) => {
            format!(
                "{} / {} = {:.3}",
                number(this),
                number(beside),
                this / beside
            )
        }
        None => String::new(),
    }
}

fn words(verdict: Verdict) -> String {
    match verdict {
        Verdict::NoSlower => "no slower",
        Verdict::Slower => "SLOWER",
        Verdict::TooWide => "not decided: too wide",
        Verdict::NoMoreInstructions => "too wide; no more instructions",
        Verdict::MoreInstructions => "too wide; MORE INSTRUCTIONS",
        Verdict::TooFewPairs => return too_few(),
        Verdict::NoFigure => "NO FIGURE of both builds",
        Verdict::Skipped => "skipped",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{line, run_of};
    use super::super::{full, only_targets};
    use super::*;
    use crate::comparison::tests::{both_of, counted};
    use crate::record::{Instructions, RowRecord, BESIDE, THIS};
    use crate::verbs::{Mode, Op, Verbs};

    fn latency(size: u64) -> Verbs {
        Verbs::Latency {
            op: Op::Send,
            size,
            mode: Mode::Polling,
            pinned: true,
        }
    }

    fn report(rows: Vec<RowRecord>, of: fn(&Run, Format) -> String) -> String {
        let mut run = run_of(rows);
        run.options.precision = Some(0.02);
        run.options.repetitions = 30;
        let build = |name: &str, path: Option<&str>, revision: Option<&str>| BuildRecord {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            version: Some("1.2.3".to_owned()),
            revision: revision.map(str::to_owned),
            built: Some("2026-01-02T03:04:05Z".to_owned()),
        };
        run.builds = vec![
            build(THIS, None, Some("0123456789ab")),
            build(BESIDE, Some("../old/target/release"), None),
        ];
        of(&run, Format::Markdown)
    }

    fn values(all: [f64; 6]) -> Vec<Option<f64>> {
        all.map(Some).to_vec()
    }

    #[test]
    fn a_table_has_ratio_interval_pairs_and_verdict() {
        let beside = values([10.0; 6]);
        let this = values([9.9, 10.0, 10.0, 10.1, 10.0, 10.0]);
        let slower = values([12.0, 12.1, 12.0, 12.0, 11.9, 12.0]);
        let text = report(
            vec![
                both_of(latency(64), &this, &beside),
                both_of(latency(256), &slower, &beside),
            ],
            full,
        );
        let row = line(&text, &["| 64 B send"]);
        for words in ["1.000", "0.990 to 1.010", "| no slower", "|     6 |"] {
            assert!(row.contains(words), "{words} in {row}");
        }
        assert!(line(&text, &["| 256 B send"]).contains("SLOWER"));
        line(&text, &["1 no slower, 0 not decided, 0 not compared, 1 worse: loopback/send-lat-256 weft crc=on (SLOWER)"]);
        line(
            &text,
            &["- this: weft 1.2.3, in a tree at 0123456789ab, built 2026"],
        );
        line(
            &text,
            &["- beside (../old/target/release): weft 1.2.3, of unknown revision"],
        );
        line(
            &text,
            &["until the 95 % interval is within 2 % of the ratio, 30 at most"],
        );
        // A run of two builds has nothing that targets are held against.
        assert!(!text.contains("Targets"), "{text}");
    }

    #[test]
    fn a_wide_row_says_what_instructions_say_or_why_there_are_none() {
        let [this, beside] = [values([8.0, 12.0, 8.0, 12.0, 8.0, 12.0]), values([10.0; 6])];
        let row = |taken: [Instructions; 2]| {
            let mut row = both_of(latency(64), &this, &beside);
            for (cell, taken) in row.cells.iter_mut().zip(taken) {
                cell.instructions = Some(taken);
            }
            row
        };
        let text = report(
            vec![row([counted(0, 412_000), counted(0, 400_000)])],
            only_targets,
        );
        let found = line(&text, &["| 64 B send"]);
        assert!(found.contains("1030 / 1000 = 1.030"), "{found}");
        assert!(found.contains("too wide; MORE INSTRUCTIONS"), "{found}");

        let none = Instructions {
            skipped: Some("valgrind is not installed (Debian package valgrind)".to_owned()),
            ..Instructions::default()
        };
        let text = report(vec![row([none.clone(), none])], only_targets);
        assert!(line(&text, &["| 64 B send"]).contains("not decided: too wide"));
        line(
            &text,
            &["instructions not counted: valgrind is not installed"],
        );
    }

    #[test]
    fn what_one_build_alone_can_run_is_named() {
        let mut row = both_of(latency(64), &[], &[]);
        row.cells[0].skipped = Some("the build beside it cannot run it".to_owned());
        row.cells[1].skipped = Some("it has no such program".to_owned());
        let text = report(vec![row], full);
        line(&text, &["- weft crc=on (beside): it has no such program"]);
        line(
            &text,
            &["0 no slower, 0 not decided, 1 not compared, 0 worse"],
        );
    }
}
