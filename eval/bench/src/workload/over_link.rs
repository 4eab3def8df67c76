//! Messages one way over a `weft link` of the row's own: what placement out of order, control of congestion and thinned
//! acknowledgements do where frames are lost and paths are long.

mod link_said;
mod messages;
mod rate;

use std::time::Duration;

use anyhow::Result;

use self::link_said::LinkSaid;
use self::messages::Messages;
pub use self::rate::LinkRate;
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Invocation, Job, Ready, Role, Seat, CLIENT, SERVER};
use crate::metric::{Metric, GOODPUT, MESSAGE_RATE, OPERATIONS, P99};
use crate::path::{adapter, PathKind};
use crate::record::Metrics;
use crate::stack::{self, Site, Stack, Transfer, Weft};
use crate::stats::{median, quantile_of_sorted, sorted};
use crate::verbs::Size;

/// Name of the role that emulates the link.
pub(super) const LINK: &str = "link";
/// Percentiles are of so many messages at least.
const PERCENTILES_FROM: usize = 100;
/// A cell is no shorter, seconds: slow start alone takes longer on the long paths.
pub(super) const SECONDS_MIN: u32 = 3;
/// Seconds that it may take beyond its measuring: programs begin and end, and what is under way is waited for.
pub(super) const BEYOND: u32 = 40;

/// The link of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    pub(super) rate: LinkRate,
    pub(super) round_trip_ms: u32,
    pub(super) loss_percent: f64,
    /// Each segment arrives by itself.
    pub(super) separate: bool,
}

impl Link {
    /// What emulates it; `tells_holes` where it also says of each hole in a stream when it was filled.
    pub(super) fn emulator(&self, weft: &Weft, tells_holes: bool) -> Role {
        let Link {
            rate,
            round_trip_ms,
            loss_percent,
            separate,
        } = *self;
        let delay = format!("{}us", round_trip_ms * 500);
        let loss = format!("{loss_percent}%");
        let rate = rate.to_string();
        let [one, other] = adapter::MIDDLE_INTERFACES;
        let words = [
            "link", one, other, "--delay", &delay, "--rate", &rate, "--loss", &loss, "--quiet",
            "--json",
        ];
        let holes = tells_holes.then_some(["--holes", "/dev/stdout"]);
        let program = Invocation::new(&weft.command, words)
            .args(holes.into_iter().flatten())
            .args(separate.then_some("--separate"));
        Role {
            name: LINK.to_owned(),
            host: adapter::MIDDLE,
            seat: Seat::Server,
            program,
            ready: Ready::Says(format!("weft: forwarding between {one} and {other}")),
            measures: false,
            told_to_end: true,
        }
    }
}

/// What a row asks.
#[derive(Clone, Debug, PartialEq)]
enum Question {
    /// What placement does behind lost frames.
    Placement,
    /// What a connection carries by itself, by which control.
    Alone,
    /// What one carries beside another that sends at a fixed rate, or by CUBIC as it does itself.
    Beside,
    /// What one carries since it was told, half-way, to send at a fixed rate.
    Changed,
    /// What acknowledging only one in so many segments does.
    Acknowledged(u32),
}

/// Messages of one size over a link.
#[derive(Clone, Debug)]
pub(super) struct OverLink {
    question: Question,
    size: u64,
    link: Link,
}

/// Every one of the default or of the full plan.
pub(super) fn all(full: bool, rate: LinkRate) -> Vec<OverLink> {
    let losses: &[f64] = if full {
        &[0.0, 0.01, 0.1, 1.0, 5.0]
    } else {
        &[0.0, 0.1]
    };
    let round_trips: &[u32] = if full { &[1, 10, 100] } else { &[10] };
    let of = |question, size, round_trip_ms, loss_percent| OverLink {
        link: Link {
            rate,
            round_trip_ms,
            loss_percent,
            separate: matches!(question, Question::Acknowledged(_)),
        },
        question,
        size,
    };
    let mut list = Vec::new();
    for size in [64 << 10, 1 << 20] {
        for &round_trip in round_trips {
            let each = losses.iter();
            list.extend(each.map(|&loss| of(Question::Placement, size, round_trip, loss)));
        }
    }
    list.push(of(Question::Alone, 1 << 20, 100, 0.01));
    list.push(of(Question::Beside, 1 << 20, 10, 0.0));
    list.push(of(Question::Changed, 1 << 20, 100, 0.01));
    for loss in [0.0, 0.1] {
        let each = [1, 2, 16, 64, 256].into_iter();
        list.extend(each.map(|n| of(Question::Acknowledged(n), 64 << 10, 10, loss)));
    }
    list
}

impl OverLink {
    /// Twice what the path holds, so that it stays full while some are told of.
    fn depth(&self) -> u32 {
        let seconds = f64::from(self.link.round_trip_ms) / 1e3;
        let messages =
            2.0 * f64::from(self.link.rate.mbit()) * 1e6 / 8.0 * seconds / self.size as f64;
        (messages as u32 + 4).min(1000)
    }

    /// What goes over it. A stack whose name says *rate* has one that is fixed.
    fn transfer(&self, stack: &dyn Stack, site: &Site) -> Transfer {
        let whole = f64::from(self.link.rate.mbit());
        let share = |share: f64| format!("rate={:.0}Mbit", whole * share);
        let name = stack.name();
        let fixed = [stack::AT_A_RATE, stack::AT_A_RATE_IN_ORDER].contains(&name.as_str());
        let mut tcp = [String::new(), String::new()];
        match self.question {
            Question::Alone | Question::Placement if fixed => tcp[0] = share(0.95),
            // No more than the two would share out between them.
            Question::Beside if fixed => {
                tcp[0] = format!("{} port={}; cubic", share(0.45), site.port)
            }
            Question::Acknowledged(n) => tcp[1] = format!("cubic acks=1/{n}"),
            _ => {}
        }
        Transfer {
            size: self.size,
            depth: self.depth(),
            connections: if self.question == Question::Beside {
                2
            } else {
                1
            },
            tcp,
            then: (self.question == Question::Changed).then(|| share(0.95)),
        }
    }

    /// The connection that the row is about: the neighbour where there are two.
    fn judged(&self) -> usize {
        usize::from(self.question == Question::Beside)
    }

    /// A stack at a fixed rate, on a path where congestion control leaves so little under way that little waits behind
    /// a hole: at a rate all that the path holds does.
    fn fills_the_path(&self, stack: &str) -> bool {
        let at_a_rate = [stack::AT_A_RATE, stack::AT_A_RATE_IN_ORDER].contains(&stack);
        let far = self.link.round_trip_ms > 1 && self.size > 64 << 10;
        at_a_rate && far && [0.01, 0.1].contains(&self.link.loss_percent)
    }
}

impl OverLink {
    fn of_messages(&self, messages: &Messages, figures: &mut Figures) -> Result<()> {
        let octets = self.size as f64;
        let own = messages.connection(self.judged())?;
        figures.put(GOODPUT.key, Some(own.goodput(octets)?));
        figures.put(OPERATIONS, Some(messages.done_in_all()));
        figures.put(MESSAGE_RATE.key, Some(own.rate()?));
        figures.put_times(&own.completion_times_us(), "completion_us", P99);
        if self.judged() > 0 {
            let other = messages.connection(0)?.goodput(octets)?;
            figures.put("other_goodput_gbit_s", Some(other));
        }
        if let Some(at) = messages.changed {
            let [before, after] = own.goodput_around(octets, at);
            figures.put("before_gbit_s", before);
            figures.put("after_gbit_s", after);
        }
        figures.put("sent_again", messages.sent_again);
        Ok(())
    }

    fn of_holes(&self, messages: &Messages, link: &LinkSaid, figures: &mut Figures) -> Result<()> {
        let own = messages.connection(self.judged())?;
        let fills = link.fills(own);
        figures.put("fills", Some(fills.waited.len() as f64));
        figures.put_times(&fills.times_us, "fill_us", "fill_p99_us");
        figures.put("waited_octets", median(&fills.waited));
        // What an adapter had to keep it has counted; of sockets and of the kernel's TCP all that waited is copied.
        // The sum of none is a zero with a sign, else.
        let waited = fills.waited.iter().fold(0.0, |sum, octets| sum + octets);
        let copied = messages.copied.unwrap_or(waited);
        figures.put("copied_octets", Some(copied / own.done.len().max(1) as f64));
        figures.put("placed_ahead_octets", messages.placed_ahead);
        Ok(())
    }
}

impl Workload for OverLink {
    fn id(&self) -> String {
        let Link {
            round_trip_ms,
            loss_percent,
            ..
        } = self.link;
        let size = Size(self.size);
        match self.question {
            Question::Placement => format!("rddp-{size}-rtt{round_trip_ms}-loss{loss_percent}"),
            Question::Alone => "control-alone".to_owned(),
            Question::Beside => "control-beside".to_owned(),
            Question::Changed => "control-changed".to_owned(),
            Question::Acknowledged(n) => format!("acks-{n}-loss{loss_percent}"),
        }
    }

    fn describe(&self) -> String {
        let Link {
            round_trip_ms,
            loss_percent,
            ..
        } = self.link;
        let size = Size(self.size);
        let link = format!(
            "{}, {round_trip_ms} ms, {loss_percent} % lost",
            self.link.rate
        );
        let what = match self.question {
            Question::Placement => String::new(),
            Question::Alone => ", alone".to_owned(),
            Question::Beside => ", the CUBIC neighbour of another connection".to_owned(),
            Question::Changed => ", at a fixed rate from half of the time on".to_owned(),
            Question::Acknowledged(n) => format!(", one acknowledgement for {n} segments"),
        };
        format!("goodput of {size} messages{what}; {link}; event mode")
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        match self.question {
            Question::Acknowledged(n) => {
                let series = format!("acks-loss{}", self.link.loss_percent);
                Some(Axis::count(&series, "segments for an acknowledgement", n))
            }
            _ => None,
        }
    }

    fn references(&self) -> Vec<String> {
        let name = match self.question {
            Question::Beside | Question::Changed | Question::Acknowledged(_) => stack::AS_IT_COMES,
            Question::Placement | Question::Alone => stack::SOCKETS,
        };
        vec![name.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        let name = stack.name();
        let fitting: &[&str] = match self.question {
            Question::Placement if self.fills_the_path(&name) => return path == PathKind::Adapter,
            Question::Placement => &[
                stack::SOCKETS,
                stack::ON_KERNEL_TCP,
                stack::IN_ORDER,
                stack::AS_IT_COMES,
            ],
            Question::Alone => &[
                stack::SOCKETS,
                stack::ON_KERNEL_TCP,
                stack::AS_IT_COMES,
                stack::AT_A_RATE,
            ],
            Question::Beside => &[stack::AS_IT_COMES, stack::AT_A_RATE],
            Question::Changed | Question::Acknowledged(_) => &[stack::AS_IT_COMES],
        };
        path == PathKind::Adapter && fitting.contains(&name.as_str())
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let site = Site {
            seconds: site.seconds.max(SECONDS_MIN),
            ..*site
        };
        let Some((weft, [server, client])) = stack.transfer(&self.transfer(stack, &site), &site)
        else {
            unreachable!("{} does not serve {}", stack.name(), self.id());
        };
        let role = |name: &str, host, seat, program, ready| Role {
            name: name.to_owned(),
            host,
            seat,
            program,
            ready,
            measures: true,
            told_to_end: false,
        };
        let ready = Ready::Says("ready".to_owned());
        Job {
            roles: vec![
                self.link.emulator(weft, true),
                role(SERVER, adapter::RECEIVER, Seat::Server, server, ready),
                role(CLIENT, adapter::SENDER, Seat::Client, client, Ready::AtOnce),
            ],
            // Three programs on two cores: where they run is for the scheduler.
            pinned: false,
            timeout: Duration::from_secs((site.seconds + BEYOND).into()),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let messages = Messages::of(output)?;
        let link = LinkSaid::of(output.role(LINK))?;
        let mut figures = Figures(Metrics::new());
        self.of_messages(&messages, &mut figures)?;
        self.of_holes(&messages, &link, &mut figures)?;
        let moved = messages.done_in_all() * self.size as f64;
        for role in &output.roles {
            let cpu = (role.taken.user + role.taken.system) * 1e9 / moved.max(1.0);
            figures.put(&format!("{}_cpu_ns_octet", role.taken.role), Some(cpu));
        }
        figures.put("frames_back", Some(link.frames_back()));
        figures.put("link_late_p50_us", Some(link.late_us(|of| of.late_p50_us)));
        figures.put("link_late_p99_us", Some(link.late_us(|of| of.late_p99_us)));
        figures.put("link_kept_up", Some(f64::from(u8::from(link.kept_up))));
        Ok(figures.0)
    }

    fn share(&self) -> f64 {
        1.3
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }
}

/// Figures under their keys.
struct Figures(Metrics);

impl Figures {
    fn put(&mut self, key: &str, value: Option<f64>) {
        self.0.extend(value.map(|value| (key.to_owned(), value)));
    }

    /// Median and 99th percentile, the latter of enough values alone.
    fn put_times(&mut self, values: &[f64], median: &str, p99: &str) {
        let enough = values.len() >= PERCENTILES_FROM;
        self.put(median, quantile(values, 0.5));
        self.put(p99, quantile(values, 0.99).filter(|_| enough));
    }
}

fn quantile(values: &[f64], rank: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), rank)
}

#[cfg(test)]
mod tests {
    use super::messages::Noted;
    use super::*;
    use crate::stack::tests::raw_tcp;

    const LINK_SAID: &str = r#"
{"from":"198.51.100.2:4000","to":"198.51.100.1:7000","at_ns":1000000,"before":1000,"after":4020,"brought":500}
{"from":"198.51.100.2:4000","to":"198.51.100.1:7000","at_ns":3000000,"before":4020,"after":4500,"brought":20}
{"from":"198.51.100.1:7000","to":"198.51.100.2:4000","end":20}
{"from":"198.51.100.2:4000","to":"198.51.100.1:7000","end":8040}
{"seconds":3,"kept_up":true,"directions":[{"received":7,"late_p50_us":1,"late_p99_us":2},{"received":90,"late_p50_us":3,"late_p99_us":5}]}
"#;

    /// Four messages of 2000 octets on the wire, the second of which a hole held up.
    fn output() -> Output {
        let server = "ready\n\
            {\"processes\":[{\"each\":[{\"copied\":600,\"placed_ahead\":50,\"path\":{\"retransmissions\":0}}]}]}\n\
            done 0 900000\ndone 0 1250000\ndone 0 4000000\ndone 0 5000000\n";
        let client = "{\"processes\":[{\"each\":[{\"copied\":0,\"placed_ahead\":0,\"path\":{\"retransmissions\":1}}]}]}\n\
            sent 0 100000\nsent 0 200000\nsent 0 300000\nsent 0 1000000\n";
        Output::of(&[(LINK, LINK_SAID), (SERVER, server), (CLIENT, client)])
    }

    fn row() -> OverLink {
        let rows = all(true, LinkRate::default());
        let wanted = |row: &OverLink| row.id() == "rddp-64K-rtt10-loss0.1";
        rows.into_iter().find(wanted).unwrap()
    }

    #[test]
    fn a_hole_is_over_when_the_last_message_is_done_that_it_held_up() {
        let row = OverLink {
            size: 2000,
            ..row()
        };
        let metrics = row.parse(&raw_tcp(), &output()).unwrap();
        assert_eq!((metrics["fills"], metrics["fill_us"]), (2.0, 250.0));
        assert_eq!(metrics["waited_octets"], (2520.0 + 460.0) / 2.0);
        // The adapter's own count, for each message.
        assert_eq!(metrics["copied_octets"], 150.0);
        assert_eq!((metrics["sent_again"], metrics["frames_back"]), (1.0, 7.0));
        let seconds = 4.9e-3;
        assert!((metrics["goodput_gbit_s"] - 4.0 * 2000.0 * 8.0 / 1e9 / seconds).abs() < 1e-9);
        assert!(!metrics.contains_key(P99), "too few for a percentile");
        assert_eq!(
            (metrics["link_late_p99_us"], metrics["link_kept_up"]),
            (5.0, 1.0)
        );
    }

    #[test]
    fn a_link_that_said_nothing_and_messages_that_never_came_are_errors() {
        let (server, client) = (output().server().to_owned(), output().client().to_owned());
        let without = Output::of(&[(SERVER, &server), (CLIENT, &client)]);
        assert!(row().parse(&raw_tcp(), &without).is_err());
        let none = Output::of(&[(LINK, LINK_SAID), (SERVER, "ready\n"), (CLIENT, &client)]);
        assert!(row().parse(&raw_tcp(), &none).is_err());
    }

    #[test]
    fn goodput_before_and_after_a_change() {
        let noted = Noted {
            sent: vec![0, 1],
            done: vec![500_000_000, 1_000_000_000, 1_250_000_000, 1_500_000_000],
        };
        let [before, after] = noted.goodput_around(1e9 / 8.0, 1_100_000_000);
        assert!((before.unwrap() - 2.0 / 1.1).abs() < 1e-9);
        assert!((after.unwrap() - 2.0 / 0.4).abs() < 1e-9);
    }

    #[test]
    fn rates_are_as_weft_link_has_them() {
        for (text, shown) in [
            ("1Gbit", "1Gbit"),
            ("300Mbit", "300Mbit"),
            ("2000Mbit", "2Gbit"),
        ] {
            assert_eq!(text.parse::<LinkRate>().unwrap().to_string(), shown);
        }
        for wrong in ["", "1", "Gbit", "0Mbit", "1.5Gbit", "9000Gbit"] {
            assert!(wrong.parse::<LinkRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_full_plan_is_the_experiment_of_the_report() {
        let ids: Vec<String> = all(true, LinkRate::default())
            .iter()
            .map(OverLink::id)
            .collect();
        let placement = ids.iter().filter(|id| id.starts_with("rddp-"));
        assert_eq!(placement.count(), 2 * 3 * 5);
        for id in all(false, LinkRate::default()).iter().map(OverLink::id) {
            assert!(ids.contains(&id), "{id}");
        }
    }
}
