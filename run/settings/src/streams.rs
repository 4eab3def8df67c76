//! Which TCP sockets carry their octets as DDP: [rules](crate::rules) with the actions `prefer`, `require` and `off`.
//!
//! The directions are those of a stream: `connect`, for the sockets that a program connects, and `listen`, for those it
//! listens on and the connections that these accept. Where no rule fits a socket's octets go as TCP.

use std::fmt;
use std::net::SocketAddr;

use crate::rules::{Action, Grammar, Rule, RuleError, Rules};

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRules(Rules<Mode, Direction>);

/// Whether a socket's octets go as DDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They go as TCP.
    #[default]
    Off,
    /// As DDP where the other end can, else as TCP.
    Prefer,
    /// As DDP; where the other end cannot there is no connection.
    Require,
}

/// Which side of a connection a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The one that connects.
    Connect,
    /// The one that listens.
    Listen,
}

const fn action(name: &'static str, value: Mode) -> Action<Mode> {
    Action {
        name,
        value,
        options: &[],
    }
}

const OFF: Action<Mode> = action("off", Mode::Off);

/// What the rules may say.
pub const GRAMMAR: Grammar<Mode, Direction> = Grammar {
    actions: &[
        action("prefer", Mode::Prefer),
        action("require", Mode::Require),
        OFF,
    ],
    directions: &[
        ("connect", Direction::Connect),
        ("listen", Direction::Listen),
    ],
};

/// Programs that confine themselves so that they are ended by the calls that a connection over DDP takes. OpenSSH's
/// servers do so in the process that talks to whoever has not yet shown who they are.
const CONFINED: [&str; 3] = ["sshd", "sshd-session", "sshd-auth"];

/// Whether a program of this name is left on TCP by a rule that prefers DDP and does not name it.
pub fn is_confined(name: &str) -> bool {
    CONFINED.contains(&name)
}

impl StreamRules {
    /// Reads rules.
    ///
    /// # Errors
    /// Every mistake in the text, in its order.
    pub fn parse(text: &str) -> Result<StreamRules, Vec<RuleError>> {
        GRAMMAR.parse(text).map(StreamRules)
    }

    /// The rules that can fit for a program with these names. For one that DDP would end, a rule that prefers DDP and
    /// does not name it says `off`.
    #[must_use]
    pub fn for_program(&self, names: &[&str]) -> StreamRules {
        let rules = self.0.for_program(names);
        let is_confined = names.iter().any(|name| is_confined(name));
        let is_off = |rule: &Rule<Mode, Direction>| {
            is_confined && !rule.names_program() && *rule.action() == Mode::Prefer
        };
        StreamRules(rules.with_action(&OFF, is_off))
    }

    /// Whether there is any rule, be it `off`: TCP sockets are looked after then, and have the socket option.
    #[inline]
    pub fn any(&self) -> bool {
        self.iter().next().is_some()
    }

    /// Whether addresses and ports make a difference.
    pub fn look_at_ends(&self) -> bool {
        self.0.look_at_ends()
    }

    /// What the first rule that fits says of a socket of this direction between `ends`.
    pub fn decide(&self, direction: Direction, ends: &[SocketAddr]) -> Mode {
        let decided = self.0.decide(direction, ends);
        decided.copied().unwrap_or_default()
    }

    /// Each rule.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<Mode, Direction>> {
        self.0.iter()
    }
}

impl fmt::Display for StreamRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Connect, Listen};
    use Mode::{Off, Prefer, Require};

    fn rules(text: &str) -> StreamRules {
        StreamRules::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
    }

    fn ends(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_word_alone_decides_everything() {
        let any = ends(&["10.0.0.1:1", "10.0.0.2:2"]);
        for (text, mode) in [("prefer", Prefer), ("require", Require), ("off", Off)] {
            assert_eq!(rules(text).decide(Connect, &any), mode);
            assert_eq!(rules(text).decide(Listen, &[]), mode);
            assert!(rules(text).any() && !rules(text).look_at_ends());
        }
        assert_eq!(StreamRules::default().decide(Connect, &any), Off);
        assert!(!StreamRules::default().any());
    }

    #[test]
    fn what_ddp_would_end_is_left_on_tcp_unless_it_is_named() {
        let of = |text, name| rules(text).for_program(&[name]);
        let listens = |rules: StreamRules| rules.decide(Listen, &ends(&["0.0.0.0:22"]));
        for name in ["sshd", "sshd-session", "sshd-auth"] {
            assert_eq!(listens(of("prefer", name)), Off);
            assert_eq!(
                of("prefer port=22; require", name).to_string(),
                "off port=22; require"
            );
        }
        assert_eq!(
            listens(of("prefer port=22; require", "sshd")),
            Off,
            "it is in its place"
        );
        assert_eq!(listens(of("prefer", "ssh")), Prefer);
        assert_eq!(listens(of("prefer program=sshd", "sshd")), Prefer);
        assert_eq!(listens(of("require", "sshd")), Require);
    }

    #[test]
    fn the_first_that_fits_decides() {
        let text = "prefer direction=connect address=10.0.0.0/8 port=6379; require direction=listen port=6379";
        let rules = rules(text);
        assert!(rules.look_at_ends());
        let client = |to| rules.decide(Connect, &ends(&["10.0.0.1:40000", to]));
        assert_eq!(client("10.9.9.9:6379"), Prefer);
        assert_eq!(client("10.9.9.9:6380"), Off);
        assert_eq!(client("192.0.2.1:6379"), Off, "one end has to have both");
        let server = |at| rules.decide(Listen, &ends(&[at]));
        assert_eq!(server("0.0.0.0:6379"), Require);
        assert_eq!(server("[::]:6379"), Require);
        assert_eq!(server("0.0.0.0:80"), Off);
    }

    #[test]
    fn programs_pick_their_rules() {
        let all = rules("prefer program=redis-server; off program=sshd");
        let of = |name| all.for_program(&[name]);
        assert_eq!(of("redis-server").decide(Listen, &[]), Prefer);
        assert!(of("sshd").any(), "a rule that says off is a rule");
        assert!(!of("other").any());
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "on",
            "gso",
            "prefer;",
            "prefer direction=send",
            "require port=65536",
            "prefer crc=off",
        ] {
            assert!(StreamRules::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_pointed_out_with_what_was_meant() {
        let errors = StreamRules::parse("requires; prefer direction=lisen").unwrap_err();
        let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "rule 1, column 1: a rule begins with its action, and requires is none; did you mean require? There \
                 are: prefer, require or off",
                "rule 2, column 18: direction=lisen is not understood; did you mean listen? It takes \
                 direction=connect, listen or both",
            ]
        );
    }
}
