//! Which UDP sockets are offloaded: [rules](crate::rules) with the actions `gso`, `uoe prefer` and `off`.
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
    /// Sent over an offloaded connection where the other end is Weft too, plainly where it is not.
    Uoe(Uoe),
    /// Left to the kernel.
    Off,
}

/// What becomes of datagrams that came over an offloaded connection and wait for the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uoe {
    /// How long one may wait; what waits longer is dropped. Nothing: for ever.
    pub age: Option<Duration>,
    /// Where there is no room the oldest is dropped, not the newest.
    pub drops_oldest: bool,
}

/// Sets how long a datagram may wait: `20ms`, `500us` or `2s`.
fn set_age(treatment: &mut Treatment, value: &str) -> bool {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: Option<u32> = digits.parse().ok().filter(|number| *number > 0);
    let unit = match &value[digits.len()..] {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return false,
    };
    match (treatment, number) {
        (Treatment::Uoe(uoe), Some(number)) => {
            uoe.age = Some(unit * number);
            true
        }
        _ => false,
    }
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

/// Which way datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the program: gathered.
    Send,
    /// Into the program: split.
    Receive,
}

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
            }),
            options: &[
                ActionOption {
                    name: "age",
                    accepts: "N followed by us, ms or s",
                    set: set_age,
                },
                ActionOption {
                    name: "drop",
                    accepts: "oldest or newest",
                    set: set_drop,
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
            "uoe prefer prefer",
        ] {
            assert!(DatagramRules::parse(text).is_err(), "{text}");
        }
    }
}
