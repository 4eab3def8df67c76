//! A set of octets, kept as ranges: what was received out of order, what the peer has acknowledged selectively.

use super::seq::Position;
use alloc::collections::BTreeMap;
use core::ops::Range;

/// Disjoint ranges of positions that do not touch. Every operation costs the logarithm of their number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    /// Left edge to right edge.
    ranges: BTreeMap<Position, Position>,
    octets: u64,
}

impl RangeSet {
    /// Ranges in the set.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Octets in the set.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    /// The ranges, first one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<Position>> + '_ {
        self.ranges.iter().map(|(left, right)| *left..*right)
    }

    /// The range that holds `at`.
    pub fn containing(&self, at: Position) -> Option<Range<Position>> {
        let (left, right) = self.ranges.range(..=at).next_back()?;
        (at < *right).then_some(*left..*right)
    }

    /// The last range that begins at `at` or before it.
    pub fn last_by(&self, at: Position) -> Option<Range<Position>> {
        let (left, right) = self.ranges.range(..=at).next_back()?;
        Some(*left..*right)
    }

    /// The end of the last range.
    pub fn end(&self) -> Option<Position> {
        self.ranges.last_key_value().map(|(_, right)| *right)
    }

    /// The first piece of `range` that is not in the set.
    pub fn first_gap(&self, range: Range<Position>) -> Option<Range<Position>> {
        let start = self
            .containing(range.start)
            .map_or(range.start, |held| held.end);
        if start >= range.end {
            return None;
        }
        let end = self
            .ranges
            .range(start..range.end)
            .next()
            .map_or(range.end, |(left, _)| *left);
        Some(start..end)
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<Position>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((left, right)) = self.ranges.range(..=start).next_back() {
            if *right >= start {
                (start, end) = (*left, end.max(*right));
            }
        }
        while let Some((left, right)) = self.ranges.range(start..=end).next() {
            let (left, right) = (*left, *right);
            self.octets -= right - left;
            end = end.max(right);
            self.ranges.remove(&left);
        }
        self.octets += end - start;
        self.ranges.insert(start, end);
    }

    /// Drops everything before `at`.
    pub fn remove_before(&mut self, at: Position) {
        if self.ranges.is_empty() {
            return;
        }
        while let Some(entry) = self.ranges.first_entry() {
            let (left, right) = (*entry.key(), *entry.get());
            if left >= at {
                return;
            }
            entry.remove();
            self.octets -= right - left;
            if right > at {
                self.ranges.insert(at, right);
                self.octets += right - at;
                return;
            }
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.octets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ranges: &[Range<u64>]) -> RangeSet {
        let mut set = RangeSet::default();
        ranges.iter().for_each(|range| set.insert(range.clone()));
        set
    }

    #[test]
    fn touching_ranges_become_one() {
        let set = set(&[10..20, 30..40, 20..30]);
        assert!(set.iter().eq(core::iter::once(10..40)));
        assert_eq!(set.octets(), 30);
    }

    #[test]
    fn gaps_are_found_in_order() {
        let set = set(&[10..20, 30..40]);
        assert_eq!(set.first_gap(0..50), Some(0..10));
        assert_eq!(set.first_gap(10..50), Some(20..30));
        assert_eq!(set.first_gap(12..18), None);
        assert_eq!(set.first_gap(35..60), Some(40..60));
        assert_eq!(set.containing(20), None);
        assert_eq!(set.end(), Some(40));
    }

    proptest! {
        #[test]
        fn agrees_with_one_flag_for_each_octet(
            operations in proptest::collection::vec((0u64..60, 0u64..20, any::<bool>()), 0..40)
        ) {
            let mut set = RangeSet::default();
            let mut flags = [false; 100];
            for (start, len, remove) in operations {
                if remove && len < 3 {
                    set.remove_before(start);
                    flags[..start as usize].fill(false);
                } else {
                    set.insert(start..start + len);
                    flags[start as usize..(start + len) as usize].fill(true);
                }
                prop_assert_eq!(set.octets(), flags.iter().filter(|flag| **flag).count() as u64);
                for (at, flag) in flags.iter().enumerate() {
                    prop_assert_eq!(set.containing(at as u64).is_some(), *flag);
                }
                let runs = flags.windows(2).filter(|pair| !pair[0] && pair[1]).count()
                    + usize::from(flags[0]);
                prop_assert_eq!(set.len(), runs);
            }
        }
    }
}
