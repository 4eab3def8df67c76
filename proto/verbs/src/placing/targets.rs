//! Memory that holds octets of FPDUs whose turn has not come.
//!
//! Two messages of a peer may go to the same memory, and the later one is to be seen there in the end. So what is
//! placed in order spares what was placed ahead of it, and what would share memory with that is not placed ahead.
//! Memory is told apart by region: who reaches it through two registrations at once, or through a window beside its
//! region, has no order to rely on (RFC 5040 section 5.5).

use alloc::collections::BTreeMap;
use core::ops::Range;

use crate::host::Span;

/// Runs of memory that do not overlap: region and offset, to the end. What follows what was there before is of its run:
/// behind a hole there are thousands of FPDUs, and few messages.
#[derive(Debug, Default)]
pub(super) struct Targets {
    ends: BTreeMap<(u32, u64), u64>,
}

impl Targets {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Nothing is in any of this memory.
    pub(super) fn is_free(&self, span: Span) -> bool {
        self.next_free(span, 0) == Some(0..span.len)
    }

    pub(super) fn insert(&mut self, span: Span) {
        debug_assert!(self.is_free(span), "memory that is in use");
        let start = (span.stag.0, span.offset);
        let before = self.ends.range_mut(..start).next_back();
        match before.filter(|((of, _), end)| *of == span.stag.0 && **end == span.offset) {
            Some((_, end)) => *end = end_of(span),
            None => drop(self.ends.insert(start, end_of(span))),
        }
    }

    /// Takes out what was put in.
    pub(super) fn remove(&mut self, span: Span) {
        let (stag, from, to) = (span.stag.0, span.offset, end_of(span));
        let run = self.ends.range_mut(..=(stag, from)).next_back();
        let Some((&(of, start), end)) = run.filter(|((of, _), end)| *of == stag && **end >= to)
        else {
            return debug_assert!(false, "memory that is not in use");
        };
        let run_end = *end;
        match start == from {
            true => drop(self.ends.remove(&(of, start))),
            false => *end = from,
        }
        if to < run_end {
            self.ends.insert((stag, to), run_end);
        }
    }

    /// The first run of a span's octets, none before `from`, that nothing is in.
    pub(super) fn next_free(&self, span: Span, from: u32) -> Option<Range<u32>> {
        let stag = span.stag.0;
        let end = end_of(span);
        let mut at = span.offset + u64::from(from);
        while at < end {
            let before = self.ends.range(..=(stag, at)).next_back();
            if let Some((_, taken)) = before.filter(|((of, _), taken)| *of == stag && **taken > at)
            {
                at = *taken;
                continue;
            }
            let behind = self.ends.range((stag, at)..(stag, end)).next();
            let until = behind.map_or(end, |((_, start), _)| *start);
            return Some((at - span.offset) as u32..(until - span.offset) as u32);
        }
        None
    }
}

fn end_of(span: Span) -> u64 {
    span.offset + u64::from(span.len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use weft_iwarp::Stag;

    fn span(stag: u32, range: Range<u64>) -> Span {
        Span {
            stag: Stag(stag),
            offset: range.start,
            len: (range.end - range.start) as u32,
        }
    }

    /// From, to.
    fn free(targets: &Targets, span: Span) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        let mut from = 0;
        while let Some(run) = targets.next_free(span, from) {
            from = run.end;
            all.push((run.start, run.end));
        }
        all
    }

    #[test]
    fn what_is_free_lies_between() {
        let mut targets = Targets::default();
        for used in [span(1, 10..20), span(1, 30..40), span(2, 0..100)] {
            targets.insert(used);
        }
        assert_eq!(
            free(&targets, span(1, 0..50)),
            [(0, 10), (20, 30), (40, 50)]
        );
        assert_eq!(free(&targets, span(1, 15..35)), [(5, 15)]);
        assert_eq!(free(&targets, span(1, 12..18)), []);
        assert_eq!(free(&targets, span(1, 20..30)), [(0, 10)]);
        assert!(targets.is_free(span(1, 20..30)) && targets.is_free(span(3, 0..50)));
        for used in [9..11, 19..20, 0..50, 10..20, 12..13] {
            assert!(!targets.is_free(span(1, used)));
        }
        targets.remove(span(1, 10..20));
        assert_eq!(free(&targets, span(1, 0..50)), [(0, 30), (40, 50)]);
    }

    #[test]
    fn what_follows_is_one_run_and_leaves_piece_by_piece() {
        let mut targets = Targets::default();
        for used in [
            span(1, 10..20),
            span(1, 20..30),
            span(1, 30..40),
            span(2, 40..50),
        ] {
            targets.insert(used);
        }
        assert_eq!(targets.ends.len(), 2);
        targets.remove(span(1, 20..30));
        assert_eq!(
            free(&targets, span(1, 0..50)),
            [(0, 10), (20, 30), (40, 50)]
        );
        targets.insert(span(1, 20..25));
        targets.remove(span(1, 10..20));
        assert_eq!(
            free(&targets, span(1, 0..50)),
            [(0, 20), (25, 30), (40, 50)]
        );
        targets.remove(span(1, 30..40));
        targets.remove(span(1, 20..25));
        assert_eq!(free(&targets, span(1, 0..60)), [(0, 60)]);
        targets.remove(span(2, 40..50));
        assert!(targets.is_empty());
    }

    #[test]
    fn runs_are_what_each_octet_says() {
        // A small memory, octet by octet beside it; which span goes in or out a generator of constants says.
        let mut targets = Targets::default();
        let (mut octets, mut there) = ([false; 64], Vec::<Range<u64>>::new());
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let start = next(64);
            let range = start..(start + 1 + next(8)).min(64);
            let is_free = octets[range.start as usize..range.end as usize]
                .iter()
                .all(|used| !used);
            assert_eq!(targets.is_free(span(1, range.clone())), is_free);
            if is_free {
                targets.insert(span(1, range.clone()));
                octets[range.start as usize..range.end as usize].fill(true);
                there.push(range);
            } else {
                let out = there.swap_remove(next(there.len() as u64) as usize);
                targets.remove(span(1, out.clone()));
                octets[out.start as usize..out.end as usize].fill(false);
            }
        }
    }
}
