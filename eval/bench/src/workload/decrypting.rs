//! The highest rate at which a receiver also decrypts all that it gets: what is left of a core to a program that has
//! something to do with what comes.

use anyhow::Result;

use super::datagrams;
use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP, UDP};

/// How what is decrypted comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decrypting {
    /// On a stream, in records of the length that TLS has.
    Stream,
    /// In datagrams that fit a packet of 1500 octets, as QUIC and WireGuard have them.
    Datagrams,
}

/// Every row.
pub(super) const ALL: [Decrypting; 2] = [Decrypting::Stream, Decrypting::Datagrams];

impl Decrypting {
    /// Octets of a message, its tag among them.
    fn octets(self) -> u64 {
        match self {
            Decrypting::Stream => 16 << 10,
            Decrypting::Datagrams => 1448,
        }
    }
}

impl Workload for Decrypting {
    fn id(&self) -> String {
        match self {
            Decrypting::Stream => "socket-decrypt-16K",
            Decrypting::Datagrams => "udp-decrypt-1448",
        }
        .to_owned()
    }

    fn describe(&self) -> String {
        let what = match self {
            Decrypting::Stream => "one stream of sockets, records of 16 KiB",
            Decrypting::Datagrams => "datagrams of 1448 octets, one a call",
        };
        format!("goodput of {what}, as many as go, of which the receiver decrypts all")
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn references(&self) -> Vec<String> {
        let reference = match self {
            Decrypting::Stream => TCP,
            Decrypting::Datagrams => UDP,
        };
        vec![reference.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        match self {
            Decrypting::Stream => carries(stack),
            Decrypting::Datagrams => datagrams::flow(self.octets()).serves(stack, path),
        }
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let words = |program: &str| {
            vec![
                program.to_owned(),
                format!("--size={}", self.octets()),
                format!("--seconds={}", site.seconds),
                "--decrypt".to_owned(),
            ]
        };
        match self {
            Decrypting::Stream => carried_pair(stack, site, &words("stream")),
            Decrypting::Datagrams => datagrams::pair(stack, site, &words("datagram-flow"), false),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn size(&self) -> Option<u64> {
        Some(self.octets())
    }

    fn on_request(&self) -> bool {
        true
    }
}
