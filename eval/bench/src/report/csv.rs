//! Every figure of records on a line of its own, for other programs (RFC 4180).

use crate::record::{Metrics, Outcome, Run};

const HEAD: [&str; 12] = [
    "started",
    "path",
    "row",
    "stack",
    "build",
    "again",
    "repetition",
    "at_s",
    "took_s",
    "figure",
    "value",
    "failure",
];

/// All figures of all records.
pub fn all(runs: &[Run]) -> String {
    let mut text = line(&HEAD.map(str::to_owned));
    for run in runs {
        for row in &run.rows {
            for cell in &row.cells {
                let of_cell = [
                    &run.started,
                    &row.path,
                    &row.id,
                    &cell.stack,
                    cell.build.as_ref().unwrap_or(&String::new()),
                    cell.again.as_ref().unwrap_or(&String::new()),
                ]
                .map(|text| word(text));
                if let Some(reason) = &cell.skipped {
                    let rest = ["", "", "", "", ""].map(str::to_owned);
                    text += &line(
                        &[&of_cell[..], &rest, &[word(&format!("skipped: {reason}"))]].concat(),
                    );
                }
                for sample in &cell.samples {
                    let when = [
                        sample.repetition.to_string(),
                        sample.at.to_string(),
                        sample.took.to_string(),
                    ];
                    let (figures, failure) = match &sample.outcome {
                        Outcome::Metrics(metrics) => (with_roles(metrics, sample), String::new()),
                        Outcome::Failure(failure) => {
                            (vec![(String::new(), String::new())], word(&failure.reason))
                        }
                    };
                    for (key, value) in figures {
                        let rest = [word(&key), value, failure.clone()];
                        text += &line(&[&of_cell[..], &when, &rest].concat());
                    }
                }
            }
        }
    }
    text
}

/// What was measured, and what each role took.
fn with_roles(metrics: &Metrics, sample: &crate::record::Sample) -> Vec<(String, String)> {
    let mut figures: Vec<(String, String)> = metrics
        .iter()
        .map(|(key, value)| (key.clone(), value.to_string()))
        .collect();
    for role in &sample.roles {
        let name = |what: &str| format!("{}.{what}", role.role);
        figures.extend([
            (name("user_s"), role.user.to_string()),
            (name("system_s"), role.system.to_string()),
            (
                name("switches"),
                (role.voluntary_switches + role.forced_switches).to_string(),
            ),
            (
                name("faults"),
                (role.minor_faults + role.major_faults).to_string(),
            ),
        ]);
    }
    figures
}

fn line(words: &[String]) -> String {
    words.join(",") + "\r\n"
}

/// A word in quotes where it needs them. What a spreadsheet would take for a formula gets an apostrophe, as a record
/// may come from anybody.
fn word(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']);
    let text = match formula {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_of;
    use super::*;
    use crate::record::CellRecord;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::Verbs;

    #[test]
    fn each_figure_failure_and_skipped_cell_has_a_line_of_as_many_words() {
        let skipped = CellRecord {
            skipped: Some("not installed, \"really\"".to_owned()),
            ..CellRecord::new("=HYPERLINK(1)".to_owned())
        };
        let cells = vec![
            cell_of("raw-tcp", "connect_us", &[Some(10.5), None]),
            skipped,
        ];
        let text = all(&[run_of(vec![row_of("loopback", Verbs::Connect, cells)])]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(
            lines[1],
            "2026-01-02T03:04:05Z,loopback,loopback/connect,raw-tcp,,,1,0,0,connect_us,10.5,"
        );
        assert!(lines[2].ends_with("raw-tcp,,,2,0,0,,,no"), "{}", lines[2]);
        assert!(
            lines[3].ends_with(",'=HYPERLINK(1),,,,,,,,\"skipped: not installed, \"\"really\"\"\""),
            "{}",
            lines[3]
        );
        let words = |line: &str| line.matches(',').count();
        assert!(lines[..3].iter().all(|line| words(line) == HEAD.len() - 1));
        assert_eq!(lines.len(), 4);
    }
}
