//! What RDMA programs do: an operation, a size and a mode, without a word about which stack does it.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::axis::Axis;
use crate::metric::{
    Metric, BRING_UP, CONNECT, GOODPUT, HALF_ROUND_TRIP, MESSAGE_RATE, ROUND_TRIP,
};

/// The RDMA operation a workload is about; stacks without RDMA answer with the nearest thing they
/// have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Send and receive: both programs take part.
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// RDMA Write with immediate data: both programs take part.
    WriteImm,
    /// Atomic addition to eight octets of the server's memory.
    FetchAdd,
    /// Atomic comparison and exchange of eight octets of the server's memory.
    CompareSwap,
    /// Send on queue pairs of type UC.
    UcSend,
    /// RDMA Write on queue pairs of type UC.
    UcWrite,
    /// Datagrams: send on queue pairs of type UD.
    UdSend,
}

/// Octets that an atomic operation works on.
pub const ATOMIC: u64 = 8;

/// The longest payload of a UD datagram of Weft that an IPv4 packet of 1500 octets holds: less the
/// headers of IP (20), UDP (8) and Weft (28).
pub const UD_IN_ONE_PACKET: u64 = 1444;

/// The longest datagram: the MTU that the device's port tells.
pub const UD_LONGEST: u64 = 4096;

impl Op {
    /// Lower-case name, as in `ib_send_lat`.
    pub fn name(self) -> &'static str {
        match self {
            Op::Send => "send",
            Op::Write => "write",
            Op::Read => "read",
            Op::WriteImm => "write-imm",
            Op::FetchAdd => "fetch-add",
            Op::CompareSwap => "compare-swap",
            Op::UcSend => "uc-send",
            Op::UcWrite => "uc-write",
            Op::UdSend => "ud-send",
        }
    }

    /// Whether it waits for what the other end sends back, so that one of them is a round trip.
    pub fn asks(self) -> bool {
        matches!(self, Op::Read) || self.is_atomic()
    }

    /// Whether it is an atomic operation.
    pub fn is_atomic(self) -> bool {
        matches!(self, Op::FetchAdd | Op::CompareSwap)
    }
}

/// How a program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It spins: non-blocking calls, CQ polling.
    Polling,
    /// It sleeps: blocking calls, completion channels.
    Event,
}

/// One thing that RDMA programs do, to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Verbs {
    /// One message in flight, there and back.
    Latency {
        /// Operation.
        op: Op,
        /// Message size in octets.
        size: u64,
        /// How both programs wait.
        mode: Mode,
        /// Whether each program is tied to a core of its own.
        pinned: bool,
    },
    /// One stream, as much as goes through.
    Bulk {
        /// Operation.
        op: Op,
        /// Message size in octets.
        size: u64,
        /// How the sender waits for completions.
        mode: Mode,
    },
    /// Small messages, as many as go through.
    Rate {
        /// Operation.
        op: Op,
        /// Message size in octets.
        size: u64,
        /// Messages posted and not yet completed.
        depth: u32,
        /// Work requests handed over in one post call; 1 is no list.
        post_list: u32,
    },
    /// From the connect call to a connection ready for use, one after another.
    Connect,
    /// From the first call of a connection to the answer to its first message, one after another.
    #[serde(rename = "bring-up")]
    BringUp,
}

impl Verbs {
    /// Short unique name, such as `send-lat-64` or `write-bw-1M-event`; what `--only` matches.
    pub fn id(&self) -> String {
        match *self {
            Verbs::Latency {
                op,
                size,
                mode,
                pinned,
            } => {
                format!(
                    "{}-lat-{}{}{}",
                    op.name(),
                    Size(size),
                    mode.suffix(),
                    if pinned { "" } else { "-unpinned" }
                )
            }
            Verbs::Bulk { op, size, mode } => {
                format!("{}-bw-{}{}", op.name(), Size(size), mode.suffix())
            }
            Verbs::Rate {
                op,
                size,
                post_list,
                ..
            } => {
                let list = if post_list > 1 {
                    format!("-list{post_list}")
                } else {
                    String::new()
                };
                format!("{}-rate-{}{list}", op.name(), Size(size))
            }
            Verbs::Connect => "connect".to_owned(),
            Verbs::BringUp => "bring-up".to_owned(),
        }
    }

    /// The metric this workload is judged by.
    pub fn metric(&self) -> Metric {
        match self {
            Verbs::Latency { op, .. } if op.asks() => ROUND_TRIP,
            Verbs::Latency { .. } => HALF_ROUND_TRIP,
            Verbs::Bulk { .. } => GOODPUT,
            Verbs::Rate { .. } => MESSAGE_RATE,
            Verbs::Connect => CONNECT,
            Verbs::BringUp => BRING_UP,
        }
    }

    /// The operation; none where the row is about connections.
    pub fn op(&self) -> Option<Op> {
        match *self {
            Verbs::Latency { op, .. } | Verbs::Bulk { op, .. } | Verbs::Rate { op, .. } => Some(op),
            Verbs::Connect | Verbs::BringUp => None,
        }
    }

    /// Octets of a message; none where the row is about connections.
    pub fn size(&self) -> Option<u64> {
        match *self {
            Verbs::Latency { size, .. } | Verbs::Bulk { size, .. } | Verbs::Rate { size, .. } => {
                Some(size)
            }
            Verbs::Connect | Verbs::BringUp => None,
        }
    }

    /// Where it stands among those that differ in the size of a message alone.
    pub fn axis(&self) -> Option<Axis> {
        let octets = self.size()?;
        // The name has the size as a word of its own.
        let size = Size(octets).to_string();
        let id = self.id();
        let words: Vec<&str> = id.split('-').filter(|word| *word != size).collect();
        Some(Axis::size(words.join("-"), octets))
    }

    /// Whether each program is tied to a core of its own.
    pub fn pinned(&self) -> bool {
        !matches!(self, Verbs::Latency { pinned: false, .. })
    }

    /// A sentence for people.
    pub fn describe(&self) -> String {
        match *self {
            Verbs::Latency {
                op,
                size,
                mode,
                pinned,
            } => {
                let what = if op.asks() {
                    "round trip"
                } else {
                    "half round trip"
                };
                let cores = if pinned { "" } else { ", not pinned" };
                format!(
                    "{} {} {what}, {}{cores}",
                    octets(size),
                    op.name(),
                    mode.name()
                )
            }
            Verbs::Bulk { op, size, mode } => {
                format!(
                    "{} {} goodput, one stream, {}",
                    octets(size),
                    op.name(),
                    mode.name()
                )
            }
            Verbs::Rate {
                op,
                size,
                depth,
                post_list,
            } => {
                let list = if post_list > 1 {
                    format!(", lists of {post_list}")
                } else {
                    String::new()
                };
                format!(
                    "{} {} messages per second, depth {depth}{list}",
                    octets(size),
                    op.name()
                )
            }
            Verbs::Connect => "connect to established, one after another".to_owned(),
            Verbs::BringUp => "bring-up to the first message's answer".to_owned(),
        }
    }
}

impl Mode {
    fn suffix(self) -> &'static str {
        match self {
            Mode::Polling => "",
            Mode::Event => "-event",
        }
    }

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Polling => "polling",
            Mode::Event => "event mode",
        }
    }
}

/// A size in octets, shown as `64`, `4K`, `1M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{}M", n >> 20),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{}K", n >> 10),
            n => write!(f, "{n}"),
        }
    }
}

/// `64 B`, `4 KiB`, `1 MiB`.
pub(crate) fn octets(size: u64) -> String {
    let text = Size(size).to_string();
    match text.split_at(text.len() - 1) {
        (number, unit @ ("K" | "M")) => format!("{number} {unit}iB"),
        _ => format!("{text} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_what_differs() {
        let lat = |op, mode, pinned| {
            Verbs::Latency {
                op,
                size: 64,
                mode,
                pinned,
            }
            .id()
        };
        assert_eq!(lat(Op::Send, Mode::Polling, true), "send-lat-64");
        assert_eq!(lat(Op::Read, Mode::Event, true), "read-lat-64-event");
        assert_eq!(
            lat(Op::Write, Mode::Polling, false),
            "write-lat-64-unpinned"
        );
        assert_eq!(
            Verbs::Bulk {
                op: Op::Write,
                size: 1 << 20,
                mode: Mode::Polling
            }
            .id(),
            "write-bw-1M"
        );
        let rate = |post_list| {
            Verbs::Rate {
                op: Op::Send,
                size: 64,
                depth: 128,
                post_list,
            }
            .id()
        };
        assert_eq!(
            (rate(1).as_str(), rate(16).as_str()),
            ("send-rate-64", "send-rate-64-list16")
        );
    }

    #[test]
    fn what_asks_is_judged_by_the_whole_round_trip() {
        let metric = |op| {
            Verbs::Latency {
                op,
                size: 8,
                mode: Mode::Polling,
                pinned: true,
            }
            .metric()
        };
        assert_eq!(
            [Op::Read, Op::FetchAdd, Op::CompareSwap].map(metric),
            [ROUND_TRIP; 3]
        );
        assert_eq!(
            [Op::WriteImm, Op::UdSend, Op::UcWrite].map(metric),
            [HALF_ROUND_TRIP; 3]
        );
    }

    #[test]
    fn a_record_names_operations_as_rows_do() {
        for op in [Op::Send, Op::WriteImm, Op::CompareSwap, Op::UdSend] {
            assert_eq!(serde_json::to_value(op).unwrap(), op.name());
        }
        assert_eq!(
            serde_json::to_value(Verbs::BringUp).unwrap()["kind"],
            Verbs::BringUp.id()
        );
    }

    #[test]
    fn rows_that_differ_in_size_alone_are_of_one_series() {
        let bulk = |size, mode| {
            let axis = Verbs::Bulk {
                op: Op::Write,
                size,
                mode,
            }
            .axis()
            .unwrap();
            (axis.series, axis.value)
        };
        assert_eq!(bulk(64, Mode::Polling), ("write-bw".to_owned(), 64.0));
        assert_eq!(
            bulk(1 << 20, Mode::Polling),
            ("write-bw".to_owned(), 1048576.0)
        );
        assert_eq!(bulk(64, Mode::Event).0, "write-bw-event");
        assert_eq!(Verbs::Connect.axis(), None);
    }

    #[test]
    fn sizes_that_are_no_whole_multiple_stay_in_octets() {
        assert_eq!(Size(1500).to_string(), "1500");
        assert_eq!(Size(4096).to_string(), "4K");
        assert_eq!(Size(4 << 20).to_string(), "4M");
        assert_eq!([64, 4096, 1 << 20].map(octets), ["64 B", "4 KiB", "1 MiB"]);
    }
}
