//! A coalesced receive as the datagrams it was. Numbers only: the octets are the caller's.

use core::ops::Range;

/// What is at the head of a receive queue: one datagram, or several that the kernel coalesced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Octets in all.
    pub total: usize,
    /// Octets of each datagram but the last; 0 when it is one datagram.
    pub segment: usize,
}

/// What a receive call gives for one datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which octets of the head go to the program.
    pub octets: Range<usize>,
    /// The call's result.
    pub result: usize,
    /// Whether `MSG_TRUNC` is set in what comes back.
    pub truncated: bool,
}

impl Head {
    /// The datagram that begins at `consumed`. Of an empty datagram, which has no octets, it is asked once, with 0.
    pub fn datagram(&self, consumed: usize) -> Range<usize> {
        let len = match self.segment {
            0 => self.total,
            segment => segment,
        };
        consumed.min(self.total)..self.total.min(consumed.saturating_add(len))
    }

    /// Whether the datagram at `consumed` is the last.
    pub fn is_last(&self, consumed: usize) -> bool {
        self.datagram(consumed).end == self.total
    }

    /// What a call with room for `room` octets gets of the datagram at `consumed`; `whole` is `MSG_TRUNC` among
    /// the call's flags, which asks for the datagram's real length.
    pub fn take(&self, consumed: usize, room: usize, whole: bool) -> Taken {
        let datagram = self.datagram(consumed);
        let fits = datagram.len().min(room);
        Taken {
            octets: datagram.start..datagram.start + fits,
            result: if whole { datagram.len() } else { fits },
            truncated: fits < datagram.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;

    #[test]
    fn one_datagram_is_itself() {
        let head = Head {
            total: 700,
            segment: 0,
        };
        assert_eq!(head.datagram(0), 0..700);
        assert!(head.is_last(0));
        let empty = Head::default();
        assert_eq!(empty.datagram(0), 0..0);
        assert!(empty.is_last(0));
    }

    #[test]
    fn several_come_one_by_one() {
        let head = Head {
            total: 2500,
            segment: 1000,
        };
        assert_eq!(head.datagram(0), 0..1000);
        assert_eq!(head.datagram(1000), 1000..2000);
        assert_eq!(head.datagram(2000), 2000..2500);
        assert!(!head.is_last(1000) && head.is_last(2000));
    }

    #[test]
    fn a_short_buffer_truncates_one_datagram_and_not_the_next() {
        let head = Head {
            total: 2500,
            segment: 1000,
        };
        let taken = head.take(1000, 10, false);
        assert_eq!(
            taken,
            Taken {
                octets: 1000..1010,
                result: 10,
                truncated: true
            }
        );
        assert_eq!(head.take(1000, 10, true).result, 1000);
        assert_eq!(head.take(2000, 500, false).result, 500);
        assert!(!head.take(2000, 500, false).truncated);
    }

    proptest! {
        /// The datagrams of a head are disjoint, in order, cover it, and are of the segment's size but the last.
        #[test]
        fn nothing_is_lost_or_seen_twice(total in 0usize..70_000, segment in 0usize..3000) {
            let head = Head { total, segment };
            let mut at = 0;
            loop {
                let datagram = head.datagram(at);
                prop_assert_eq!(datagram.start, at);
                let last = head.is_last(at);
                prop_assert!(last || datagram.len() == segment);
                prop_assert!(total == 0 || !datagram.is_empty());
                at = datagram.end;
                if last { break; }
            }
            prop_assert_eq!(at, total);
        }
    }
}
