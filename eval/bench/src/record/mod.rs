//! The raw record of one run, as it stands on disk. Nothing in it is computed from anything else in
//! it.
//!
//! The schema is `docs/schema/weft-bench-2.schema.json`; [`VERSION`] goes up when a reader of the old
//! one would misread. Records of version 1 are read as well ([`read`]).

mod instructions;
mod read;
mod sample;
mod slide;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::axis::Axis;
use crate::metric::Metric;
use crate::verbs::Verbs;
pub use instructions::{Count, Instructions};
pub use sample::{CoreRecord, Failure, MachineRecord, Metrics, Outcome, RoleRecord, Sample};
pub use slide::SlideRecord;

/// Value of [`Run::schema`].
pub const SCHEMA: &str = "weft-bench";
/// Value of [`Run::version`].
pub const VERSION: u32 = 2;
/// The oldest version that is read.
pub const OLDEST_VERSION: u32 = 1;

/// One run of the bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`], also after an older one was read.
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
    /// The slide of the user's own that microscopes looked at; none where it was drawn from a seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slide: Option<SlideRecord>,
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
    /// Every size and mode.
    #[serde(default)]
    pub full: bool,
    /// Every row of the usual sizes and modes; true in records that are older than the choice.
    #[serde(default = "yes")]
    pub wide: bool,
    /// Only the rows that targets need.
    #[serde(default)]
    pub targets: bool,
    /// Names of the paths; empty is the usual ones.
    #[serde(default)]
    pub paths: Vec<String>,
}

fn yes() -> bool {
    true
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
    /// The hosts on it; none in records of version 1.
    #[serde(default)]
    pub hosts: Vec<HostRecord>,
    /// What joins them; none on one host alone.
    #[serde(default)]
    pub links: Vec<LinkRecord>,
}

/// A host of a path: a machine, or a network namespace that stands for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Name, as roles have it.
    pub name: String,
    /// Address at which the others reach it.
    pub address: String,
    /// The machine; none where it is that of the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
}

/// A link of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// Names of its two hosts, or of a host and the bridge that several meet at.
    pub between: (String, String),
    /// What it is: `veth`, `emulated`.
    pub kind: String,
    /// Settings by name, in the words of the command that makes it: `delay` to `5ms`.
    pub settings: BTreeMap<String, String>,
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
    Verbs(Verbs),
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
    /// Where the row stands among others of its sort; none in records of version 1, and for rows that are alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<Axis>,
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
    /// The stack that this cell measures once more under another name, so that what two measurements of one thing
    /// differ by can be seen: the noise of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<String>,
    /// The cast of the last repetition, in the order of their start.
    pub commands: Vec<CommandRecord>,
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

/// A program of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "read::AnyCommand")]
pub struct CommandRecord {
    /// Its part: `server`, `client`; empty where a record of version 1 does not tell.
    pub role: String,
    /// Name of its host; empty where a record of version 1 does not tell.
    pub host: String,
    /// The core it is tied to; none where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Command line, programs by name.
    pub command: String,
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
    /// Reads a record, also of an older version, and checks that its figures can be: what a report is made of may come
    /// from anybody.
    ///
    /// # Errors
    /// What is wrong with the file and where.
    pub fn read(path: &Path) -> Result<Run> {
        read::run(path)
    }

    /// The name of its file, by its start.
    pub fn file_name(&self) -> String {
        format!("{}.json", self.started.replace([':', '-'], ""))
    }

    /// Writes the record to a file: whole or not at all, so that a machine that stops here, or a disk that is full,
    /// leaves what stood there before.
    pub fn write_to(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.as_file()
                .set_permissions(Permissions::from_mode(0o644))?;
            file.persist(path).map_err(|e| e.error)?;
            Ok(())
        });
        written.with_context(|| format!("cannot write {}", path.display()))
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
            Subject::Verbs(workload) => workload.describe(),
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
            again: None,
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
