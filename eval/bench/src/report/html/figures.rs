//! The pictures of a path: lines where rows differ in one number alone, bars for rows that stand alone.

use maud::{html, Markup};

use super::standing;
use crate::metric::{Metric, PERCENTILES};
use crate::record::{CellRecord, RowRecord, Subject};
use crate::report::plot::{bars, legend, lines, Bar, Label, Line, Point, PERCENTILE};
use crate::stats::median;
use crate::summary::{self, CellSummary, RowSummary};

type Rows<'r> = [(&'r RowRecord, &'r RowSummary)];

/// Rows that are drawn together.
struct Series<'r> {
    name: String,
    rows: Vec<(&'r RowRecord, &'r RowSummary)>,
}

/// All pictures of a path.
pub(super) fn of_path(id: &str, rows: &Rows) -> Markup {
    let series = series(rows);
    html! {
        p class="soft" {
            "A red ring or bar marks a figure that loses; thin lines go from the least to the greatest. The tables below "
            "the pictures have all figures."
        }
        div class="cards" {
            @for (number, one) in series.iter().enumerate() {
                @let id = format!("{id}-figure{number}");
                figure {
                    @if one.rows.len() > 1 { (along(&id, one)) } @else { (alone(&id, one.rows[0])) }
                }
            }
        }
    }
}

/// Rows with figures, those of a series and of a metric together, in the order of the record.
fn series<'r>(rows: &Rows<'r>) -> Vec<Series<'r>> {
    let mut found: Vec<Series<'r>> = Vec::new();
    for &(record, row) in rows {
        if row.cells.iter().all(|cell| cell.estimate.is_none()) {
            continue;
        }
        let name = axis(record).map_or_else(|| record.id.clone(), |axis| axis.series);
        let same = |s: &&mut Series| s.name == name && s.rows[0].1.metric == row.metric;
        match found.iter_mut().find(same) {
            Some(series) => series.rows.push((record, row)),
            None => found.push(Series {
                name,
                rows: vec![(record, row)],
            }),
        }
    }
    found
}

/// As the record has it, or as a record of version 1 would have had it.
fn axis(record: &RowRecord) -> Option<crate::axis::Axis> {
    record.axis.clone().or_else(|| match &record.workload {
        Subject::Verbs(verbs) => verbs.axis(),
        Subject::Named { .. } => None,
    })
}

fn along(id: &str, series: &Series) -> Markup {
    let metric = series.rows[0].1.metric;
    let first = axis(series.rows[0].0);
    let (parameter, unit) = first.map_or(Default::default(), |axis| (axis.parameter, axis.unit));
    let mut stacks: Vec<&str> = Vec::new();
    for cell in series.rows.iter().flat_map(|(_, row)| &row.cells) {
        if cell.estimate.is_some() && cell.again.is_none() && !stacks.contains(&cell.stack.as_str())
        {
            stacks.push(&cell.stack);
        }
    }
    let drawn: Vec<Line> = stacks.iter().map(|stack| line(series, stack)).collect();
    let names: Vec<(String, bool)> = drawn
        .iter()
        .map(|line| (line.name.clone(), line.points.iter().any(|p| p.loses)))
        .collect();
    let x = Label {
        what: parameter,
        unit,
        better: None,
    };
    html! {
        figcaption { (series.name) }
        (lines(id, &series.name, &x, &label(metric), &drawn))
        (legend(&names))
    }
}

fn line(series: &Series, stack: &str) -> Line {
    let mut points: Vec<Point> = series
        .rows
        .iter()
        .filter_map(|(record, row)| {
            let cell = row.cells.iter().find(|cell| cell.stack == stack)?;
            let estimate = cell.estimate?;
            Some(Point {
                x: axis(record)?.value,
                y: estimate.median,
                range: range(cell),
                loses: standing(row, cell).1,
            })
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Line {
        name: stack.to_owned(),
        points,
    }
}

fn alone(id: &str, (record, row): (&RowRecord, &RowSummary)) -> Markup {
    let title = record.workload.describe();
    let cells = row.cells.iter().filter(|cell| cell.again.is_none());
    let drawn: Vec<Bar> = cells
        .filter_map(|cell| {
            Some(Bar {
                name: cell.stack.clone(),
                value: cell.estimate?.median,
                range: range(cell),
                loses: standing(row, cell).1,
                is_reference: row.reference.as_ref() == Some(&cell.stack),
            })
        })
        .collect();
    html! {
        figcaption { (title) }
        (bars(id, &title, &label(row.metric), &drawn))
    }
}

fn label(metric: Metric) -> Label {
    Label {
        what: metric.name().to_owned(),
        unit: metric.unit.to_owned(),
        better: Some(metric.better),
    }
}

/// Nothing where there was one sample.
fn range(cell: &CellSummary) -> Option<(f64, f64)> {
    cell.estimate.filter(|e| e.n > 1).map(|e| (e.min, e.max))
}

/// How the figures of a latency row are distributed, by the percentiles that its programs tell; nothing where fewer
/// than three are known of any.
pub(super) fn distribution(id: &str, record: &RowRecord) -> Markup {
    let cells = record.cells.iter().filter(|cell| cell.again.is_none());
    let drawn: Vec<Line> = cells
        .filter_map(|cell| percentiles(record.metric, cell))
        .collect();
    if drawn.is_empty() {
        return html! {};
    }
    let names: Vec<(String, bool)> = drawn
        .iter()
        .map(|line| (line.name.clone(), false))
        .collect();
    let title = format!("{}: distribution", record.workload.describe());
    let x = Label {
        what: "of all".to_owned(),
        unit: PERCENTILE.to_owned(),
        better: None,
    };
    html! {
        figure {
            figcaption { "Distribution" }
            (lines(id, &title, &x, &label(record.metric), &drawn))
            (legend(&names))
        }
    }
}

/// Medians over the samples of each percentile.
fn percentiles(metric: Metric, cell: &CellRecord) -> Option<Line> {
    let all = [(metric.key, 0.5)].into_iter().chain(PERCENTILES);
    let points: Vec<Point> = all
        .filter_map(|(key, rank)| {
            Some(Point {
                x: 1.0 / (1.0 - rank),
                y: median(&summary::values(cell, key)).filter(|y| *y > 0.0)?,
                range: None,
                loses: false,
            })
        })
        .collect();
    (points.len() >= 3).then(|| Line {
        name: cell.stack.clone(),
        points,
    })
}
