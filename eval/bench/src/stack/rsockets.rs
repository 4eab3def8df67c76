//! Programs of rsockets, of Debian's rdmacm-utils: `rstream`, whose octets are copied, and `riostream`, which writes to
//! memory that the other end has mapped.

use anyhow::{Context, Result};

use super::{need, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::GOODPUT;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

/// Octets each way for a second of measuring: what takes about a second where nothing is slow.
const OCTETS_A_SECOND: u64 = 3 << 29;

/// One of the programs, under Weft.
pub(super) struct Rsockets {
    weft: Weft,
    /// The other end's memory is written to, where it has mapped it.
    mapped: bool,
}

impl Rsockets {
    pub(super) fn new(programs: &Programs, mapped: bool) -> Rsockets {
        Rsockets {
            weft: programs.weft.clone(),
            mapped,
        }
    }

    fn program(&self) -> &'static str {
        match self.mapped {
            true => "riostream",
            false => "rstream",
        }
    }
}

impl Stack for Rsockets {
    fn name(&self) -> String {
        format!("weft {}", self.program())
    }

    fn serves(&self, workload: &Verbs, path: PathKind) -> bool {
        // They move so many messages, however long that takes: not for links that are slow.
        let is_path = matches!(path, PathKind::Loopback | PathKind::Veth);
        let (op, size) = match self.mapped {
            true => (Op::Write, 4 << 20),
            false => (Op::Send, 1 << 20),
        };
        let mode = Mode::Polling;
        is_path && *workload == Verbs::Bulk { op, size, mode }
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()?;
        need(self.program(), "rdmacm-utils")
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let size = workload.size().unwrap_or(1);
        let count = u64::from(site.seconds) * OCTETS_A_SECOND / size;
        let address = site.place.server().address.to_string();
        let end = |side: &str| {
            self.weft
                .run(&[])
                .args([self.program(), side, &address])
                .args(["-p", &site.port.to_string(), "-S", &size.to_string()])
                .args(["-C", &count.to_string(), "-I", "1"])
        };
        let (server, client): (Invocation, Invocation) = (end("-b"), end("-s"));
        site.job(workload, server, client)
    }

    /// The goodput of all that went one way, and of as much back.
    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        let printed = output.client();
        let mut lines = printed.lines();
        let titles = lines.find(|line| line.starts_with("name "));
        let column = titles
            .and_then(|titles| {
                titles
                    .split_whitespace()
                    .position(|title| title == "Gb/sec")
            })
            .with_context(|| format!("{} printed no title Gb/sec", self.program()))?;
        let figures = lines.next().unwrap_or_default();
        let figure = figures.split_whitespace().nth(column);
        let goodput = figure
            .and_then(|figure| figure.parse::<f64>().ok())
            .with_context(|| format!("{} printed no figure: {figures:?}", self.program()))?;
        Ok(Metrics::from([(GOODPUT.key.to_owned(), goodput)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::programs;

    const PRINTED: &str = "\
name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer
custom    1m      6k      1       11g         5.84s     17.22     487.06
";

    fn parsed(printed: &str) -> Result<Metrics> {
        let (op, size, mode) = (Op::Send, 1 << 20, Mode::Polling);
        let workload = Verbs::Bulk { op, size, mode };
        Rsockets::new(&programs(), false).parse(&workload, &Output::of_client(printed))
    }

    #[test]
    fn goodput_stands_under_its_title() {
        assert_eq!(parsed(PRINTED).unwrap()["goodput_gbit_s"], 17.22);
    }

    #[test]
    fn what_is_no_figure_is_told_so() {
        let title = PRINTED.lines().next().unwrap();
        for printed in ["", title, &PRINTED.replace("17.22", "nan ")[..40]] {
            let complaint = parsed(printed).unwrap_err().to_string();
            assert!(complaint.contains("rstream printed no"), "{complaint}");
        }
    }

    #[test]
    fn each_has_one_row() {
        let mode = Mode::Polling;
        let row = |op, size| Verbs::Bulk { op, size, mode };
        let rows = [
            row(Op::Send, 1 << 20),
            row(Op::Write, 4 << 20),
            row(Op::Write, 1 << 20),
        ];
        let served = |mapped| {
            let stack = Rsockets::new(&programs(), mapped);
            rows.map(|row| stack.serves(&row, PathKind::Veth))
        };
        assert_eq!(served(false), [true, false, false]);
        assert_eq!(served(true), [false, true, false]);
        let stack = Rsockets::new(&programs(), false);
        assert!(!stack.serves(&rows[0], PathKind::Cluster));
    }
}
