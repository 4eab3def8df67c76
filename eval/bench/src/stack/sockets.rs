//! Programs of sockets, unmodified, over the kernel's TCP and over DDP: what is put under the server and under the
//! client.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, Result};

use super::{Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job, Seat};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::Verbs;

/// Name of the kernel's TCP, without Weft.
pub const TCP: &str = "tcp";
/// Name of the kernel's TCP under hooks, with a rule that fits no socket of the program.
pub const TCP_UNDER_HOOKS: &str = "tcp under hooks";
/// Name of DDP at both ends.
pub const DDP: &str = "ddp";
/// Name of a listener that would take DDP, and clients without Weft.
pub const PLAIN_CLIENT: &str = "ddp listener, plain client";

/// A program of sockets.
#[derive(Clone, Copy, Debug)]
pub enum Program<'a> {
    /// The bench's own, with these arguments.
    Bench(&'a [String]),
    /// One that is to be found on `PATH`, and its arguments.
    Installed(&'a str, &'a [String]),
}

/// What is under the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Under {
    Nothing,
    Hooks,
    Ddp,
    DdpListener,
}

impl Under {
    /// The rule for TCP sockets at this end; none where Weft is not there.
    fn rule(self, seat: Seat) -> Option<&'static str> {
        match (self, seat) {
            (Under::Nothing, _) | (Under::DdpListener, Seat::Client) => None,
            // Nobody here has port 1.
            (Under::Hooks, _) => Some("require port=1"),
            (Under::Ddp, _) => Some("require"),
            (Under::DdpListener, Seat::Server) => Some("require direction=listen"),
        }
    }
}

/// One of the ways.
pub(super) struct Sockets {
    weft: Weft,
    bench: (PathBuf, Vec<OsString>),
    under: Under,
}

impl Sockets {
    pub(super) fn new(programs: &Programs, under: Under) -> Sockets {
        Sockets {
            weft: programs.weft.clone(),
            bench: programs.bench.clone(),
            under,
        }
    }
}

impl Stack for Sockets {
    fn name(&self) -> String {
        match self.under {
            Under::Nothing => TCP,
            Under::Hooks => TCP_UNDER_HOOKS,
            Under::Ddp => DDP,
            Under::DdpListener => PLAIN_CLIENT,
        }
        .to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        match self.under {
            Under::Nothing => Ok(()),
            _ => self.weft.ready(),
        }
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(&self.bench.0, &self.bench.1);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("there is no verbs program of sockets for {}", workload.id())
    }

    fn carry(&self, seat: Seat, program: Program) -> Option<Invocation> {
        let plain = match program {
            Program::Bench(words) => Invocation::new(&self.bench.0, &self.bench.1).args(words),
            Program::Installed(name, words) => Invocation::new(name, words),
        };
        Some(match self.under.rule(seat) {
            None => plain,
            Some(rule) => self
                .weft
                .run(&["--ddp", rule])
                .args([plain.program])
                .args(plain.args),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(under: Under) -> [String; 2] {
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        };
        let stack = Sockets::new(&programs, under);
        let words = ["raw".to_owned()];
        let shown = |seat, program| stack.carry(seat, program).unwrap().display();
        [
            shown(Seat::Server, Program::Bench(&words)),
            shown(Seat::Client, Program::Installed("redis-benchmark", &[])),
        ]
    }

    #[test]
    fn only_the_listener_of_a_plain_client_is_under_weft() {
        assert_eq!(
            carried(Under::Nothing),
            ["weft bench raw", "redis-benchmark"]
        );
        assert_eq!(
            carried(Under::DdpListener),
            [
                "weft run --ddp require direction=listen -- weft bench raw",
                "redis-benchmark"
            ]
        );
    }

    #[test]
    fn ddp_and_the_hooks_are_at_both_ends() {
        assert_eq!(
            carried(Under::Ddp),
            [
                "weft run --ddp require -- weft bench raw",
                "weft run --ddp require -- redis-benchmark"
            ]
        );
        assert_eq!(
            carried(Under::Hooks),
            [
                "weft run --ddp require port=1 -- weft bench raw",
                "weft run --ddp require port=1 -- redis-benchmark"
            ]
        );
    }
}
