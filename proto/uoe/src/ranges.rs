//! Which parts of a row of octets are there.

use alloc::vec::Vec;
use core::ops::Range;

/// Ranges that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds a range; says whether none of it was there before. If some was, nothing is added.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        // The first one that ends behind the beginning of the new one, or at it.
        let at = self.0.partition_point(|one| one.end < range.start);
        let joins_left = self.0.get(at).is_some_and(|one| one.end == range.start);
        let right = at + usize::from(joins_left);
        if self.0.get(right).is_some_and(|one| one.start < range.end) {
            return false;
        }
        let joins_right = self.0.get(right).is_some_and(|one| one.start == range.end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at].end = self.0[right].end;
                self.0.remove(right);
            }
            (true, false) => self.0[at].end = range.end,
            (false, true) => self.0[right].start = range.start,
            (false, false) => self.0.insert(right, range),
        }
        true
    }

    /// Whether one ends here.
    pub(crate) fn has_end(&self, at: u64) -> bool {
        let index = self.0.partition_point(|one| one.end < at);
        self.0.get(index).is_some_and(|one| one.end == at)
    }

    /// Where the next one begins that ends behind `at`.
    pub(crate) fn next_start(&self, at: u64) -> Option<u64> {
        let index = self.0.partition_point(|one| one.end <= at);
        self.0.get(index).map(|one| one.start)
    }

    /// The last one that begins at `at` or before it.
    pub(crate) fn last_by(&self, at: u64) -> Option<Range<u64>> {
        let behind = self.0.partition_point(|one| one.start <= at);
        self.0.get(behind.checked_sub(1)?).cloned()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the first one begins.
    pub(crate) fn first_start(&self) -> Option<u64> {
        self.0.first().map(|one| one.start)
    }

    /// Behind the last one.
    pub(crate) fn end(&self) -> Option<u64> {
        self.0.last().map(|one| one.end)
    }

    /// Octets from the first one's beginning to `at` that are in none.
    pub(crate) fn missing_before(&self, at: u64) -> u64 {
        let before = self.0.iter().take_while(|one| one.end <= at);
        let (mut missing, mut end) = (0, None);
        for one in before {
            missing += one.start - end.unwrap_or(one.start);
            end = Some(one.end);
        }
        missing + end.map_or(0, |end| at - end)
    }

    /// All from `start` to `at` is there, where one begins at `at`.
    pub(crate) fn fill(&mut self, start: u64, at: u64) {
        let count = self.0.partition_point(|one| one.start < at);
        self.0.drain(..count);
        if let Some(first) = self.0.first_mut() {
            first.start = start;
        }
    }

    /// Behind the first one, if that begins at `start`.
    pub(crate) fn end_from(&self, start: u64) -> u64 {
        let first = self.0.first().filter(|first| first.start == start);
        first.map_or(start, |first| first.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_are_a_set_of_octets(inserts in prop::collection::vec((0u64..60, 0u64..8), 0..60)) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (start, len) in inserts {
                let new = (start..start + len).all(|at| !model.contains(&at));
                prop_assert_eq!(ranges.insert(start..start + len), new);
                if new { model.extend(start..start + len); }
                for at in 0..70u64 {
                    let ends = at > 0 && model.contains(&(at - 1)) && !model.contains(&at);
                    prop_assert_eq!(ranges.has_end(at), ends, "{} in {:?}", at, &ranges);
                }
                let end = (0..).find(|at| !model.contains(at)).unwrap();
                prop_assert_eq!(ranges.end_from(0), end);
                prop_assert_eq!(ranges.next_start(0), model.first().copied());
                prop_assert!(ranges.0.windows(2).all(|two| two[0].end < two[1].start));
            }
        }
    }
}
