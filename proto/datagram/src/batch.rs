//! Which datagrams may leave in one UDP_SEGMENT send, and when a sender is busy. Numbers only: the octets are
//! the caller's.

use core::ops::Range;

/// Datagrams of one send at most (UDP_MAX_SEGMENTS of kernels before 6.9; later ones take 128).
pub const MOST_DATAGRAMS: usize = 64;
/// Octets of one send at most: what IPv4 leaves of 65535 after its own header and UDP's.
pub const MOST_OCTETS: usize = 65_535 - 20 - 8;
/// The longest datagram of which two go into one send.
pub const LONGEST: usize = MOST_OCTETS / 2;

/// Datagrams to one destination that wait to leave together: equal sizes, a shorter last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Octets of each datagram but the last.
    size: usize,
    /// Octets at the front that have left already.
    sent: usize,
    /// Octets in all.
    end: usize,
    /// Datagrams that wait.
    count: usize,
    /// The last datagram was shorter, so nothing may follow it.
    closed: bool,
}

/// What a batch makes of one more datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It may be appended.
    Fits,
    /// The batch has to leave first; then it fits.
    AfterFlush,
    /// It can be in no batch: empty, longer than any segment may be, or so long that no other goes with it.
    Never,
}

impl Batch {
    /// Nothing.
    pub const EMPTY: Batch = Batch {
        size: 0,
        sent: 0,
        end: 0,
        count: 0,
        closed: false,
    };

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sent == self.end
    }

    /// Whether nothing may be appended any more.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.closed || self.end + self.size > MOST_OCTETS || self.count == MOST_DATAGRAMS
    }

    /// Whether one more datagram of `len` octets is like those that wait, and does not make the batch full.
    #[inline]
    pub fn has_room_for_alike(&self, len: usize) -> bool {
        len == self.size
            && !self.closed
            && self.end + 2 * len <= MOST_OCTETS
            && self.count + 1 < MOST_DATAGRAMS
    }

    /// Octets of a segment.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Datagrams that wait.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the octets are that wait.
    pub fn range(&self) -> Range<usize> {
        self.sent..self.end
    }

    /// What to do with a datagram of `len` octets. `limit` is the longest that is known to be segmented.
    #[inline]
    pub fn fit(&self, len: usize, limit: usize) -> Fit {
        if len == 0 || len > limit.min(LONGEST) {
            Fit::Never
        } else if self.is_empty() {
            Fit::Fits
        } else if self.is_full() || len > self.size || self.end + len > MOST_OCTETS {
            Fit::AfterFlush
        } else {
            Fit::Fits
        }
    }

    /// Appends a datagram that [`Batch::fit`] said fits; its octets belong into the range.
    #[inline]
    pub fn append(&mut self, len: usize) -> Range<usize> {
        if self.is_empty() {
            *self = Batch {
                size: len,
                ..Batch::default()
            };
        }
        let at = self.end;
        self.end += len;
        self.count += 1;
        self.closed = len < self.size;
        at..self.end
    }

    /// Appends a datagram that [`Batch::has_room_for_alike`] said is like the others; its octets belong into the range.
    #[inline]
    pub fn append_alike(&mut self) -> Range<usize> {
        let at = self.end;
        self.end += self.size;
        self.count += 1;
        at..self.end
    }

    /// Takes back the datagram appended last.
    pub fn take_back(&mut self, range: Range<usize>) {
        self.end = range.start;
        self.count -= 1;
        self.closed = false;
    }

    /// The first datagram that waits.
    pub fn first(&self) -> Range<usize> {
        self.sent..self.end.min(self.sent + self.size)
    }

    /// Notes that the first datagram has left.
    pub fn first_left(&mut self) {
        self.sent = self.first().end;
        self.count -= 1;
    }

    /// Notes that all have left.
    pub fn all_left(&mut self) {
        *self = Batch::default();
    }
}

/// Whether a socket's calls come thick enough to gather: the rate of the past, call by call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    last: u64,
    /// How long the last call may have taken by itself beyond what a short one takes, nanoseconds.
    last_took: u64,
    quick: u32,
    /// Calls since `last` at which nobody looked at the clock.
    untimed: u32,
    /// Calls since an answer came that was waited for.
    since_answer: u32,
    /// Quick calls more than usual that it takes to be busy.
    owed: u32,
}

/// Who sends no more than this and waits for an answer is not busy, however quickly the answer comes.
const QUESTION_MAX: u32 = 2;
/// Quick calls more that it takes then: not each answer is seen to have been waited for.
const OWED: u32 = 64;

/// Calls no further apart than this follow each other quickly, nanoseconds: a few times what a send on its own
/// takes, and less than a round trip through another thread.
pub const QUICK: u64 = 20_000;
/// So many calls without a look at the clock may make up for a pause before the next look: together a little more than
/// what gathers waits for.
const UNTIMED_MAX: u32 = 15;
/// Nanoseconds the kernel may take to send an octet of a datagram: to copy it, and to cut a long one into fragments.
const OCTET: u64 = 3;

impl Pace {
    /// No call yet.
    pub const NEW: Pace = Pace {
        last: 0,
        last_took: 0,
        quick: 0,
        untimed: 0,
        since_answer: 0,
        owed: 0,
    };

    /// Notes a call at `now`, nanoseconds, that sends a datagram of `len` octets; gives whether at least `after` before
    /// it were quick. With 0 every call is a busy one. Calls that were not timed ([`Pace::note_untimed`]) were as far
    /// apart as this one and them in the mean.
    #[inline]
    pub fn note(&mut self, now: u64, len: usize, after: u32) -> bool {
        let calls = 1 + self.untimed.min(UNTIMED_MAX);
        let quick = now.saturating_sub(self.last) <= QUICK * u64::from(calls) + self.last_took;
        (self.last, self.last_took) = (now, len as u64 * OCTET);
        self.untimed = 0;
        self.quick = if quick {
            self.quick.saturating_add(1)
        } else {
            0
        };
        self.since_answer = self.since_answer.saturating_add(1);
        let busy = self.is_busy(after);
        if busy {
            self.owed = 0;
        }
        busy
    }

    /// When the clock was looked at last, nanoseconds.
    #[inline]
    pub fn looked_at(&self) -> u64 {
        self.last
    }

    /// Whether the last call was a busy one.
    #[inline]
    pub fn is_busy(&self, after: u32) -> bool {
        after == 0 || self.quick >= after.saturating_add(self.owed)
    }

    /// Notes a call of a busy program while what it sent before still waits: as that waits for a moment only, the call
    /// is as good as quick. A pause in between shows at the next call that is timed.
    #[inline]
    pub fn note_untimed(&mut self) {
        self.untimed = self.untimed.saturating_add(1);
        self.quick = self.quick.saturating_add(1);
        self.since_answer = self.since_answer.saturating_add(1);
    }

    /// The program waited for a datagram, and it came: what was sent since the last one was a question, if it was
    /// little.
    pub fn answered(&mut self) {
        if self.since_answer <= QUESTION_MAX {
            (self.quick, self.owed) = (0, OWED);
        }
        self.since_answer = 0;
    }

    /// What gathered was sent for the program, until `now`: that was not the program's pause.
    #[inline]
    pub fn resume(&mut self, now: u64) {
        (self.last, self.untimed) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;

    fn filled(lens: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for &len in lens {
            assert_eq!(batch.fit(len, MOST_OCTETS), Fit::Fits, "{lens:?}");
            batch.append(len);
        }
        batch
    }

    #[test]
    fn equal_sizes_and_a_shorter_last_one() {
        assert_eq!(filled(&[100, 100]).fit(101, MOST_OCTETS), Fit::AfterFlush);
        assert_eq!(filled(&[100, 100]).fit(99, MOST_OCTETS), Fit::Fits);
        let closed = filled(&[100, 100, 99]);
        assert!(closed.is_full());
        assert_eq!(closed.fit(99, MOST_OCTETS), Fit::AfterFlush);
        assert_eq!((closed.count(), closed.range()), (3, 0..299));
    }

    #[test]
    fn empty_and_oversized_datagrams_never_gather() {
        assert_eq!(Batch::default().fit(0, MOST_OCTETS), Fit::Never);
        assert_eq!(filled(&[9]).fit(0, MOST_OCTETS), Fit::Never);
        assert_eq!(Batch::default().fit(1473, 1472), Fit::Never);
        assert_eq!(Batch::default().fit(LONGEST, usize::MAX), Fit::Fits);
        assert_eq!(Batch::default().fit(LONGEST + 1, usize::MAX), Fit::Never);
    }

    #[test]
    fn a_pause_makes_a_program_idle_and_a_send_of_what_gathered_is_none() {
        let mut pace = Pace::NEW;
        let mut now = 1_000_000;
        let mut busy = |pace: &mut Pace, gap: u64| {
            now += gap;
            (pace.note(now, 0, 4), now)
        };
        for wanted in [false, false, false, false, true, true] {
            assert_eq!(busy(&mut pace, QUICK).0, wanted);
        }
        let (_, sent) = busy(&mut pace, 0);
        pace.resume(sent + 3 * QUICK);
        assert!(busy(&mut pace, 4 * QUICK).0, "a quick one after the send");
        assert!(!busy(&mut pace, QUICK + 1).0, "a pause");
    }

    #[test]
    fn what_a_long_datagram_takes_is_no_pause() {
        let mut pace = Pace::NEW;
        let mut now = 1_000_000;
        let mut busy = |pace: &mut Pace, gap: u64, len: usize| {
            now += gap;
            pace.note(now, len, 4)
        };
        let long = 32_768;
        let gap = QUICK + long as u64 * OCTET;
        let noted: Vec<bool> = (0..6).map(|_| busy(&mut pace, gap, long)).collect();
        assert_eq!(noted, [false, false, false, false, true, true]);
        assert!(busy(&mut pace, gap, 64), "behind a long one");
        assert!(!busy(&mut pace, gap, 64), "behind a short one");
    }

    #[test]
    fn questions_that_are_answered_quickly_are_no_burst() {
        let mut pace = Pace::NEW;
        let mut now = 1_000_000;
        let mut busy = |pace: &mut Pace| {
            now += QUICK / 2;
            pace.note(now, 0, 4)
        };
        for _ in 0..200 {
            assert!(!busy(&mut pace) && !busy(&mut pace));
            pace.answered();
        }
        // One of many answers alone is seen, and the rest looks like a burst.
        for _ in 0..OWED {
            assert!(!busy(&mut pace));
        }
        pace.answered();
        let burst = (0..200).filter(|_| busy(&mut pace)).count();
        assert_eq!(burst, 200 - 3, "it was no question");
        // A burst with an answer now and then goes on.
        for _ in 0..20 {
            pace.answered();
            assert!((0..3).all(|_| busy(&mut pace)));
        }
    }

    #[test]
    fn the_kernels_limits_close_a_batch() {
        assert!(filled(&[1; MOST_DATAGRAMS]).is_full());
        assert!(!filled(&[1; MOST_DATAGRAMS - 1]).is_full());
        assert!(filled(&[1448; 45]).is_full());
        assert!(!filled(&[1448; 44]).is_full());
        assert!(filled(&[LONGEST; 2]).is_full());
    }

    #[test]
    fn datagrams_leave_one_by_one_when_they_must() {
        let mut batch = filled(&[10, 10, 5]);
        assert_eq!(batch.first(), 0..10);
        batch.first_left();
        batch.first_left();
        assert_eq!((batch.first(), batch.count()), (20..25, 1));
        batch.first_left();
        assert!(batch.is_empty());
        assert_eq!(batch.fit(77, MOST_OCTETS), Fit::Fits);
        assert_eq!(batch.append(77), 0..77);
    }

    #[test]
    fn what_was_appended_last_can_be_taken_back() {
        let mut batch = filled(&[10, 10]);
        let before = batch;
        let range = batch.append(4);
        batch.take_back(range);
        assert_eq!(batch, before);
    }

    #[test]
    fn a_burst_makes_a_socket_busy_and_a_pause_ends_it() {
        let mut pace = Pace::default();
        let mut now = 1_000_000_000;
        let mut at = |step| {
            now += step;
            pace.note(now, 0, 3)
        };
        let busy: Vec<bool> = [QUICK; 5].map(&mut at).to_vec();
        assert_eq!(busy, [false, false, false, true, true]);
        assert!(!at(QUICK + 1));
        assert!(!at(1));
        assert!(Pace::default().note(1 << 60, 0, 0));
    }

    proptest! {
        /// Whatever comes, batches keep to the kernel's limits and lose, add or reorder nothing.
        #[test]
        fn batches_are_what_the_kernel_takes(lens in prop::collection::vec(0usize..3000, 0..400)) {
            let limit = 2000;
            let mut batch = Batch::default();
            let mut buffer: Vec<usize> = Vec::new();
            let mut left = Vec::new();
            for len in lens.iter().copied() {
                match batch.fit(len, limit) {
                    Fit::Fits => {}
                    Fit::AfterFlush => leave(&mut batch, &mut buffer, &mut left),
                    Fit::Never => {
                        leave(&mut batch, &mut buffer, &mut left);
                        left.push(len);
                        continue;
                    }
                }
                prop_assert_eq!(batch.fit(len, limit), Fit::Fits);
                let range = batch.append(len);
                prop_assert_eq!(range.len(), len);
                buffer.push(len);
                prop_assert!(range.end <= MOST_OCTETS && batch.count() <= MOST_DATAGRAMS);
            }
            leave(&mut batch, &mut buffer, &mut left);
            prop_assert_eq!(left, lens);
        }
    }

    /// Cuts the batch as the kernel would and checks it against what was put in.
    fn leave(batch: &mut Batch, buffer: &mut Vec<usize>, left: &mut Vec<usize>) {
        let range = batch.range();
        let mut cut = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let len = batch.size().min(range.end - at);
            cut.push(len);
            at += len;
        }
        assert_eq!(cut, *buffer);
        left.append(buffer);
        batch.all_left();
    }
}
