//! What changed from one run to another.
//!
//! The machine's hours differ, so that of a cell that was compared with a reference it is the ratio to that which is
//! compared: both were measured in turn. References have their own figures compared, which say as much of the hours.

use super::table::{Column, Table};
use super::{heading, number, Format};
use crate::metric::{Better, Metric};
use crate::record::{CellRecord, RowRecord, Run};
use crate::stats::{bootstrap, median, widening, Interval};
use crate::summary::{self, Standing};

/// One cell in two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Row.
    pub row: String,
    /// Stack, with its build where there are two.
    pub stack: String,
    /// Metric of the row.
    pub metric: Metric,
    /// Medians, first run and second.
    pub medians: [Option<f64>; 2],
    /// Whether ratios to a reference are compared, and not the figures themselves.
    pub by_ratio: bool,
    /// Second run over first, turned so that above 1 the second is the better one.
    pub size: Option<f64>,
    /// Its 95 % interval; none for too few repetitions.
    pub interval: Option<Interval>,
    /// By how much two measurements of one stack differed on this row, in the run where they differed more.
    pub noise: Option<f64>,
    /// Whether it is a cell that the others of its row are compared with.
    pub is_reference: bool,
    /// What follows.
    pub verdict: Verdict,
    /// How the cell stands to its row's reference in either run, where that differs and noise says it of neither.
    pub turned: Option<[Standing; 2]>,
}

/// What became of a cell. Of many cells some are beside 1 by chance: for a verdict the interval and the noise are
/// widened as [`widening`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is above 1, and the change above the noise.
    Better,
    /// The whole interval is below 1, and the change above the noise.
    Worse,
    /// The interval has 1 in it.
    Same,
    /// It has not, but two measurements of one stack differ as much, or one of so many cells does.
    Noise,
    /// It is a reference, and better or worse than it was: the machine, or the program that the others are compared
    /// with, and not these.
    Machine,
    /// Too few repetitions for an interval.
    Open,
    /// It has figures in one run alone.
    OneOnly,
}

/// Every cell of the rows that both runs have, and those that only one has figures for.
pub fn between(first: &Run, second: &Run) -> Vec<Change> {
    let mut changes = Vec::new();
    for after in &second.rows {
        let Some(before) = first.row(&after.id) else {
            continue;
        };
        if before.metric != after.metric {
            continue;
        }
        let cells = after.cells.iter().filter(|cell| cell.again.is_none());
        for cell in cells {
            let label = cell.label();
            if let Some(earlier) = before.cells.iter().find(|c| c.label() == label) {
                changes.extend(change(before, earlier, after, cell));
            }
        }
    }
    let widening = widening_of(&changes);
    for change in &mut changes {
        change.verdict = match verdict(change, widening) {
            Verdict::Better | Verdict::Worse if change.is_reference => Verdict::Machine,
            verdict => verdict,
        };
    }
    changes
}

/// By how much more a cell has to differ, among so many that are compared.
fn widening_of(changes: &[Change]) -> f64 {
    let compared = changes.iter().filter(|change| change.interval.is_some());
    widening(compared.count())
}

/// Nothing for a cell that neither run measured.
fn change(
    before: &RowRecord,
    earlier: &CellRecord,
    after: &RowRecord,
    later: &CellRecord,
) -> Option<Change> {
    let metric = after.metric;
    let medians = [earlier, later].map(|cell| median(&summary::values(cell, metric.key)));
    if medians == [None, None] {
        return None;
    }
    let ratios = [ratios(before, earlier), ratios(after, later)];
    let by_ratio = ratios.iter().all(|r| r.is_some());
    let values = match ratios {
        [Some(one), Some(other)] => [one, other],
        _ => [earlier, later].map(|cell| summary::values(cell, metric.key)),
    };
    let is_reference = [(before, earlier), (after, later)]
        .iter()
        .any(|(row, cell)| row.reference.contains(&cell.stack));
    let [old, new] = match metric.better {
        Better::Higher => [&values[0], &values[1]],
        // Turned: the old over the new.
        Better::Lower => [&values[1], &values[0]],
    };
    let size = median(new).zip(median(old)).map(|(new, old)| new / old);
    let interval = bootstrap::ratio_of_two(new, old);
    let noise = [before, after]
        .iter()
        .filter_map(|row| summary::row(row).noise)
        .fold(None, |most: Option<f64>, noise| {
            Some(most.map_or(noise, |m| m.max(noise)))
        });
    Some(Change {
        row: after.id.clone(),
        stack: later.label(),
        metric,
        medians,
        by_ratio,
        size,
        interval,
        noise,
        is_reference,
        verdict: Verdict::Open,
        turned: turned([standing(before, earlier), standing(after, later)]),
    })
}

/// How it stands to the row's reference; nothing where that is no farther than the noise, or cannot be told.
fn standing(row: &RowRecord, cell: &CellRecord) -> Option<Standing> {
    let reference = summary::best(row, &row.reference, row.metric)?;
    let ratio = summary::ratio(cell, reference, row.metric.key)?;
    let standing = ratio.standing(row.metric.better);
    let is_told = standing != Standing::Open && !ratio.is_within(summary::row(row).noise);
    is_told.then_some(standing)
}

fn turned([before, after]: [Option<Standing>; 2]) -> Option<[Standing; 2]> {
    let both = [before?, after?];
    (both[0] != both[1]).then_some(both)
}

/// The ratios to the row's reference within repetitions; none for the reference itself and where there is none.
fn ratios(row: &RowRecord, cell: &CellRecord) -> Option<Vec<f64>> {
    let reference = summary::best(row, &row.reference, row.metric)?;
    if reference.stack == cell.stack {
        return None;
    }
    let theirs = reference.values(row.metric.key);
    let ratios: Vec<f64> = cell
        .values(row.metric.key)
        .into_iter()
        .filter_map(|(repetition, value)| {
            let (_, other) = theirs.iter().find(|(r, _)| *r == repetition)?;
            Some(value / other)
        })
        .collect();
    (!ratios.is_empty()).then_some(ratios)
}

fn verdict(change: &Change, widening: f64) -> Verdict {
    let Some(size) = change.size else {
        return Verdict::OneOnly;
    };
    let Some(Interval { low, high }) = change.interval else {
        return Verdict::Open;
    };
    let is_beside = |low: f64, high: f64| low > 1.0 || high < 1.0;
    if !is_beside(low, high) {
        return Verdict::Same;
    }
    let [low, high] = [low, high].map(|end| size * (end / size).powf(widening));
    let noise = change.noise.map_or(0.0, |noise| noise.ln_1p() * widening);
    match size.ln().abs() > noise && is_beside(low, high) {
        false => Verdict::Noise,
        true if size > 1.0 => Verdict::Better,
        true => Verdict::Worse,
    }
}

/// The table of all changes, and how many there are of each sort.
pub fn table(changes: &[Change], title: &str, format: Format) -> String {
    let mut table = Table::new(&[
        Column::words("row"),
        Column::words("stack"),
        Column::number("before").spared(3),
        Column::number("after").spared(3),
        Column::number("change"),
        Column::number("95 % interval").spared(1),
        Column::number("noise").spared(2),
        Column::words("verdict"),
    ]);
    for c in changes {
        let [before, after] = c.medians.map(|m| m.map_or("-".to_owned(), number));
        table.add(vec![
            c.row.clone(),
            c.stack.clone(),
            before,
            after,
            c.size.map_or("-".to_owned(), |size| format!("{size:.3}")),
            c.interval
                .map_or("-".to_owned(), |i| format!("{:.3} to {:.3}", i.low, i.high)),
            c.noise
                .map_or("-".to_owned(), |n| format!("{:.1} %", n * 100.0)),
            format!(
                "{}{}",
                words(c.verdict),
                match c.turned {
                    Some([before, after]) => format!(" ({before}, then {after})"),
                    None if c.by_ratio => String::new(),
                    None => " (figure itself)".to_owned(),
                }
            ),
        ]);
    }
    let count = |verdict| changes.iter().filter(|c| c.verdict == verdict).count();
    let counts = format!(
        "{} worse, {} better, {} the same, {} within the noise, {} references changed, {} open (too few repetitions), \
         {} in one run alone; {} stand otherwise to their reference than before",
        count(Verdict::Worse),
        count(Verdict::Better),
        count(Verdict::Same),
        count(Verdict::Noise),
        count(Verdict::Machine),
        count(Verdict::Open),
        count(Verdict::OneOnly),
        changes.iter().filter(|c| c.turned.is_some()).count(),
    );
    let note = format!(
        "change: after over before, turned so that above 1 it is better; of ratios to the row's reference, where there \
         is one. Of so many cells some are beside 1 by chance: a verdict needs the interval and the noise {:.1} times \
         as wide.",
        widening_of(changes)
    );
    heading(title, format) + &table.draw(format) + "\n" + &note + "\n" + &counts + "\n"
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "WORSE",
        Verdict::Same => "same",
        Verdict::Noise => "noise",
        Verdict::Machine => "machine",
        Verdict::Open => "open",
        Verdict::OneOnly => "in one alone",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{line, run_of};
    use super::*;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::Verbs;

    const TCP: [f64; 6] = [10.0, 10.2, 9.9, 10.1, 10.0, 9.8];
    const WEFT: [f64; 6] = [40.0, 41.0, 39.5, 40.5, 40.2, 39.4];

    /// A run on a machine that is so many times as slow, with Weft so many times as slow on top.
    fn run(machine: f64, weft: f64, again: f64) -> Run {
        let cell = |stack: &str, values: [f64; 6], factor: f64| {
            cell_of(stack, "connect_us", &values.map(|v| Some(v * factor)))
        };
        let mut twice = cell("raw-tcp, again", TCP, machine * again);
        twice.again = Some("raw-tcp".to_owned());
        let cells = vec![
            cell("raw-tcp", TCP, machine),
            cell("weft crc=on", WEFT, machine * weft),
            twice,
        ];
        run_of(vec![row_of("loopback", Verbs::Connect, cells)])
    }

    fn of_weft(first: &Run, second: &Run) -> Change {
        let changes = between(first, second);
        changes
            .into_iter()
            .find(|c| c.stack == "weft crc=on")
            .unwrap()
    }

    #[test]
    fn a_slow_down_of_ten_per_cent_is_found_on_a_machine_that_is_itself_twice_as_slow() {
        let change = of_weft(&run(1.0, 1.0, 1.01), &run(2.0, 1.1, 0.99));
        assert!(change.by_ratio);
        assert!(
            (change.size.unwrap() - 1.0 / 1.1).abs() < 0.01,
            "{change:?}"
        );
        assert_eq!(change.verdict, Verdict::Worse);
        let text = table(
            &between(&run(1.0, 1.0, 1.01), &run(2.0, 1.1, 0.99)),
            "t",
            Format::Markdown,
        );
        assert!(line(&text, &["weft crc=on"]).contains("WORSE"), "{text}");
        line(&text, &["1 worse, 0 better"]);
        // That the machine is slower is no row that is worse.
        assert!(line(&text, &["| raw-tcp"]).contains("machine"), "{text}");
        // Back again it is better.
        assert_eq!(
            of_weft(&run(2.0, 1.1, 0.99), &run(1.0, 1.0, 1.01)).verdict,
            Verdict::Better
        );
    }

    #[test]
    fn what_won_and_loses_now_is_said() {
        let (before, after) = (run(1.0, 0.1, 1.01), run(1.0, 1.0, 1.01));
        let change = of_weft(&before, &after);
        assert_eq!(change.turned, Some([Standing::Wins, Standing::Loses]));
        assert_eq!(of_weft(&before, &before).turned, None);
        let text = table(&between(&before, &after), "t", Format::Markdown);
        assert!(
            line(&text, &["weft crc=on"]).contains("WORSE (wins, then LOSES)"),
            "{text}"
        );
        line(&text, &["1 stand otherwise"]);
    }

    #[test]
    fn what_did_not_change_is_the_same_and_what_is_below_the_noise_is_noise() {
        assert_eq!(
            of_weft(&run(1.0, 1.0, 1.0), &run(3.0, 1.0, 1.0)).verdict,
            Verdict::Same
        );
        assert_eq!(
            of_weft(&run(1.0, 1.0, 1.0), &run(1.0, 1.1, 1.25)).verdict,
            Verdict::Noise
        );
    }

    #[test]
    fn among_many_that_are_compared_one_has_to_differ_more() {
        let changed = |rows: usize| {
            let of = |weft: f64, again: f64| {
                let other = run(1.0, 1.0, again);
                let mut many = run(1.0, weft, again);
                for number in 1..rows {
                    let mut row = other.rows[0].clone();
                    row.id = format!("row {number}");
                    many.rows.push(row);
                }
                many
            };
            of_weft(&of(1.0, 1.08), &of(1.1, 1.0)).verdict
        };
        assert_eq!(changed(1), Verdict::Worse);
        assert_eq!(changed(100), Verdict::Noise);
    }

    #[test]
    fn what_cannot_be_told_is_not_told() {
        let whole = run(1.0, 1.0, 1.0);
        let mut few = run(1.0, 2.0, 1.0);
        few.rows[0]
            .cells
            .iter_mut()
            .for_each(|cell| cell.samples.truncate(3));
        assert_eq!(of_weft(&whole, &few).verdict, Verdict::Open);
        let mut none = run(1.0, 1.0, 1.0);
        none.rows[0].cells[1].samples.clear();
        assert_eq!(of_weft(&whole, &none).verdict, Verdict::OneOnly);
        assert_eq!(between(&whole, &run_of(vec![])), []);
    }
}
