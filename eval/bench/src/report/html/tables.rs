//! The tables behind the pictures: every cell with its figures, what it costs, and how to run it again.

use std::collections::BTreeMap;

use maud::{html, Markup};

use super::figures::distribution;
use super::standing;
use crate::cost::{self, Cost};
use crate::record::{RowRecord, Run};
use crate::report::number;
use crate::summary::{CellSummary, RowSummary};

/// A row: figures, costs, commands.
pub(super) fn row(id: &str, run: &Run, record: &RowRecord, row: &RowSummary) -> Markup {
    let losing = row
        .cells
        .iter()
        .filter(|cell| standing(row, cell).1)
        .count();
    html! {
        details id=(id) {
            summary {
                (record.workload.describe()) " " span class="soft" { "(" (record.id) ")" }
                @if losing > 0 { " " span class="loses" { (losing) " lose" @if losing == 1 { "s" } } }
            }
            @if let Some(noise) = row.noise {
                p class="soft" { "Noise of this row: " (format!("{:.1} %", noise * 100.0)) }
            }
            div class="scroll" tabindex="0" role="region" aria-label=(format!("Figures of {}", record.id)) {
                table {
                    caption { (row.metric.name()) " (" (row.metric.unit) "), " (row.metric.direction()) }
                    thead {
                        tr {
                            th { "stack" } th class="n" { "median" } th class="n" { "±" } th class="n" { "least to greatest" }
                            th class="n" { "p99" } th class="n" { "n" } th class="n" { "ratio" }
                            th class="n" { "95 % interval" } th { "standing" }
                        }
                    }
                    tbody { @for cell in &row.cells { (figures(row, cell)) } }
                }
            }
            (distribution(&format!("{id}-distribution"), record))
            (costs(run, record))
            p { "Again: " code { (command(record)) } }
            @for cell in &record.cells {
                @if !cell.commands.is_empty() {
                    details {
                        summary { "Programs of " (cell.label()) }
                        pre {
                            @for c in &cell.commands {
                                (c.role)
                                @if !c.host.is_empty() { " on " (c.host) }
                                @if let Some(core) = c.core { ", core " (core) }
                                ": " (c.command) "\n"
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What runs the row again.
fn command(record: &RowRecord) -> String {
    let name = record
        .id
        .split_once('/')
        .map_or(record.id.as_str(), |(_, name)| name);
    format!("weft bench --path {} --only {name}", record.path)
}

fn figures(row: &RowSummary, cell: &CellSummary) -> Markup {
    let (words, loses) = standing(row, cell);
    let class = match (loses, words.as_str()) {
        (true, _) => "loses",
        (_, "wins") => "wins",
        (_, "FAILED") => "failed",
        _ => "",
    };
    html! {
        tr {
            td { (cell.stack) }
            @if let Some(e) = &cell.estimate {
                td class="n" { (number(e.median)) }
                td class="n" { @if e.n > 1 { (number(e.mad)) } }
                td class="n" { @if e.n > 1 { (number(e.min)) " to " (number(e.max)) } }
                td class="n" { @if let Some(p99) = cell.p99 { (number(p99)) } }
                td class="n" { (e.n) }
            } @else {
                td class="n" { "-" } td {} td {} td {} td class="n" { "0" }
            }
            td class="n" { @if let Some(r) = &cell.ratio { (format!("{:.2}", r.of_medians)) } }
            td class="n" {
                @if let Some(i) = cell.ratio.and_then(|r| r.interval) { (format!("{:.2} to {:.2}", i.low, i.high)) }
            }
            td class=(class) {
                (words)
                @if cell.failures > 0 && cell.estimate.is_some() { ", " (cell.failures) " FAILED" }
                @if cell.disturbed > 0 { span class="soft" { ", " (cell.disturbed) " disturbed by others" } }
            }
        }
    }
}

fn costs(run: &Run, record: &RowRecord) -> Markup {
    let costs: Vec<(String, Cost)> = record
        .cells
        .iter()
        .filter_map(|cell| {
            Some((
                cell.label(),
                cost::of(record, cell, run.options.cell_seconds)?,
            ))
        })
        .collect();
    if costs.is_empty() {
        return html! {};
    }
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), small);
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(format!("What the cells of {} cost", record.id)) {
            table {
                caption { "CPU with children, from start to end; lower is better" }
                thead {
                    tr {
                        th { "stack" } th { "role" } th class="n" { "cores" } th class="n" { "in the kernel" }
                        th class="n" { "µs an operation" } th class="n" { "ns an octet" }
                        th class="n" { "switches an operation" } th class="n" { "faults an operation" }
                    }
                }
                tbody {
                    @for (stack, cost) in &costs {
                        @for (role, part) in parts(cost) {
                            tr {
                                td { (stack) }
                                td { (role) }
                                td class="n" { (format!("{:.2}", part.cores)) }
                                td class="n" { (format!("{:.0} %", part.in_kernel * 100.0)) }
                                td class="n" { (shown(part.per_operation_us)) }
                                td class="n" { @if role == "all" { (shown(cost.per_octet_ns)) } }
                                td class="n" { (shown(part.switches)) }
                                td class="n" { (shown(part.faults)) }
                            }
                        }
                        @if let Some(us) = cost.interrupts_us {
                            tr {
                                td { (stack) } td { "interrupts, in nobody's name" } td {} td {}
                                td class="n" { (small(us)) } td {} td {} td {}
                            }
                        }
                    }
                }
            }
        }
    }
}

/// All roles together, and each of a pair; of a larger cast the roles are too many for a table.
fn parts(cost: &Cost) -> Vec<(&str, &cost::Part)> {
    const FEW: usize = 3;
    let each = cost.roles.iter().map(|(name, part)| (name.as_str(), part));
    let each = each.take(if cost.roles.len() <= FEW { FEW } else { 1 });
    std::iter::once(("all", &cost.total)).chain(each).collect()
}

/// A small figure with three digits.
fn small(value: f64) -> String {
    match value {
        v if v >= 1.0 => number(v),
        v if v >= 0.1 => format!("{v:.3}"),
        v if v >= 0.001 => format!("{v:.5}"),
        0.0 => "0".to_owned(),
        v => format!("{v:.1e}"),
    }
}

/// Why cells and paths are empty, and what failed.
pub(super) fn gaps(id: &str, run: &Run) -> Markup {
    let mut skipped: BTreeMap<(String, &str), usize> = BTreeMap::new();
    // By stack and reason: the rows, each with its programs' last lines.
    type Alike<'r> = BTreeMap<(String, &'r str), Vec<(&'r str, &'r [String])>>;
    let mut failed = Alike::new();
    for (row, cell) in run
        .rows
        .iter()
        .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
    {
        if let Some(reason) = &cell.skipped {
            *skipped.entry((cell.label(), reason)).or_default() += 1;
        }
        if let Some(failure) = cell.failures().next() {
            let same = failed.entry((cell.label(), &failure.reason)).or_default();
            same.push((&row.id, &failure.tail));
        }
    }
    html! {
        section aria-labelledby=(format!("{id}-gaps")) {
            h2 id=(format!("{id}-gaps")) { "What was not measured" }
            @if skipped.is_empty() && failed.is_empty() { p { "Every cell has a figure." } }
            ul {
                @for ((stack, reason), rows) in &skipped {
                    li { (stack) ": " (reason) " (" (rows) " rows)" }
                }
            }
            @for ((stack, reason), rows) in &failed {
                details {
                    summary class="failed" { (stack) ": " (reason) " (" (rows.len()) " rows)" }
                    ul { @for (row, _) in rows { li { (row) } } }
                    pre { @for line in rows[0].1 { (line) "\n" } }
                }
            }
        }
    }
}
