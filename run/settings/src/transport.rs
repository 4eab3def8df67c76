//! How connections of the adapter's TCP send: [rules](crate::rules) with the actions `cubic`, `reno`, `none` and
//! `rate=...`.
//!
//! The directions are those of a stream: `connect`, for the connections that a program opens, and `listen`, for those
//! that come in. Where no rule fits it is CUBIC, as everywhere else.

use std::fmt;
use std::net::SocketAddr;

use crate::rules::{Action, ActionOption, Grammar, Rule, RuleError, Rules};
pub use crate::streams::Direction;

/// Segments that one acknowledgement may stand for at most: a peer with a window of any use has sent more by then.
pub const ACKS_MAX: u32 = 1024;
/// Octets of the frames that may be asked for: a packet of Ethernet, and the longest that a device cuts.
const FRAME_OCTETS: std::ops::RangeInclusive<u32> = 1500..=65_536;

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportRules(Rules<Policy, Direction>);

/// How a connection sends and acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What decides how much may be under way.
    pub control: Control,
    /// Full segments for which one acknowledgement is sent; `None` leaves it to the TCP.
    pub acks: Option<u32>,
    /// Octets of the largest frame that is handed to the device, which cuts it; `None` leaves it to the adapter.
    pub frame: Option<u32>,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// Reno (RFC 5681).
    Reno,
    /// None: the peer's window is the limit.
    Unlimited,
    /// So many octets of packets a second, whatever is lost.
    Rate(u64),
}

/// Reads a rate: `1Gbit`, `500Mbit` or `64kbit` a second. Gives octets.
fn rate(value: &str) -> Option<u64> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let bits = match &value[digits.len()..] {
        "kbit" => 1_000,
        "Mbit" => 1_000_000,
        "Gbit" => 1_000_000_000,
        _ => return None,
    };
    let number: u32 = digits.parse().ok().filter(|number| *number > 0)?;
    Some(u64::from(number) * bits / 8)
}

fn set_rate(policy: &mut Policy, value: &str) -> bool {
    let rate = rate(value);
    policy.control = rate.map_or(policy.control, Control::Rate);
    rate.is_some()
}

fn set_acks(policy: &mut Policy, value: &str) -> bool {
    let number = value
        .strip_prefix("1/")
        .and_then(|number| number.parse().ok());
    policy.acks = number.filter(|number| (1..=ACKS_MAX).contains(number));
    policy.acks.is_some()
}

fn set_frame(policy: &mut Policy, value: &str) -> bool {
    let number: Option<u32> = value.parse().ok();
    policy.frame = number.filter(|octets| FRAME_OCTETS.contains(octets));
    policy.frame.is_some()
}

impl Policy {
    /// Reads the policy of one connection: an action with its options, as a rule begins (`rate=950Mbit acks=1/64`).
    ///
    /// # Errors
    /// What is wrong with the text, in words. Conditions are, as it is known which connection is meant.
    pub fn parse(text: &str) -> Result<Policy, String> {
        let rules = GRAMMAR.parse(text).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        })?;
        let mut rules = rules.iter();
        match (rules.next(), rules.next()) {
            (Some(rule), None) if rule.is_for_all() => Ok(*rule.action()),
            (_, None) => Err("a policy of one connection has no conditions".to_owned()),
            _ => Err("a connection has one policy".to_owned()),
        }
    }
}

const ACKS: ActionOption<Policy> = ActionOption {
    name: "acks",
    accepts: "1/N with N from 1 to 1024",
    set: set_acks,
};

const FRAME: ActionOption<Policy> = ActionOption {
    name: "frame",
    accepts: "a whole number of octets from 1500 to 65536",
    set: set_frame,
};

const RATE: ActionOption<Policy> = ActionOption {
    name: "rate",
    accepts: "N followed by kbit, Mbit or Gbit",
    set: set_rate,
};

/// Of every action.
const ALL: &[ActionOption<Policy>] = &[ACKS, FRAME];

const fn action(name: &'static str, control: Control) -> Action<Policy> {
    Action {
        name,
        value: Policy {
            control,
            acks: None,
            frame: None,
        },
        options: ALL,
    }
}

/// What the rules may say.
pub const GRAMMAR: Grammar<Policy, Direction> = Grammar {
    actions: &[
        action("cubic", Control::Cubic),
        action("reno", Control::Reno),
        action("none", Control::Unlimited),
        Action {
            options: &[RATE, ACKS, FRAME],
            ..action("rate=", Control::Cubic)
        },
    ],
    directions: &[
        ("connect", Direction::Connect),
        ("listen", Direction::Listen),
    ],
};

impl TransportRules {
    /// Reads rules.
    ///
    /// # Errors
    /// Every mistake in the text, in its order.
    pub fn parse(text: &str) -> Result<TransportRules, Vec<RuleError>> {
        GRAMMAR.parse(text).map(TransportRules)
    }

    /// The rules that can fit for a program with these names.
    #[must_use]
    pub fn for_program(&self, names: &[&str]) -> TransportRules {
        TransportRules(self.0.for_program(names))
    }

    /// What the first rule that fits says of a connection of this direction between `ends`; nothing where none fits.
    pub fn decide(&self, direction: Direction, ends: &[SocketAddr]) -> Option<Policy> {
        self.0.decide(direction, ends).copied()
    }

    /// Each rule.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<Policy, Direction>> {
        self.0.iter()
    }
}

impl fmt::Display for TransportRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Connect, Listen};

    fn rules(text: &str) -> TransportRules {
        TransportRules::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
    }

    fn ends(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn policy(text: &str) -> Policy {
        rules(text).decide(Connect, &[]).unwrap()
    }

    #[test]
    fn each_control_has_its_word_and_a_rate_its_value() {
        for (text, control) in [
            ("cubic", Control::Cubic),
            ("reno", Control::Reno),
            ("none", Control::Unlimited),
            ("rate=1Gbit", Control::Rate(125_000_000)),
            ("rate=64kbit", Control::Rate(8_000)),
            ("rate=950Mbit", Control::Rate(118_750_000)),
        ] {
            assert_eq!(policy(text).control, control, "{text}");
            assert_eq!((policy(text).acks, policy(text).frame), (None, None));
            assert_eq!(rules(text).to_string(), text);
        }
        assert_eq!(TransportRules::default().decide(Connect, &[]), None);
    }

    #[test]
    fn acknowledgements_and_frames_go_with_any_of_them() {
        let text = "rate=1Gbit acks=1/64 frame=9000 direction=connect";
        assert_eq!(
            (policy(text).acks, policy(text).frame),
            (Some(64), Some(9000))
        );
        assert_eq!(rules(text).to_string(), text);
        assert_eq!(policy("cubic frame=65536").frame, Some(65_536));
        assert_eq!(policy("none acks=1/1").acks, Some(1));
    }

    #[test]
    fn the_first_that_fits_decides() {
        let rules = rules("rate=1Gbit address=10.0.0.0/8 port=7471; reno direction=listen; none");
        let of = |direction, to| {
            let between = ends(&["10.0.0.1:40000", to]);
            rules
                .decide(direction, &between)
                .map(|policy| policy.control)
        };
        assert_eq!(
            of(Connect, "10.0.0.2:7471"),
            Some(Control::Rate(125_000_000))
        );
        assert_eq!(of(Listen, "10.0.0.2:7472"), Some(Control::Reno));
        assert_eq!(of(Connect, "10.0.0.2:7472"), Some(Control::Unlimited));
    }

    #[test]
    fn programs_pick_their_rules() {
        let all = rules("none program=ib_write_bw");
        assert!(all
            .for_program(&["ib_write_bw"])
            .decide(Connect, &[])
            .is_some());
        assert_eq!(all.for_program(&["rping"]).decide(Connect, &[]), None);
    }

    #[test]
    fn the_policy_of_one_connection_has_no_conditions() {
        let asked = Policy::parse("rate=950Mbit acks=1/64").unwrap();
        let control = Control::Rate(118_750_000);
        assert_eq!((asked.control, asked.acks), (control, Some(64)));
        for (text, why) in [
            (
                "none port=1",
                "a policy of one connection has no conditions",
            ),
            (
                "none direction=connect",
                "a policy of one connection has no conditions",
            ),
            ("none; reno", "a connection has one policy"),
        ] {
            assert_eq!(Policy::parse(text), Err(why.to_owned()), "{text}");
        }
        let complaint = Policy::parse("").unwrap_err();
        assert!(complaint.starts_with("rule 1, column 1: "), "{complaint}");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "rate",
            "rate=",
            "rate=1",
            "rate=0Gbit",
            "rate=1gbit",
            "rate=1Gbit rate=2Gbit",
            "rate=5000000000kbit",
            "cubic rate=1Gbit",
            "cubic=1",
            "acks=1/2",
            "cubic acks=64",
            "cubic acks=1/0",
            "cubic acks=1/1025",
            "cubic frame=1499",
            "cubic frame=65537",
            "cubic frame=",
            "none direction=send",
        ] {
            assert!(TransportRules::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_pointed_out_with_what_was_meant() {
        let errors = TransportRules::parse("cubik; rate=fast; reno ack=1/2").unwrap_err();
        let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "rule 1, column 1: a rule begins with its action, and cubik is none; did you mean cubic? There are: \
                 cubic, reno, none or rate=",
                "rule 2, column 8: rate=fast is not understood: give rate=N followed by kbit, Mbit or Gbit",
                "rule 3, column 24: ack is nothing that a rule can say; did you mean acks=? There are: acks=, frame=, \
                 direction=, address=, port=, program=",
            ]
        );
    }
}
