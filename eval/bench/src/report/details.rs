//! What rows over emulated links tell beside the figure that they are judged by.

use super::table::{Column, Table};
use super::{heading, number, Format};
use crate::record::{CellRecord, Run};
use crate::stats::median;

/// Keys of what is told, with the heads of their columns.
const TOLD: [(&str, Column); 13] = [
    ("completion_us", Column::number("done µs")),
    ("p99_us", Column::number("p99")),
    ("fills", Column::number("holes")),
    ("fill_us", Column::number("filled to done µs")),
    ("fill_p99_us", Column::number("p99")),
    ("copied_octets", Column::number("copied/message")),
    ("waited_octets", Column::number("waited/hole")),
    ("server_cpu_ns_octet", Column::number("receiver ns/octet")),
    ("client_cpu_ns_octet", Column::number("sender ns/octet")),
    ("frames_back", Column::number("frames back")),
    ("other_goodput_gbit_s", Column::number("neighbour Gbit/s")),
    ("before_gbit_s", Column::number("before Gbit/s")),
    ("after_gbit_s", Column::number("after Gbit/s")),
];

/// Medians of them, with the samples whose link kept up; nothing where no row has any.
pub(super) fn table(run: &Run, path: &str, format: Format) -> String {
    let with = |cell: &&CellRecord| !cell.values("link_kept_up").is_empty();
    let rows = || run.rows.iter().filter(|row| row.path == path);
    if !rows().any(|row| row.cells.iter().any(|cell| with(&cell))) {
        return String::new();
    }
    let mut columns = vec![Column::title("row"), Column::words("stack")];
    columns.extend(TOLD.iter().map(|(_, column)| *column));
    columns.push(Column::number("link late p99 µs"));
    columns.push(Column::number("link kept up"));
    let mut table = Table::new(&columns);
    for row in rows() {
        for cell in row.cells.iter().filter(with) {
            let mut words = vec![row.id.clone(), cell.stack.clone()];
            let keys = TOLD.iter().map(|(key, _)| *key);
            words.extend(keys.map(|key| of(cell, key)));
            words.push(of(cell, "link_late_p99_us"));
            let kept: Vec<f64> = values(cell, "link_kept_up");
            let well = kept.iter().filter(|kept| **kept > 0.0).count();
            words.push(format!("{well} of {}", kept.len()));
            table.add(words);
        }
    }
    heading("Messages over the emulated link", format) + &table.draw(format)
}

fn values(cell: &CellRecord, key: &str) -> Vec<f64> {
    cell.values(key)
        .into_iter()
        .map(|(_, value)| value)
        .collect()
}

/// The median; a dash where no sample tells it.
fn of(cell: &CellRecord, key: &str) -> String {
    median(&values(cell, key)).map_or("-".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;
    use crate::report::tests::run_of;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::{Mode, Op, Verbs};

    #[test]
    fn what_an_emulated_row_tells_stands_in_a_table_and_other_rows_have_none() {
        let bulk = Verbs::Bulk {
            op: Op::Write,
            size: 1000,
            mode: Mode::Polling,
        };
        let plain = cell_of("sockets", "goodput_gbit_s", &[Some(0.5)]);
        let mut told = cell_of(
            "weft inline in order",
            "goodput_gbit_s",
            &[Some(0.9), Some(0.8)],
        );
        for (sample, kept_up) in told.samples.iter_mut().zip([1.0, 0.0]) {
            let Outcome::Metrics(metrics) = &mut sample.outcome else {
                panic!("it has metrics");
            };
            metrics.insert("link_kept_up".to_owned(), kept_up);
            metrics.insert("fill_us".to_owned(), 250.0);
        }
        let drawn = |cells| {
            let run = run_of(vec![row_of("adapter", bulk, cells)]);
            table(&run, "adapter", Format::Markdown)
        };
        assert_eq!(drawn(vec![plain.clone()]), "");
        let text = drawn(vec![plain, told]);
        assert!(text.contains("1 of 2") && text.contains("250"), "{text}");
        assert!(!text.contains("sockets"), "{text}");
    }
}
