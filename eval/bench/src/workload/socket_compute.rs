//! Programs of sockets that compute as well: beside messages that come or go, or on every octet that comes; over DDP
//! beside the kernel's TCP.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed, MESSAGE};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, COMPUTING, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Messages a second of those that come or go beside the computing: 2.6 Gbit/s, which every stack carries.
const RATE: u32 = 5_000;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketCompute {
    /// Something else, while messages come at a rate.
    WhileReceiving,
    /// Something else, while messages go at a rate.
    WhileSending,
    /// A checksum of all that comes.
    OnWhatComes,
}

use SocketCompute::{OnWhatComes, WhileReceiving, WhileSending};

/// All of them.
pub(super) const ALL: [SocketCompute; 3] = [WhileReceiving, WhileSending, OnWhatComes];

impl Workload for SocketCompute {
    fn id(&self) -> String {
        match self {
            WhileReceiving => "socket-overlap-receive",
            WhileSending => "socket-overlap-send",
            OnWhatComes => "socket-process",
        }
        .to_owned()
    }

    fn describe(&self) -> String {
        let messages = format!("{RATE} messages of 64 KiB a second");
        match self {
            WhileReceiving => format!("computing left to a program that receives {messages}"),
            WhileSending => format!("computing left to a program that sends {messages}"),
            OnWhatComes => {
                "goodput of one stream whose receiver takes a CRC-32C of each 64 KiB message"
                    .to_owned()
            }
        }
    }

    fn metric(&self) -> Metric {
        match self {
            WhileReceiving | WhileSending => COMPUTING,
            OnWhatComes => GOODPUT,
        }
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        // A link that carries less than the rate would measure itself.
        carries(stack) && (path.is_local() || *self == OnWhatComes)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let overlap = |direction: &str| {
            vec![
                "overlap".to_owned(),
                format!("--direction={direction}"),
                format!("--rate={RATE}"),
            ]
        };
        let mut program = match self {
            WhileReceiving => overlap("receive"),
            WhileSending => overlap("send"),
            OnWhatComes => vec!["process".to_owned()],
        };
        program.push(format!("--size={MESSAGE}"));
        program.push(format!("--seconds={}", site.seconds));
        carried_pair(stack, site, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn spins(&self) -> bool {
        *self != OnWhatComes
    }

    fn size(&self) -> Option<u64> {
        Some(MESSAGE)
    }

    fn on_request(&self) -> bool {
        true
    }
}
