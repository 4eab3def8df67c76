//! Weft under unmodified perftest: `weft run -- ib_send_lat -R ...`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{need, numbers, on_off, weft_emss_name, weft_name, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::workload::{Mode, Op, Workload, GOODPUT, MESSAGE_RATE, P99, P999};

/// How long an FPDU may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fpdu {
    /// Weft's own choice: large ones, as its peer is Weft too.
    Auto,
    /// Fitted to the EMSS, as for an RNIC.
    Emss,
}

/// perftest with Weft's settings in the environment of both sides.
pub(super) struct Perftest {
    pub(super) weft: PathBuf,
    pub(super) crc: bool,
    pub(super) fpdu: Fpdu,
}

impl Stack for Perftest {
    fn name(&self) -> String {
        match self.fpdu {
            Fpdu::Auto => weft_name(self.crc),
            Fpdu::Emss => weft_emss_name(self.crc),
        }
    }

    fn serves(&self, workload: &Workload, path: PathKind) -> bool {
        // The EMSS of loopback is as large as FPDUs get: the variant is of interest on the veth
        // path only.
        if self.fpdu == Fpdu::Emss {
            return path == PathKind::Veth
                && matches!(
                    workload,
                    Workload::Bulk {
                        mode: Mode::Polling,
                        ..
                    }
                );
        }
        match workload {
            // ib_write_lat watches memory: there is no completion to sleep on.
            Workload::Latency {
                op: Op::Write,
                mode: Mode::Event,
                ..
            } => false,
            Workload::Latency { .. } | Workload::Bulk { .. } | Workload::Rate { .. } => true,
            Workload::Connect => false,
        }
    }

    fn ready(&self) -> Result<()> {
        anyhow::ensure!(
            self.weft.is_file(),
            "there is no {} (make build)",
            self.weft.display()
        );
        need("ib_send_lat", "perftest")
    }

    fn job(&self, workload: &Workload, site: &Site) -> Job {
        let side = || {
            Invocation::new(&self.weft, ["run", "--"])
                .args(program(workload, site))
                .args(["-p", &site.port.to_string()])
                .env("WEFT_CRC", on_off(self.crc))
                .env(
                    "WEFT_FPDU",
                    if self.fpdu == Fpdu::Emss {
                        "emss"
                    } else {
                        "auto"
                    },
                )
        };
        site.job(
            workload,
            side(),
            side().args([site.place.address.to_string()]),
        )
    }

    fn parse(&self, workload: &Workload, output: &Output) -> Result<Metrics> {
        parse(workload, &output.client)
    }
}

/// The perftest program and its arguments, without port and address.
fn program(workload: &Workload, site: &Site) -> Vec<String> {
    // -F: a warning about changing CPU frequency would otherwise end the program.
    let words = |name: String, size: u64| {
        vec![
            name,
            "-R".to_owned(),
            "-F".to_owned(),
            "-s".to_owned(),
            size.to_string(),
        ]
    };
    let bandwidth = |op: Op, size: u64| {
        let mut words = words(format!("ib_{}_bw", op.name()), size);
        // -f 0: the whole time counts, as it does for iperf3.
        words.extend(
            ["-D", &site.seconds.to_string(), "-f", "0", "--report_gbits"].map(str::to_owned),
        );
        words
    };
    let event = |mode: Mode| (mode == Mode::Event).then(|| "-e".to_owned());
    match *workload {
        Workload::Latency {
            op,
            size,
            mode,
            pinned,
        } => {
            let mut words = words(format!("ib_{}_lat", op.name()), size);
            words.extend([
                "-n".to_owned(),
                site.round_trips(op, size, mode, pinned).to_string(),
            ]);
            words.extend(event(mode));
            words
        }
        Workload::Bulk { op, size, mode } => {
            let mut words = bandwidth(op, size);
            words.extend(event(mode));
            words
        }
        Workload::Rate {
            op,
            size,
            depth,
            post_list,
        } => {
            let mut words = bandwidth(op, size);
            words.extend(["-t".to_owned(), depth.to_string()]);
            if post_list > 1 {
                words.extend(["-l".to_owned(), post_list.to_string()]);
            }
            words
        }
        Workload::Connect => Vec::new(),
    }
}

fn parse(workload: &Workload, text: &str) -> Result<Metrics> {
    match workload {
        Workload::Latency { .. } => {
            // bytes, iterations, min, max, typical, avg, stdev, 99 %, 99.9 %. "Typical" is the
            // median; sends and writes are halved by the program, reads are not.
            let row = row(text, "t_typical[usec]", 9)?;
            let named = [
                (workload.metric().key, 4),
                ("min_us", 2),
                ("max_us", 3),
                ("mean_us", 5),
                (P99, 7),
                (P999, 8),
            ];
            Ok(named
                .iter()
                .map(|(key, column)| ((*key).to_owned(), row[*column]))
                .collect())
        }
        _ => {
            // bytes, iterations, peak, average, millions of messages per second
            let row = row(text, "BW average[Gb/sec]", 5)?;
            Ok(Metrics::from([
                (GOODPUT.key.to_owned(), row[3]),
                (MESSAGE_RATE.key.to_owned(), row[4] * 1e6),
            ]))
        }
    }
}

/// The row of numbers below the header that has this column. Warnings may stand between the two.
fn row(text: &str, column: &str, columns: usize) -> Result<Vec<f64>> {
    let mut lines = text.lines().skip_while(|line| !line.contains(column));
    lines
        .next()
        .with_context(|| format!("perftest printed no table with {column}"))?;
    lines
        .filter_map(numbers)
        .find(|row| row.len() >= columns)
        .context("perftest printed no row of figures")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Place;

    const SEND: Workload = Workload::Latency {
        op: Op::Send,
        size: 64,
        mode: Mode::Polling,
        pinned: true,
    };
    const READ: Workload = Workload::Latency {
        op: Op::Read,
        size: 64,
        mode: Mode::Polling,
        pinned: true,
    };
    const BULK: Workload = Workload::Bulk {
        op: Op::Write,
        size: 65536,
        mode: Mode::Polling,
    };

    #[test]
    fn latency_table() {
        let text = include_str!("../../tests/samples/ib_send_lat.txt");
        let metrics = parse(&SEND, text).unwrap();
        assert_eq!(
            (
                metrics["half_rtt_us"],
                metrics["p99_us"],
                metrics["p999_us"]
            ),
            (9.56, 45.34, 76.30)
        );
        assert_eq!(
            (metrics["min_us"], metrics["max_us"], metrics["mean_us"]),
            (7.23, 2050.60, 13.06)
        );
        // A read's figure is the whole round trip.
        assert_eq!(parse(&READ, text).unwrap()["rtt_us"], 9.56);
    }

    #[test]
    fn bandwidth_table() {
        let metrics = parse(&BULK, include_str!("../../tests/samples/ib_write_bw.txt")).unwrap();
        assert_eq!(
            (metrics["goodput_gbit_s"], metrics["messages_per_s"]),
            (2.22, 4241.0)
        );
    }

    #[test]
    fn a_warning_between_header_and_row_is_passed_over() {
        let text = include_str!("../../tests/samples/ib_write_bw_warning.txt");
        assert_eq!(parse(&BULK, text).unwrap()["goodput_gbit_s"], 2.22);
    }

    #[test]
    fn no_device_is_an_error_not_a_figure() {
        assert!(parse(&SEND, "No IB devices found\n").is_err());
        assert!(parse(&SEND, include_str!("../../tests/samples/ib_write_bw.txt")).is_err());
    }

    #[test]
    fn both_sides_run_the_same_program_and_only_the_client_names_the_address() {
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 2,
        };
        let stack = Perftest {
            weft: "/opt/weft".into(),
            crc: false,
            fpdu: Fpdu::Auto,
        };
        let rate = Workload::Rate {
            op: Op::Send,
            size: 64,
            depth: 128,
            post_list: 16,
        };
        let job = stack.job(&rate, &site);
        let server = "WEFT_CRC=off WEFT_FPDU=auto weft run -- ib_send_bw -R -F -s 64 -D 2 -f 0 --report_gbits -t 128 \
                      -l 16 -p 7000";
        assert_eq!(job.server.display(), server);
        assert_eq!(job.client.display(), format!("{server} 127.0.0.1"));
    }
}
