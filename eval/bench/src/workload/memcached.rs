//! memcached, unmodified, over DDP beside the kernel's TCP: how many Sets and Gets of memcaslap it answers, each value
//! that it gives compared with the one that was set.

use anyhow::{ensure, Context, Result};

use super::sockets::{carried, carries};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Seat};
use crate::metric::{Metric, OPERATIONS, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{need, Program, Site, Stack, TCP};

const MEMCACHED: &str = "memcached";
/// The load generator of libmemcached.
const LOAD: &str = "memcaslap";

/// Connections, each with a request under way.
const CONNECTIONS: u32 = 16;
/// Octets of a value.
const VALUE: u32 = 1000;

/// A server and its load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memcached;

impl Workload for Memcached {
    fn id(&self) -> String {
        "memcached".to_owned()
    }

    fn describe(&self) -> String {
        format!("memcaslap, nine Gets a Set, {VALUE} octets, {CONNECTIONS} connections")
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
        need(MEMCACHED, "memcached")?;
        need(LOAD, "libmemcached-tools")
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let (address, port) = (site.address().ip(), site.address().port());
        // It keeps all that a run sets, and does not run as root.
        let server = format!("-u nobody -l {address} -p {port} -U 0 -t 1 -m 1024");
        let client = format!(
            "-s {address}:{port} -T 1 -c {CONNECTIONS} -t {}s -X {VALUE} -v 1.0",
            site.seconds
        );
        let [server, client] = [server, client].map(|line| words(&line));
        let job = Job {
            timeout: site.timeout(),
            ..Job::pair(
                carried(stack, Seat::Server, Program::Installed(MEMCACHED, &server)),
                carried(stack, Seat::Client, Program::Installed(LOAD, &client)),
                site.port,
                site.place.hosts.len(),
            )
        };
        job.of_lasting_server()
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let text = output.client();
        for title in ["get_misses:", "verify_misses:", "verify_failed:"] {
            let count = figure(text, title)?;
            ensure!(count == 0.0, "memcaslap told {title} {count}");
        }
        let operations = figure(text, "Ops:")?;
        ensure!(operations > 0.0, "memcaslap was not served");
        Ok(Metrics::from([
            (REQUEST_RATE.key.to_owned(), figure(text, "TPS:")?),
            (OPERATIONS.to_owned(), operations),
        ]))
    }

    fn on_request(&self) -> bool {
        true
    }
}

/// The number behind a title.
fn figure(text: &str, title: &str) -> Result<f64> {
    let mut words = text.split_whitespace();
    let found = words.find(|word| *word == title).and(words.next());
    let found = found.with_context(|| format!("memcaslap printed no {title}"))?;
    found
        .parse()
        .with_context(|| format!("memcaslap printed {title} {found}"))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    const PRINTED: &str = include_str!("../../tests/samples/memcaslap.txt");

    fn parsed(printed: &str) -> Result<Metrics> {
        Memcached.parse(&raw_tcp(), &Output::of_client(printed))
    }

    #[test]
    fn the_rate_stands_in_what_memcaslap_prints() {
        let metrics = parsed(PRINTED).unwrap();
        assert_eq!(metrics[REQUEST_RATE.key], 124_080.0);
        assert_eq!(metrics[OPERATIONS], 372_537.0);
    }

    #[test]
    fn values_that_miss_or_differ_are_told() {
        for title in ["get_misses", "verify_misses", "verify_failed"] {
            let printed = PRINTED.replace(&format!("{title}: 0"), &format!("{title}: 3"));
            let complaint = parsed(&printed).unwrap_err().to_string();
            assert!(complaint.contains(&format!("{title}: 3")), "{complaint}");
        }
    }

    #[test]
    fn what_is_no_table_and_a_server_that_answers_nothing_are_told() {
        let complaint = parsed("Couldn't connect\n").unwrap_err().to_string();
        assert!(complaint.contains("no get_misses:"), "{complaint}");
        let idle = PRINTED.replace("Ops: 372537", "Ops: 0");
        let complaint = parsed(&idle).unwrap_err().to_string();
        assert!(complaint.contains("not served"), "{complaint}");
    }
}
