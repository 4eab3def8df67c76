//! What a message takes in instructions.

use serde::{Deserialize, Serialize};

/// Instructions of a program that passes messages between two ends of its own, as callgrind counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Command line of the last count.
    pub command: String,
    /// Why there is no count; null when there is one.
    pub skipped: Option<String>,
    /// In the order they were taken.
    pub counts: Vec<Count>,
}

/// One run of the program from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Messages it passed.
    pub messages: u64,
    /// Instructions it took.
    pub instructions: u64,
}
