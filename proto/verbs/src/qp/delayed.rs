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

use super::ending::Ending;
use super::timers::Timer;
use super::Qp;
use crate::host::Host;

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
    /// Nothing but acknowledgements is due: whether they wait.
    fn delay(&mut self, now: Duration) -> bool {
        // Delayed once already, and no post came: the guess was wrong.
        if self.close_posts < self.needed || self.since.take().is_some() {
            self.alone_at = Some(now);
            return false;
        }
        self.since = Some(now);
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

    /// The timer: whether an acknowledgement has waited in vain; else when to look again, if one waits.
    fn give_up(&mut self, now: Duration) -> Result<bool, Duration> {
        match self.since {
            None => Ok(false),
            Some(since) if now.saturating_sub(since) < DELAY_MAX => Err(now + DELAY_MAX),
            Some(_) => {
                self.since = None;
                self.close_posts = 0;
                self.needed = (2 * self.needed).min(CLOSE_POSTS_MAX);
                Ok(true)
            }
        }
    }
}

impl Qp {
    /// Whether the driver is to send now: something is to be framed or sent, and it is not an acknowledgement that
    /// waits for what the program posts next. Asked once in each pass in which the program itself posts nothing.
    #[inline]
    pub fn is_due(&mut self, host: &impl Host) -> bool {
        if !self.wants_to_send() {
            return self.ending == Ending::Draining;
        }
        let waits =
            self.out_of_band && self.sends_one_at_a_time() && self.owes_only_acknowledgements();
        !(waits && self.delay_acknowledgement(host.now()))
    }

    fn delay_acknowledgement(&mut self, now: Duration) -> bool {
        let delays = self.delayed.delay(now);
        // One timer is enough: where it finds a later acknowledgement, it leaves that its time.
        if delays && !self.timers.is_set(Timer::Acknowledgement) {
            self.timers.set(Timer::Acknowledgement, now + DELAY_MAX);
        }
        delays
    }

    /// Whether an acknowledgement waits for what the program posts next. One that ends the stream sends it before.
    pub fn delays_acknowledgement(&self) -> bool {
        self.delayed.since.is_some()
    }

    /// The timer: what has waited in vain leaves with the driver's next look ([`Qp::wants_to_send`]).
    pub(super) fn acknowledge_late(&mut self, now: Duration) {
        if let Err(again) = self.delayed.give_up(now) {
            self.timers.set(Timer::Acknowledgement, again);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// `count` acknowledgements that leave alone, each with a post so long after it.
    fn rounds(delayed: &mut Delayed, count: u32, pause: Duration) -> Duration {
        let mut now = Duration::ZERO;
        for _ in 0..count {
            now += 1000 * US;
            assert!(!delayed.delay(now));
            delayed.note_sent();
            now += pause;
            delayed.note_post(|| now);
        }
        now
    }

    #[test]
    fn an_acknowledgement_waits_where_posts_have_followed_closely() {
        let mut delayed = Delayed::default();
        let now = rounds(&mut delayed, CLOSE_POSTS_INITIAL, 10 * US);
        assert!(delayed.delay(now));
        // The post takes it along, and the next one waits too.
        delayed.note_post(|| now + 3 * US);
        delayed.note_sent();
        assert!(delayed.delay(now + 20 * US));
        // Nothing was posted, and somebody polls again.
        assert!(!delayed.delay(now + 21 * US));
    }

    #[test]
    fn it_does_not_where_they_come_later() {
        let mut delayed = Delayed::default();
        let now = rounds(&mut delayed, 100, 60 * US);
        assert!(!delayed.delay(now));
        // One late post, and the row begins anew.
        let mut delayed = Delayed::default();
        rounds(&mut delayed, CLOSE_POSTS_INITIAL - 1, 10 * US);
        rounds(&mut delayed, 1, 60 * US);
        let now = rounds(&mut delayed, CLOSE_POSTS_INITIAL - 1, 10 * US);
        assert!(!delayed.delay(now));
    }

    #[test]
    fn waiting_in_vain_makes_the_next_time_less_likely() {
        let mut delayed = Delayed::default();
        let now = rounds(&mut delayed, CLOSE_POSTS_INITIAL, 10 * US);
        assert!(delayed.delay(now));
        assert_eq!(delayed.give_up(now + DELAY_MAX), Ok(true));
        delayed.note_sent();
        let now = rounds(&mut delayed, 2 * CLOSE_POSTS_INITIAL, 10 * US);
        assert!(delayed.delay(now));
    }

    #[test]
    fn a_timer_of_an_earlier_acknowledgement_leaves_a_later_one_its_time() {
        let mut delayed = Delayed::default();
        let now = rounds(&mut delayed, CLOSE_POSTS_INITIAL, 10 * US);
        assert!(delayed.delay(now));
        let at = now + DELAY_MAX;
        delayed.note_post(|| now + 5 * US);
        delayed.note_sent();
        assert!(delayed.delay(at - 10 * US));
        assert_eq!(delayed.give_up(at), Err(at + DELAY_MAX));
        assert_eq!(delayed.give_up(at + DELAY_MAX), Ok(true));
        assert_eq!(
            delayed.give_up(at + 2 * DELAY_MAX),
            Ok(false),
            "nothing waits"
        );
    }
}
