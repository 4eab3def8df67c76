//! Connection set-up through the connection manager: a small C program on the system's librdmacm,
//! under `weft run`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::compiled::{Source, CC};
use super::{on_off, weft_name, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::Job;
use crate::metric::P99;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stats::{median, quantile_of_sorted, sorted};
use crate::verbs::Verbs;

const SOURCE: Source = Source {
    name: "cm_connect",
    compiler: CC,
    text: include_str!("../../c/cm_connect.c"),
    libraries: &["-lrdmacm", "-libverbs"],
};

/// `rdma_connect` to established, or to the answer to the first message; compiled when it is first
/// asked for.
pub(super) struct CmConnect {
    weft: Weft,
    scratch: PathBuf,
    crc: bool,
}

impl CmConnect {
    pub(super) fn new(programs: &Programs, crc: bool) -> Self {
        CmConnect {
            weft: programs.weft.clone(),
            scratch: programs.scratch.clone(),
            crc,
        }
    }
}

impl Stack for CmConnect {
    fn name(&self) -> String {
        weft_name(self.crc)
    }

    fn serves(&self, workload: &Verbs, path: PathKind) -> bool {
        // What is compiled here is on no other machine.
        path != PathKind::Hosts && matches!(workload, Verbs::Connect | Verbs::BringUp)
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()?;
        SOURCE.compile(&self.scratch)
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let side = || {
            self.weft
                .run(&[])
                .args([SOURCE.program(&self.scratch)])
                .args((*workload == Verbs::BringUp).then_some("-m"))
                .args([site.port.to_string()])
                .env("WEFT_CRC", on_off(self.crc))
        };
        let count = site.count(1000.0, 100).to_string();
        site.job(
            workload,
            side(),
            side().args([site.place.server().address.to_string(), count]),
        )
    }

    fn parse(&self, workload: &Verbs, output: &Output) -> Result<Metrics> {
        let times: Vec<f64> = output
            .client()
            .lines()
            .map(|line| {
                line.parse()
                    .with_context(|| format!("cm_connect printed {line:?}"))
            })
            .collect::<Result<_>>()?;
        let p99 = quantile_of_sorted(&sorted(&times), 0.99);
        Ok(Metrics::from([
            (
                workload.metric().key.to_owned(),
                median(&times).context("cm_connect printed no times")?,
            ),
            (P99.to_owned(), p99.context("cm_connect printed no times")?),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack() -> CmConnect {
        CmConnect {
            weft: Weft::new(""),
            scratch: PathBuf::new(),
            crc: true,
        }
    }

    #[test]
    fn the_median_of_what_the_client_printed() {
        let output = Output::of_client("30.5\n20.1\n900.0\n");
        let metrics = stack().parse(&Verbs::Connect, &output).unwrap();
        assert_eq!((metrics["connect_us"], metrics["p99_us"]), (30.5, 900.0));
    }

    #[test]
    fn nothing_printed_is_an_error() {
        assert!(stack().parse(&Verbs::Connect, &Output::default()).is_err());
    }
}
