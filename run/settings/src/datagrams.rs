//! Which UDP sockets are offloaded: [rules](crate::rules) with the actions `gso` and `off`.
//!
//! A datagram socket neither connects nor listens in the way of a stream: its directions are `send`, where datagrams
//! are gathered, and `receive`, where they are split. Where no rule fits nothing is offloaded.

use std::fmt;
use std::net::SocketAddr;

use crate::rules::{Action, Grammar, Rule, RuleError, Rules};

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramRules(Rules<Treatment, Direction>);

/// What becomes of a socket's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Gathered and split: segmentation offload.
    Gso,
    /// Left to the kernel.
    Off,
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
        self.iter().any(|rule| *rule.action() == Treatment::Gso)
    }

    /// Whether addresses and ports make a difference.
    pub fn look_at_ends(&self) -> bool {
        self.0.look_at_ends()
    }

    /// Whether datagrams that go in `direction` between `ends` are offloaded.
    pub fn decide(&self, direction: Direction, ends: &[SocketAddr]) -> bool {
        self.0.decide(direction, ends) == Some(&Treatment::Gso)
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
        ] {
            assert!(DatagramRules::parse(text).is_err(), "{text}");
        }
    }
}
