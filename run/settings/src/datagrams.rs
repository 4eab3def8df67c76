//! Which UDP sockets are offloaded: [rules](crate::rules) with the actions `gso`, `uoe prefer`, `uoe require` and
//! `off`.
//!
//! A datagram socket neither connects nor listens in the way of a stream: its directions are `send`, where datagrams
//! are gathered, and `receive`, where they are split. Where no rule fits nothing is offloaded.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::rules::{Action, ActionOption, Grammar, Rule, RuleError, Rules};

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramRules(Rules<Treatment, Direction>);

/// What becomes of a socket's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Gathered and split: segmentation offload.
    Gso,
    /// Sent over an offloaded connection where the other end is Weft too; plainly where it is not, unless connections
    /// are required.
    Uoe(Uoe),
    /// Left to the kernel.
    Off,
}

/// What becomes of datagrams that travel over an offloaded connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uoe {
    /// How long one may wait for the program, or for its connection; what waits longer is dropped. Nothing: for ever.
    pub age: Option<Duration>,
    /// Where there is no room the oldest is dropped, not the newest.
    pub drops_oldest: bool,
    /// The connections are the adapter's where it leads to the other end's; else the kernel's.
    pub over_adapter: bool,
    /// What the program sends to sockets of the same process takes a connection of that process to itself. Usually the
    /// kernel carries it: two trips through the stack are no gain over one.
    pub within_process: bool,
    /// Datagrams are never sent plainly. Nothing: they are where there is no connection.
    pub requires: Option<Requires>,
}

/// What a rule says that requires connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requires {
    /// What a send does that finds no connection.
    pub wait: Wait,
    /// UDP does not pass: no end proves by it which address it has, if both ends' rules say so.
    pub without_udp: bool,
}

/// What a send does that finds no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It leaves the datagram in a queue (mode 1).
    #[default]
    No,
    /// It waits for so long, and then leaves it (mode 2).
    For(Duration),
    /// It waits until there is one.
    Forever,
}

/// How long a send waits in mode 2 if nothing is said.
const WAIT_DEFAULT: Duration = Duration::from_secs(1);

/// A length of time: `20ms`, `500us` or `2s`.
fn time(value: &str) -> Option<Duration> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: Option<u32> = digits.parse().ok().filter(|number| *number > 0);
    let unit = match &value[digits.len()..] {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return None,
    };
    Some(unit * number?)
}

/// Sets how long a datagram may wait.
fn set_age(treatment: &mut Treatment, value: &str) -> bool {
    match (treatment, time(value)) {
        (Treatment::Uoe(uoe), Some(age)) => {
            uoe.age = Some(age);
            true
        }
        _ => false,
    }
}

/// What the rule requires, if it is one that does.
fn requires(treatment: &mut Treatment) -> Option<&mut Requires> {
    match treatment {
        Treatment::Uoe(uoe) => uoe.requires.as_mut(),
        _ => None,
    }
}

/// Sets what a send does that finds no connection, by the numbers of the modes.
fn set_mode(treatment: &mut Treatment, value: &str) -> bool {
    let Some(requires) = requires(treatment) else {
        return false;
    };
    match (value, requires.wait) {
        ("1", _) => requires.wait = Wait::No,
        ("2", Wait::No) => requires.wait = Wait::For(WAIT_DEFAULT),
        ("2", _) => {}
        _ => return false,
    }
    true
}

/// Sets how long a send waits that finds no connection.
fn set_wait(treatment: &mut Treatment, value: &str) -> bool {
    let wait = match (value, time(value)) {
        ("forever", _) => Wait::Forever,
        (_, Some(time)) => Wait::For(time),
        _ => return false,
    };
    let requires = requires(treatment);
    requires.map(|requires| requires.wait = wait).is_some()
}

/// Says that UDP does not pass.
fn set_udp_path(treatment: &mut Treatment, value: &str) -> bool {
    let requires = requires(treatment).filter(|_| value == "none");
    requires
        .map(|requires| requires.without_udp = true)
        .is_some()
}

/// Sets which datagram is dropped where there is no room.
fn set_drop(treatment: &mut Treatment, value: &str) -> bool {
    let drops_oldest = match value {
        "oldest" => true,
        "newest" => false,
        _ => return false,
    };
    if let Treatment::Uoe(uoe) = treatment {
        uoe.drops_oldest = drops_oldest;
    }
    true
}

/// Sets whose connections datagrams travel on.
fn set_over(treatment: &mut Treatment, value: &str) -> bool {
    let over_adapter = match value {
        "adapter" => true,
        "kernel" => false,
        _ => return false,
    };
    if let Treatment::Uoe(uoe) = treatment {
        uoe.over_adapter = over_adapter;
    }
    true
}

/// Sets what carries what a process sends to itself.
fn set_same_process(treatment: &mut Treatment, value: &str) -> bool {
    let within_process = match value {
        "carrier" => true,
        "kernel" => false,
        _ => return false,
    };
    if let Treatment::Uoe(uoe) = treatment {
        uoe.within_process = within_process;
    }
    true
}

/// Which way datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the program: gathered.
    Send,
    /// Into the program: split.
    Receive,
}

const AGE: ActionOption<Treatment> = ActionOption {
    name: "age",
    accepts: "N followed by us, ms or s",
    set: set_age,
};

const DROP: ActionOption<Treatment> = ActionOption {
    name: "drop",
    accepts: "oldest or newest",
    set: set_drop,
};

const OVER: ActionOption<Treatment> = ActionOption {
    name: "over",
    accepts: "adapter or kernel",
    set: set_over,
};

const SAME_PROCESS: ActionOption<Treatment> = ActionOption {
    name: "same-process",
    accepts: "kernel or carrier",
    set: set_same_process,
};

/// What the rules may say.
pub const GRAMMAR: Grammar<Treatment, Direction> = Grammar {
    actions: &[
        Action {
            name: "gso",
            value: Treatment::Gso,
            options: &[],
        },
        Action {
            name: "uoe prefer",
            value: Treatment::Uoe(Uoe {
                age: None,
                drops_oldest: false,
                over_adapter: false,
                within_process: false,
                requires: None,
            }),
            options: &[AGE, DROP, OVER, SAME_PROCESS],
        },
        Action {
            name: "uoe require",
            value: Treatment::Uoe(Uoe {
                age: None,
                drops_oldest: false,
                over_adapter: false,
                within_process: false,
                requires: Some(Requires {
                    wait: Wait::No,
                    without_udp: false,
                }),
            }),
            options: &[
                AGE,
                DROP,
                OVER,
                SAME_PROCESS,
                ActionOption {
                    name: "mode",
                    accepts: "1 or 2",
                    set: set_mode,
                },
                ActionOption {
                    name: "wait",
                    accepts: "N followed by us, ms or s, or forever",
                    set: set_wait,
                },
                ActionOption {
                    name: "udp-path",
                    accepts: "none",
                    set: set_udp_path,
                },
            ],
        },
        Action {
            name: "off",
            value: Treatment::Off,
            options: &[],
        },
    ],
    directions: &[("send", Direction::Send), ("receive", Direction::Receive)],
};

impl DatagramRules {
    /// Reads rules.
    ///
    /// # Errors
    /// Every mistake in the text, in its order.
    pub fn parse(text: &str) -> Result<DatagramRules, Vec<RuleError>> {
        GRAMMAR.parse(text).map(DatagramRules)
    }

    /// The rules that can fit for a program with these names.
    #[must_use]
    pub fn for_program(&self, names: &[&str]) -> DatagramRules {
        DatagramRules(self.0.for_program(names))
    }

    /// Whether anything at all may be offloaded.
    pub fn any(&self) -> bool {
        self.iter().any(|rule| *rule.action() != Treatment::Off)
    }

    /// Whether any datagram may take an offloaded connection.
    pub fn any_uoe(&self) -> bool {
        let mut rules = self.iter();
        rules.any(|rule| matches!(rule.action(), Treatment::Uoe(_)))
    }

    /// Whether datagrams may be ones that are never sent plainly.
    pub fn any_required(&self) -> bool {
        self.iter()
            .any(|rule| matches!(rule.action(), Treatment::Uoe(uoe) if uoe.requires.is_some()))
    }

    /// Whether datagrams may travel on connections of the adapter's.
    pub fn any_over_adapter(&self) -> bool {
        self.iter()
            .any(|rule| matches!(rule.action(), Treatment::Uoe(uoe) if uoe.over_adapter))
    }

    /// Whether datagrams may travel so that are of no use once they are so old: what is missing is not waited for.
    pub fn any_forgives(&self) -> bool {
        self.iter().any(|rule| {
            matches!(rule.action(), Treatment::Uoe(uoe) if uoe.over_adapter && uoe.age.is_some())
        })
    }

    /// Whether what a process sends to itself may travel on a connection.
    pub fn any_within_process(&self) -> bool {
        self.iter()
            .any(|rule| matches!(rule.action(), Treatment::Uoe(uoe) if uoe.within_process))
    }

    /// Whether UDP may not pass for some.
    pub fn any_without_udp(&self) -> bool {
        let is_without = |requires: &Requires| requires.without_udp;
        self.iter().any(|rule| match rule.action() {
            Treatment::Uoe(uoe) => uoe.requires.as_ref().is_some_and(is_without),
            _ => false,
        })
    }

    /// Whether addresses and ports make a difference.
    pub fn look_at_ends(&self) -> bool {
        self.0.look_at_ends()
    }

    /// Whether datagrams that go in `direction` between `ends` get segmentation offload.
    pub fn decide(&self, direction: Direction, ends: &[SocketAddr]) -> bool {
        self.0.decide(direction, ends) == Some(&Treatment::Gso)
    }

    /// How datagrams that go in `direction` between `ends` take an offloaded connection, if they may.
    pub fn uoe(&self, direction: Direction, ends: &[SocketAddr]) -> Option<Uoe> {
        match self.0.decide(direction, ends) {
            Some(Treatment::Uoe(uoe)) => Some(*uoe),
            _ => None,
        }
    }

    /// Each rule.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<Treatment, Direction>> {
        self.0.iter()
    }
}

impl fmt::Display for DatagramRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Receive, Send};

    fn rules(text: &str) -> DatagramRules {
        DatagramRules::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
    }

    fn ends(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_word_alone_decides_everything() {
        let any = ends(&["10.0.0.1:1", "10.0.0.2:2"]);
        assert!(rules("gso").decide(Send, &any));
        assert!(rules("gso").decide(Receive, &[]));
        assert!(!rules("off").decide(Send, &any));
        assert!(rules("gso").any() && !rules("off").any());
        assert!(!DatagramRules::default().decide(Send, &any));
    }

    #[test]
    fn the_first_that_fits_decides() {
        let rules = rules("off port=53; gso direction=send address=10.0.0.0/8; off");
        assert!(!rules.decide(Send, &ends(&["10.1.1.1:53"])));
        assert!(rules.decide(Send, &ends(&["192.0.2.1:9", "10.1.1.1:54"])));
        assert!(!rules.decide(Receive, &ends(&["10.1.1.1:54"])));
        assert!(!rules.decide(Send, &ends(&["11.1.1.1:54"])));
        assert!(rules.look_at_ends());
    }

    #[test]
    fn datagrams_may_take_a_connection_to_some_and_not_to_others() {
        let rules = rules("uoe prefer age=20ms drop=oldest address=10.0.0.0/8; gso");
        let (near, far) = (ends(&["10.1.1.1:5000"]), ends(&["192.0.2.1:5000"]));
        let wanted = Uoe {
            age: Some(Duration::from_millis(20)),
            drops_oldest: true,
            over_adapter: false,
            within_process: false,
            requires: None,
        };
        assert_eq!(rules.uoe(Send, &near), Some(wanted));
        assert_eq!(rules.uoe(Send, &far), None);
        assert!(rules.decide(Send, &far) && !rules.decide(Send, &near));
        assert!(rules.any_uoe() && rules.any());
        let text = "uoe prefer age=20ms drop=oldest address=10.0.0.0/8; gso";
        assert_eq!(rules.to_string(), text, "shown as it is read");
        assert!(!DatagramRules::parse("gso").unwrap().any_uoe());
    }

    #[test]
    fn an_age_is_a_number_with_its_unit() {
        for (text, age) in [
            ("7us", Duration::from_micros(7)),
            ("20ms", Duration::from_millis(20)),
            ("2s", Duration::from_secs(2)),
        ] {
            let uoe = rules(&format!("uoe prefer age={text}")).uoe(Receive, &[]);
            assert_eq!(uoe.and_then(|uoe| uoe.age), Some(age), "{text}");
        }
    }

    #[test]
    fn who_requires_connections_says_what_is_done_without() {
        for (text, wait, without_udp) in [
            ("", Wait::No, false),
            (" mode=1", Wait::No, false),
            (" mode=2", Wait::For(Duration::from_secs(1)), false),
            (" wait=50ms", Wait::For(Duration::from_millis(50)), false),
            (
                " mode=2 wait=50ms",
                Wait::For(Duration::from_millis(50)),
                false,
            ),
            (
                " wait=50ms mode=2",
                Wait::For(Duration::from_millis(50)),
                false,
            ),
            (" mode=2 wait=forever age=2s", Wait::Forever, false),
            (" udp-path=none", Wait::No, true),
        ] {
            let rules = rules(&format!("uoe require{text}"));
            let requires = rules.uoe(Send, &[]).and_then(|uoe| uoe.requires);
            assert_eq!(requires, Some(Requires { wait, without_udp }), "{text}");
            assert!(rules.any_uoe() && rules.any_required());
            assert_eq!(rules.any_without_udp(), without_udp);
        }
        let prefers = rules("uoe prefer; gso");
        assert!(!prefers.any_required() && !prefers.any_without_udp());
    }

    #[test]
    fn a_rule_says_what_carries_what_a_process_sends_to_itself() {
        for (text, within_process) in [
            ("uoe prefer", false),
            ("uoe prefer same-process=kernel", false),
            ("uoe prefer same-process=carrier", true),
            ("uoe require same-process=carrier over=adapter", true),
        ] {
            let rules = rules(text);
            let uoe = rules.uoe(Send, &[]);
            assert_eq!(
                uoe.map(|uoe| uoe.within_process),
                Some(within_process),
                "{text}"
            );
            assert_eq!(rules.any_within_process(), within_process);
        }
        assert!(DatagramRules::parse("uoe prefer same-process=yes").is_err());
        assert!(DatagramRules::parse("gso same-process=carrier").is_err());
    }

    #[test]
    fn a_rule_says_whose_connections_they_are() {
        for (text, over_adapter) in [
            ("uoe prefer", false),
            ("uoe prefer over=adapter", true),
            ("uoe require over=adapter age=20ms", true),
            ("uoe require over=kernel", false),
        ] {
            let rules = rules(text);
            let uoe = rules.uoe(Send, &[]);
            assert_eq!(
                uoe.map(|uoe| uoe.over_adapter),
                Some(over_adapter),
                "{text}"
            );
            assert_eq!(rules.any_over_adapter(), over_adapter);
        }
    }

    #[test]
    fn one_end_must_have_both() {
        let rules = rules("gso address=10.0.0.1 port=5001-5010");
        assert!(rules.decide(Send, &ends(&["10.0.0.1:5010"])));
        assert!(!rules.decide(Send, &ends(&["10.0.0.1:1", "10.0.0.2:5001"])));
    }

    #[test]
    fn programs_pick_their_rules() {
        let all = rules("gso program=iperf3; off program=dig; off");
        assert!(all.for_program(&["iperf3"]).decide(Send, &[]));
        assert!(!all.for_program(&["dig"]).any());
        assert!(!all.for_program(&["other"]).any());
        // Started by one name, and its file has another.
        assert!(all.for_program(&["speed", "iperf3"]).any());
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "on",
            "gso;",
            "gso port",
            "gso port=",
            "gso port=5-4",
            "gso port=65536",
            "gso address=10.0.0.0/33",
            "gso address=host",
            "gso direction=connect",
            "gso program=",
            "gso size=1",
            "gso age=20ms",
            "uoe",
            "uoe age=20ms",
            "uoe perfer",
            "uoe prefer age=20",
            "uoe prefer age=ms",
            "uoe prefer age=0ms",
            "uoe prefer age=9h",
            "uoe prefer drop=all",
            "uoe prefer over=air",
            "gso over=adapter",
            "uoe prefer prefer",
            "uoe prefer mode=1",
            "uoe prefer wait=20ms",
            "uoe prefer udp-path=none",
            "uoe require mode=3",
            "uoe require wait=long",
            "uoe require udp-path=some",
        ] {
            assert!(DatagramRules::parse(text).is_err(), "{text}");
        }
    }
}
