//! The figures that rows are judged by: their names in a record, their units, and which way is better.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether more or less of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Latencies, costs.
    Lower,
    /// Rates.
    Higher,
}

/// The figure a row is judged by. A record has its key and nothing else of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Key in a sample's metrics; ends in the unit.
    pub key: &'static str,
    /// Unit for people.
    pub unit: &'static str,
    /// Direction.
    pub better: Better,
}

/// Median half round trip.
pub const HALF_ROUND_TRIP: Metric = lower("half_rtt_us", "µs");
/// Median round trip; what a Read takes.
pub const ROUND_TRIP: Metric = lower("rtt_us", "µs");
/// Payload octets per second at the receiver, in 10^9 bits per second.
pub const GOODPUT: Metric = higher("goodput_gbit_s", "Gbit/s");
/// Messages per second.
pub const MESSAGE_RATE: Metric = higher("messages_per_s", "msg/s");
/// Median time from the connect call to a connection ready for use.
pub const CONNECT: Metric = lower("connect_us", "µs");
/// Median time from the first call of a connection to the answer to its first message.
pub const BRING_UP: Metric = lower("bring_up_us", "µs");
/// Requests answered per second.
pub const REQUEST_RATE: Metric = higher("requests_per_s", "req/s");
/// Time from the first of many connect calls at once to the last of the connections established.
pub const CONNECT_ALL: Metric = lower("connect_all_us", "µs");
/// Growth of the process for each connection, octets.
pub const MEMORY: Metric = lower("process_octets", "octets");
/// Mean time of one call.
pub const CALL: Metric = lower("call_ns", "ns");
/// Median time from the send call to the datagram's receipt.
pub const DELAY: Metric = lower("delay_us", "µs");
/// What a program computes while messages come or go, of what it computes where none do.
pub const COMPUTING: Metric = higher("computing_percent", "%");
/// Time on a core of a server for each request of its clients, who keep a pace.
pub const SERVER_CPU: Metric = lower("server_cpu_ns", "ns");
/// Median time from a barrier until every rank of MPI has the sum of what all had.
pub const ALLREDUCE: Metric = lower("allreduce_us", "µs");

/// Time on a core of a process that has connections and nothing to do, of the time that passes. No row is judged by it.
pub const IDLE_CPU: Metric = lower("idle_cpu_percent", "% of a core");

/// Time on a core of both ends for each octet that arrived.
pub const CPU_PER_OCTET: Metric = lower("cpu_ns_per_octet", "ns of CPU an octet");

/// Key of the time of all cores, in whosever name but the bench's, for each octet that arrived, ns.
pub const BUSY_PER_OCTET: &str = "busy_ns_octet";

/// Every metric that a row may be judged by.
pub const ALL: [Metric; 15] = [
    HALF_ROUND_TRIP,
    ROUND_TRIP,
    GOODPUT,
    MESSAGE_RATE,
    CONNECT,
    BRING_UP,
    REQUEST_RATE,
    CONNECT_ALL,
    MEMORY,
    CALL,
    DELAY,
    COMPUTING,
    SERVER_CPU,
    ALLREDUCE,
    CPU_PER_OCTET,
];

/// Key of the number of operations that a sample is of, warm-up included: messages of a stream, round trips.
pub const OPERATIONS: &str = "operations";
/// Key of the 99th percentile of a latency metric, µs.
pub const P99: &str = "p99_us";
/// The 99th percentile by itself, for targets. No row is judged by it.
pub const TAIL: Metric = lower(P99, "µs");
/// Key of the 99.9th percentile of a latency metric, µs.
pub const P999: &str = "p999_us";

const fn lower(key: &'static str, unit: &'static str) -> Metric {
    Metric {
        key,
        unit,
        better: Better::Lower,
    }
}

const fn higher(key: &'static str, unit: &'static str) -> Metric {
    Metric {
        key,
        unit,
        better: Better::Higher,
    }
}

/// Keys of the percentiles of a latency metric beyond its median, with their ranks.
pub const PERCENTILES: [(&str, f64); 4] = [
    ("p90_us", 0.9),
    (P99, 0.99),
    (P999, 0.999),
    ("p9999_us", 0.9999),
];

impl Metric {
    /// What it is, for people.
    pub fn name(&self) -> &'static str {
        let names = [
            (HALF_ROUND_TRIP, "half round trip"),
            (ROUND_TRIP, "round trip"),
            (GOODPUT, "goodput"),
            (MESSAGE_RATE, "messages"),
            (CONNECT, "connect to established"),
            (BRING_UP, "bring-up to the first answer"),
            (REQUEST_RATE, "requests"),
            (CONNECT_ALL, "all connections established"),
            (MEMORY, "memory of a connection"),
            (CALL, "a call"),
            (DELAY, "send to receipt"),
            (COMPUTING, "computing beside"),
            (SERVER_CPU, "CPU of the server"),
            (ALLREDUCE, "an allreduce"),
            (CPU_PER_OCTET, "CPU of both ends"),
        ];
        let found = names.iter().find(|(metric, _)| metric == self);
        found.map_or(self.key, |(_, name)| name)
    }

    /// Which way is better, in words.
    pub fn direction(&self) -> &'static str {
        match self.better {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key)
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metric, D::Error> {
        let key = String::deserialize(deserializer)?;
        let known = ALL.into_iter().find(|metric| metric.key == key);
        known.ok_or_else(|| D::Error::custom(format!("no row is judged by a metric {key:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_key_and_the_key_stands_for_the_metric() {
        for metric in ALL {
            let text = serde_json::to_string(&metric).unwrap();
            assert_eq!(text, format!("\"{}\"", metric.key));
            assert_eq!(serde_json::from_str::<Metric>(&text).unwrap(), metric);
        }
    }

    #[test]
    fn every_metric_has_a_name_for_people() {
        assert!(ALL.iter().all(|metric| metric.name() != metric.key));
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused_by_its_name() {
        let error = serde_json::from_str::<Metric>("\"furlongs\"").unwrap_err();
        assert!(error.to_string().contains("furlongs"), "{error}");
    }
}
