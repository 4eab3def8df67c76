//! One piece of the way less, or more: what the rows of an ablation compare.
//!
//! What a device does here is what the far end of a veth makes unnecessary: a packet that is not cut, and no checksum
//! computed. Off, the kernel does it in software, on the cores of the two ends.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, Result};

use super::{Programs, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::offloads::Offload::{self, Checksum, Gro, Gso, Tso, Uso};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

/// Name of the column of rows of sockets that has everything.
pub const ALL_ON: &str = "all on";
/// Name of the column of the row of RDMA that has neither.
pub const NO_CRC: &str = "no CRC, no markers";

/// Whose pieces they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A stream of TCP with long messages.
    Bulk,
    /// A stream of TCP with short ones.
    Small,
    /// Datagrams.
    Datagrams,
    /// RDMA Writes.
    Rdma,
}

/// A column of such a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ablation {
    /// Its name.
    pub name: &'static str,
    /// Whose row has it.
    pub of: Of,
    /// Whether it tells something of a message alone, there and back.
    pub alone: bool,
    /// What the devices do not do.
    pub off: &'static [Offload],
    /// What the program is told beside.
    pub words: &'static [&'static str],
    /// Settings of Weft.
    pub env: &'static [(&'static str, &'static str)],
}

const NOTHING: Ablation = Ablation {
    name: ALL_ON,
    of: Of::Bulk,
    alone: true,
    off: &[],
    words: &[],
    env: &[],
};

const BULK: [Ablation; 9] = [
    NOTHING,
    Ablation {
        alone: false,
        ..bulk("no TSO", &[Tso], &[])
    },
    Ablation {
        alone: false,
        ..bulk("no TSO, no GSO", &[Tso, Gso], &[])
    },
    Ablation {
        alone: false,
        ..bulk("no TSO, no GRO", &[Tso, Gro], &[])
    },
    bulk("no TSO, no checksum", &[Tso, Uso, Checksum], &[]),
    bulk("no offload", &[Checksum, Tso, Uso, Gso, Gro], &[]),
    bulk("one copy more", &[], &["--copy"]),
    bulk("a second thread", &[], &["--thread"]),
    bulk(
        "all off",
        &[Checksum, Tso, Uso, Gso, Gro],
        &["--copy", "--thread"],
    ),
];

const SMALL: [Ablation; 3] = [
    small(ALL_ON, &["--batch=16"]),
    small("no batching", &[]),
    small("no batching, Nagle", &["--nagle"]),
];

const SEGMENT: &str = "--carrier=udp-segment";
const MANY: &str = "--carrier=udp-many";
const ONE: &str = "--carrier=udp";

const DATAGRAMS: [Ablation; 10] = [
    datagrams(ALL_ON, &[], &[SEGMENT]),
    Ablation {
        alone: false,
        ..datagrams("no USO", &[Uso], &[SEGMENT])
    },
    Ablation {
        alone: false,
        ..datagrams("no USO, no GRO", &[Uso, Gro], &[SEGMENT])
    },
    datagrams("no USO, no checksum", &[Tso, Uso, Checksum], &[SEGMENT]),
    Ablation {
        alone: false,
        ..datagrams("no GSO", &[], &[MANY])
    },
    Ablation {
        alone: false,
        ..datagrams("no GSO, no checksum", &[Tso, Uso, Checksum], &[MANY])
    },
    Ablation {
        alone: false,
        ..datagrams("no GSO, no batching", &[], &[ONE])
    },
    datagrams("one copy more", &[], &[SEGMENT, "--copy"]),
    datagrams("a second thread", &[], &[SEGMENT, "--thread"]),
    datagrams(
        "all off",
        &[Checksum, Tso, Uso, Gso, Gro],
        &[ONE, "--copy", "--thread"],
    ),
];

const RDMA: [Ablation; 4] = [
    rdma(NO_CRC, &[("WEFT_CRC", "off"), ("WEFT_MARKERS", "off")]),
    rdma("CRC", &[("WEFT_CRC", "on"), ("WEFT_MARKERS", "off")]),
    rdma("markers", &[("WEFT_CRC", "off"), ("WEFT_MARKERS", "on")]),
    rdma(
        "CRC, markers",
        &[("WEFT_CRC", "on"), ("WEFT_MARKERS", "on")],
    ),
];

const fn bulk(
    name: &'static str,
    off: &'static [Offload],
    words: &'static [&'static str],
) -> Ablation {
    Ablation {
        name,
        off,
        words,
        ..NOTHING
    }
}

const fn small(name: &'static str, words: &'static [&'static str]) -> Ablation {
    Ablation {
        name,
        of: Of::Small,
        alone: false,
        words,
        ..NOTHING
    }
}

const fn datagrams(
    name: &'static str,
    off: &'static [Offload],
    words: &'static [&'static str],
) -> Ablation {
    Ablation {
        of: Of::Datagrams,
        ..bulk(name, off, words)
    }
}

const fn rdma(name: &'static str, env: &'static [(&'static str, &'static str)]) -> Ablation {
    Ablation {
        name,
        of: Of::Rdma,
        alone: false,
        env,
        ..NOTHING
    }
}

/// One of the columns.
pub(super) struct Ablated {
    bench: (PathBuf, Vec<OsString>),
    ablation: Ablation,
}

/// Every column.
pub(super) fn all(programs: &Programs) -> impl Iterator<Item = Box<dyn Stack>> + '_ {
    let columns = [&BULK[..], &SMALL, &DATAGRAMS, &RDMA].concat();
    columns.into_iter().map(|ablation| {
        let bench = programs.bench.clone();
        Box::new(Ablated { bench, ablation }) as Box<dyn Stack>
    })
}

impl Stack for Ablated {
    fn name(&self) -> String {
        self.ablation.name.to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(&self.bench.0, &self.bench.1);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("{} is no row of an ablation", workload.id())
    }

    fn ablated(&self, words: &[String]) -> Option<(Ablation, Invocation)> {
        let program = Invocation::new(&self.bench.0, &self.bench.1).args(words);
        Some((self.ablation, program))
    }
}
