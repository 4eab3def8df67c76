//! redis, unmodified, over DDP beside the kernel's TCP: how many GETs its own benchmark gets answered.

use anyhow::{Context, Result};

use super::sockets::{carried, carries};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Seat};
use crate::metric::{Metric, P99, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{need, Program, Site, Stack, TCP};

const REDIS: &str = "redis-server";
const BENCHMARK: &str = "redis-benchmark";

/// Clients of the benchmark, each with a request under way.
const CLIENTS: u32 = 20;
/// About how long a request takes of one core, µs.
const REQUEST_US: f64 = 20.0;

/// A server and its benchmark.
#[derive(Clone, Copy, Debug)]
pub struct RedisGet;

/// The only one.
pub const REDIS_GET: RedisGet = RedisGet;

impl Workload for RedisGet {
    fn id(&self) -> String {
        "redis-get".to_owned()
    }

    fn describe(&self) -> String {
        format!("redis-benchmark, GET, {CLIENTS} clients")
    }

    fn metric(&self) -> Metric {
        REQUEST_RATE
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn ready(&self) -> Result<()> {
        need(REDIS, "redis-server")?;
        need(BENCHMARK, "redis-tools")
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let (address, port) = (
            site.address().ip().to_string(),
            site.address().port().to_string(),
        );
        let requests = site.count(REQUEST_US, 1000).to_string();
        let clients = CLIENTS.to_string();
        // It is to write no file and to take clients from other hosts.
        let server = words(&[
            "--bind",
            &address,
            "--port",
            &port,
            "--save",
            "",
            "--appendonly",
            "no",
            "--protected-mode",
            "no",
        ]);
        let client = words(&[
            "-h", &address, "-p", &port, "-t", "get", "-c", &clients, "-n", &requests, "--csv",
        ]);
        let job = Job {
            timeout: site.timeout(),
            ..Job::pair(
                carried(stack, Seat::Server, Program::Installed(REDIS, &server)),
                carried(stack, Seat::Client, Program::Installed(BENCHMARK, &client)),
                site.port,
                site.place.hosts.len(),
            )
        };
        job.of_lasting_server()
    }

    fn share(&self) -> f64 {
        0.3
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let lines: Vec<&str> = output.client().trim().lines().collect();
        let [.., titles, figures] = lines[..] else {
            anyhow::bail!("redis-benchmark printed no table");
        };
        let figure = |title: &str| -> Result<f64> {
            let at = cells(titles).position(|found| found == title);
            let text = at.and_then(|at| cells(figures).nth(at));
            let text = text.with_context(|| format!("redis-benchmark printed no {title}"))?;
            Ok(text.parse()?)
        };
        Ok(Metrics::from([
            (REQUEST_RATE.key.to_owned(), figure("rps")?),
            (P99.to_owned(), figure("p99_latency_ms")? * 1000.0),
        ]))
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The cells of a line of CSV in which none has a comma.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|cell| cell.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    fn parsed(printed: &str) -> Result<Metrics> {
        REDIS_GET.parse(&raw_tcp(), &Output::of_client(printed))
    }

    #[test]
    fn the_rate_and_the_tail_stand_under_their_titles() {
        let metrics = parsed(include_str!("../../tests/samples/redis-benchmark-get.csv")).unwrap();
        assert_eq!(metrics["requests_per_s"], 2865.33);
        assert_eq!(metrics["p99_us"], 47_295.0);
    }

    #[test]
    fn what_is_no_table_is_told_so() {
        let complaint = parsed("Could not connect\n").unwrap_err().to_string();
        assert!(complaint.contains("no table"), "{complaint}");
        let complaint = parsed("\"test\",\"avg\"\n\"GET\",\"1\"\n").unwrap_err();
        assert!(complaint.to_string().contains("no rps"), "{complaint}");
    }
}
