//! What CPU an octet takes with a piece of the way less or more, beside what it takes with everything on.

use super::table::{Column, Table};
use super::{heading, number, Format};
use crate::metric::{BUSY_PER_OCTET, CPU_PER_OCTET, GOODPUT, MESSAGE_RATE};
use crate::path::PathKind;
use crate::record::{CellRecord, RowRecord, Run};
use crate::stats::median;
use crate::summary;

/// A row that tells it.
pub(super) struct Pieces<'r> {
    pub(super) row: &'r RowRecord,
    /// What has everything.
    pub(super) reference: &'r str,
    /// What an octet takes there of both ends, ns.
    pub(super) base: f64,
    /// All others.
    pub(super) pieces: Vec<Piece<'r>>,
}

/// A column with a piece less or more.
pub(super) struct Piece<'r> {
    pub(super) cell: &'r CellRecord,
    /// How much more it takes, ns: the median of the differences within the repetitions.
    pub(super) more: f64,
    /// The least and the greatest of these; none where there is one.
    pub(super) range: Option<(f64, f64)>,
}

/// Those of a path, in the order of the record.
pub(super) fn of<'r>(run: &'r Run, path: &str) -> Vec<Pieces<'r>> {
    let rows = run.rows.iter().filter(|row| row.path == path);
    rows.filter_map(of_row).collect()
}

fn of_row(row: &RowRecord) -> Option<Pieces<'_>> {
    // Of a message alone nearly all of what it takes is not for its octets.
    let of_pieces = row.path == PathKind::Ablation.name();
    let told =
        row.metric == CPU_PER_OCTET || of_pieces && [GOODPUT, MESSAGE_RATE].contains(&row.metric);
    let cells = || row.cells.iter().filter(|cell| cell.again.is_none());
    let reference = cells()
        .filter(|_| told)
        .find(|cell| row.reference.contains(&cell.stack))?;
    let others = cells().filter(|cell| cell.stack != reference.stack);
    Some(Pieces {
        row,
        reference: &reference.stack,
        base: median(&summary::values(reference, CPU_PER_OCTET.key))?,
        pieces: others.filter_map(|cell| piece(cell, reference)).collect(),
    })
}

fn piece<'r>(cell: &'r CellRecord, reference: &CellRecord) -> Option<Piece<'r>> {
    let base = reference.values(CPU_PER_OCTET.key);
    let of_repetition = |(repetition, value): (u32, f64)| {
        let (_, base) = base.iter().find(|(other, _)| *other == repetition)?;
        Some(value - base)
    };
    let values = cell.values(CPU_PER_OCTET.key).into_iter();
    let more: Vec<f64> = values.filter_map(of_repetition).collect();
    let least = more.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = more.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Piece {
        cell,
        more: median(&more)?,
        range: (more.len() > 1).then_some((least, greatest)),
    })
}

/// The table of a path; nothing where no row tells it.
pub(super) fn table(run: &Run, path: &str, format: Format) -> String {
    let rows = of(run, path);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        Column::title("row"),
        Column::words("stack"),
        Column::number("receiver ns/octet"),
        Column::number("sender ns/octet"),
        Column::number("both"),
        Column::number("more"),
        Column::number("%"),
        Column::number("all cores"),
        Column::number("lost %"),
        Column::number("pace"),
    ]);
    for row in &rows {
        let reference = row.row.cell(row.reference).map(|cell| (cell, None));
        let pieces = row.pieces.iter().map(|one| (one.cell, Some(one.more)));
        for (cell, more) in reference.into_iter().chain(pieces) {
            table.add(words(row, cell, more));
        }
    }
    heading("CPU for an octet", format) + &table.draw(format)
}

fn words(row: &Pieces, cell: &CellRecord, more: Option<f64>) -> Vec<String> {
    let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), signless);
    let of = |key: &str| or_dash(median(&summary::values(cell, key)));
    vec![
        row.row.id.clone(),
        cell.stack.clone(),
        of("server_cpu_ns_octet"),
        of("client_cpu_ns_octet"),
        of(CPU_PER_OCTET.key),
        more.map_or("-".to_owned(), |more| format!("{more:+.3}")),
        more.map_or("-".to_owned(), |more| {
            format!("{:+.0}", share(more, row.base))
        }),
        of(BUSY_PER_OCTET),
        of("lost_percent"),
        of("pace_messages_per_s"),
    ]
}

/// Nothing lost is no loss, whichever way a sum of parts was rounded.
fn signless(value: f64) -> String {
    match value.abs() < 0.0005 {
        true => "0".to_owned(),
        false => number(value),
    }
}

/// How much more that is of what it is more than, %.
pub(super) fn share(more: f64, base: f64) -> f64 {
    100.0 * more / base.max(1e-12)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{Outcome, Subject};
    use crate::report::tests::run_of;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::Verbs;

    /// A run with a row of an ablation, whose repetitions took so many ns an octet.
    pub(in crate::report) fn run(cells: &[(&str, &[f64])]) -> Run {
        let cells = cells.iter().map(|(name, took)| {
            let mut cell = cell_of(name, "goodput_gbit_s", &vec![Some(10.0); took.len()]);
            for (sample, took) in cell.samples.iter_mut().zip(*took) {
                let Outcome::Metrics(metrics) = &mut sample.outcome else {
                    panic!("it has metrics");
                };
                metrics.insert("cpu_ns_per_octet".to_owned(), *took);
            }
            cell
        });
        let mut row = row_of("ablation", Verbs::Connect, cells.collect());
        row.id = "ablation/tcp-bulk".to_owned();
        row.metric = GOODPUT;
        row.workload = Subject::Named {
            name: "tcp-bulk".to_owned(),
            what: "TCP".to_owned(),
        };
        row.reference = vec!["all on".to_owned()];
        run_of(vec![row])
    }

    #[test]
    fn a_piece_costs_the_median_of_the_differences_within_the_repetitions() {
        let all_on: &[f64] = &[0.5, 1.0, 0.5];
        let run = run(&[("all on", all_on), ("one copy more", &[0.75, 1.25, 0.5])]);
        let rows = of(&run, "ablation");
        let row = &rows[0];
        assert_eq!((row.reference, row.base), ("all on", 0.5));
        assert_eq!(row.pieces[0].more, 0.25);
        assert_eq!(row.pieces[0].range, Some((0.0, 0.25)));
        let text = table(&run, "ablation", Format::Markdown);
        assert!(text.contains("+0.250") && text.contains("+50"), "{text}");
        assert_eq!(table(&run, "veth", Format::Markdown), "");
    }

    #[test]
    fn without_what_has_everything_there_is_nothing_to_compare_with() {
        let run = run(&[("one copy more", &[0.75])]);
        assert!(of(&run, "ablation").is_empty());
    }
}
