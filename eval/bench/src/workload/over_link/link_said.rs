//! What `weft link` said of its link and of the holes that it saw filled.

use std::collections::BTreeMap;

use anyhow::{ensure, Result};
use serde::Deserialize;

use super::messages::Noted;

/// What `weft link` says.
#[derive(Debug, Default)]
pub(super) struct LinkSaid {
    fills: Vec<FilledLine>,
    /// Octets of each stream, by who received it.
    ends: BTreeMap<String, u64>,
    pub(super) kept_up: bool,
    directions: Vec<Direction>,
}

#[derive(Clone, Debug, Deserialize)]
struct FilledLine {
    to: String,
    at_ns: u64,
    before: u64,
    after: u64,
    brought: u64,
}

#[derive(Deserialize)]
struct EndLine {
    to: String,
    end: u64,
}

#[derive(Debug, Deserialize)]
struct Report {
    kept_up: bool,
    directions: Vec<Direction>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Direction {
    received: u64,
    pub(super) late_p50_us: f64,
    pub(super) late_p99_us: f64,
}

/// Holes of a stream that were filled.
#[derive(Debug, Default)]
pub(super) struct Fills {
    /// To the completion of the last message that the hole had held up.
    pub(super) times_us: Vec<f64>,
    /// Octets that had waited behind it.
    pub(super) waited: Vec<f64>,
}

impl LinkSaid {
    pub(super) fn of(text: &str) -> Result<LinkSaid> {
        let mut said = LinkSaid::default();
        for line in text.lines() {
            if let Ok(filled) = serde_json::from_str::<FilledLine>(line) {
                said.fills.push(filled);
            } else if let Ok(end) = serde_json::from_str::<EndLine>(line) {
                *said.ends.entry(end.to).or_default() += end.end;
            } else if let Ok(report) = serde_json::from_str::<Report>(line) {
                said.kept_up = report.kept_up;
                said.directions = report.directions;
            }
        }
        ensure!(
            said.directions.len() == 2,
            "weft link said nothing at its end"
        );
        Ok(said)
    }

    /// The holes of the longest stream, held against the messages that it was of.
    ///
    /// All messages are of one length on the wire, and nothing else of any length goes this way: where all of them
    /// arrived, each ends at its share of the stream. What a carrier says at the beginning is less than half a segment,
    /// and so moves no end of a message across that of a segment.
    pub(super) fn fills(&self, noted: &Noted) -> Fills {
        let Some((to, end)) = self.ends.iter().max_by_key(|(_, end)| **end) else {
            return Fills::default();
        };
        const HALF_SEGMENT: u64 = 700;
        let mut fills = Fills::default();
        for filled in self.fills.iter().filter(|filled| filled.to == *to) {
            fills
                .waited
                .push((filled.after - filled.before - filled.brought) as f64);
            let done_by = |octets: u64| {
                let share = (octets + HALF_SEGMENT).min(*end) as f64 / *end as f64;
                (share * noted.done.len() as f64) as usize
            };
            let (first, last) = (done_by(filled.before), done_by(filled.after));
            if noted.is_whole() && last > first {
                let done = noted.done[last - 1];
                fills
                    .times_us
                    .push(done.saturating_sub(filled.at_ns) as f64 / 1e3);
            }
        }
        fills
    }

    /// Frames that the receiver sent, acknowledgements almost all.
    pub(super) fn frames_back(&self) -> f64 {
        // The receiver is at the first interface.
        self.directions[0].received as f64
    }

    pub(super) fn late_us(&self, of: fn(&Direction) -> f64) -> f64 {
        self.directions.iter().map(of).fold(0.0, f64::max)
    }
}
