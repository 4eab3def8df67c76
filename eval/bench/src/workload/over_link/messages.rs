//! What the two ends of a row noted, and what Weft told of itself.

use anyhow::{ensure, Context, Result};
use serde::Deserialize;

use crate::exec::Output;

/// What both ends noted of the messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    connections: Vec<Noted>,
    /// When the first connection was told to send otherwise, nanoseconds since 1970.
    pub(super) changed: Option<u64>,
    /// Octets that the receiver had to keep until what precedes them had come, by an adapter's own count.
    pub(super) copied: Option<f64>,
    /// Octets that it placed before.
    pub(super) placed_ahead: Option<f64>,
    /// Segments that the sender sent more than once, likewise.
    pub(super) sent_again: Option<f64>,
}

/// The messages of one connection, nanoseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) sent: Vec<u64>,
    pub(super) done: Vec<u64>,
}

impl Messages {
    pub(super) fn of(output: &Output) -> Result<Messages> {
        let mut messages = Messages::default();
        for text in [output.server(), output.client()] {
            for line in text.lines() {
                messages
                    .read(line)
                    .with_context(|| format!("transfer printed {line:?}"))?;
            }
        }
        let counted = |text: &str, of: fn(&StatEach) -> Option<u64>| {
            let line = text.lines().find(|line| line.starts_with('{'))?;
            let stat: Stat = serde_json::from_str(line).ok()?;
            let each = stat.processes.iter().flat_map(|process| &process.each);
            let each: Vec<f64> = each.filter_map(of).map(|count| count as f64).collect();
            (!each.is_empty()).then(|| each.iter().sum())
        };
        messages.copied = counted(output.server(), |each| {
            each.path.as_ref().map(|_| each.copied)
        });
        messages.placed_ahead = counted(output.server(), |each| {
            each.path.as_ref().map(|_| each.placed_ahead)
        });
        messages.sent_again = counted(output.client(), |each| {
            each.path.as_ref().map(|path| path.retransmissions)
        });
        Ok(messages)
    }

    fn read(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_ascii_whitespace();
        let Some(kind @ ("sent" | "done" | "changed")) = words.next() else {
            // It is ready, or what Weft tells of itself.
            return Ok(());
        };
        let connection: usize = words.next().context("no connection")?.parse()?;
        let at: u64 = words.next().context("no time")?.parse()?;
        ensure!(connection < 8, "connection {connection}");
        if self.connections.len() <= connection {
            self.connections.resize_with(connection + 1, Noted::default);
        }
        let noted = &mut self.connections[connection];
        match kind {
            "sent" => noted.sent.push(at),
            "done" => noted.done.push(at),
            _ => self.changed = Some(at),
        }
        Ok(())
    }

    pub(super) fn connection(&self, number: usize) -> Result<&Noted> {
        let noted = self.connections.get(number);
        noted.with_context(|| format!("nothing was said of connection {number}"))
    }

    pub(super) fn done_in_all(&self) -> f64 {
        self.connections
            .iter()
            .map(|noted| noted.done.len() as f64)
            .sum()
    }
}

impl Noted {
    /// Messages a second, from the first that was given away to the last that was there.
    pub(super) fn rate(&self) -> Result<f64> {
        let (first, last) = self
            .sent
            .first()
            .zip(self.done.last())
            .context("no message arrived")?;
        let seconds = last.saturating_sub(*first) as f64 / 1e9;
        ensure!(seconds > 0.0, "the clock was set");
        Ok(self.done.len() as f64 / seconds)
    }

    pub(super) fn goodput(&self, octets: f64) -> Result<f64> {
        Ok(self.rate()? * octets * 8.0 / 1e9)
    }

    /// What arrived before and after a time, 10^9 bits a second.
    pub(super) fn goodput_around(&self, octets: f64, at: u64) -> [Option<f64>; 2] {
        let split = self.done.partition_point(|done| *done < at);
        let over = |count: usize, from: Option<&u64>, to: Option<&u64>| {
            let seconds = to?.checked_sub(*from?)? as f64 / 1e9;
            (seconds > 0.0).then(|| count as f64 * octets * 8.0 / 1e9 / seconds)
        };
        [
            over(split, self.sent.first(), Some(&at)),
            over(self.done.len() - split, Some(&at), self.done.last()),
        ]
    }

    pub(super) fn completion_times_us(&self) -> Vec<f64> {
        let both = self.sent.iter().zip(&self.done);
        both.map(|(sent, done)| done.saturating_sub(*sent) as f64 / 1e3)
            .collect()
    }

    /// Whether all that was given away was there in the end.
    pub(super) fn is_whole(&self) -> bool {
        !self.done.is_empty() && self.sent.len() == self.done.len()
    }
}

/// What `weft stat --json` says.
#[derive(Deserialize)]
struct Stat {
    processes: Vec<StatProcess>,
}

#[derive(Deserialize)]
struct StatProcess {
    each: Vec<StatEach>,
}

#[derive(Deserialize)]
struct StatEach {
    copied: u64,
    placed_ahead: u64,
    path: Option<StatPath>,
}

#[derive(Deserialize)]
struct StatPath {
    retransmissions: u64,
}
