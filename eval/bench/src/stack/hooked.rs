//! The kernel's TCP under programs that run with Weft's hooks, which leave it to the kernel: what the hooks cost those
//! who do not use what they bring.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, Result};

use super::{Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

pub(super) const NAME: &str = "weft hooks";

/// A rule for datagrams brings the hooks; the sockets of TCP are none of theirs.
const RULE: [&str; 2] = ["--udp", "gso"];

/// `weft run --udp gso`, for programs of TCP.
pub(super) struct Hooked {
    weft: Weft,
    bench: (PathBuf, Vec<OsString>),
}

impl Hooked {
    pub(super) fn new(programs: &Programs) -> Hooked {
        Hooked {
            weft: programs.weft.clone(),
            bench: programs.bench.clone(),
        }
    }
}

impl Stack for Hooked {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(&self.bench.0, &self.bench.1);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("there is no verbs program of sockets for {}", workload.id())
    }

    fn launch(&self, words: &[String]) -> Option<Invocation> {
        let program = self.weft.run(&RULE).args([&self.bench.0]);
        Some(program.args(&self.bench.1).args(words))
    }
}
