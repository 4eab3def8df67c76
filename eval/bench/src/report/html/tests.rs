use super::*;
use crate::record::{CellRecord, CommandRecord, RowRecord, SlideRecord, Subject};
use crate::report::tests::run_of;
use crate::summary::tests::{cell_of, row_of};
use crate::verbs::{Mode, Op, Verbs};

const BAD: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;";

fn latency(size: u64) -> Verbs {
    Verbs::Latency {
        op: Op::Send,
        size,
        mode: Mode::Polling,
        pinned: true,
    }
}

fn rows() -> Vec<RowRecord> {
    let row = |size, factor: f64| {
        let values = |v: f64| [1.0, 1.01, 0.99, 1.02, 0.98, 1.0].map(|noise| Some(v * noise));
        let mut again = cell_of("raw-tcp, again", "half_rtt_us", &values(5.1));
        again.again = Some("raw-tcp".to_owned());
        let cells = vec![
            cell_of("raw-tcp", "half_rtt_us", &values(5.0)),
            cell_of("weft crc=on", "half_rtt_us", &values(5.0 * factor)),
            again,
        ];
        row_of("loopback", latency(size), cells)
    };
    vec![row(64, 3.0), row(4096, 0.5)]
}

#[test]
fn a_page_shows_where_it_loses_first_and_draws_rows_of_a_series_together() {
    let run = run_of(rows());
    let text = page(&[("a.json".to_owned(), &run)]);
    for part in [
        "1 cells lose against the reference of their row",
        "<td>loopback/send-lat-64</td>",
        "half round trip (µs), lower is better",
        "message size (octets)",
        "weft bench --path loopback --only send-lat-4K",
        "Noise of this row: ",
        "Skipped: no namespaces here",
        "raw-tcp again: the noise",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // Two rows, one picture, and the map.
    assert_eq!(text.matches("role=\"img\"").count(), 2);
    let losing = text.find("Where it loses").unwrap();
    assert!(losing < text.find("Path loopback</h2>").unwrap());
}

#[test]
fn a_row_whose_programs_tell_percentiles_has_its_distribution_drawn() {
    let mut run = run_of(rows());
    for sample in &mut run.rows[0].cells[1].samples {
        let crate::record::Outcome::Metrics(metrics) = &mut sample.outcome else {
            panic!("it has metrics");
        };
        metrics.extend([("p99_us".to_owned(), 40.0), ("p999_us".to_owned(), 90.0)]);
    }
    let text = page(&[("a.json".to_owned(), &run)]);
    assert_eq!(text.matches("<figcaption>Distribution").count(), 1);
    assert!(text.contains("weft crc=on, 99.9: 90 µs"), "{text}");
}

#[test]
fn a_page_needs_nothing_from_elsewhere_and_ids_are_unique() {
    let run = run_of(rows());
    let text = page(&[("a.json".to_owned(), &run), ("b.json".to_owned(), &run)]);
    for outside in ["<script", "http://", "https://", "@import", "url("] {
        let found = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside}");
    }
    let mut ids: Vec<&str> = text
        .split(" id=\"")
        .skip(1)
        .filter_map(|t| t.split('"').next())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    // Every reference within the page leads somewhere.
    for target in text
        .split("href=\"#")
        .skip(1)
        .filter_map(|t| t.split('"').next())
    {
        assert!(ids.contains(&target), "{target}");
    }
}

#[test]
fn whatever_a_record_is_called_is_text() {
    let mut row = rows().remove(0);
    row.id = format!("loopback/{BAD}");
    row.workload = Subject::Named {
        name: BAD.to_owned(),
        what: BAD.to_owned(),
    };
    row.reference = vec![BAD.to_owned()];
    for cell in &mut row.cells {
        cell.stack = format!("{}{BAD}", cell.stack);
        cell.commands = vec![CommandRecord {
            role: BAD.to_owned(),
            host: BAD.to_owned(),
            core: None,
            command: BAD.to_owned(),
        }];
    }
    row.cells.push(CellRecord {
        skipped: Some(BAD.to_owned()),
        ..CellRecord::new(BAD.to_owned())
    });
    let mut failed = cell_of(&format!("failed {BAD}"), "half_rtt_us", &[None]);
    if let crate::record::Outcome::Failure(failure) = &mut failed.samples[0].outcome {
        failure.reason = BAD.to_owned();
        failure.tail = vec![BAD.to_owned()];
    }
    row.cells.push(failed);
    let mut run = run_of(vec![row]);
    run.environment.cpu = BAD.to_owned();
    run.environment.kernel = BAD.to_owned();
    run.environment
        .tools
        .insert(BAD.to_owned(), Some(BAD.to_owned()));
    run.paths[0].description = BAD.to_owned();
    run.paths[1].skipped = Some(BAD.to_owned());
    run.started = BAD.to_owned();
    run.slide = Some(SlideRecord {
        name: BAD.to_owned(),
        width: 1,
        height: 2,
        colours: BAD.to_owned(),
        parts: BAD.to_owned(),
        octets: 3,
        crc32: BAD.to_owned(),
    });
    let text = page(&[(BAD.to_owned(), &run)]);
    assert!(
        !text.contains("<script") && !text.contains("<img"),
        "markup came through"
    );
    // Within attributes a quotation mark would end them.
    assert!(!text.contains("\"'><"), "an attribute was ended");
    assert!(text.matches("&lt;script&gt;").count() > 10);
}

#[test]
fn few_repetitions_decide_nothing() {
    let mut run = run_of(rows());
    let cells = run.rows.iter_mut().flat_map(|row| &mut row.cells);
    cells.for_each(|cell| cell.samples.truncate(1));
    let text = page(&[("a.json".to_owned(), &run)]);
    assert!(text.contains("No cell is shown to lose"), "{text}");
    assert!(
        text.contains("1 cells were worse than their reference in every repetition"),
        "{text}"
    );
    assert!(
        text.contains("loopback/send-lat-64, weft crc=on: 3.00 x"),
        "{text}"
    );
    assert!(text.contains("not decided: too few repetitions"), "{text}");
}
