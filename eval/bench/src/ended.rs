//! What a role came to once its program has ended, on this machine or at a far end.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_os::usage::Usage;

use crate::record::RoleRecord;

/// Lines of each program kept in a failure.
const TAIL: usize = 8;

/// A program that has ended, with what it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// What it printed on its standard output.
    pub out: String,
    /// The same of its standard error.
    pub err: String,
    /// What it took; the name of the role is there as well.
    pub taken: RoleRecord,
}

impl Ended {
    /// Whether it played this role.
    pub fn is(&self, role: &str) -> bool {
        self.taken.role == role
    }

    /// Adds what a process has taken that it left behind.
    pub fn add(&mut self, usage: Usage) {
        let taken = &mut self.taken;
        taken.user = whole_micros(taken.user + micros(usage.user));
        taken.system = whole_micros(taken.system + micros(usage.system));
        taken.voluntary_switches += usage.voluntary_switches;
        taken.forced_switches += usage.forced_switches;
        taken.minor_faults += usage.minor_faults;
        taken.major_faults += usage.major_faults;
        taken.peak_octets = taken.peak_octets.max(usage.peak_octets);
    }

    /// Its last lines, each with the name of the role.
    pub fn tail(&self) -> Vec<String> {
        let lines: Vec<&str> = self
            .out
            .lines()
            .chain(self.err.lines())
            .filter(|l| !l.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(TAIL)..]
            .iter()
            .map(|line| format!("{}: {line}", self.taken.role))
            .collect()
    }
}

/// What a role has taken that has taken nothing.
pub fn nothing(role: &str) -> RoleRecord {
    RoleRecord {
        role: role.to_owned(),
        lived: 0.0,
        user: 0.0,
        system: 0.0,
        voluntary_switches: 0,
        forced_switches: 0,
        minor_faults: 0,
        major_faults: 0,
        peak_octets: 0,
    }
}

/// Seconds in whole microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

fn whole_micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
