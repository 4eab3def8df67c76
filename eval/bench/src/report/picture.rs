//! A record as one picture that stands in a file of its own, for a document that shows it.

use super::losing::standing;
use super::plot::{strips, Ratio, Strip};
use crate::metric::Better;
use crate::record::Run;
use crate::summary::{self, CellSummary, RowSummary};

/// Each row with the stacks that were compared with its reference, rows that lose most first.
pub fn of(run: &Run) -> String {
    let rows: Vec<RowSummary> = run.rows.iter().map(summary::row).collect();
    let mut names: Vec<String> = Vec::new();
    let mut drawn: Vec<(f64, Strip)> = Vec::new();
    for row in &rows {
        let mut ratios: Vec<Ratio> = Vec::new();
        for cell in row.cells.iter().filter(|cell| cell.again.is_none()) {
            let Some(times) = times(row, cell) else {
                continue;
            };
            let known = names.iter().position(|name| *name == cell.stack);
            let of = known.unwrap_or_else(|| {
                names.push(cell.stack.clone());
                names.len() - 1
            });
            let loses = standing(row, cell).1;
            ratios.push(Ratio { of, times, loses });
        }
        let least = ratios.iter().map(|ratio| ratio.times).reduce(f64::min);
        if let Some(least) = least {
            let name = row.id.clone();
            drawn.push((least, Strip { name, ratios }));
        }
    }
    drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
    let drawn: Vec<Strip> = drawn.into_iter().map(|(_, strip)| strip).collect();
    let title = format!(
        "weft bench, {}: how many times as good as the row's reference",
        run.started
    );
    let says = "Right of the line is better, lower latency or more throughput; a red ring: it loses, beyond the noise.";
    strips(&title, says, STYLE, &names, &drawn).into_string()
}

const STYLE: &str = include_str!("plot/plot.css");

/// How many times as good as the row's reference a cell is; nothing for that itself, and where there is no figure.
fn times(row: &RowSummary, cell: &CellSummary) -> Option<f64> {
    let ratio = cell.ratio?.of_medians;
    let times = match row.metric.better {
        Better::Higher => ratio,
        Better::Lower => 1.0 / ratio,
    };
    (times.is_finite() && times > 0.0).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::run_of;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::{Mode, Op, Verbs};

    /// Half round trips of Weft that are `factor` times those of its reference.
    fn row(size: u64, factor: f64) -> crate::record::RowRecord {
        let workload = Verbs::Latency {
            op: Op::Send,
            size,
            mode: Mode::Polling,
            pinned: true,
        };
        let values = |v: f64| [1.0, 1.01, 0.99, 1.02, 0.98, 1.0].map(|noise| Some(v * noise));
        let cells = vec![
            cell_of("raw-tcp", "half_rtt_us", &values(5.0)),
            cell_of("weft crc=on", "half_rtt_us", &values(5.0 * factor)),
        ];
        row_of("loopback", workload, cells)
    }

    #[test]
    fn the_row_that_loses_most_comes_first_and_lower_times_lie_right() {
        let text = of(&run_of(vec![row(4096, 0.5), row(64, 4.0)]));
        let at = |words: &str| {
            text.find(words)
                .unwrap_or_else(|| panic!("no {words:?} in {text}"))
        };
        assert!(
            at("loopback/send-lat-64, weft crc=on: 0.25 x, loses")
                < at("send-lat-4K, weft crc=on: 2 x")
        );
        assert!(!text.contains("raw-tcp:"), "the reference has no mark");
        assert!(
            text.contains("prefers-color-scheme: dark") && text.starts_with("<svg"),
            "{text}"
        );
    }
}
