//! sockperf, a generator that others measure latency with: what the bench's own is held against.

use anyhow::{bail, Result};

use super::{need, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

/// Its name.
pub const SOCKPERF: &str = "sockperf";

/// The kernel's TCP under sockperf. It has no verbs: rows of agreement alone have it.
pub(super) struct Sockperf;

impl Stack for Sockperf {
    fn name(&self) -> String {
        SOCKPERF.to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        need(SOCKPERF, "sockperf")
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(SOCKPERF, [""; 0]);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("sockperf has nothing for {}", workload.id())
    }
}
