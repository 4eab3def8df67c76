//! What the rules of one setting may say.

use crate::words::one_of;

/// The word for any direction, in every grammar.
pub const BOTH: &str = "both";

pub(super) const DIRECTION: &str = "direction";
pub(super) const ADDRESS: &str = "address";
pub(super) const PORT: &str = "port";
pub(super) const PROGRAM: &str = "program";

/// The conditions, with what each accepts but the direction, whose words are the grammar's.
pub(super) const CONDITIONS: [(&str, &str); 4] = [
    (DIRECTION, ""),
    (ADDRESS, "address=ADDRESS or ADDRESS/BITS"),
    (PORT, "port=N or N-M"),
    (PROGRAM, "program=NAME"),
];

/// The actions and directions of one setting's rules.
#[derive(Debug)]
pub struct Grammar<A: 'static, D: 'static> {
    /// What a rule may decide.
    pub actions: &'static [Action<A>],
    /// The words of `direction=`; beside them [`BOTH`] is one, and the default.
    pub directions: &'static [(&'static str, D)],
}

/// One thing that a rule may decide.
#[derive(Debug)]
pub struct Action<A: 'static> {
    /// The rule's first word, or its first two.
    pub name: &'static str,
    /// What the action is to the program, before its options.
    pub value: A,
    /// The options that may stand behind it.
    pub options: &'static [ActionOption<A>],
}

/// An option of an action, `name=value`.
#[derive(Debug)]
pub struct ActionOption<A> {
    /// The word before the equals sign; none of the conditions' names.
    pub name: &'static str,
    /// What it accepts, as a phrase: "on or off".
    pub accepts: &'static str,
    /// Changes the action by the value; says whether the value is one that it accepts.
    pub set: fn(&mut A, &str) -> bool,
}

impl<A, D> Grammar<A, D> {
    /// What rules may be, as a phrase.
    pub fn accepts(&self) -> String {
        let options = self.actions.iter().flat_map(|action| action.options);
        let mut options: Vec<_> = options
            .map(|option| format!("{}={}", option.name, option.accepts))
            .collect();
        // Of an option that several actions have, once is enough; they stand in a row.
        options.sort();
        options.dedup();
        let conditions: Vec<_> = CONDITIONS
            .iter()
            .map(|(name, _)| self.condition_accepts(name))
            .collect();
        format!(
            "rules separated by semicolons, each {} and then any of {}",
            self.actions_accepted(),
            [options, conditions].concat().join(", ")
        )
    }

    /// The actions as a list: "gso or off".
    pub(super) fn actions_accepted(&self) -> String {
        let names: Vec<_> = self.actions.iter().map(|action| action.name).collect();
        one_of(&names)
    }

    /// The names that may stand before an equals sign behind `action`.
    pub(super) fn keys(&self, action: &Action<A>) -> Vec<&'static str> {
        let options = action.options.iter().map(|option| option.name);
        options
            .chain(CONDITIONS.iter().map(|(name, _)| *name))
            .collect()
    }

    /// Every word that `direction=` takes.
    pub(super) fn direction_words(&self) -> Vec<&'static str> {
        let words = self.directions.iter().map(|(name, _)| *name);
        words.chain([BOTH]).collect()
    }

    /// What the condition `name` takes, as a phrase: "port=N or N-M".
    pub(super) fn condition_accepts(&self, name: &str) -> String {
        let condition = CONDITIONS.iter().find(|(known, _)| *known == name);
        match condition {
            Some((_, accepts)) if !accepts.is_empty() => (*accepts).to_owned(),
            _ => format!("{name}={}", one_of(&self.direction_words())),
        }
    }
}
