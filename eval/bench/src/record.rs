//! The raw record of one run, as it stands on disk. Nothing in it is computed from anything else in
//! it.
//!
//! The schema is `schema/weft-bench-1.schema.json`; [`VERSION`] goes up when a reader of the old
//! one would misread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::workload::Workload;

/// Value of [`Run::schema`].
pub const SCHEMA: &str = "weft-bench";
/// Value of [`Run::version`].
pub const VERSION: u32 = 1;

/// Metric name (ending in its unit) to value.
pub type Metrics = BTreeMap<String, f64>;

/// One run of the bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// UTC, RFC 3339, whole seconds.
    pub started: String,
    /// UTC, RFC 3339, whole seconds.
    pub finished: String,
    /// Stopped by a signal before the plan was through.
    pub interrupted: bool,
    /// What was asked for.
    pub options: Options,
    /// The builds of Weft that were compared; empty where there was one only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<BuildRecord>,
    /// Where it ran.
    pub environment: Environment,
    /// The paths, also those that could not be made.
    pub paths: Vec<PathRecord>,
    /// Rows in plan order.
    pub rows: Vec<RowRecord>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Times each cell is measured; of two builds the most pairs.
    pub repetitions: u32,
    /// Pairs of two builds go on until the interval of the ratio is within this part of it; none where one build was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// Seconds a cell is meant to measure for; null where that is not the same for all.
    pub cell_seconds: Option<u32>,
    /// Core of the server and of the client; null where pinning was not possible.
    pub cores: Option<(usize, usize)>,
    /// Row patterns; empty is everything.
    pub only: Vec<String>,
    /// Stack patterns; empty is everything.
    pub stacks: Vec<String>,
}

/// A build of Weft.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// [`THIS`] or [`BESIDE`], as in [`CellRecord::build`].
    pub name: String,
    /// As given on the command line; null for the build that the bench itself belongs to.
    pub path: Option<String>,
    /// What `weft --version` says; null for libraries without a command.
    pub version: Option<String>,
    /// Revision of the source tree that the build lies in, `-dirty` when it had changes; null outside one.
    pub revision: Option<String>,
    /// When the command was written: UTC, RFC 3339, whole seconds; null where the file system does not tell.
    pub built: Option<String>,
}

/// Name of the build that is judged.
pub const THIS: &str = "this";
/// Name of the build that it is compared with.
pub const BESIDE: &str = "beside";

/// The machine and what is installed on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores online.
    pub cores: usize,
    /// `cpufreq` governor of core 0; null where there is none (virtual machines).
    pub governor: Option<String>,
    /// Hypervisor bit of the CPU.
    pub virtual_machine: bool,
    /// CPU vulnerability to mitigation, those that affect this CPU.
    pub mitigations: BTreeMap<String, String>,
    /// Load averages over 1, 5 and 15 minutes at the start.
    pub load: Vec<f64>,
    /// Total memory, octets.
    pub memory: u64,
    /// Revision of the source tree, `-dirty` when it had changes; null outside one.
    pub revision: Option<String>,
    /// Whether Weft and the raw TCP programs were built with optimisation.
    pub optimised: bool,
    /// Whether the bench ran as root.
    pub root: bool,
    /// Program to version line; null where the program is not installed.
    pub tools: BTreeMap<String, Option<String>>,
}

/// A path between two processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// `loopback` or `veth`; of a runner outside the bench also another.
    pub name: String,
    /// How it is made.
    pub description: String,
    /// MTU in octets; null when skipped.
    pub mtu: Option<u32>,
    /// Kernel settings that bear on TCP, as seen on this path.
    pub sysctls: BTreeMap<String, String>,
    /// Why it could not be made; null when it was.
    pub skipped: Option<String>,
}

/// What a row measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Subject {
    /// Something that no stack of the bench serves; a runner outside (`tests/rig/record.py`) measured it.
    Named {
        /// Short unique name.
        name: String,
        /// A sentence for people.
        what: String,
    },
    /// A workload of the bench's.
    #[serde(untagged)]
    Workload(Workload),
}

/// One workload on one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowRecord {
    /// Path name, slash, workload id.
    pub id: String,
    /// Path name.
    pub path: String,
    /// What was measured.
    pub workload: Subject,
    /// Metric the row is judged by.
    pub metric: Metric,
    /// Stacks the others are compared with; the best of them counts.
    pub reference: Vec<String>,
    /// One per stack.
    pub cells: Vec<CellRecord>,
}

/// One stack on one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// Stack name.
    pub stack: String,
    /// Name of the build of Weft, where two are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Command lines of the last repetition: server, then client.
    pub commands: Vec<String>,
    /// Why it was not run at all; null when it was.
    pub skipped: Option<String>,
    /// In the order they were taken.
    pub samples: Vec<Sample>,
    /// How this build stood to the one beside it when the pairs ended; none for the other build, and where there is one
    /// only. A report computes it anew, from the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<PairsRecord>,
    /// What it takes in instructions; none where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
}

/// What decided that a row had pairs enough: the ratio, above 1 where this build is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairsRecord {
    /// Pairs of which both samples are good.
    pub pairs: usize,
    /// Typical ratio within a pair.
    pub ratio: f64,
    /// Lower and upper end of its 95 % interval; null for fewer pairs than it takes.
    pub interval: Option<(f64, f64)>,
}

/// Instructions of a program that passes messages between two ends of its own, as callgrind counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Command line of the last count.
    pub command: String,
    /// Why there is no count; null when there is one.
    pub skipped: Option<String>,
    /// In the order they were taken.
    pub counts: Vec<Count>,
}

/// One run of the program from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Messages it passed.
    pub messages: u64,
    /// Instructions it took.
    pub instructions: u64,
}

/// One measurement of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counted from 1.
    pub repetition: u32,
    /// Seconds since the run started.
    pub at: f64,
    /// Seconds from start of the programs to their end.
    pub took: f64,
    /// Figures, or what went wrong.
    #[serde(flatten)]
    pub outcome: Outcome,
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

/// Makes the folder for records, and sees that one can be written there: before hours are spent on what goes into it.
pub fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .and_then(|()| tempfile::tempfile_in(folder))
        .with_context(|| {
            format!(
                "nothing can be written to {} (--output names another folder)",
                folder.display()
            )
        })?;
    Ok(())
}

impl Run {
    /// Reads a record and checks that this program understands it.
    pub fn read(path: &Path) -> Result<Run> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let value: serde_json::Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is not JSON", path.display()))?;
        let (schema, version) = (value["schema"].as_str(), value["version"].as_u64());
        if (schema, version) != (Some(SCHEMA), Some(VERSION.into())) {
            bail!(
                "{} is not a {SCHEMA} record of version {VERSION}",
                path.display()
            );
        }
        serde_json::from_value(value)
            .with_context(|| format!("{} does not follow the schema", path.display()))
    }

    /// Writes the record into `folder`, which [`make_folder`] has made, under its start time and returns the file's
    /// path.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(format!("{}.json", self.started.replace([':', '-'], "")));
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// The row with this id.
    pub fn row(&self, id: &str) -> Option<&RowRecord> {
        self.rows.iter().find(|row| row.id == id)
    }
}

impl Subject {
    /// A sentence for people.
    pub fn describe(&self) -> String {
        match self {
            Subject::Named { what, .. } => what.clone(),
            Subject::Workload(workload) => workload.describe(),
        }
    }
}

impl RowRecord {
    /// The cell of this stack.
    pub fn cell(&self, stack: &str) -> Option<&CellRecord> {
        self.cells.iter().find(|cell| cell.stack == stack)
    }
}

impl CellRecord {
    /// A cell without samples.
    pub fn new(stack: String) -> CellRecord {
        CellRecord {
            stack,
            build: None,
            commands: Vec::new(),
            skipped: None,
            samples: Vec::new(),
            ratio: None,
            instructions: None,
        }
    }

    /// Stack, and build where there are two: `weft crc=on (beside)`.
    pub fn label(&self) -> String {
        match &self.build {
            Some(build) => format!("{} ({build})", self.stack),
            None => self.stack.clone(),
        }
    }

    /// Repetition and value of every sample that has this metric.
    pub fn values(&self, metric: &str) -> Vec<(u32, f64)> {
        self.samples
            .iter()
            .filter_map(|s| Some((s.repetition, *s.metrics()?.get(metric)?)))
            .collect()
    }

    /// The samples that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.samples.iter().filter_map(|s| match &s.outcome {
            Outcome::Failure(failure) => Some(failure),
            Outcome::Metrics(_) => None,
        })
    }
}

impl Sample {
    fn metrics(&self) -> Option<&Metrics> {
        match &self.outcome {
            Outcome::Metrics(metrics) => Some(metrics),
            Outcome::Failure(_) => None,
        }
    }
}
