//! What `weft link` says: lines of counts meanwhile, a table or JSON at the end.

use std::fmt::Write as _;
use std::io::Write as _;

use serde::Serialize;
use weft_bridge::{DirectionReport, Report};

use crate::output::{styled, GOOD, STRONG};

/// Back to the beginning of the terminal's line, which is cleared.
const AGAIN: &str = "\r\x1b[K";

/// Says a line on standard error.
pub fn say(text: &str) {
    // Where nobody listens there is nothing better to do.
    let _ = writeln!(anstream::stderr().lock(), "weft: {text}");
}

/// The lines of counts: one over the other on a terminal, one after the other elsewhere.
pub struct Counts {
    over: bool,
    shown: bool,
    last: Option<Report>,
}

impl Counts {
    pub fn new(terminal: bool) -> Counts {
        Counts {
            over: terminal,
            shown: false,
            last: None,
        }
    }

    /// Shows what went on since the last line.
    pub fn show(&mut self, report: &Report) {
        let line = line(self.last.as_ref(), report);
        let mut stderr = anstream::stderr().lock();
        // Where nobody listens there is nothing better to do.
        let _ = match self.over {
            true => write!(stderr, "{AGAIN}{line}"),
            false => writeln!(stderr, "weft: {line}"),
        };
        let _ = stderr.flush();
        self.shown = true;
        self.last = Some(report.clone());
    }

    /// Leaves the line for others.
    pub fn end(&self) {
        if self.over && self.shown {
            let _ = writeln!(anstream::stderr().lock());
        }
    }
}

fn line(last: Option<&Report>, report: &Report) -> String {
    let seconds = report.seconds - last.map_or(0.0, |last| last.seconds);
    let mut text = format!("{:.0} s", report.seconds);
    for (number, direction) in report.directions.iter().enumerate() {
        let before = last.map(|last| &last.directions[number]);
        let since = |of: fn(&DirectionReport) -> u64| of(direction) - before.map_or(0, of);
        let _ = write!(
            text,
            " | to {}: {:.0} frames/s, {:.1} Mbit/s, {} lost, late p99 {}",
            direction.to,
            since(|of| of.delivered) as f64 / seconds,
            since(|of| of.octets) as f64 * 8e-6 / seconds,
            direction.lost + direction.queue_dropped,
            time(direction.late_p99_us),
        );
    }
    text
}

/// The end as JSON, on one line.
pub fn json(report: &Report, seed: u64) -> String {
    #[derive(Serialize)]
    struct WithSeed<'a> {
        seed: u64,
        #[serde(flatten)]
        report: &'a Report,
    }
    serde_json::to_string(&WithSeed { seed, report }).unwrap_or_default() + "\n"
}

/// A row of the table: what it counts, and whether it is left out when it counts nothing.
type Row = (&'static str, fn(&DirectionReport) -> u64, bool);

const ROWS: [Row; 16] = [
    ("frames received", |of| of.received, false),
    ("large ones, cut", |of| of.cut, true),
    ("TCP segments split", |of| of.split, true),
    ("TCP segments joined", |of| of.joined, true),
    ("packets fragmented", |of| of.fragmented, true),
    ("packets too big", |of| of.too_big, true),
    ("answered with ICMP", |of| of.answered, true),
    ("sent onto the link", |of| of.sent, false),
    ("lost", |of| of.lost, false),
    ("dropped, queue full", |of| of.queue_dropped, false),
    ("held back", |of| of.reordered, true),
    ("sent twice", |of| of.duplicated, true),
    ("damaged", |of| of.corrupted, true),
    ("delivered", |of| of.delivered, false),
    ("octets of these", |of| of.octets, false),
    ("still on the way", |of| of.on_the_way, true),
];

/// The end as a table.
pub fn table(report: &Report, seed: u64) -> String {
    let directions = &report.directions;
    let head = directions
        .each_ref()
        .map(|of| format!("{} -> {}", of.from, of.to));
    let mut rows = vec![("", head)];
    for (name, count, optional) in ROWS {
        let counts = directions.each_ref().map(count);
        if !optional || counts != [0, 0] {
            rows.push((name, counts.map(|count| count.to_string())));
        }
    }
    let rate = |of: &DirectionReport| format!("{:.2}", of.octets as f64 * 8e-6 / report.seconds);
    rows.push(("Mbit/s on average", directions.each_ref().map(rate)));
    let late = |of: &DirectionReport| {
        [of.late_p50_us, of.late_p99_us, of.late_max_us]
            .map(time)
            .join(" / ")
    };
    rows.push(("late p50 / p99 / max", directions.each_ref().map(late)));

    let width = |at: usize| rows.iter().map(|row| row.1[at].chars().count()).max();
    let widths = [width(0).unwrap_or(0), width(1).unwrap_or(0)];
    let mut text = styled(STRONG, format!("{:.1} s, seed {seed}", report.seconds)) + "\n";
    for (name, [one, other]) in &rows {
        let _ = writeln!(
            text,
            "{name:<22}{one:>0$}   {other:>1$}",
            widths[0], widths[1]
        );
    }
    if report.kept_up {
        text += &styled(GOOD, "kept up: every frame was taken in and left in time");
        text.push('\n');
    }
    text
}

/// A time in the unit that suits it.
fn time(micros: f64) -> String {
    match micros {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f64, delivered: u64) -> Report {
        let direction = |from: &str, to: &str| DirectionReport {
            from: from.into(),
            to: to.into(),
            received: delivered,
            delivered,
            octets: delivered * 1000,
            late_p99_us: 1500.0,
            ..DirectionReport::default()
        };
        Report {
            seconds,
            directions: [direction("a", "b"), direction("b", "a")],
            kept_up: true,
            shortfalls: Vec::new(),
        }
    }

    #[test]
    fn a_line_is_about_the_time_since_the_last() {
        let (before, now) = (report(2.0, 100), report(4.0, 1100));
        let line = line(Some(&before), &now);
        assert!(
            line.starts_with(
                "4 s | to b: 500 frames/s, 4.0 Mbit/s, 0 lost, late p99 1.5 ms | to a: "
            ),
            "{line}"
        );
    }

    #[test]
    fn the_table_leaves_out_what_did_not_happen() {
        let text = table(&report(2.0, 7), 3);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(plain.starts_with("2.0 s, seed 3\n"), "{plain}");
        assert!(
            plain.contains("lost") && plain.contains("kept up"),
            "{plain}"
        );
        assert!(!plain.contains("fragmented"), "{plain}");
        let widths: Vec<usize> = plain.lines().skip(1).take(5).map(str::len).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{plain}");
    }

    #[test]
    fn json_is_one_line_with_the_seed() {
        let text = json(&report(2.0, 7), 3);
        assert_eq!(text.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["seed"], 3);
        assert_eq!(value["directions"][1]["from"], "b");
        assert_eq!(value["kept_up"], true);
    }
}
