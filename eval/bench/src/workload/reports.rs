//! A monitor that is polled, in the manner of Ganglia: how many reports it gives in a second, with a connection for
//! each, as Ganglia's own `gmond` has it, and with one that is kept.

use anyhow::Result;

use super::sockets::{carried, carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Invocation, Job, Seat, CLIENT};
use crate::metric::{Metric, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{need, on_path, Program, Site, Stack, TCP};

/// Hosts of a report that has many.
const MANY: u32 = 128;
/// Clients that ask at the same time.
const CLIENTS: u32 = 4;

/// Ganglia's daemon, and where Debian has it: an ordinary user's `PATH` may lack that folder.
const GMOND: [&str; 2] = ["gmond", "/usr/sbin/gmond"];
/// Runs gmond with the configuration that is its argument: gmond wants a file, and this one leaves none behind.
const WITH_CONFIGURATION: &str = "exec \"$1\" -f -c /dev/fd/3 3<<END\n$2\nEND\n";

/// A monitor, and clients that take its report over and over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    name: &'static str,
    /// What it is, for people.
    what: &'static str,
    hosts: u32,
    clients: u32,
    monitor: Monitor,
    on_request: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Monitor {
    /// Ganglia's gmond: each report is a connection.
    Gmond,
    /// The bench's own, of the same elements: as that, or on a connection that is kept.
    Own { kept: bool },
}

/// Every row.
pub(super) const ALL: [Reports; 7] = [
    Reports {
        name: "ganglia-report",
        what: "gmond's report of one host, 6 KB, a connection for each",
        hosts: 1,
        clients: 1,
        monitor: Monitor::Gmond,
        on_request: false,
    },
    Reports {
        name: "ganglia-report-clients",
        what: "the same, four clients at a time",
        hosts: 1,
        clients: CLIENTS,
        monitor: Monitor::Gmond,
        on_request: true,
    },
    Reports {
        name: "ganglia-report-hosts",
        what: "gmond's report of 128 hosts, a connection for each",
        hosts: MANY,
        clients: 1,
        monitor: Monitor::Gmond,
        on_request: true,
    },
    Reports {
        name: "report-anew",
        what: "a report of one host, 6 KB, by a server of the bench's, a connection for each",
        hosts: 1,
        clients: 1,
        monitor: Monitor::Own { kept: false },
        on_request: true,
    },
    Reports {
        name: "report-kept",
        what: "the same report on one connection, a request for each",
        hosts: 1,
        clients: 1,
        monitor: Monitor::Own { kept: true },
        on_request: true,
    },
    Reports {
        name: "report-hosts-anew",
        what: "a report of 128 hosts by a server of the bench's, a connection for each",
        hosts: MANY,
        clients: 1,
        monitor: Monitor::Own { kept: false },
        on_request: true,
    },
    Reports {
        name: "report-hosts-kept",
        what: "the same report on one connection, a request for each",
        hosts: MANY,
        clients: 1,
        monitor: Monitor::Own { kept: true },
        on_request: true,
    },
];

impl Reports {
    /// The words of [`crate::raw`] that the generator has, and a server of the bench's own.
    fn program(&self, site: &Site) -> Vec<String> {
        let mut words = vec![
            "reports".to_owned(),
            format!("--hosts={}", self.hosts),
            format!("--at-once={}", self.clients),
            format!("--seconds={}", site.seconds),
        ];
        match self.monitor {
            Monitor::Gmond => words.push("--feed".to_owned()),
            Monitor::Own { kept: true } => words.push("--kept".to_owned()),
            Monitor::Own { kept: false } => {}
        }
        words
    }

    /// Ganglia's daemon and the generator.
    fn gmond(&self, stack: &dyn Stack, site: &Site) -> [Invocation; 2] {
        let words = [
            "-c".to_owned(),
            WITH_CONFIGURATION.to_owned(),
            "sh".to_owned(),
            gmond().to_owned(),
            configuration(site),
        ];
        let server = carried(stack, Seat::Server, Program::Installed("sh", &words));
        let mut words = vec![
            "raw".to_owned(),
            "--connect".to_owned(),
            site.address().to_string(),
        ];
        words.extend(self.program(site));
        let client = carried(stack, Seat::Client, Program::Bench(&words));
        [server, client]
    }
}

fn gmond() -> &'static str {
    GMOND
        .into_iter()
        .find(|name| on_path(name))
        .unwrap_or(GMOND[0])
}

/// It hears by UDP, from nobody but the generator, tells of no host of its own, and reports by TCP at the same port.
fn configuration(site: &Site) -> String {
    let (address, port) = (site.address().ip(), site.port);
    let family = if address.is_ipv6() { "inet6" } else { "inet4" };
    format!(
        "globals {{ daemonize = no setuid = no mute = yes deaf = no host_dmax = 0\n\
         cleanup_threshold = 3600 gexec = no }}\n\
         cluster {{ name = \"bench\" owner = \"\" latlong = \"\" url = \"\" }}\n\
         udp_recv_channel {{ port = {port} bind = \"{address}\" family = {family} }}\n\
         tcp_accept_channel {{ port = {port} bind = \"{address}\" family = {family} }}\n"
    )
}

impl Workload for Reports {
    fn on_request(&self) -> bool {
        self.on_request
    }

    fn id(&self) -> String {
        self.name.to_owned()
    }

    fn describe(&self) -> String {
        self.what.to_owned()
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
        match self.monitor {
            Monitor::Gmond => need(gmond(), "ganglia-monitor"),
            Monitor::Own { .. } => Ok(()),
        }
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let job = match self.monitor {
            Monitor::Own { .. } => carried_pair(stack, site, &self.program(site)),
            Monitor::Gmond => {
                let [server, client] = self.gmond(stack, site);
                Job {
                    timeout: site.timeout(),
                    ..Job::pair(server, client, site.port, site.place.hosts.len())
                }
            }
        };
        job.of_lasting_server()
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SERVER;
    use crate::path::Place;
    use crate::stack::{all as all_stacks, Programs, Weft, DDP};

    fn shown(row: &Reports) -> [String; 2] {
        let stacks = all_stacks(&Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        });
        let ddp = stacks.iter().find(|stack| stack.name() == DDP).unwrap();
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 3,
        };
        let job = row.job(ddp.as_ref(), &site);
        assert!(job.roles[0].told_to_end && !job.roles[0].measures);
        [SERVER, CLIENT].map(|role| job.program(role).unwrap().display())
    }

    #[test]
    fn gmond_hears_the_generator_and_nobody_else() {
        let [server, client] = shown(&ALL[2]);
        assert!(
            server.starts_with("weft run --ddp require -- sh -c exec"),
            "{server}"
        );
        for word in ["mute = yes", "bind = \"127.0.0.1\"", "port = 7000", "inet4"] {
            assert!(server.contains(word), "{server}");
        }
        assert_eq!(
            client,
            "weft run --ddp require -- weft bench raw --connect 127.0.0.1:7000 reports --hosts=128 --at-once=1 \
             --seconds=3 --feed"
        );
    }

    #[test]
    fn the_two_ways_of_the_benchs_own_server_differ_by_one_word() {
        let [anew, kept] = [&ALL[3], &ALL[4]].map(shown);
        for (anew, kept) in anew.iter().zip(&kept) {
            assert_eq!(&format!("{anew} --kept"), kept);
        }
    }
}
