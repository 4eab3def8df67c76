//! What a reader wants to know first: where it loses, and all rows at a glance.

use maud::{html, Markup};

use super::standing;
use crate::metric::Better;
use crate::record::Run;
use crate::report::losing::cells as losing_cells;
use crate::report::number;
use crate::report::plot::{heat_map, tones, Square, Tone};
use crate::summary::{CellSummary, RowSummary, Standing};

/// The cells that lose, the worst first.
pub(super) fn losing(id: &str, rows: &[RowSummary]) -> Markup {
    let found = losing_cells(rows);
    html! {
        section aria-labelledby=(format!("{id}-losing")) {
            h2 id=(format!("{id}-losing")) { "Where it loses" }
            @if found.is_empty() {
                p { "No cell is shown to lose against its reference beyond the noise of its row." }
            } @else {
                p { (found.len()) " cells lose against the reference of their row, the worst first." }
                div class="scroll" tabindex="0" role="region" aria-label="Cells that lose" {
                    table {
                        thead {
                            tr {
                                th { "row" } th { "stack" } th class="n" { "median" } th { "unit" }
                                th class="n" { "ratio" } th class="n" { "95 % interval" } th { "" }
                            }
                        }
                        tbody {
                            @for (row, cell) in &found { (line(row, cell)) }
                        }
                    }
                }
            }
            (behind(rows))
        }
    }
}

/// The cells that were worse in every repetition, where those are too few to decide: silence about them would read as
/// good news.
fn behind(rows: &[RowSummary]) -> Markup {
    let mut found: Vec<(&RowSummary, &CellSummary, f64)> = Vec::new();
    for row in rows {
        for cell in row.cells.iter().filter(|cell| cell.again.is_none()) {
            let Some(ratio) = cell.ratio.filter(|r| r.interval.is_none()) else {
                continue;
            };
            let worse = match row.metric.better {
                Better::Lower => ratio.min > 1.0,
                Better::Higher => ratio.max < 1.0,
            };
            if worse {
                found.push((row, cell, ratio.of_medians));
            }
        }
    }
    html! {
        @if !found.is_empty() {
            details {
                summary class="loses" {
                    (found.len()) " cells were worse than their reference in every repetition, of which there are too "
                    "few to decide"
                }
                ul {
                    @for (row, cell, ratio) in &found {
                        li { (row.id) ", " (cell.stack) ": " (format!("{ratio:.2}")) " x" }
                    }
                }
            }
        }
    }
}

fn line(row: &RowSummary, cell: &CellSummary) -> Markup {
    let interval = cell.ratio.and_then(|r| r.interval);
    html! {
        tr {
            td { (row.id) }
            td { (cell.stack) }
            td class="n" { @if let Some(e) = &cell.estimate { (number(e.median)) } }
            td { (row.metric.unit) }
            td class="n loses" { @if let Some(r) = &cell.ratio { (format!("{:.2}", r.of_medians)) } }
            td class="n" { @if let Some(i) = interval { (format!("{:.2} to {:.2}", i.low, i.high)) } }
            td class="loses" { "loses" }
        }
    }
}

/// Every row and stack as a square.
pub(super) fn map(id: &str, run: &Run, rows: &[RowSummary]) -> Markup {
    // Rows of two builds have no reference.
    if !run.builds.is_empty() || rows.is_empty() {
        return html! {};
    }
    let mut stacks: Vec<&str> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        if cell.again.is_none() && cell.skipped.is_none() && !stacks.contains(&cell.stack.as_str())
        {
            stacks.push(&cell.stack);
        }
    }
    html! {
        section aria-labelledby=(format!("{id}-map")) {
            h2 id=(format!("{id}-map")) { "All at a glance" }
            (tones())
            div class="cards" {
                @for (number, path) in run.paths.iter().enumerate() {
                    @let of_path = squares(rows, &path.name, &stacks);
                    @if !of_path.is_empty() {
                        figure {
                            figcaption { "Path " (path.name) ": each row and stack against the row's reference" }
                            (heat_map(&format!("{id}-map{number}"), &format!("Path {}", path.name), stacks.len(), &of_path))
                        }
                    }
                }
            }
            p { "Columns:" }
            ol class="columns" { @for stack in &stacks { li { (stack) } } }
        }
    }
}

fn squares(rows: &[RowSummary], path: &str, stacks: &[&str]) -> Vec<(String, Vec<Square>)> {
    let prefix = format!("{path}/");
    let of_path = rows
        .iter()
        .filter_map(|row| Some((row.id.strip_prefix(&prefix)?, row)));
    of_path
        .map(|(name, row)| {
            let squares = stacks.iter().map(|stack| square(row, stack)).collect();
            (name.to_owned(), squares)
        })
        .collect()
}

fn square(row: &RowSummary, stack: &str) -> Square {
    let Some(cell) = row.cells.iter().find(|cell| cell.stack == stack) else {
        return Square {
            tone: Tone::Empty,
            words: String::new(),
        };
    };
    let (words, loses) = standing(row, cell);
    let ratio = cell
        .ratio
        .map_or(String::new(), |r| format!(", ratio {:.2}", r.of_medians));
    let tone = match cell
        .ratio
        .map(|r| (r.standing(row.metric.better), r.is_within(row.noise)))
    {
        _ if cell.skipped.is_some() => Tone::Empty,
        _ if cell.estimate.is_none() => Tone::Failed,
        None if row.reference.as_deref() == Some(stack) => Tone::Reference,
        None => Tone::Open,
        Some(_) if loses => Tone::Loses,
        Some((Standing::Wins, false)) => Tone::Wins,
        Some((Standing::Open, _)) => Tone::Open,
        Some(_) => Tone::Level,
    };
    Square {
        tone,
        words: format!("{}, {stack}: {words}{ratio}", row.id),
    }
}
