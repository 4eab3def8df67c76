//! Memory that holds octets of FPDUs whose turn has not come.
//!
//! Two messages of a peer may go to the same memory, and the later one is to be seen there in the end. So what is
//! placed in order spares what was placed ahead of it, and what would share memory with that is not placed ahead.
//! Memory is told apart by region: who reaches it through two registrations at once, or through a window beside its
//! region, has no order to rely on (RFC 5040 section 5.5).

use alloc::collections::BTreeMap;
use core::ops::Range;

use crate::host::Span;

/// Runs of memory that do not overlap: region and offset, to the end.
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
        self.ends.insert((span.stag.0, span.offset), end_of(span));
    }

    pub(super) fn remove(&mut self, span: Span) {
        let removed = self.ends.remove(&(span.stag.0, span.offset));
        debug_assert_eq!(removed, Some(end_of(span)));
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
}
