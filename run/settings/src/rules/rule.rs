//! Rules as they were understood: which fits, and how they are written.

use std::fmt;
use std::net::SocketAddr;

use super::grammar::{Action, ADDRESS, DIRECTION, PORT, PROGRAM};
use super::network::{Network, Ports};

/// Rules in their order. They display as text that is read as the same rules; no rule at all, which text cannot say,
/// as nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules<A, D> {
    pub(super) rules: Vec<Rule<A, D>>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<A, D> {
    pub(super) name: &'static str,
    pub(super) action: A,
    /// The action's options by name, as they were given.
    pub(super) options: Vec<(&'static str, String)>,
    /// The direction with its word; nothing for both.
    pub(super) direction: Option<(&'static str, D)>,
    pub(super) network: Option<Network>,
    pub(super) ports: Option<Ports>,
    pub(super) program: Option<String>,
}

impl<A, D> Default for Rules<A, D> {
    fn default() -> Self {
        Rules { rules: Vec::new() }
    }
}

impl<A: Clone, D: Copy + PartialEq> Rules<A, D> {
    /// The rules that can fit for a program with these names (what it was started as, its file's name).
    #[must_use]
    pub fn for_program(&self, names: &[&str]) -> Rules<A, D> {
        let fits = |rule: &&Rule<A, D>| match &rule.program {
            Some(wanted) => names.contains(&wanted.as_str()),
            None => true,
        };
        let rules = self.rules.iter().filter(fits).cloned();
        Rules {
            rules: rules.collect(),
        }
    }

    /// The same with another action, which takes no option, for those rules that `is_changed` picks. Each keeps its
    /// place: what it fits is still decided by it, and not by a rule behind it.
    pub(crate) fn with_action(
        mut self,
        action: &Action<A>,
        is_changed: impl Fn(&Rule<A, D>) -> bool,
    ) -> Rules<A, D> {
        for rule in self.rules.iter_mut().filter(|rule| is_changed(rule)) {
            (rule.name, rule.action) = (action.name, action.value.clone());
            rule.options.clear();
        }
        self
    }

    /// Whether addresses and ports make a difference.
    pub fn look_at_ends(&self) -> bool {
        self.rules.iter().any(Rule::looks_at_ends)
    }

    /// What the first rule that fits says of a socket of this direction between `ends`; nothing where none fits.
    ///
    /// Programs are not compared here: [`Rules::for_program`] has left out what is for others.
    pub fn decide(&self, direction: D, ends: &[SocketAddr]) -> Option<&A> {
        let first = self.rules.iter().find(|rule| rule.fits(direction, ends));
        first.map(|rule| &rule.action)
    }
}

impl<A, D> Rules<A, D> {
    /// Each rule.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<A, D>> {
        self.rules.iter()
    }
}

impl<A, D> Rule<A, D> {
    /// What it decides.
    pub fn action(&self) -> &A {
        &self.action
    }

    /// Whether it is for a program that it names.
    pub fn names_program(&self) -> bool {
        self.program.is_some()
    }

    /// Whether it fits everything, so that rules behind it have nothing left to decide.
    pub fn is_for_all(&self) -> bool {
        self.direction.is_none() && self.program.is_none() && !self.looks_at_ends()
    }

    /// The rule in words, with what it leaves open: "gso: both directions, any address, port 53, any program".
    pub fn in_words(&self) -> String {
        let or_any = |name: &str, value: Option<String>| match value {
            Some(value) => format!("{name} {value}"),
            None => format!("any {name}"),
        };
        let words = self.what();
        let direction = match self.direction {
            Some((word, _)) => format!("{DIRECTION} {word}"),
            None => "both directions".to_owned(),
        };
        let conditions = [
            direction,
            or_any(ADDRESS, self.network.map(|network| network.to_string())),
            or_any(PORT, self.ports.map(|ports| ports.to_string())),
            or_any(PROGRAM, self.program.clone()),
        ];
        format!("{words}: {}", conditions.join(", "))
    }

    /// The action with its options, as they are written.
    fn what(&self) -> String {
        let options = self.options.iter();
        let options = options.map(|(name, value)| format!("{name}={value}"));
        // An action that takes a value has it as its first option.
        let named = (!self.name.ends_with('=')).then(|| self.name.to_owned());
        let words: Vec<_> = named.into_iter().chain(options).collect();
        words.join(" ")
    }

    fn looks_at_ends(&self) -> bool {
        self.network.is_some() || self.ports.is_some()
    }
}

impl<A, D: Copy + PartialEq> Rule<A, D> {
    fn fits(&self, direction: D, ends: &[SocketAddr]) -> bool {
        let one_end = |end: &SocketAddr| {
            let address = self
                .network
                .is_none_or(|network| network.contains(end.ip()));
            address && self.ports.is_none_or(|ports| ports.contains(end.port()))
        };
        let way = self.direction.is_none_or(|(_, wanted)| wanted == direction);
        way && (!self.looks_at_ends() || ends.iter().any(one_end))
    }
}

impl<A, D> fmt::Display for Rules<A, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, rule) in self.rules.iter().enumerate() {
            let between = if number == 0 { "" } else { "; " };
            write!(f, "{between}{rule}")?;
        }
        Ok(())
    }
}

impl<A, D> fmt::Display for Rule<A, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what())?;
        if let Some((word, _)) = self.direction {
            write!(f, " {DIRECTION}={word}")?;
        }
        if let Some(network) = self.network {
            write!(f, " {ADDRESS}={network}")?;
        }
        if let Some(ports) = self.ports {
            write!(f, " {PORT}={ports}")?;
        }
        match &self.program {
            Some(program) => write!(f, " {PROGRAM}={program}"),
            None => Ok(()),
        }
    }
}
