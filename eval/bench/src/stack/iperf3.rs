//! iperf3, one stream.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{need, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::GOODPUT;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Op, Verbs};

/// Its name where it has its own length of a block.
pub const NAME: &str = "iperf3";
pub(super) const NAME_MESSAGE_SIZED: &str = "iperf3 -l size";

/// Octets; iperf3 refuses longer blocks.
pub(super) const LONGEST_BLOCK: u64 = 1 << 20;

/// iperf3's own block length of 128 KiB, or the workload's message size.
pub(super) struct Iperf3 {
    pub(super) message_sized: bool,
}

impl Stack for Iperf3 {
    fn name(&self) -> String {
        if self.message_sized {
            NAME_MESSAGE_SIZED
        } else {
            NAME
        }
        .to_owned()
    }

    fn serves(&self, workload: &Verbs, _: PathKind) -> bool {
        let fits = |size: u64| !self.message_sized || size <= LONGEST_BLOCK;
        matches!(workload, Verbs::Bulk { size, op, .. } if fits(*size) && *op != Op::UdSend)
    }

    fn beside_adapters(&self) -> bool {
        true
    }

    fn ready(&self) -> Result<()> {
        need("iperf3", "iperf3")
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let port = site.port.to_string();
        let address = site.place.server().address.to_string();
        let server = Invocation::new("iperf3", ["-s", "-1", "-p", &port, "-B", &address]);
        let mut client =
            Invocation::new("iperf3", ["-J", "-i", "0", "-t", &site.seconds.to_string()])
                .args(["-p", &port, "-c", &address]);
        if let (Verbs::Bulk { size, .. }, true) = (workload, self.message_sized) {
            client = client.args(["-l", &size.to_string()]);
        }
        site.job(workload, server, client)
    }

    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        let report: Value =
            serde_json::from_str(output.client()).context("iperf3 printed no JSON")?;
        if let Some(error) = report["error"].as_str() {
            anyhow::bail!("iperf3: {error}");
        }
        let end = &report["end"];
        let received = end["sum_received"]["bits_per_second"]
            .as_f64()
            .context("no sum_received")?;
        let mut metrics = Metrics::from([(GOODPUT.key.to_owned(), received / 1e9)]);
        for (key, value) in [
            ("retransmits", &end["sum_sent"]["retransmits"]),
            (
                "sender_cpu_percent",
                &end["cpu_utilization_percent"]["host_total"],
            ),
            (
                "receiver_cpu_percent",
                &end["cpu_utilization_percent"]["remote_total"],
            ),
        ] {
            metrics.extend(value.as_f64().map(|v| (key.to_owned(), v)));
        }
        Ok(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Mode;

    const BULK: Verbs = Verbs::Bulk {
        op: Op::Write,
        size: 1 << 20,
        mode: Mode::Polling,
    };

    fn parse(client: &str) -> Result<Metrics> {
        Iperf3 {
            message_sized: false,
        }
        .parse(&BULK, &Output::of_client(client))
    }

    #[test]
    fn goodput_is_the_receivers() {
        let metrics = parse(include_str!("../../tests/samples/iperf3.json")).unwrap();
        assert_eq!(metrics["goodput_gbit_s"], 31007930797.6572 / 1e9);
        assert_eq!(metrics["retransmits"], 46.0);
    }

    #[test]
    fn an_error_in_the_report_is_an_error() {
        let error =
            parse(r#"{"error": "unable to connect to server: Connection refused"}"#).unwrap_err();
        assert!(error.to_string().contains("Connection refused"));
        assert!(parse("").is_err());
    }
}
