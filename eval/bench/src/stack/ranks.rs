//! Processes of MPI whose messages go by Weft's device, beside programs of sockets on the kernel's TCP.

use anyhow::{bail, Result};

use super::sockets::{Sockets, Under};
use super::{Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::Job;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

/// What differs from the kernel's TCP everywhere is MPI.
pub(super) struct Ranks {
    weft: Weft,
    sockets: Sockets,
}

impl Ranks {
    pub(super) fn new(programs: &Programs) -> Ranks {
        Ranks {
            weft: programs.weft.clone(),
            sockets: Sockets::new(programs, Under::Nothing),
        }
    }
}

impl Stack for Ranks {
    fn name(&self) -> String {
        "tcp, mpi weft".to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        self.sockets.job(workload, site)
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("there is no program of MPI for {}", workload.id())
    }

    fn under_ranks(&self) -> Option<(&Weft, &dyn Stack)> {
        Some((&self.weft, &self.sockets))
    }
}
