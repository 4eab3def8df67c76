//! The body of the fuzz target, and a grammar that has everything a grammar can have.

use std::net::SocketAddr;

use crate::rules::{Action, ActionOption, Grammar, Rule, Rules};
use crate::{datagrams, streams, transport};

/// An action with options: prefer, require or leave, and how hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Which of the actions.
    pub kind: u8,
    /// Set by the option `crc`.
    pub crc: bool,
    /// Set by the option `depth`.
    pub depth: u32,
}

/// Which side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connects.
    Connect,
    /// The one that listens.
    Listen,
}

const fn sample(kind: u8) -> Sample {
    Sample {
        kind,
        crc: true,
        depth: 0,
    }
}

const OPTIONS: &[ActionOption<Sample>] = &[
    ActionOption {
        name: "crc",
        accepts: "on or off",
        set: |sample, text| crate::switch(text).map(|on| sample.crc = on).is_some(),
    },
    ActionOption {
        name: "depth",
        accepts: "a whole number",
        set: |sample, text| text.parse().map(|depth| sample.depth = depth).is_ok(),
    },
];

/// Rules for stream sockets: three actions, two of them with options.
pub const SAMPLE: Grammar<Sample, Side> = Grammar {
    actions: &[
        Action {
            name: "prefer",
            value: sample(0),
            options: OPTIONS,
        },
        Action {
            name: "require",
            value: sample(1),
            options: OPTIONS,
        },
        Action {
            name: "off",
            value: sample(2),
            options: &[],
        },
    ],
    directions: &[("connect", Side::Connect), ("listen", Side::Listen)],
};

/// Reads octets as rules: of UDP and of TCP where the first is even, else of [`SAMPLE`]. Octets that are no text are
/// replaced.
///
/// # Panics
/// When a mistake has no place in the text, or rules do not display as themselves.
pub fn rules(data: &[u8]) {
    let Some((grammar, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    match grammar % 2 {
        0 => {
            check(&datagrams::GRAMMAR, datagrams::Direction::Send, &text);
            check(&streams::GRAMMAR, streams::Direction::Connect, &text);
            check(&transport::GRAMMAR, transport::Direction::Connect, &text);
        }
        _ => drop(check(&SAMPLE, Side::Connect, &text)),
    }
}

/// Checks what every reading of `text` promises; gives the rules, if it is some.
pub fn check<A, D>(grammar: &Grammar<A, D>, direction: D, text: &str) -> Option<Rules<A, D>>
where
    A: Clone + PartialEq + std::fmt::Debug,
    D: Copy + PartialEq + std::fmt::Debug,
{
    let rules = match grammar.parse(text) {
        Ok(rules) => rules,
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            let characters = text.chars().count();
            let places: Vec<_> = errors.iter().map(|error| error.column).collect();
            assert!(places.is_sorted(), "{places:?}");
            assert!(
                places.iter().all(|at| (1..=characters + 1).contains(at)),
                "{places:?} in {text:?}"
            );
            return None;
        }
    };
    let again = grammar.parse(&rules.to_string());
    assert_eq!(again.as_ref(), Ok(&rules), "displayed as {rules}");
    let ends: [SocketAddr; 2] = [
        ([10, 0, 0, 1], 53).into(),
        ([0, 0, 0, 0, 0, 0xffff, 0x0a00, 2], 9).into(),
    ];
    let decided = rules.decide(direction, &ends);
    let catch_all = rules.iter().any(Rule::is_for_all);
    assert!(decided.is_some() || !catch_all, "{rules} fits everything");
    Some(rules)
}
