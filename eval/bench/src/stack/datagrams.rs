//! Programs of UDP, unmodified, over the kernel's UDP, with segmentation offload, and over carriers: what is put under
//! the receiver and under the sender.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, Result};

use super::adapters::beside;
use super::{Program, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::{Host, PathKind};
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
/// Name of the same where a send waits for a connection, for a second at most.
pub const UOE_WAITING: &str = "uoe mode=2";
/// Name of the same where it waits as long as it takes.
pub const UOE_PATIENT: &str = "uoe wait=forever";
/// Name of carriers on connections of adapters, at both ends.
pub const UOE_INLINE: &str = "uoe inline";
/// Name of those whose receiver wants nothing that is older than 20 ms.
pub const UOE_FORGIVING: &str = "uoe inline age=20ms";

/// What is under the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Under {
    Nothing,
    /// The program does itself what partial offload does for others.
    Own,
    Gso,
    Uoe,
    UoeWaiting,
    UoePatient,
    UoeInline,
    /// The same, and what is missing for too long is waited for no more.
    UoeForgiving,
}

/// A program of UDP.
#[derive(Clone, Copy, Debug)]
pub struct UdpProgram<'a> {
    /// It and its arguments.
    pub program: Program<'a>,
    /// Every datagram is to take a carrier, where there are any, and carriers have no control of congestion where they
    /// need none: the program keeps a pace.
    pub requires: bool,
    /// It is one of the kernel's TCP beside those of the stack.
    pub is_neighbour: bool,
}

impl Under {
    /// The rule for UDP sockets; none where Weft is not there.
    fn rule(self, requires: bool) -> Option<&'static str> {
        match (self, requires) {
            (Under::Nothing | Under::Own, _) => None,
            (Under::Gso, _) => Some("gso"),
            (Under::Uoe, false) => Some("uoe prefer"),
            (Under::Uoe, true) => Some("uoe require"),
            (Under::UoeWaiting, _) => Some("uoe require mode=2"),
            (Under::UoePatient, _) => Some("uoe require wait=forever"),
            (Under::UoeInline, false) => Some("uoe prefer over=adapter"),
            (Under::UoeInline, true) => Some("uoe require over=adapter"),
            (Under::UoeForgiving, false) => Some("uoe prefer over=adapter age=20ms"),
            (Under::UoeForgiving, true) => Some("uoe require over=adapter age=20ms"),
        }
    }

    fn has_adapter(self) -> bool {
        matches!(self, Under::UoeInline | Under::UoeForgiving)
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
            Under::UoeWaiting => UOE_WAITING,
            Under::UoePatient => UOE_PATIENT,
            Under::UoeInline => UOE_INLINE,
            Under::UoeForgiving => UOE_FORGIVING,
        }
        .to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        match self.under.rule(false) {
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

    fn carries_datagrams(&self, path: PathKind) -> bool {
        match self.under {
            // They differ where there is no connection yet, in rows of their own.
            Under::UoeWaiting | Under::UoePatient => false,
            // No adapter has the loopback interface, and nobody gave it addresses on a real network.
            Under::UoeInline => !matches!(path, PathKind::Loopback | PathKind::Hosts),
            // What is missing for long is where a link loses.
            Under::UoeForgiving => path == PathKind::Adapter,
            _ => true,
        }
    }

    fn emulates(&self) -> Option<&Weft> {
        Some(&self.weft)
    }

    fn carry_datagrams(&self, host: &Host, program: UdpProgram<'_>) -> Option<Invocation> {
        let rule = self.under.rule(program.requires);
        let own = match program.program {
            Program::Bench(words) => {
                let is_own = self.under == Under::Own && !program.is_neighbour;
                let bench = Invocation::new(&self.bench.0, &self.bench.1).args(words);
                bench.args(is_own.then_some("--own"))
            }
            Program::Installed(name, words) => Invocation::new(name, words),
        };
        let Some(rule) = rule.filter(|_| !program.is_neighbour) else {
            return Some(own);
        };
        let mut options = vec!["--udp".to_owned(), rule.to_owned()];
        if self.under.has_adapter() {
            options.extend(adapter(host, program.requires));
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Some(self.weft.run(&options).args([own.program]).args(own.args))
    }
}

/// The options of `weft run` that give a program at a host an adapter.
fn adapter(host: &Host, without_control: bool) -> Vec<String> {
    let mut options = vec![
        "--adapter=inline".to_owned(),
        format!("--interface=packet:{}", host.side.interface),
        format!("--address={}/24", beside(host)),
    ];
    options.extend(without_control.then(|| "--tcp=none".to_owned()));
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Side;

    fn carried(under: Under, requires: bool) -> String {
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        };
        let words = ["raw".to_owned()];
        let host = Host {
            name: "one".to_owned(),
            side: Side {
                interface: "veth0".to_owned(),
                ..Side::default()
            },
            address: [10, 1, 0, 2].into(),
            far: None,
        };
        let program = UdpProgram {
            program: Program::Bench(&words),
            requires,
            is_neighbour: false,
        };
        let stack = Datagrams::new(&programs, under);
        stack.carry_datagrams(&host, program).unwrap().display()
    }

    #[test]
    fn the_program_is_the_same_and_what_is_under_it_is_not() {
        let prefers = |under| carried(under, false);
        assert_eq!(prefers(Under::Nothing), "weft bench raw");
        assert_eq!(prefers(Under::Own), "weft bench raw --own");
        assert_eq!(prefers(Under::Gso), "weft run --udp gso -- weft bench raw");
        assert_eq!(
            prefers(Under::Uoe),
            "weft run --udp uoe prefer -- weft bench raw"
        );
        assert_eq!(
            carried(Under::Uoe, true),
            "weft run --udp uoe require -- weft bench raw"
        );
        assert_eq!(
            carried(Under::UoeInline, true),
            "weft run --udp uoe require over=adapter --adapter=inline --interface=packet:veth0 \
             --address=10.1.0.130/24 --tcp=none -- weft bench raw"
        );
    }
}
