//! How a cell stands to the reference of its row, and the cells that lose: what a reader wants to know first.

use super::table::{Column, Table};
use super::{heading, list, number, Format};
use crate::record::Run;
use crate::summary::{self, CellSummary, RowSummary, Standing};

/// How a cell reads, in one word or two, and whether it loses.
pub(super) fn standing(row: &RowSummary, cell: &CellSummary) -> (String, bool) {
    if cell.skipped.is_some() {
        return ("skipped".to_owned(), false);
    }
    if cell.estimate.is_none() {
        return (
            if cell.failures > 0 {
                "FAILED"
            } else {
                "no figure"
            }
            .to_owned(),
            false,
        );
    }
    if let Some(stack) = &cell.again {
        return (format!("{stack} again: the noise"), false);
    }
    if row.reference.as_ref() == Some(&cell.stack) {
        return ("reference".to_owned(), false);
    }
    let Some(ratio) = &cell.ratio else {
        return ("nothing to compare with".to_owned(), false);
    };
    let within = ratio.is_within(row.noise);
    match (ratio.standing(row.metric.better), within) {
        (Standing::Wins, false) => ("wins".to_owned(), false),
        (Standing::Wins, true) => ("wins, within the noise".to_owned(), false),
        (Standing::Loses, false) => ("loses".to_owned(), true),
        (Standing::Loses, true) => ("loses, within the noise".to_owned(), false),
        (Standing::Level, _) => ("level".to_owned(), false),
        (Standing::Open, _) => ("not decided: too few repetitions".to_owned(), false),
    }
}

/// The cells whose whole interval is on the worse side of their reference, beyond the row's noise; the worst first.
pub(super) fn cells(rows: &[RowSummary]) -> Vec<(&RowSummary, &CellSummary)> {
    let mut found: Vec<(&RowSummary, &CellSummary, f64)> = Vec::new();
    for row in rows {
        let losing = row.cells.iter().filter(|cell| standing(row, cell).1);
        found
            .extend(losing.filter_map(|cell| Some((row, cell, cell.ratio?.of_medians.ln().abs()))));
    }
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    let found = found.into_iter();
    found.map(|(row, cell, _)| (row, cell)).collect()
}

/// The same as a table; nothing for two builds, which have no reference.
pub(super) fn table(run: &Run, format: Format) -> String {
    if !run.builds.is_empty() || run.rows.is_empty() {
        return String::new();
    }
    let rows: Vec<RowSummary> = run.rows.iter().map(summary::row).collect();
    let losing = cells(&rows);
    let title = heading("Where it loses", format);
    if losing.is_empty() {
        let none = "No cell is shown to lose against its reference beyond the noise of its row.";
        return title + &list([none.to_owned()], format);
    }
    let mut table = Table::new(&[
        Column::words("row"),
        Column::words("stack"),
        Column::number("median"),
        Column::words("unit").spared(2),
        Column::number("ratio"),
        Column::number("95 % interval").spared(1),
    ]);
    for (row, cell) in losing {
        let interval = cell.ratio.and_then(|ratio| ratio.interval);
        table.add(vec![
            row.id.clone(),
            cell.stack.clone(),
            cell.estimate
                .as_ref()
                .map_or(String::new(), |e| number(e.median)),
            row.metric.unit.to_owned(),
            cell.ratio
                .map_or(String::new(), |r| format!("{:.2}", r.of_medians)),
            interval.map_or(String::new(), |i| format!("{:.2} to {:.2}", i.low, i.high)),
        ]);
    }
    title + &table.draw(format)
}
