//! Records as one page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! What a record says may come from anybody; all of it is text here, never markup.

mod figures;
mod overview;
mod pieces;
mod tables;

use maud::{html, Markup, PreEscaped, DOCTYPE};

use super::beside;
use super::environment::machine;
use super::losing::standing;
use super::percent;
use crate::record::{PathRecord, Run};
use crate::summary::{self, RowSummary};

const STYLE: &str = concat!(include_str!("../plot/plot.css"), include_str!("page.css"));

/// The page of these records, each with the name of its file.
pub fn page(runs: &[(String, &Run)]) -> String {
    let title = match runs {
        [(_, run)] => format!("weft bench, {}", run.started),
        _ => format!("weft bench, {} runs", runs.len()),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Nothing is fetched and nothing runs, whatever a record brings.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                @for (number, (file, run)) in runs.iter().enumerate() {
                    (one(&format!("r{number}"), file, run))
                }
            }
        }
    };
    page.into_string()
}

/// A record. `id` begins every id in it.
fn one(id: &str, file: &str, run: &Run) -> Markup {
    let rows: Vec<RowSummary> = run.rows.iter().map(summary::row).collect();
    html! {
        main id=(id) {
            @if run.interrupted {
                p class="failed" { "Interrupted before the plan was through: rows are missing." }
            }
            @if !run.environment.optimised && run.builds.is_empty() {
                p class="failed" { "Built without optimisation: these figures say nothing about Weft or raw TCP." }
            }
            nav aria-label="Parts of the report" {
                ul {
                    li { a href=(format!("#{id}-losing")) { "Where it loses" } }
                    li { a href=(format!("#{id}-map")) { "All at a glance" } }
                    @for (number, path) in run.paths.iter().enumerate() {
                        li { a href=(format!("#{id}-path{number}")) { "Path " (path.name) } }
                    }
                    li { a href=(format!("#{id}-gaps")) { "What was not measured" } }
                    li { a href=(format!("#{id}-how")) { "Machine and method" } }
                }
            }
            (overview::losing(id, &rows))
            (overview::map(id, run, &rows))
            @for (number, path) in run.paths.iter().enumerate() {
                (of_path(&format!("{id}-path{number}"), run, path, &rows))
            }
            (tables::gaps(id, run))
            (how(id, file, run))
        }
    }
}

fn of_path(id: &str, run: &Run, path: &PathRecord, rows: &[RowSummary]) -> Markup {
    let of_path: Vec<_> = run
        .rows
        .iter()
        .zip(rows)
        .filter(|(row, _)| row.path == path.name)
        .collect();
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { "Path " (path.name) }
            p class="soft" {
                (path.description)
                @if let Some(mtu) = path.mtu { ", MTU " (mtu) " octets" }
                @for link in &path.links {
                    ". " (link.kind) " between " (link.between.0) " and " (link.between.1)
                    @for (name, value) in &link.settings { ", " (name) " " (value) }
                }
            }
            @if let Some(reason) = &path.skipped { p class="failed" { "Skipped: " (reason) } }
            @if run.builds.is_empty() {
                (pieces::of_path(&format!("{id}-pieces"), run, &path.name))
                (figures::of_path(id, &of_path))
            }
            @else {
                pre { (beside::rows(run, &path.name, super::Format::Table { width: None })) }
            }
            @for (number, (record, row)) in of_path.iter().enumerate() {
                (tables::row(&format!("{id}-row{number}"), run, record, row))
            }
        }
    }
}

fn how(id: &str, file: &str, run: &Run) -> Markup {
    let e = &run.environment;
    html! {
        section aria-labelledby=(format!("{id}-how")) {
            h2 id=(format!("{id}-how")) { "Machine and method" }
            ul {
                li { (run.started) " to " (run.finished) ", raw data in " code { (file) } }
                li { (beside::how_often(&run.options)) }
                li { (machine(e)) ", Linux " (e.kernel) }
                @if let Some(slide) = &run.slide { li { (slide.describe()) } }
                @for build in &run.builds { li { (beside::build(build)) } }
                @if run.builds.is_empty() {
                    li { "weft " (e.revision.as_deref().unwrap_or("of unknown revision")) }
                }
                @for (tool, version) in &e.tools {
                    li { (tool) ": " (version.as_deref().unwrap_or("not installed")) }
                }
            }
            p {
                "In each repetition every stack of a row runs once, in turn. A figure is the median of the repetitions; "
                "a ratio is of medians, with the 95 % interval of a seeded bootstrap over the repetitions. A cell "
                "wins or loses when the whole interval is on one side of 1. Each row measures one stack twice under "
                "two names: what those differ by is the row's noise, and a verdict within it says so. CPU is of the "
                "programs with their children, user and kernel; samples during which others were on the cores for "
                "more than " (percent(crate::cost::OTHERS_CORES)) " % of a core, or the hypervisor took more than "
                (percent(crate::cost::STOLEN_CORES)) " %, are marked as disturbed and stay in."
            }
        }
    }
}

#[cfg(test)]
mod tests;
