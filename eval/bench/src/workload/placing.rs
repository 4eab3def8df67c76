//! Messages whose header says where the receiver is to have their payload, over sockets and over verbs, and three ways
//! to get it there.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, Seat, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Placing, Site, Stack, TCP};
use crate::verbs::Size;

/// Octets of a payload.
const SIZES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

/// How a receiver gets the payload to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It has the header first, and takes the payload to its place: by a `recv`, or by an RDMA Read.
    Pick,
    /// The memory was meant for the next message, whatever it would be.
    Posted,
    /// So it was, and the payload is copied to its place.
    Copied,
}

/// One of them, with payloads of one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceRow {
    way: Way,
    size: u64,
}

/// Every way and length.
pub(super) fn all() -> impl Iterator<Item = PlaceRow> {
    let of = |way| SIZES.into_iter().map(move |size| PlaceRow { way, size });
    [Way::Pick, Way::Posted, Way::Copied]
        .into_iter()
        .flat_map(of)
}

impl PlaceRow {
    /// What rows of this way share in their names.
    fn series(&self) -> &'static str {
        match self.way {
            Way::Pick => "pick-and-post",
            Way::Posted => "pick-posted",
            Way::Copied => "pick-copied",
        }
    }

    /// The word for it that the programs know.
    fn word(&self) -> &'static str {
        match self.way {
            Way::Pick => "pick",
            Way::Posted => "posted",
            Way::Copied => "copied",
        }
    }
}

impl Workload for PlaceRow {
    fn id(&self) -> String {
        format!("{}-{}", self.series(), Size(self.size))
    }

    fn describe(&self) -> String {
        let way = match self.way {
            Way::Pick => "taken to the place that the header before it names",
            Way::Posted => "in memory posted for the next message",
            Way::Copied => "copied to the place that the header names",
        };
        format!("goodput of payloads of {}B, each {way}", Size(self.size))
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::size(self.series(), self.size))
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        carries(stack) || stack.places(path)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let placing = Placing {
            way: self.word(),
            size: self.size,
        };
        let side = |seat| stack.place(&placing, site, seat);
        let Some((server, client)) = side(Seat::Server).zip(side(Seat::Client)) else {
            let program = [
                "place".to_owned(),
                format!("--way={}", self.word()),
                format!("--size={}", self.size),
                format!("--seconds={}", site.seconds),
            ];
            return carried_pair(stack, site, &program);
        };
        Job {
            timeout: site.timeout(),
            ..Job::pair(server, client, site.port, site.place.hosts.len())
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    /// Those of verbs do.
    fn spins(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn on_request(&self) -> bool {
        true
    }
}
