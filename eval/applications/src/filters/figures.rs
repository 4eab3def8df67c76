//! What the process prints that measures.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// How long units of work took.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    requests_per_s: f64,
    /// The median unit of work.
    request_us: f64,
    p99_us: f64,
    operations: u64,
    /// What the units of work came to, as the program counts it.
    shown: u64,
}

impl Figures {
    /// `took`: the time of each, one at least. `whole`: that of all together.
    pub(super) fn of(mut took: Vec<Duration>, whole: Duration, shown: u64) -> Figures {
        took.sort_unstable();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Figures {
            requests_per_s: took.len() as f64 / whole.as_secs_f64(),
            request_us: us(took[took.len() / 2]),
            p99_us: us(took[took.len() * 99 / 100]),
            operations: took.len() as u64,
            shown,
        }
    }
}

/// Prints figures as one line of JSON.
pub(super) fn print(figures: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(figures)? + "\n";
    weft_os::stdout::print(&line).context("cannot print the figures")?;
    Ok(())
}
