//! Weft under unmodified perftest: `weft run -- ib_send_lat -R ...`, and without the `-R`.

use std::net::IpAddr;

use anyhow::{Context, Result};

use super::adapters::{beside, Adapters, Fpdu};
use super::counted::Counted;
use super::{
    need, numbers, on_off, weft_emss_name, weft_gid_name, weft_name, Programs, Site, Stack, Weft,
    WEFT_UD,
};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS, P99, P999};
use crate::path::{Host, PathKind};
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

/// How the two queue pairs come together, and what carries them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// By the connection manager (`-R`). FPDUs are of Weft's own choice: large ones, as its peer is
    /// Weft too.
    Manager {
        /// CRC of the FPDUs.
        crc: bool,
    },
    /// By the connection manager, FPDUs fitted to the EMSS, as for an RNIC.
    ManagerEmss {
        /// CRC of the FPDUs.
        crc: bool,
    },
    /// By GID and number, as perftest does it unless told otherwise.
    Gid {
        /// CRC of the FPDUs.
        crc: bool,
    },
    /// By the connection manager, over a TCP of Weft's own (`--adapter inline`) on the wire of the path.
    Inline {
        /// CRC of the FPDUs.
        crc: bool,
        /// Who has such a TCP; the other end's is the kernel's.
        at: Adapters,
        /// How long FPDUs are.
        fpdu: Fpdu,
    },
    /// Datagrams, which have no FPDUs and no CRC.
    Ud,
}

/// perftest with Weft's settings in the environment of both sides.
pub(super) struct Perftest {
    weft: Weft,
    variant: Variant,
    counted: Counted,
}

impl Perftest {
    pub(super) fn new(programs: &Programs, variant: Variant) -> Self {
        Perftest {
            weft: programs.weft.clone(),
            variant,
            counted: Counted::new(programs),
        }
    }

    /// The address of a host that the programs have, and the options of `weft run` that give it to them.
    fn network(&self, host: &Host, seat: Adapters) -> (IpAddr, Vec<String>) {
        match self.variant {
            Variant::Inline { at, .. } if at == Adapters::Both || at == seat => {
                let address = beside(host);
                let options = vec![
                    "--adapter=inline".to_owned(),
                    format!("--interface=packet:{}", host.side.interface),
                    format!("--address={address}/24"),
                ];
                (address, options)
            }
            _ => (host.address, Vec::new()),
        }
    }

    /// With the settings of the variant.
    fn set(&self, program: Invocation) -> Invocation {
        match self.variant {
            Variant::Manager { crc } => program
                .env("WEFT_CRC", on_off(crc))
                .env("WEFT_FPDU", "auto"),
            Variant::ManagerEmss { crc } => program
                .env("WEFT_CRC", on_off(crc))
                .env("WEFT_FPDU", "emss"),
            Variant::Gid { crc } => program.env("WEFT_CRC", on_off(crc)),
            Variant::Inline { crc, fpdu, .. } => {
                let program = program.env("WEFT_CRC", on_off(crc));
                match fpdu {
                    Fpdu::Emss => program,
                    Fpdu::Large => program.env("WEFT_FPDU", "large"),
                }
            }
            Variant::Ud => program,
        }
    }
}

impl Stack for Perftest {
    fn name(&self) -> String {
        match self.variant {
            Variant::Manager { crc } => weft_name(crc),
            Variant::ManagerEmss { crc } => weft_emss_name(crc),
            Variant::Gid { crc } => weft_gid_name(crc),
            Variant::Inline { crc, at, fpdu } => {
                let long = if fpdu == Fpdu::Large {
                    " fpdu=large"
                } else {
                    ""
                };
                format!("weft {} crc={}{long}", at.name(), on_off(crc))
            }
            Variant::Ud => WEFT_UD.to_owned(),
        }
    }

    fn serves(&self, workload: &Verbs, path: PathKind) -> bool {
        match self.variant {
            Variant::Manager { .. } => by_manager(workload),
            // The EMSS of loopback is as large as FPDUs get: the variant is of interest on the
            // veth path only.
            Variant::ManagerEmss { .. } => {
                matches!(path, PathKind::Veth | PathKind::Adapter)
                    && by_manager(workload)
                    && matches!(
                        workload,
                        Verbs::Bulk {
                            mode: Mode::Polling,
                            ..
                        }
                    )
            }
            Variant::Gid { .. } => by_gid(workload),
            // Loopback is no interface that frames of another stack could leave by.
            Variant::Inline { at, fpdu, .. } => {
                let long = path == PathKind::Adapter && matches!(workload, Verbs::Bulk { .. });
                // Nobody gave adapters addresses on a network of the user's.
                !matches!(path, PathKind::Loopback | PathKind::Hosts)
                    && by_adapter(workload, at)
                    && (fpdu == Fpdu::Emss || long)
            }
            Variant::Ud => workload.op() == Some(Op::UdSend),
        }
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()?;
        need("ib_send_lat", "perftest")
    }

    fn beside_adapters(&self) -> bool {
        !matches!(self.variant, Variant::Gid { .. } | Variant::Ud)
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let side = |options: &[String]| {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let program = self
                .weft
                .run(&options)
                .args(self.program(workload, site))
                .args(["-p", &site.port.to_string()]);
            self.set(program)
        };
        let (server, at_server) = self.network(site.place.server(), Adapters::Server);
        let (_, at_client) = self.network(site.place.client(), Adapters::Client);
        site.job(
            workload,
            side(&at_server),
            side(&at_client).args([server.to_string()]),
        )
    }

    fn parse(&self, workload: &Verbs, output: &Output) -> Result<Metrics> {
        match *workload {
            // Datagrams may be lost: what counts is what the server received, and what the client
            // sent stands beside it.
            Verbs::Bulk { op: Op::UdSend, .. } | Verbs::Rate { op: Op::UdSend, .. } => {
                let mut metrics = parse(workload, output.server())?;
                let sent = parse(workload, output.client())?;
                metrics.insert("sent_messages_per_s".to_owned(), sent[MESSAGE_RATE.key]);
                Ok(metrics)
            }
            _ => parse(workload, output.client()),
        }
    }

    fn counted(&self, workload: &Verbs, messages: u64) -> Result<Invocation> {
        // The two ends of that program are in one process, which no frame leaves.
        anyhow::ensure!(
            !matches!(self.variant, Variant::Inline { .. }),
            "no program counts the instructions of two ends on a wire"
        );
        Ok(self.set(self.counted.program(workload, messages)?))
    }
}

/// What the connection manager's rows are of: the operations that every transport has.
fn by_manager(workload: &Verbs) -> bool {
    match *workload {
        // ib_write_lat watches memory: there is no completion to sleep on.
        Verbs::Latency {
            op: Op::Write,
            mode: Mode::Event,
            ..
        } => false,
        Verbs::Connect | Verbs::BringUp => false,
        _ => matches!(workload.op(), Some(Op::Send | Op::Write | Op::Read)),
    }
}

/// Rows of what only such queue pairs do, and the telling ones of those above: once it is up, a
/// queue pair is as quick as another.
fn by_gid(workload: &Verbs) -> bool {
    match *workload {
        Verbs::Latency { op, size, mode, .. } => {
            mode == Mode::Polling
                && (only_by_gid(op) || size == 64 && matches!(op, Op::Send | Op::Write | Op::Read))
        }
        Verbs::Bulk { op, size, mode } => {
            mode == Mode::Polling && (only_by_gid(op) || size == 1 << 20 && op == Op::Write)
        }
        Verbs::Rate { op, .. } => only_by_gid(op),
        Verbs::Connect | Verbs::BringUp => false,
    }
}

/// Rows that tell what a TCP of one's own changes: those of the connection manager where both ends have it, and few
/// where one end is the kernel's.
fn by_adapter(workload: &Verbs, at: Adapters) -> bool {
    let telling = match *workload {
        Verbs::Latency { op, size, .. } => op == Op::Send && size == 64,
        Verbs::Bulk { op, size, mode } => {
            op == Op::Write && size == 1 << 20 && mode == Mode::Polling
        }
        _ => false,
    };
    telling || at == Adapters::Both && by_manager(workload)
}

fn only_by_gid(op: Op) -> bool {
    op.is_atomic() || matches!(op, Op::UcSend | Op::UcWrite)
}

/// The program's middle name and what makes it do this operation.
fn operation(op: Op) -> (&'static str, &'static [&'static str]) {
    match op {
        Op::Send => ("send", &[]),
        Op::Write | Op::WriteImm => ("write", &[]),
        Op::Read => ("read", &[]),
        Op::FetchAdd => ("atomic", &["-A", "FETCH_AND_ADD"]),
        Op::CompareSwap => ("atomic", &["-A", "CMP_AND_SWAP"]),
        Op::UcSend => ("send", &["-c", "UC"]),
        Op::UcWrite => ("write", &["-c", "UC"]),
        Op::UdSend => ("send", &["-c", "UD"]),
    }
}

impl Perftest {
    /// The perftest program and its arguments, without port and address.
    fn program(&self, workload: &Verbs, site: &Site) -> Vec<String> {
        let words = |kind: &str, op: Op, size: u64| {
            let (name, options) = operation(op);
            let mut words = vec![format!("ib_{name}_{kind}")];
            let manager = matches!(
                self.variant,
                Variant::Manager { .. } | Variant::ManagerEmss { .. } | Variant::Inline { .. }
            );
            words.extend(manager.then(|| "-R".to_owned()));
            // -F: a warning about changing CPU frequency would otherwise end the program.
            words.push("-F".to_owned());
            words.extend(options.iter().map(|&word| word.to_owned()));
            if !op.is_atomic() {
                words.extend(["-s".to_owned(), size.to_string()]);
            }
            words
        };
        let bandwidth = |op: Op, size: u64| {
            let mut words = words("bw", op, size);
            // -f 0: the whole time counts, as it does for iperf3.
            words.extend(
                ["-D", &site.seconds.to_string(), "-f", "0", "--report_gbits"].map(str::to_owned),
            );
            words
        };
        let event = |mode: Mode| (mode == Mode::Event).then(|| "-e".to_owned());
        match *workload {
            Verbs::Latency {
                op,
                size,
                mode,
                pinned,
            } => {
                let mut words = words("lat", op, size);
                words.extend([
                    "-n".to_owned(),
                    site.round_trips(op, size, mode, pinned).to_string(),
                ]);
                words.extend(event(mode));
                words
            }
            Verbs::Bulk { op, size, mode } => {
                let mut words = bandwidth(op, size);
                words.extend(event(mode));
                words
            }
            Verbs::Rate {
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
            Verbs::Connect | Verbs::BringUp => Vec::new(),
        }
    }
}

fn parse(workload: &Verbs, text: &str) -> Result<Metrics> {
    match workload {
        Verbs::Latency { .. } => {
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
                (OPERATIONS, 1),
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
    use crate::job::{Side, CLIENT, SERVER};
    use crate::path::Place;

    const SEND: Verbs = Verbs::Latency {
        op: Op::Send,
        size: 64,
        mode: Mode::Polling,
        pinned: true,
    };
    const READ: Verbs = Verbs::Latency {
        op: Op::Read,
        size: 64,
        mode: Mode::Polling,
        pinned: true,
    };
    const BULK: Verbs = Verbs::Bulk {
        op: Op::Write,
        size: 65536,
        mode: Mode::Polling,
    };

    fn stack(variant: Variant) -> Perftest {
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        };
        Perftest::new(&programs, variant)
    }

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
        let stack = stack(Variant::Manager { crc: false });
        let rate = Verbs::Rate {
            op: Op::Send,
            size: 64,
            depth: 128,
            post_list: 16,
        };
        let job = stack.job(&rate, &site);
        let server = "WEFT_CRC=off WEFT_FPDU=auto weft run -- ib_send_bw -R -F -s 64 -D 2 -f 0 --report_gbits -t 128 \
                      -l 16 -p 7000";
        assert_eq!(job.program(SERVER).unwrap().display(), server);
        assert_eq!(
            job.program(CLIENT).unwrap().display(),
            format!("{server} 127.0.0.1")
        );
    }

    #[test]
    fn an_adapter_has_the_wire_and_an_address_of_its_own_there() {
        let host = |interface: &str, address: &str| Host {
            name: interface.to_owned(),
            side: Side {
                namespace: None,
                interface: interface.to_owned(),
            },
            address: address.parse().unwrap(),
            far: None,
        };
        let place = Place {
            hosts: vec![host("weft-s", "192.0.2.1"), host("weft-c", "192.0.2.2")],
            cores: None,
            round_trip_us: 0.0,
        };
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 2,
        };
        let adapter = |which: &str, last| {
            format!("--adapter=inline --interface=packet:weft-{which} --address=192.0.2.{last}/24 ")
        };
        for (at, server, client, to) in [
            (
                Adapters::Both,
                adapter("s", 129),
                adapter("c", 130),
                "192.0.2.129",
            ),
            (
                Adapters::Client,
                String::new(),
                adapter("c", 130),
                "192.0.2.1",
            ),
            (
                Adapters::Server,
                adapter("s", 129),
                String::new(),
                "192.0.2.129",
            ),
        ] {
            let stack = stack(Variant::Inline {
                crc: true,
                at,
                fpdu: Fpdu::Emss,
            });
            assert!(stack.serves(&BULK, PathKind::Veth) == (at == Adapters::Both));
            assert!(!stack.serves(&BULK, PathKind::Loopback));
            let job = stack.job(&BULK, &site);
            let words = "-- ib_write_bw -R -F -s 65536 -D 2 -f 0 --report_gbits -p 7000";
            assert_eq!(
                job.program(SERVER).unwrap().display(),
                format!("WEFT_CRC=on weft run {server}{words}")
            );
            assert_eq!(
                job.program(CLIENT).unwrap().display(),
                format!("WEFT_CRC=on weft run {client}{words} {to}")
            );
        }
    }

    #[test]
    fn without_the_connection_manager_the_device_is_the_only_setting() {
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 2,
        };
        let server = |variant, workload| {
            let stack = stack(variant);
            assert!(stack.serves(&workload, PathKind::Loopback));
            stack
                .job(&workload, &site)
                .program(SERVER)
                .unwrap()
                .display()
        };
        let swap = Verbs::Latency {
            op: Op::CompareSwap,
            size: 8,
            mode: Mode::Polling,
            pinned: true,
        };
        assert_eq!(
            server(Variant::Gid { crc: true }, swap),
            "WEFT_CRC=on weft run -- ib_atomic_lat -F -A CMP_AND_SWAP -n 62468 -p 7000"
        );
        let datagrams = Verbs::Bulk {
            op: Op::UdSend,
            size: 4096,
            mode: Mode::Polling,
        };
        assert_eq!(
            server(Variant::Ud, datagrams),
            "weft run -- ib_send_bw -F -c UD -s 4096 -D 2 -f 0 --report_gbits -p 7000"
        );
    }

    #[test]
    fn of_datagrams_those_count_that_the_server_received() {
        let row =
            |messages: &str| format!(" #bytes BW average[Gb/sec]\n 64 1000 0.00 0.5 {messages}\n");
        let output = Output::of(&[("client", &row("1.5")), ("server", &row("1.25"))]);
        let rate = Verbs::Rate {
            op: Op::UdSend,
            size: 64,
            depth: 128,
            post_list: 1,
        };
        let stack = stack(Variant::Ud);
        let metrics = stack.parse(&rate, &output).unwrap();
        assert_eq!(
            (metrics["messages_per_s"], metrics["sent_messages_per_s"]),
            (1.25e6, 1.5e6)
        );
    }
}
