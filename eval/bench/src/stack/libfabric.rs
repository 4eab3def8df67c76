//! libfabric's tcp provider under its own `fi_pingpong`.

use anyhow::{Context, Result};

use super::{need, numbers, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::HALF_ROUND_TRIP;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

/// libfabric's endpoint types over TCP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Connected, on the bare provider.
    Msg,
    /// Reliable datagrams, through the rxm layer.
    Rdm,
}

/// `fi_pingpong`: sends only, polling only, and the mean only; the name says so.
pub(super) struct Libfabric {
    pub(super) endpoint: Endpoint,
}

impl Stack for Libfabric {
    fn name(&self) -> String {
        match self.endpoint {
            Endpoint::Msg => "libfabric tcp msg (mean)",
            Endpoint::Rdm => "libfabric tcp rdm (mean)",
        }
        .to_owned()
    }

    fn serves(&self, workload: &Verbs, _: PathKind) -> bool {
        matches!(
            workload,
            Verbs::Latency {
                op: Op::Send,
                mode: Mode::Polling,
                ..
            }
        )
    }

    fn ready(&self) -> Result<()> {
        need("fi_pingpong", "libfabric-bin")
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let (provider, kind) = match self.endpoint {
            Endpoint::Msg => ("tcp", "msg"),
            Endpoint::Rdm => ("tcp;ofi_rxm", "rdm"),
        };
        let (size, iterations) = match *workload {
            Verbs::Latency {
                op,
                size,
                mode,
                pinned,
            } => (size, site.round_trips(op, size, mode, pinned)),
            _ => (64, 1000),
        };
        let side = |interface: &str, port_flag: &str| {
            Invocation::new("fi_pingpong", ["-p", provider, "-e", kind, "-d", interface])
                .args(["-S", &size.to_string(), "-I", &iterations.to_string()])
                .args([port_flag, &site.port.to_string()])
        };
        let client = side(&site.place.client().side.interface, "-P").args([site
            .place
            .server()
            .address
            .to_string()]);
        site.job(
            workload,
            side(&site.place.server().side.interface, "-B"),
            client,
        )
    }

    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        // bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
        let mut lines = output
            .client()
            .lines()
            .skip_while(|line| !line.contains("usec/xfer"));
        let row = lines.nth(1).context("fi_pingpong printed no table")?;
        let tail: Vec<&str> = row.split_ascii_whitespace().rev().take(2).collect();
        let figures = numbers(&tail.join(" ")).filter(|f| f.len() == 2 && f[1] > 0.0);
        let figures =
            figures.with_context(|| format!("fi_pingpong printed an unknown row: {row}"))?;
        // A transfer is one direction.
        Ok(Metrics::from([
            (HALF_ROUND_TRIP.key.to_owned(), figures[1]),
            ("mean_us".to_owned(), figures[1]),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: Verbs = Verbs::Latency {
        op: Op::Send,
        size: 64,
        mode: Mode::Polling,
        pinned: true,
    };

    fn parse(client: &str) -> Result<Metrics> {
        Libfabric {
            endpoint: Endpoint::Msg,
        }
        .parse(&PING, &Output::of_client(client))
    }

    #[test]
    fn a_transfer_is_half_a_round_trip() {
        assert_eq!(
            parse(include_str!("../../tests/samples/fi_pingpong_msg.txt")).unwrap()["half_rtt_us"],
            7.72
        );
        assert_eq!(
            parse(include_str!("../../tests/samples/fi_pingpong_rdm.txt")).unwrap()["half_rtt_us"],
            20.88
        );
    }

    #[test]
    fn output_without_a_table_is_an_error() {
        assert!(parse("fi_getinfo: -61\n").is_err());
        assert!(parse("bytes   #sent   usec/xfer   Mxfers/sec\n64 5k inf nan\n").is_err());
    }
}
