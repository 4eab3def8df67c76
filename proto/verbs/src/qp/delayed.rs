//! Acknowledgements that wait for what the program posts next.
//!
//! A peer that asks whether its Writes are placed (decision 0009) gets an acknowledgement of no octets. Where two
//! programs write to each other in turn (`ib_write_lat`), the program posts its own Write a moment later, and the
//! acknowledgement that left alone was a system call and a wake-up of its own at either end, on cores that have other
//! things to do. So where posts have followed acknowledgements closely a few times in a row, the next one waits for the
//! post, and leaves with it.
//!
//! It waits no longer than until the driver comes by a second time (the program polls), and where that does not happen
//! [`DELAY_MAX`] to twice that; then acknowledgements leave at once again, until twice as many posts have followed
//! closely.

use core::time::Duration;

use super::timers::{Timer, Timers};

/// A post within this time after an acknowledgement follows it closely.
const CLOSE_POST_MAX: Duration = Duration::from_micros(50);
/// How long an acknowledgement waits where nothing is posted and nobody polls.
const DELAY_MAX: Duration = Duration::from_micros(100);
/// So many posts in a row have to follow closely at first.
const CLOSE_POSTS_INITIAL: u32 = 8;
const CLOSE_POSTS_MAX: u32 = 4096;

/// How one stream's acknowledgements leave.
#[derive(Debug)]
pub(super) struct Delayed {
    /// When the last one left alone, as long as nothing was posted since.
    alone_at: Option<Duration>,
    /// Posts that followed closely, in a row.
    close_posts: u32,
    /// How many have to.
    needed: u32,
    /// Since when one waits.
    since: Option<Duration>,
}

impl Default for Delayed {
    fn default() -> Delayed {
        Delayed {
            alone_at: None,
            close_posts: 0,
            needed: CLOSE_POSTS_INITIAL,
            since: None,
        }
    }
}

impl Delayed {
    /// Whether an acknowledgement waits for what the program posts next.
    pub(super) fn waits(&self) -> bool {
        self.since.is_some()
    }

    /// Nothing but acknowledgements is due: whether they wait.
    pub(super) fn delay(&mut self, now: Duration, timers: &mut Timers) -> bool {
        // Delayed once already, and no post came: the guess was wrong.
        if self.close_posts < self.needed || self.since.take().is_some() {
            self.alone_at = Some(now);
            return false;
        }
        self.since = Some(now);
        // One timer is enough: where it finds a later acknowledgement, it leaves that its time.
        if !timers.is_set(Timer::Acknowledgement) {
            timers.set(Timer::Acknowledgement, now + DELAY_MAX);
        }
        true
    }

    /// Everything that is due leaves.
    #[inline]
    pub(super) fn note_sent(&mut self) {
        self.since = None;
    }

    /// The program posted, behind an acknowledgement that left alone.
    #[inline]
    pub(super) fn note_post(&mut self, now: impl FnOnce() -> Duration) {
        if let Some(alone_at) = self.alone_at.take() {
            let closely = now().saturating_sub(alone_at) < CLOSE_POST_MAX;
            self.close_posts = if closely { self.close_posts + 1 } else { 0 };
        }
    }

    /// The timer: what has waited in vain leaves with the driver's next look; what waits since later keeps its time.
    pub(super) fn expire(&mut self, now: Duration, timers: &mut Timers) {
        let Some(since) = self.since else {
            return;
        };
        if now.saturating_sub(since) < DELAY_MAX {
            timers.set(Timer::Acknowledgement, now + DELAY_MAX);
            return;
        }
        self.since = None;
        self.close_posts = 0;
        self.needed = (2 * self.needed).min(CLOSE_POSTS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// An acknowledgement's life on a clock.
    #[derive(Default)]
    struct Stream {
        delayed: Delayed,
        timers: Timers,
        now: Duration,
    }

    impl Stream {
        fn delay(&mut self) -> bool {
            self.delayed.delay(self.now, &mut self.timers)
        }

        fn post_after(&mut self, pause: Duration) {
            self.now += pause;
            self.delayed.note_post(|| self.now);
            self.delayed.note_sent();
        }

        /// `count` acknowledgements that leave alone, each with a post so long after it.
        fn rounds(&mut self, count: u32, pause: Duration) {
            for _ in 0..count {
                self.now += 1000 * US;
                assert!(!self.delay());
                self.delayed.note_sent();
                self.post_after(pause);
            }
        }

        fn time_out(&mut self) {
            self.now = self.timers.next().expect("a deadline");
            assert_eq!(self.timers.take_due(self.now), Some(Timer::Acknowledgement));
            self.delayed.expire(self.now, &mut self.timers);
        }
    }

    #[test]
    fn an_acknowledgement_waits_where_posts_have_followed_closely() {
        let mut stream = Stream::default();
        stream.rounds(CLOSE_POSTS_INITIAL, 10 * US);
        assert!(stream.delay() && stream.delayed.waits());
        // The post takes it along, and the next one waits too.
        stream.post_after(3 * US);
        assert!(!stream.delayed.waits());
        stream.now += 17 * US;
        assert!(stream.delay());
        // Nothing was posted, and somebody polls again.
        stream.now += US;
        assert!(!stream.delay());
    }

    #[test]
    fn it_does_not_where_they_come_later() {
        let mut stream = Stream::default();
        stream.rounds(100, 60 * US);
        assert!(!stream.delay());
        // One late post, and the row begins anew.
        let mut stream = Stream::default();
        stream.rounds(CLOSE_POSTS_INITIAL - 1, 10 * US);
        stream.rounds(1, 60 * US);
        stream.rounds(CLOSE_POSTS_INITIAL - 1, 10 * US);
        assert!(!stream.delay());
        assert_eq!(stream.timers.next(), None, "what leaves needs no timer");
    }

    #[test]
    fn waiting_in_vain_makes_the_next_time_less_likely() {
        let mut stream = Stream::default();
        stream.rounds(CLOSE_POSTS_INITIAL, 10 * US);
        assert!(stream.delay());
        let since = stream.now;
        stream.time_out();
        assert_eq!(stream.now, since + DELAY_MAX);
        assert!(!stream.delayed.waits() && stream.timers.next().is_none());
        stream.rounds(2 * CLOSE_POSTS_INITIAL, 10 * US);
        assert!(stream.delay());
    }

    #[test]
    fn a_timer_of_an_earlier_acknowledgement_leaves_a_later_one_its_time() {
        let mut stream = Stream::default();
        stream.rounds(CLOSE_POSTS_INITIAL, 10 * US);
        assert!(stream.delay());
        stream.post_after(5 * US);
        stream.now += 85 * US;
        assert!(stream.delay());
        stream.time_out();
        assert!(stream.delayed.waits(), "it waits for 10 us");
        stream.time_out();
        assert!(!stream.delayed.waits());
        stream.delayed.expire(stream.now, &mut stream.timers);
        assert_eq!(stream.timers.next(), None, "nothing waits");
    }
}
