//! From text to rules.

use super::error::{Problem, RuleError};
use super::grammar::{Action, Grammar, ADDRESS, BOTH, DIRECTION, PORT, PROGRAM};
use super::network::{Network, NotNetwork, Ports};
use super::rule::{Rule, Rules};
use crate::words::nearest;

impl<A: Clone, D: Copy> Grammar<A, D> {
    /// Reads rules.
    ///
    /// # Errors
    /// Every mistake in the text, in its order; never none.
    pub fn parse(&self, text: &str) -> Result<Rules<A, D>, Vec<RuleError>> {
        let mut rules = Vec::new();
        let mut errors = Vec::new();
        let mut start = 0;
        for (number, part) in text.split(';').enumerate() {
            let complain = |(at, problem): (usize, Problem)| RuleError {
                rule: number + 1,
                column: text[..start + at].chars().count() + 1,
                problem,
            };
            match self.rule(part) {
                Ok(rule) => rules.push(rule),
                Err(wrong) => errors.extend(wrong.into_iter().map(complain)),
            }
            start += part.len() + 1;
        }
        match errors.is_empty() {
            true => Ok(Rules { rules }),
            false => Err(errors),
        }
    }

    /// Reads one rule; problems have their places in octets from its beginning.
    fn rule(&self, text: &str) -> Result<Rule<A, D>, Vec<(usize, Problem)>> {
        let mut words = words(text).peekable();
        let Some((at, first)) = words.next() else {
            let actions = self.actions_accepted();
            return Err(vec![(0, Problem::Empty { actions })]);
        };
        let second = words.peek().map_or("", |(_, word)| *word);
        let action = match self.action_of_two(first, second) {
            Some(action) => {
                words.next();
                action
            }
            None => self.action(first).map_err(|problem| vec![(at, problem)])?,
        };
        let mut rule = Rule {
            name: action.name,
            action: action.value.clone(),
            options: Vec::new(),
            direction: None,
            network: None,
            ports: None,
            program: None,
        };
        let mut seen = Vec::new();
        let mut wrong = Vec::new();
        if action.name.ends_with('=') {
            if let Err(problem) = self.word(action, first, &mut seen, &mut rule) {
                wrong.push((at, problem));
            }
        }
        for (at, word) in words {
            if let Err(problem) = self.word(action, word, &mut seen, &mut rule) {
                wrong.push((at, problem));
            }
        }
        match wrong.is_empty() {
            true => Ok(rule),
            false => Err(wrong),
        }
    }

    /// The action whose name is these two words.
    fn action_of_two(&self, first: &str, second: &str) -> Option<&'static Action<A>> {
        let is_named = |action: &&Action<A>| action.name.split_once(' ') == Some((first, second));
        self.actions.iter().find(is_named)
    }

    fn action(&self, word: &str) -> Result<&'static Action<A>, Problem> {
        let is_named = |action: &&Action<A>| match action.name.ends_with('=') {
            true => word.starts_with(action.name),
            false => word == action.name,
        };
        let named = self.actions.iter().find(is_named);
        named.ok_or_else(|| Problem::UnknownAction {
            found: word.to_owned(),
            near: nearest(word, self.actions.iter().map(|action| action.name)),
            actions: self.actions_accepted(),
        })
    }

    /// Takes one word behind the action.
    fn word(
        &self,
        action: &Action<A>,
        word: &str,
        seen: &mut Vec<&'static str>,
        rule: &mut Rule<A, D>,
    ) -> Result<(), Problem> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let keys = self.keys(action);
        let Some(key) = keys.iter().copied().find(|key| *key == name) else {
            return Err(Problem::UnknownKey {
                found: name.to_owned(),
                near: nearest(name, keys.iter().copied()),
                keys: keys.join("=, ") + "=",
            });
        };
        if seen.contains(&key) {
            return Err(Problem::Twice { key });
        }
        seen.push(key);
        let refused = |near, accepts| Problem::NotAccepted {
            found: word.to_owned(),
            near,
            accepts,
        };
        let not_accepted = |near| refused(near, self.condition_accepts(key));
        match key {
            DIRECTION => match self.direction(value) {
                Some(direction) => rule.direction = direction,
                None => {
                    let near = nearest(value, self.direction_words().into_iter());
                    return Err(not_accepted(near));
                }
            },
            ADDRESS => match Network::parse(value) {
                Ok(network) => rule.network = Some(network),
                Err(NotNetwork::Address) => return Err(not_accepted(None)),
                Err(NotNetwork::Bits { most }) => {
                    return Err(refused(None, format!("ADDRESS/BITS with 0 to {most} bits")))
                }
            },
            PORT => rule.ports = Some(Ports::parse(value).ok_or_else(|| not_accepted(None))?),
            PROGRAM if value.is_empty() => return Err(not_accepted(None)),
            PROGRAM => rule.program = Some(value.to_owned()),
            _ => self.option(action, key, value, rule)?,
        }
        Ok(())
    }

    /// The direction that a word means: nothing inside for both, nothing at all if it is no such word.
    #[allow(clippy::option_option)]
    fn direction(&self, word: &str) -> Option<Option<(&'static str, D)>> {
        if word == BOTH {
            return Some(None);
        }
        let named = self.directions.iter().find(|(name, _)| *name == word);
        named.map(|direction| Some(*direction))
    }

    /// Applies an option of the action.
    fn option(
        &self,
        action: &Action<A>,
        key: &'static str,
        value: &str,
        rule: &mut Rule<A, D>,
    ) -> Result<(), Problem> {
        // `keys` has named it.
        let Some(option) = action.options.iter().find(|option| option.name == key) else {
            return Ok(());
        };
        if value.is_empty() || !(option.set)(&mut rule.action, value) {
            return Err(Problem::NotAccepted {
                found: format!("{key}={value}"),
                near: None,
                accepts: format!("{key}={}", option.accepts),
            });
        }
        rule.options.push((key, value.to_owned()));
        Ok(())
    }
}

/// The words of a text, each with its place in octets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let start = at + rest.find(|c: char| !c.is_whitespace())?;
        let length = text[start..].find(char::is_whitespace);
        at = length.map_or(text.len(), |length| start + length);
        Some((start, &text[start..at]))
    })
}
