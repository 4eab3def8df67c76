//! The stacks that are compared, one file each.

mod ablation;
mod adapters;
mod by_gid;
mod cm_connect;
pub(crate) mod compiled;
mod counted;
mod datagrams;
mod hooked;
mod iperf3;
mod libfabric;
mod mpi;
mod native;
mod perftest;
mod pick_and_post;
mod probe;
mod ranks;
mod raw_tcp;
mod raw_udp;
mod rsockets;
mod site;
mod sockets;
mod sockperf;
mod transfer;
mod ucx;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Result;

use crate::exec::Output;
use crate::job::{Invocation, Job, Seat};
use crate::path::{two_links::Links, Host, PathKind};
use crate::record::Metrics;
use crate::verbs::{Op, Verbs};

pub(crate) use crate::installed::{need, on_path};
pub use ablation::{Ablation, Of, ALL_ON, NO_CRC};
pub use datagrams::{
    UdpProgram, UDP, UDP_GSO, UDP_OWN, UOE, UOE_FORGIVING, UOE_INLINE, UOE_PATIENT, UOE_WAITING,
};
pub use iperf3::NAME as IPERF3;
pub use mpi::TCP as MPI_TCP;
pub use site::Site;
pub use sockets::{Program, DDP, PLAIN_CLIENT, TCP, TCP_UNDER_HOOKS};
pub use sockperf::SOCKPERF;
pub use transfer::{
    Transfer, AS_IT_COMES, AT_A_RATE, AT_A_RATE_IN_ORDER, IN_ORDER, ON_KERNEL_TCP, SOCKETS,
};

/// Something that moves octets from one process to another and can be measured doing so.
pub trait Stack {
    /// Name in records, with the variant: `weft crc=off`.
    fn name(&self) -> String;

    /// Whether this stack has an answer to this workload on this path. A stack that could but is
    /// not installed says yes here and no in [`Stack::ready`], so that its cell shows why it is
    /// empty.
    fn serves(&self, workload: &Verbs, path: PathKind) -> bool;

    /// An error says what is missing and how to get it.
    fn ready(&self) -> Result<()>;

    /// The programs that measure `workload`.
    fn job(&self, workload: &Verbs, site: &Site) -> Job;

    /// The figures in what they printed; among them the workload's own metric.
    fn parse(&self, workload: &Verbs, output: &Output) -> Result<Metrics>;

    /// How the bench's own program of sockets comes onto this stack, unmodified: `words` are its arguments. None where
    /// the stack does not carry sockets.
    fn launch(&self, words: &[String]) -> Option<Invocation> {
        let _ = words;
        None
    }

    /// How a program of sockets comes onto this stack, unmodified, as a server or as a client. None where the stack is
    /// not one of those that tell what DDP costs such programs.
    fn carry(&self, seat: Seat, program: Program) -> Option<Invocation> {
        let _ = (seat, program);
        None
    }

    /// Whether it is one of those that tell what offload gives programs of UDP, on this path.
    fn carries_datagrams(&self, path: PathKind) -> bool {
        let _ = path;
        false
    }

    /// How the bench's own program of UDP comes onto this stack at a host, unmodified. None where the stack is not one
    /// of those.
    fn carry_datagrams(&self, host: &Host, program: UdpProgram<'_>) -> Option<Invocation> {
        let _ = (host, program);
        None
    }

    /// Whether it has a program of its own that gets payloads to the places that their headers name, on this path.
    fn places(&self, path: PathKind) -> bool {
        let _ = path;
        false
    }

    /// That program, as the receiver (the server) or as the sender. None where the stack has none.
    fn place(&self, placing: &Placing, site: &Site, seat: Seat) -> Option<Invocation> {
        let _ = (placing, site, seat);
        None
    }

    /// Whether it tells something beside an adapter, on its path.
    fn beside_adapters(&self) -> bool {
        false
    }

    /// The command that emulates a link for the rows of such programs, where the stack has one.
    fn emulates(&self) -> Option<&Weft> {
        None
    }

    /// The receiver and the sender of messages over an emulated link, and the command that emulates it. None where
    /// this stack has no such programs.
    fn transfer(&self, what: &Transfer, site: &Site) -> Option<(&Weft, [Invocation; 2])> {
        let _ = (what, site);
        None
    }

    /// Whether it is one of those that carry programs of MPI, on this path.
    fn carries_ranks(&self, path: PathKind) -> bool {
        let _ = path;
        false
    }

    /// What starts ranks of the bench's own program of MPI on this stack, two on one host or one on each of several:
    /// `words` are its arguments, `links` what they use of two links between the hosts, where there are
    /// two. None where the stack is not one of those.
    fn ranks(&self, words: &[String], links: Option<Links>, site: &Site) -> Option<Invocation> {
        let _ = (words, links, site);
        None
    }

    /// What processes of MPI run under whose messages go by Weft's device, and the stack of the sockets beside them.
    /// None where the stack says nothing of MPI's messages.
    fn under_ranks(&self) -> Option<(&Weft, &dyn Stack)> {
        None
    }

    /// What of the way it has less or more than others, and the bench with these arguments. None where it is no column
    /// of an ablation.
    fn ablated(&self, words: &[String]) -> Option<(Ablation, Invocation)> {
        let _ = words;
        None
    }

    /// One program that passes `messages` of this workload between two ends of its own, for callgrind to count its
    /// instructions. An error says why there is none.
    fn counted(&self, workload: &Verbs, messages: u64) -> Result<Invocation> {
        let _ = messages;
        anyhow::bail!("no program counts the instructions of {}", workload.id())
    }
}

/// Payloads to the places that their headers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// How the receiver gets them there, as the programs name it.
    pub way: &'static str,
    /// Octets of a payload.
    pub size: u64,
}

/// The executables that are not simply found on `PATH`.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This executable and the words that make it the bench.
    pub bench: (PathBuf, Vec<OsString>),
    /// What starts programs over Weft.
    pub weft: Weft,
    /// A folder for what is compiled on the spot.
    pub scratch: PathBuf,
}

/// A `weft` command and the libraries it brings programs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weft {
    /// The command.
    pub command: PathBuf,
    /// The folder with the libraries; none for those that the command finds.
    pub libraries: Option<PathBuf>,
}

impl Weft {
    /// The command with the libraries that it finds.
    pub fn new(command: impl Into<PathBuf>) -> Weft {
        Weft {
            command: command.into(),
            libraries: None,
        }
    }

    /// `weft run OPTIONS --`, for a program and its arguments to follow.
    pub fn run(&self, options: &[&str]) -> Invocation {
        let folder = self.libraries.iter();
        Invocation::new(&self.command, ["run"])
            .args(folder.flat_map(|folder| [OsStr::new("--libdir"), folder.as_os_str()]))
            .args(options)
            .args(["--"])
    }

    fn ready(&self) -> Result<()> {
        anyhow::ensure!(
            self.command.is_file() || on_path(&self.command.to_string_lossy()),
            "there is no {} (make build)",
            self.command.display()
        );
        Ok(())
    }
}

/// Every stack, references first.
pub fn all(programs: &Programs) -> Vec<Box<dyn Stack>> {
    let raw_tcp = |nagle| raw_tcp::RawTcp {
        bench: programs.bench.clone(),
        nagle,
    };
    let iperf3 = |message_sized| iperf3::Iperf3 { message_sized };
    let libfabric = |endpoint| libfabric::Libfabric { endpoint };
    let datagrams = |under| datagrams::Datagrams::new(programs, under);
    let mut stacks: Vec<Box<dyn Stack>> = vec![
        Box::new(raw_tcp(false)),
        Box::new(raw_tcp(true)),
        Box::new(raw_udp::RawUdp {
            bench: programs.bench.clone(),
        }),
        Box::new(iperf3(false)),
        Box::new(iperf3(true)),
        Box::new(sockperf::Sockperf),
        Box::new(sockets::Sockets::new(programs, sockets::Under::Nothing)),
        Box::new(datagrams(datagrams::Under::Nothing)),
        Box::new(datagrams(datagrams::Under::Own)),
    ];
    let mpi = [mpi::Over::Tcp, mpi::Over::SharedMemory, mpi::Over::UcxTcp];
    stacks.extend(mpi.map(|over| -> Box<dyn Stack> { Box::new(mpi::Mpi::new(programs, over)) }));
    stacks.extend(of_weft(programs));
    let others: [Box<dyn Stack>; 2] = [
        Box::new(libfabric(libfabric::Endpoint::Msg)),
        Box::new(libfabric(libfabric::Endpoint::Rdm)),
    ];
    stacks.extend(others);
    stacks.extend(ucx::own());
    stacks.extend(ablation::all(programs));
    stacks
}

/// The stacks that a build of Weft has a part in: what differs between two builds.
pub fn of_weft(programs: &Programs) -> Vec<Box<dyn Stack>> {
    use perftest::Variant;
    use sockets::{Sockets, Under};
    let weft = |variant| perftest::Perftest::new(programs, variant);
    let native = |crc| native::Native::new(programs, crc);
    let connect = |crc| cm_connect::CmConnect::new(programs, crc);
    let placing = |crc| pick_and_post::PickAndPost::new(programs, crc);
    let by_gid = |crc| by_gid::ByGid::new(programs, crc);
    let ucx = |api| ucx::Ucx {
        api,
        carrier: ucx::Carrier::Weft(programs.weft.clone()),
    };
    let mut stacks: Vec<Box<dyn Stack>> = vec![
        Box::new(weft(Variant::Manager { crc: false })),
        Box::new(weft(Variant::Manager { crc: true })),
        Box::new(weft(Variant::ManagerEmss { crc: false })),
        Box::new(weft(Variant::ManagerEmss { crc: true })),
        Box::new(native(false)),
        Box::new(native(true)),
        Box::new(connect(false)),
        Box::new(connect(true)),
        Box::new(placing(false)),
        Box::new(placing(true)),
        Box::new(weft(Variant::Gid { crc: false })),
        Box::new(weft(Variant::Gid { crc: true })),
        Box::new(by_gid(false)),
        Box::new(by_gid(true)),
    ];
    stacks.extend(of_adapter(programs));
    let socket_rules = [Under::Hooks, Under::Ddp, Under::DdpListener];
    stacks.extend(
        socket_rules.map(|under| -> Box<dyn Stack> { Box::new(Sockets::new(programs, under)) }),
    );
    for under in [
        datagrams::Under::Gso,
        datagrams::Under::Uoe,
        datagrams::Under::UoeWaiting,
        datagrams::Under::UoePatient,
        datagrams::Under::UoeInline,
        datagrams::Under::UoeForgiving,
    ] {
        stacks.push(Box::new(datagrams::Datagrams::new(programs, under)));
    }
    let mpi = |same_host| mpi::Mpi::new(programs, mpi::Over::Weft { same_host });
    let others: [Box<dyn Stack>; 9] = [
        Box::new(rsockets::Rsockets::new(programs, false)),
        Box::new(rsockets::Rsockets::new(programs, true)),
        Box::new(ranks::Ranks::new(programs)),
        Box::new(weft(Variant::Ud)),
        Box::new(hooked::Hooked::new(programs)),
        Box::new(ucx(ucx::Api::Tag)),
        Box::new(ucx(ucx::Api::Put)),
        Box::new(mpi(true)),
        Box::new(mpi(false)),
    ];
    stacks.extend(others);
    stacks
}

/// Those with a TCP of their own, and what only they are compared with.
fn of_adapter(programs: &Programs) -> Vec<Box<dyn Stack>> {
    use adapters::{Adapters, Fpdu};
    use perftest::{Perftest, Variant};
    use probe::{Layer, Probe};
    use transfer::{Carrier, Transferring};
    let mut stacks: Vec<Box<dyn Stack>> = Vec::new();
    for layer in [Layer::Device, Layer::Tcp] {
        stacks.push(Box::new(Probe::new(programs, layer)));
    }
    for at in [Adapters::Both, Adapters::Client, Adapters::Server] {
        for fpdu in [Fpdu::Emss, Fpdu::Large] {
            for crc in [false, true] {
                let variant = Variant::Inline { crc, at, fpdu };
                stacks.push(Box::new(Perftest::new(programs, variant)));
            }
        }
    }
    for carrier in [
        Carrier::Sockets,
        Carrier::Kernel,
        Carrier::Inline { place: "in-order" },
        Carrier::Inline { place: "safe" },
        Carrier::Rate { place: "in-order" },
        Carrier::Rate { place: "safe" },
    ] {
        stacks.push(Box::new(Transferring::new(programs, carrier)));
    }
    stacks
}

/// The stacks a workload's others are compared with; the best of them counts.
pub fn references(workload: &Verbs) -> Vec<String> {
    let names: &[&str] = match workload {
        _ if workload.op() == Some(Op::UdSend) => &[raw_udp::NAME],
        Verbs::Latency { .. } | Verbs::Rate { .. } => &[raw_tcp::NAME],
        Verbs::Connect | Verbs::BringUp => &[raw_tcp::NAME],
        Verbs::Bulk { size, .. } if *size > iperf3::LONGEST_BLOCK => &[iperf3::NAME],
        Verbs::Bulk { .. } => &[iperf3::NAME, iperf3::NAME_MESSAGE_SIZED],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Name of the kernel's TCP under the bench's own programs.
pub const RAW_TCP: &str = raw_tcp::NAME;

/// Name of a Weft stack with its variant.
pub fn weft_name(crc: bool) -> String {
    format!("weft crc={}", on_off(crc))
}

/// Name of a Weft stack whose queue pairs come up by GID and number.
pub fn weft_gid_name(crc: bool) -> String {
    format!("weft gid crc={}", on_off(crc))
}

/// Name of the Weft stack for datagrams, which have no CRC.
pub const WEFT_UD: &str = "weft ud";

/// Name of a Weft stack that keeps its FPDUs to the EMSS.
pub fn weft_emss_name(crc: bool) -> String {
    format!("{} fpdu=emss", weft_name(crc))
}

fn on_off(on: bool) -> &'static str {
    if on {
        "on"
    } else {
        "off"
    }
}

/// The numbers of a line of a table; `None` where a word is no number.
fn numbers(line: &str) -> Option<Vec<f64>> {
    let words: Option<Vec<f64>> = line
        .split_ascii_whitespace()
        .map(|w| w.parse().ok())
        .collect();
    words.filter(|w| !w.is_empty() && w.iter().all(|n: &f64| n.is_finite()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan;
    use crate::workload::Given;
    use clap::ValueEnum;
    use std::collections::HashSet;

    /// The kernel's TCP, for tests of others.
    pub(crate) fn raw_tcp() -> impl Stack {
        raw_tcp::RawTcp {
            bench: ("weft".into(), vec!["bench".into()]),
            nagle: false,
        }
    }

    /// Programs that nothing runs.
    pub(crate) fn programs() -> Programs {
        Programs {
            bench: ("weft".into(), vec!["bench".into()]),
            weft: Weft::new("weft"),
            scratch: "scratch".into(),
        }
    }

    #[test]
    fn no_two_stacks_share_a_name_on_a_row() {
        let stacks = all(&programs());
        for &path in PathKind::value_variants() {
            for workload in plan::workloads(path, true, &Given::default()) {
                let names: Vec<_> = stacks
                    .iter()
                    .filter(|s| workload.serves(s.as_ref(), path))
                    .map(|s| s.name())
                    .collect();
                assert_eq!(
                    names.iter().collect::<HashSet<_>>().len(),
                    names.len(),
                    "{}: {names:?}",
                    workload.id()
                );
            }
        }
    }

    #[test]
    fn every_row_has_its_references_and_weft() {
        let stacks = all(&programs());
        for workload in plan::workloads(PathKind::Loopback, true, &Given::default()) {
            let serves = |name: &str| {
                stacks
                    .iter()
                    .any(|s| s.name() == name && workload.serves(s.as_ref(), PathKind::Loopback))
            };
            assert!(
                workload.references().iter().all(|name| serves(name)),
                "{}",
                workload.id()
            );
            let both = |name: fn(bool) -> String| serves(&name(true)) && serves(&name(false));
            if workload.id().starts_with("agree-") {
                continue;
            }
            assert!(
                both(weft_name)
                    || both(weft_gid_name)
                    || serves(WEFT_UD)
                    || serves(hooked::NAME)
                    || serves(DDP)
                    || serves(UOE)
                    || serves(mpi::WEFT),
                "{}",
                workload.id()
            );
        }
    }
}
