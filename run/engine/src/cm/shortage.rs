//! Listeners for whose newcomers the process has no room, in the order in which they met that.
//!
//! What is given back goes to the first of them. Each tries again after a pause, and without an order the pauses
//! decide who finds the room: a listener whose pause always ends a moment after another's would never find any.

use std::collections::VecDeque;

/// The listeners that wait, by number; each is in it once.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    line: VecDeque<u64>,
}

impl Shortage {
    /// Another listener waits, and longer than this one.
    pub(super) fn has_another_before(&self, listener: u64) -> bool {
        self.line.front().is_some_and(|first| *first != listener)
    }

    /// There is no room for that listener's next connection. It keeps its place if it has one.
    pub(super) fn wait(&mut self, listener: u64) {
        if !self.line.contains(&listener) {
            self.line.push_back(listener);
        }
    }

    /// That listener has taken a connection, or has none to take.
    pub(super) fn leave(&mut self, listener: u64) {
        self.line.retain(|waiting| *waiting != listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_longest_is_first() {
        let mut shortage = Shortage::default();
        assert!(!shortage.has_another_before(1), "nobody waits");
        shortage.wait(1);
        shortage.wait(2);
        shortage.wait(1);
        assert!(!shortage.has_another_before(1));
        assert!(shortage.has_another_before(2));
        assert!(shortage.has_another_before(3), "who comes now is last");
        shortage.leave(1);
        shortage.wait(1);
        assert!(!shortage.has_another_before(2));
        assert!(shortage.has_another_before(1), "it had its connection");
        shortage.leave(2);
        shortage.leave(1);
        assert!(!shortage.has_another_before(3));
    }
}
