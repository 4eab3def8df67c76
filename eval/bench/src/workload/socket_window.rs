//! Windows of messages of an unmodified program of sockets, each answered as a whole, over DDP beside the kernel's TCP.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Octets of a message.
const SIZE: u64 = 16 << 10;
/// Windows of so many messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketWindow(u32);

/// Every length of a window.
pub(super) const ALL: [SocketWindow; 4] = [
    SocketWindow(1),
    SocketWindow(4),
    SocketWindow(16),
    SocketWindow(64),
];

impl Workload for SocketWindow {
    fn id(&self) -> String {
        format!("socket-window-{}", self.0)
    }

    fn describe(&self) -> String {
        let window = match self.0 {
            1 => "message".to_owned(),
            messages => format!("{messages} messages"),
        };
        format!("goodput of one stream of sockets, an answer after each {window} of 16 KiB")
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        let of_what = "messages before an answer";
        Some(Axis::count("socket-window", of_what, self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "window".to_owned(),
            format!("--size={SIZE}"),
            format!("--messages={}", self.0),
            format!("--seconds={}", site.seconds),
        ];
        carried_pair(stack, site, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn size(&self) -> Option<u64> {
        Some(SIZE)
    }

    fn on_request(&self) -> bool {
        true
    }
}
