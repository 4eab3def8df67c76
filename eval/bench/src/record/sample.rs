//! One measurement of one cell: its figures, and what its programs took.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Metric name (ending in its unit) to value.
pub type Metrics = BTreeMap<String, f64>;

/// One measurement of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counted from 1.
    pub repetition: u32,
    /// Seconds since the run started.
    pub at: f64,
    /// Seconds from start of the programs to their end.
    pub took: f64,
    /// What each role took of the machine; none in records of version 1 and for samples that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleRecord>,
    /// What the cores did meanwhile, in whosever name; none where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineRecord>,
    /// Figures, or what went wrong.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What a program and its children took, from their start to their end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleRecord {
    /// As in [`CommandRecord::role`].
    pub role: String,
    /// Seconds from its start to its end.
    pub lived: f64,
    /// Seconds of a core in their own code.
    pub user: f64,
    /// Seconds of a core in the kernel, in their names.
    pub system: f64,
    /// Times that one of them gave its core away.
    pub voluntary_switches: u64,
    /// Times that its core was taken away.
    pub forced_switches: u64,
    /// Page faults without a disk.
    pub minor_faults: u64,
    /// Page faults with one.
    pub major_faults: u64,
    /// The most memory that one of them had, octets.
    pub peak_octets: u64,
}

/// What the cores of the machine did while a sample was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Seconds that were looked at.
    pub seconds: f64,
    /// Each core that was online.
    pub cores: Vec<CoreRecord>,
    /// Programs that ran or waited for a core at the end, as the kernel counts them, the bench's own among them.
    pub runnable: u64,
    /// Seconds of a core that the bench itself took.
    pub bench: f64,
}

/// What one core did, seconds; the kernel counts in hundredths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreRecord {
    /// Number.
    pub core: usize,
    /// In programs and in the kernel, interrupts among it.
    pub busy: f64,
    /// Of the busy ones those in interrupts, which no program is charged for.
    pub interrupts: f64,
    /// Taken by the hypervisor for other machines.
    pub stolen: f64,
}

/// What a measurement came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Figures.
    Metrics(Metrics),
    /// It failed.
    Failure(Failure),
}

/// A measurement that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One line.
    pub reason: String,
    /// Last lines the programs printed, each with the side it came from.
    pub tail: Vec<String>,
}

impl Sample {
    /// Its figures; none where it failed.
    pub fn metrics(&self) -> Option<&Metrics> {
        match &self.outcome {
            Outcome::Metrics(metrics) => Some(metrics),
            Outcome::Failure(_) => None,
        }
    }
}
