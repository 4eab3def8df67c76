//! What is measured: one file for each sort of workload.
//!
//! What RDMA programs do ([`Verbs`]) every stack has programs of its own for. What programs of sockets do has one
//! program, of the bench's, which a stack brings onto itself as it is ([`Stack::launch`]).

mod ablation;
mod agreement;
mod at_rate;
mod datagrams;
mod decrypting;
mod fan_in;
mod fan_out;
mod filter_copy;
mod filter_groups;
mod filters;
mod first_datagrams;
mod gather;
mod hot_spot;
mod hot_spot_cpu;
mod made;
mod memcached;
mod mpi;
mod mpi_hosts;
mod mpi_tile;
mod multi_nic;
mod multi_nic_mpi;
mod multi_nic_verbs;
mod nginx_get;
mod over_link;
mod per_octet;
mod placing;
mod redis_get;
mod reports;
mod socket_both;
mod socket_bulk;
mod socket_compute;
mod socket_latency;
mod socket_window;
mod sockets;
mod sockets_idle;
mod streams;
mod striped;
mod udp_over_link;
mod udp_transfer;
mod wire;

use std::fmt::Debug;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::Metric;
use crate::path::PathKind;
use crate::record::{Metrics, Subject};
use crate::stack::{self, Site, Stack};
use crate::verbs::{Mode, Verbs};

pub use datagrams::{
    flow as datagram_flow, PING_PONG_SPINNING, PING_PONG_WAITING, SIZES as DATAGRAM_SIZES,
};
pub use over_link::LinkRate;
pub use redis_get::REDIS_GET;
pub use socket_bulk::{BULK_BUSY, BULK_WAITING};
pub use socket_latency::{LATENCY_EPOLL, LATENCY_SPIN};
pub use sockets_idle::IDLE;

/// What rows are made with that the user may say.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Of the links that rows have emulated.
    pub link_rate: LinkRate,
    /// What microscopes look at; nothing for a slide that is drawn from a seed.
    pub slide: Option<GivenSlide>,
}

/// A slide of the user's own.
#[derive(Clone, Debug)]
pub struct GivenSlide {
    /// Where it is.
    pub file: PathBuf,
    /// How long it took to decode all of it.
    pub decoded_in: Duration,
}

/// One thing to measure.
pub trait Workload: Debug {
    /// Short unique name, such as `send-lat-64` or `fan-in-4`; what `--only` matches.
    fn id(&self) -> String;

    /// A sentence for people.
    fn describe(&self) -> String;

    /// The metric its rows are judged by.
    fn metric(&self) -> Metric;

    /// Where it stands among those that differ in one number alone, if it does.
    fn axis(&self) -> Option<Axis> {
        None
    }

    /// The stacks that others are compared with; the best of them counts.
    fn references(&self) -> Vec<String>;

    /// Whether this stack has an answer to it on this path; whether that is installed is [`Stack::ready`]'s.
    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool;

    /// An error says which program of the row's own is missing and how to get it.
    ///
    /// # Errors
    /// So it is.
    fn ready(&self) -> Result<()> {
        Ok(())
    }

    /// The cast that measures it.
    fn job(&self, stack: &dyn Stack, site: &Site) -> Job;

    /// The stack whose rate is the pace of the others, and the metric that tells it: in each repetition they are
    /// measured at what that one came to there. None where each goes as fast as it can.
    fn paced_by(&self) -> Option<(&'static str, Metric)> {
        None
    }

    /// The same cast at such a pace.
    fn job_at(&self, stack: &dyn Stack, site: &Site, pace: f64) -> Job {
        let _ = pace;
        self.job(stack, site)
    }

    /// The figures in what the roles printed; among them the workload's own metric.
    fn parse(&self, stack: &dyn Stack, output: &Output) -> Result<Metrics>;

    /// Whether each program is tied to a core.
    fn pinned(&self) -> bool {
        true
    }

    /// Whether its programs spin where they wait, each on its core.
    fn spins(&self) -> bool {
        false
    }

    /// Whether a run takes it only where it is named or every size and mode is wanted.
    fn on_request(&self) -> bool {
        false
    }

    /// What part of a cell's seconds a sample takes, but for the start and the end of its programs: those that count
    /// their turns take what these take.
    fn share(&self) -> f64 {
        1.0
    }

    /// Octets of a message; none where the row is about something else.
    fn size(&self) -> Option<u64> {
        None
    }

    /// How a record has it.
    fn subject(&self) -> Subject {
        Subject::Named {
            name: self.id(),
            what: self.describe(),
        }
    }

    /// One program that passes `messages` of it between two ends of its own, for callgrind to count its instructions.
    ///
    /// # Errors
    /// Why there is none.
    fn counted(&self, stack: &dyn Stack, messages: u64) -> Result<Invocation> {
        let _ = (stack, messages);
        anyhow::bail!("no program counts the instructions of {}", self.id())
    }
}

impl Workload for Verbs {
    fn id(&self) -> String {
        Verbs::id(self)
    }
    fn describe(&self) -> String {
        Verbs::describe(self)
    }
    fn metric(&self) -> Metric {
        Verbs::metric(self)
    }
    fn axis(&self) -> Option<Axis> {
        Verbs::axis(self)
    }
    fn references(&self) -> Vec<String> {
        stack::references(self)
    }
    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        stack.serves(self, path)
    }
    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        stack.job(self, site)
    }
    fn parse(&self, stack: &dyn Stack, output: &Output) -> Result<Metrics> {
        stack.parse(self, output)
    }
    fn pinned(&self) -> bool {
        Verbs::pinned(self)
    }
    fn spins(&self) -> bool {
        match self {
            Verbs::Latency { mode, .. } | Verbs::Bulk { mode, .. } => *mode == Mode::Polling,
            Verbs::Rate { .. } => true,
            Verbs::Connect | Verbs::BringUp => false,
        }
    }
    fn share(&self) -> f64 {
        match self {
            Verbs::Latency { .. } => 0.5,
            Verbs::Connect => 0.1,
            _ => 1.0,
        }
    }
    fn size(&self) -> Option<u64> {
        Verbs::size(self)
    }
    fn subject(&self) -> Subject {
        Subject::Verbs(*self)
    }
    fn counted(&self, stack: &dyn Stack, messages: u64) -> Result<Invocation> {
        stack.counted(self, messages)
    }
}

/// What programs of sockets do with several roles or connections: every workload of the default or of the full plan.
pub fn of_sockets(full: bool) -> Vec<Rc<dyn Workload>> {
    let some = |default: &[u32], all: &[u32]| if full { all.to_vec() } else { default.to_vec() };
    let counts = [1, 2, 4, 8, 16];
    let streams = some(&[1, 4, 16], &counts);
    let hot_spots = some(&[1, 4, 16], &[1, 2, 4, 8, 16, 32, 64]);
    let fans = some(&[4], &[2, 4, 8, 16]);
    let mut list: Vec<Rc<dyn Workload>> = Vec::new();
    list.extend(
        streams
            .into_iter()
            .map(|n| Rc::new(streams::Streams(n)) as Rc<dyn Workload>),
    );
    list.extend(
        hot_spots
            .into_iter()
            .map(|n| Rc::new(hot_spot::HotSpot(n)) as Rc<dyn Workload>),
    );
    list.extend(
        fans.iter()
            .map(|&n| Rc::new(fan_in::FanIn(n)) as Rc<dyn Workload>),
    );
    list.extend(
        fans.iter()
            .map(|&n| Rc::new(fan_out::FanOut(n)) as Rc<dyn Workload>),
    );
    list.extend(over_ddp());
    let reports = reports::ALL.into_iter();
    list.extend(reports.map(|row| Rc::new(row) as Rc<dyn Workload>));
    list.extend(gather::all().map(|row| Rc::new(row) as Rc<dyn Workload>));
    let datagrams = datagrams::all().into_iter();
    list.extend(datagrams.map(|row| Rc::new(row) as Rc<dyn Workload>));
    let at_rate = at_rate::ALL.into_iter();
    list.extend(at_rate.map(|row| Rc::new(row) as Rc<dyn Workload>));
    let agreement = agreement::ALL.into_iter();
    list.extend(agreement.map(|row| Rc::new(row) as Rc<dyn Workload>));
    let decrypting = decrypting::ALL.into_iter();
    list.extend(decrypting.map(|row| Rc::new(row) as Rc<dyn Workload>));
    let first = first_datagrams::ALL.into_iter();
    list.extend(first.map(|row| Rc::new(row) as Rc<dyn Workload>));
    let transfers = udp_transfer::all().into_iter();
    list.extend(transfers.map(|row| Rc::new(row) as Rc<dyn Workload>));
    list
}

/// What tells programs of sockets over DDP from the same over the kernel's TCP.
fn over_ddp() -> Vec<Rc<dyn Workload>> {
    let mut list: Vec<Rc<dyn Workload>> = vec![Rc::new(BULK_BUSY), Rc::new(BULK_WAITING)];
    list.push(Rc::new(socket_both::SocketBoth));
    let windows = socket_window::ALL.into_iter();
    list.extend(windows.map(|row| Rc::new(row) as Rc<dyn Workload>));
    list.extend(socket_latency::all().map(|row| Rc::new(row) as Rc<dyn Workload>));
    let served = hot_spot_cpu::ALL.into_iter();
    list.extend(served.map(|row| Rc::new(row) as Rc<dyn Workload>));
    let computing = socket_compute::ALL.into_iter();
    list.extend(computing.map(|row| Rc::new(row) as Rc<dyn Workload>));
    list.extend(placing::all().map(|row| Rc::new(row) as Rc<dyn Workload>));
    list.extend([
        Rc::new(REDIS_GET) as Rc<dyn Workload>,
        Rc::new(nginx_get::NginxGet),
        Rc::new(memcached::Memcached),
    ]);
    list.push(Rc::new(IDLE));
    list
}

/// What programs of MPI do: every workload.
pub fn of_mpi() -> impl Iterator<Item = Rc<dyn Workload>> {
    let rows = mpi::ALL.into_iter();
    rows.map(|row| Rc::new(row) as Rc<dyn Workload>)
}

/// Programs that run on several machines: every workload of that path, the microscopes with a slide of the user's own
/// where there is one.
pub fn of_cluster(slide: Option<&GivenSlide>) -> Vec<Rc<dyn Workload>> {
    let pipelines = filters::pipelines(slide).into_iter();
    let groups = filter_groups::groups(slide).into_iter();
    let striped = striped::ALL.into_iter();
    let through_mpi = mpi_tile::all().into_iter();
    let sums = mpi_hosts::ALL.into_iter();
    pipelines
        .map(|row| Rc::new(row) as Rc<dyn Workload>)
        .chain(groups.map(|row| Rc::new(row) as Rc<dyn Workload>))
        .chain(striped.map(|row| Rc::new(row) as Rc<dyn Workload>))
        .chain(through_mpi.map(|row| Rc::new(row) as Rc<dyn Workload>))
        .chain(sums.map(|row| Rc::new(row) as Rc<dyn Workload>))
        .collect()
}

/// What hosts with two links between them do with these: every workload of that path.
pub fn of_two_links() -> Vec<Rc<dyn Workload>> {
    let sockets = multi_nic::ALL.map(|row| Rc::new(row) as Rc<dyn Workload>);
    let verbs = multi_nic_verbs::ALL.map(|row| Rc::new(row) as Rc<dyn Workload>);
    let mpi = multi_nic_mpi::ALL.map(|row| Rc::new(row) as Rc<dyn Workload>);
    [sockets, verbs, mpi].concat()
}

/// What each piece of the way is worth: every workload of that path.
pub fn of_ablation() -> Vec<Rc<dyn Workload>> {
    let rows = ablation::ALL.into_iter();
    rows.map(|row| Rc::new(row) as Rc<dyn Workload>).collect()
}

/// What the adapter is for: every workload of the default or of the full plan of its path.
pub fn of_adapter(full: bool, rate: LinkRate) -> Vec<Rc<dyn Workload>> {
    let wire = [wire::Wire::latency(64), wire::Wire::throughput(1 << 20)];
    let wire = wire.into_iter().map(|row| Rc::new(row) as Rc<dyn Workload>);
    let over_link = over_link::all(full, rate).into_iter();
    let udp = udp_over_link::all(full, rate).into_iter();
    wire.chain(over_link.map(|row| Rc::new(row) as Rc<dyn Workload>))
        .chain(udp.map(|row| Rc::new(row) as Rc<dyn Workload>))
        .collect()
}
