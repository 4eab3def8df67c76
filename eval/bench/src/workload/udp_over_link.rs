//! Programs of UDP over a `weft link` of the row's own, by UDP, by carriers that wait behind a hole, and by those that
//! do not: one that keeps a pace, one that does so beside a stream of TCP, a transfer in the manner of RBUDP, a stream
//! in the manner of LambdaStream.

use std::time::Duration;

use anyhow::Result;

use super::over_link::{Link, LinkRate, BEYOND, LINK, SECONDS_MIN};
use super::sockets::printed;
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat, CLIENT, SERVER};
use crate::metric::{Metric, DELAY, GOODPUT};
use crate::path::{adapter, PathKind};
use crate::record::Metrics;
use crate::stack::{Program, Site, Stack, UdpProgram, UDP, UOE, UOE_FORGIVING, UOE_INLINE};

/// Octets of a datagram.
const SIZE: u64 = 1000;
/// Datagrams a second of a program that keeps a pace: 16 Mbit/s, as a moving picture has them.
const PACE: u32 = 2000;
/// Mbit/s of the transfer, and of the stream as it begins.
const RATE: u32 = 100;

/// Mbit/s of the link that a stream of TCP shares with datagrams, and datagrams a second of these: 45 % of it, no more
/// than the two would share out between them.
const SHARED_RATE: u32 = 100;
const SHARED_PACE: u32 = 5600;
/// Octets of a send of that stream.
const STREAM_SIZE: u64 = 64 << 10;
const NEIGHBOUR_SERVER: &str = "neighbour's server";
const NEIGHBOUR: &str = "neighbour";

/// What the program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Frames,
    /// The same, and what is measured is a stream of the kernel's TCP over the same link.
    Beside,
    Blast(Pacing),
    Adaptive(Pacing),
}

/// Who keeps the rate of a program that has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pacing {
    /// The program, which looks at the clock before each datagram.
    Program,
    /// The socket, where it has carriers: the program sends as fast as it may.
    Socket,
}

/// One of them over a link.
#[derive(Clone, Debug)]
pub(super) struct UdpOverLink(What, Link);

/// Every one of the default or of the full plan.
pub(super) fn all(full: bool, rate: LinkRate) -> Vec<UdpOverLink> {
    let (losses, round_trips): (&[f64], &[u32]) = match full {
        true => (&[0.0, 0.01, 0.1, 1.0, 5.0], &[1, 10, 100]),
        false => (&[0.0, 1.0], &[10]),
    };
    let over = |what, round_trip_ms, loss_percent| {
        let link = Link {
            rate,
            round_trip_ms,
            loss_percent,
            separate: true,
        };
        UdpOverLink(what, link)
    };
    let mut list = Vec::new();
    for &round_trip in round_trips {
        let each = losses.iter();
        list.extend(each.map(|&loss| over(What::Frames, round_trip, loss)));
    }
    let mut beside = over(What::Beside, 10, 0.0);
    beside.1.rate = LinkRate::of_mbit(SHARED_RATE);
    list.push(beside);
    let paced = |pacing| [What::Blast(pacing), What::Adaptive(pacing)];
    let [own, of_socket] = [Pacing::Program, Pacing::Socket].map(paced);
    for what in [own, of_socket].concat() {
        list.extend([0.0, 0.1, 1.0].map(|loss| over(what, 10, loss)));
    }
    list
}

impl Workload for UdpOverLink {
    fn id(&self) -> String {
        let Link {
            round_trip_ms,
            loss_percent,
            ..
        } = self.1;
        let what = match self.0 {
            What::Frames => "udp-frames",
            What::Beside => return "udp-beside".to_owned(),
            What::Blast(Pacing::Program) => "app-rbudp",
            What::Blast(Pacing::Socket) => "app-rbudp-rate",
            What::Adaptive(Pacing::Program) => "app-lambdastream",
            What::Adaptive(Pacing::Socket) => "app-lambdastream-rate",
        };
        format!("{what}-rtt{round_trip_ms}-loss{loss_percent}")
    }

    fn describe(&self) -> String {
        let Link {
            rate,
            round_trip_ms,
            loss_percent,
            ..
        } = &self.1;
        let what = match self.0 {
            What::Frames => {
                format!("delay of datagrams of {SIZE} octets one way, {PACE} a second")
            }
            What::Beside => format!(
                "goodput of a CUBIC stream beside {SHARED_PACE} datagrams of {SIZE} octets a second"
            ),
            What::Blast(pacing) => format!(
                "goodput of a transfer at {RATE} Mbit/s, as RBUDP does it{}",
                pacing.who()
            ),
            What::Adaptive(pacing) => {
                format!(
                    "goodput of a stream, as LambdaStream does it{}",
                    pacing.who()
                )
            }
        };
        format!("{what}; {rate}, {round_trip_ms} ms, {loss_percent} % lost; carriers required")
    }

    fn metric(&self) -> Metric {
        match self.0 {
            What::Frames => DELAY,
            What::Beside | What::Blast(_) | What::Adaptive(_) => GOODPUT,
        }
    }

    fn references(&self) -> Vec<String> {
        vec![UDP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        let name = stack.name();
        let fits = match name.as_str() {
            UDP | UOE | UOE_INLINE => true,
            // A transfer wants all of it.
            UOE_FORGIVING => self.0 == What::Frames,
            _ => false,
        };
        path == PathKind::Adapter && fits
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let seconds = site.seconds.max(SECONDS_MIN);
        let weft = stack.emulates().expect("and has the command");
        let [server, client] = ends(stack, site, site.port, &self.words(seconds, stack), false);
        let mut roles = vec![self.1.emulator(weft, false), server, client];
        if self.0 == What::Beside {
            let words = [
                "stream".to_owned(),
                format!("--size={STREAM_SIZE}"),
                format!("--seconds={seconds}"),
            ];
            let [mut server, mut client] = ends(stack, site, site.port + 1, &words, true);
            (server.name, client.name) = (NEIGHBOUR_SERVER.to_owned(), NEIGHBOUR.to_owned());
            roles.extend([server, client]);
        }
        let beyond = match self.0 {
            // All of it goes over, also at the eighth of its rate that carriers of TCP keep where 1 % is lost.
            What::Blast(_) => BEYOND.max(seconds * 20),
            _ => BEYOND,
        };
        Job {
            roles,
            // Three programs and more on two cores: where they run is for the scheduler.
            pinned: false,
            timeout: Duration::from_secs((seconds + beyond).into()),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let mut metrics = printed(output.client(), CLIENT)?;
        if self.0 == What::Beside {
            let own = metrics.get(GOODPUT.key).copied().unwrap_or_default();
            metrics.extend(printed(output.role(NEIGHBOUR), NEIGHBOUR)?);
            metrics.insert("other_goodput_gbit_s".to_owned(), own);
        }
        let kept_up = output.role(LINK).contains("\"kept_up\":true");
        metrics.insert("link_kept_up".to_owned(), f64::from(u8::from(kept_up)));
        Ok(metrics)
    }

    fn on_request(&self) -> bool {
        matches!(
            self.0,
            What::Blast(Pacing::Socket) | What::Adaptive(Pacing::Socket)
        )
    }

    fn share(&self) -> f64 {
        1.3
    }

    fn size(&self) -> Option<u64> {
        Some(SIZE)
    }
}

/// The two programs with these words, on the stack or as its neighbour.
fn ends(
    stack: &dyn Stack,
    site: &Site,
    port: u16,
    words: &[String],
    is_neighbour: bool,
) -> [Role; 2] {
    let hosts = &site.place.hosts;
    let address = std::net::SocketAddr::from((hosts[adapter::RECEIVER].address, port));
    let role = |name: &str, end: &str, host, seat, ready| {
        let first = ["raw".to_owned(), end.to_owned(), address.to_string()];
        let words = [&first[..], words].concat();
        let program = UdpProgram {
            program: Program::Bench(&words),
            requires: true,
            is_neighbour,
        };
        Role {
            name: name.to_owned(),
            host,
            seat,
            program: stack
                .carry_datagrams(&hosts[host], program)
                .expect("a stack that serves the workload carries its programs"),
            ready,
            measures: true,
            told_to_end: false,
        }
    };
    let ready = Ready::Listens(port);
    [
        role(SERVER, "--listen", adapter::RECEIVER, Seat::Server, ready),
        role(
            CLIENT,
            "--connect",
            adapter::SENDER,
            Seat::Client,
            Ready::AtOnce,
        ),
    ]
}

impl Pacing {
    /// As a description goes on.
    fn who(self) -> &'static str {
        match self {
            Pacing::Program => "",
            Pacing::Socket => ", its rate kept by carriers",
        }
    }

    /// The words of a program for it, on a stack. The kernel's UDP keeps no rate: there the program does.
    fn words(self, stack: &dyn Stack) -> Vec<String> {
        match self == Pacing::Socket && stack.name() != UDP {
            true => vec!["--socket-rate".to_owned()],
            false => Vec::new(),
        }
    }
}

impl UdpOverLink {
    /// The program and its arguments.
    fn words(&self, seconds: u32, stack: &dyn Stack) -> Vec<String> {
        let size = format!("--size={SIZE}");
        let time = format!("--seconds={seconds}");
        let rate = format!("--rate={RATE}");
        match self.0 {
            What::Frames => vec![
                "datagram-flow".to_owned(),
                size,
                time,
                format!("--pace={PACE}"),
                format!("--lost={}", self.1.loss_percent),
            ],
            What::Beside => {
                let pace = format!("--pace={SHARED_PACE}");
                vec!["datagram-flow".to_owned(), size, time, pace]
            }
            What::Blast(pacing) => {
                let octets = u64::from(RATE) * 1_000_000 / 8 * u64::from(seconds);
                let all = format!("--octets={octets}");
                let words = vec!["datagram-blast".to_owned(), size, all, rate];
                [words, pacing.words(stack)].concat()
            }
            What::Adaptive(pacing) => {
                let words = vec!["datagram-adaptive".to_owned(), size, time, rate];
                [words, pacing.words(stack)].concat()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{all as stacks, Programs, Weft};
    use std::collections::HashSet;

    fn all_stacks() -> Vec<Box<dyn Stack>> {
        stacks(&Programs {
            bench: ("weft".into(), vec![]),
            weft: Weft::new("weft"),
            scratch: "scratch".into(),
        })
    }

    #[test]
    fn every_row_has_a_name_and_arguments_of_its_own() {
        let rows = all(true, LinkRate::default());
        let names: HashSet<String> = rows.iter().map(Workload::id).collect();
        assert_eq!((rows.len(), names.len()), (28, 28));
        assert!(names.contains("udp-frames-rtt100-loss0.01"));
        let blast = rows.iter().find(|row| row.id() == "app-rbudp-rtt10-loss1");
        let words = |row: &UdpOverLink, stack: &dyn Stack| row.words(2, stack).join(" ");
        let stacks = all_stacks();
        let [udp, uoe] = [UDP, UOE].map(|name| stacks.iter().find(|it| it.name() == name).unwrap());
        let plain = "datagram-blast --size=1000 --octets=25000000 --rate=100";
        assert_eq!(words(blast.unwrap(), uoe.as_ref()), plain);
        let at_rate = rows
            .iter()
            .find(|row| row.id() == "app-rbudp-rate-rtt10-loss1");
        assert_eq!(words(at_rate.unwrap(), udp.as_ref()), plain);
        let by_socket = format!("{plain} --socket-rate");
        assert_eq!(words(at_rate.unwrap(), uoe.as_ref()), by_socket);
    }
}
