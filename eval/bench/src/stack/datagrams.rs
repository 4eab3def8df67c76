//! Programs of UDP, unmodified, over the kernel's UDP, with segmentation offload, and over carriers: what is put under
//! the receiver and under the sender.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, Result};

use super::{Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

/// Name of the kernel's UDP, without Weft.
pub const UDP: &str = "udp";
/// Name of the kernel's UDP under a program that gives it and takes from it 64 KB at a time.
pub const UDP_OWN: &str = "udp, own GSO/GRO";
/// Name of partial offload at both ends.
pub const UDP_GSO: &str = "udp gso";
/// Name of carriers on the kernel's TCP, at both ends.
pub const UOE: &str = "uoe";

/// What is under the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Under {
    Nothing,
    /// The program does itself what partial offload does for others.
    Own,
    Gso,
    Uoe,
}

impl Under {
    /// The rule for UDP sockets; none where Weft is not there.
    fn rule(self) -> Option<&'static str> {
        match self {
            Under::Nothing | Under::Own => None,
            Under::Gso => Some("gso"),
            Under::Uoe => Some("uoe prefer"),
        }
    }
}

/// One of the ways.
pub(super) struct Datagrams {
    weft: Weft,
    bench: (PathBuf, Vec<OsString>),
    under: Under,
}

impl Datagrams {
    pub(super) fn new(programs: &Programs, under: Under) -> Datagrams {
        Datagrams {
            weft: programs.weft.clone(),
            bench: programs.bench.clone(),
            under,
        }
    }
}

impl Stack for Datagrams {
    fn name(&self) -> String {
        match self.under {
            Under::Nothing => UDP,
            Under::Own => UDP_OWN,
            Under::Gso => UDP_GSO,
            Under::Uoe => UOE,
        }
        .to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        match self.under.rule() {
            None => Ok(()),
            Some(_) => self.weft.ready(),
        }
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(&self.bench.0, &self.bench.1);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("there is no verbs program of UDP for {}", workload.id())
    }

    fn carry_datagrams(&self, words: &[String]) -> Option<Invocation> {
        let plain = match self.under.rule() {
            None => Invocation::new(&self.bench.0, &self.bench.1),
            Some(rule) => self
                .weft
                .run(&["--udp", rule])
                .args([&self.bench.0])
                .args(&self.bench.1),
        };
        let own = (self.under == Under::Own).then_some("--own");
        Some(plain.args(words).args(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(under: Under) -> String {
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        };
        let words = ["raw".to_owned()];
        let stack = Datagrams::new(&programs, under);
        stack.carry_datagrams(&words).unwrap().display()
    }

    #[test]
    fn the_program_is_the_same_and_what_is_under_it_is_not() {
        assert_eq!(carried(Under::Nothing), "weft bench raw");
        assert_eq!(carried(Under::Own), "weft bench raw --own");
        assert_eq!(carried(Under::Gso), "weft run --udp gso -- weft bench raw");
        assert_eq!(
            carried(Under::Uoe),
            "weft run --udp uoe prefer -- weft bench raw"
        );
    }
}
