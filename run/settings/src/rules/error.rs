//! What is wrong with rules, and where.

use std::fmt;

/// One mistake in a text of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Which rule of the text, from 1.
    pub rule: usize,
    /// Where in the whole text, in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no rule between two semicolons, or behind the last.
    Empty {
        /// The actions with which one could begin.
        actions: String,
    },
    /// The first word is no action.
    UnknownAction {
        /// The word.
        found: String,
        /// The action that differs by little.
        near: Option<&'static str>,
        /// All of them.
        actions: String,
    },
    /// No option of the action and no condition has this name.
    UnknownKey {
        /// The name.
        found: String,
        /// The one that differs by little.
        near: Option<&'static str>,
        /// All of them.
        keys: String,
    },
    /// The value is missing or not accepted.
    NotAccepted {
        /// The word as it stands there: "port=high".
        found: String,
        /// A value that differs by little.
        near: Option<&'static str>,
        /// What could stand there: "port=N or N-M".
        accepts: String,
    },
    /// The same condition or option stands in the rule before.
    Twice {
        /// Its name.
        key: &'static str,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rule {}, column {}: {}",
            self.rule, self.column, self.problem
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Empty { actions } => write!(
                f,
                "there is no rule here: begin one with {actions}, or take the semicolon away"
            ),
            Problem::UnknownAction {
                found,
                near,
                actions,
            } => {
                write!(f, "a rule begins with its action, and {found} is none; ")?;
                match near {
                    Some(near) => write!(f, "did you mean {near}? There are: {actions}"),
                    None => write!(f, "give {actions}"),
                }
            }
            Problem::UnknownKey { found, near, keys } => {
                write!(f, "{found} is nothing that a rule can say; ")?;
                match near {
                    Some(near) => write!(f, "did you mean {near}=? There are: {keys}"),
                    None => write!(f, "give any of {keys}"),
                }
            }
            Problem::NotAccepted {
                found,
                near: Some(near),
                accepts,
            } => write!(
                f,
                "{found} is not understood; did you mean {near}? It takes {accepts}"
            ),
            Problem::NotAccepted {
                found,
                near: None,
                accepts,
            } => write!(f, "{found} is not understood: give {accepts}"),
            Problem::Twice { key } => write!(
                f,
                "{key}= stands in this rule already: make a rule of its own for each"
            ),
        }
    }
}
