//! How old datagrams are when they come, by what their sender said of the time and by how long others took.
//!
//! The clocks of the two ends have nothing to do with each other. What is known is how much longer one datagram took
//! than the fastest one lately: that much it is too old.

use core::time::Duration;

/// For so long the fastest one counts, and for as long again: clocks run apart, and paths change.
const WINDOW: Duration = Duration::from_secs(2);

/// How old one may be, and what is known of the way.
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    age: Duration,
    /// The least time on the way, in microseconds and from an unknown zero: in this window, and in the one before.
    least: [Option<u32>; 2],
    begun: Duration,
}

impl Ages {
    /// Nothing is known yet.
    pub(crate) fn new(age: Duration, now: Duration) -> Ages {
        Ages {
            age,
            least: [None; 2],
            begun: now,
        }
    }

    /// The oldest that one may be.
    pub(crate) fn age(&self) -> Duration {
        self.age
    }

    /// Another age.
    pub(crate) fn set_age(&mut self, age: Duration) {
        self.age = age;
    }

    /// Something came that was sent at `sent`, in microseconds of the sender's clock: whether it is too old.
    pub(crate) fn is_late(&mut self, sent: u32, now: Duration) -> bool {
        if now >= self.begun + WINDOW {
            let is_next = now < self.begun + 2 * WINDOW;
            self.least = [None, self.least[0].filter(|_| is_next)];
            self.begun = now;
        }
        let took = (now.as_micros() as u32).wrapping_sub(sent);
        let is_less = |than: &u32| is_before(took, *than);
        if self.least[0].as_ref().is_none_or(is_less) {
            self.least[0] = Some(took);
        }
        let least = self.least.iter().flatten().copied();
        let least = least.reduce(|one, other| if is_before(one, other) { one } else { other });
        let longer = took.wrapping_sub(least.unwrap_or(took));
        u128::from(longer) > self.age.as_micros()
    }
}

/// Whether `one` is before `other` on a clock that begins again at zero.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_took_longer_than_the_fastest_by_more_than_the_age_is_late() {
        // The sender's clock begins again soon, and is hours apart.
        let zero = u32::MAX - 30_000;
        let sent = |ms: u32| zero.wrapping_add(1000 * ms);
        let mut ages = Ages::new(ms(20), ms(5000));
        assert!(!ages.is_late(sent(0), ms(5010)));
        assert!(!ages.is_late(sent(10), ms(5040)), "twenty more is not late");
        assert!(ages.is_late(sent(20), ms(5051)));
        assert!(!ages.is_late(sent(40), ms(5045)), "a faster one");
        assert!(ages.is_late(sent(50), ms(5076)));
    }

    #[test]
    fn a_longer_way_is_the_usual_one_after_a_while() {
        let mut ages = Ages::new(ms(20), ms(0));
        let mut late = 0;
        for now in 0..8000 {
            let took = if now < 1000 { 5 } else { 50 };
            late += u32::from(ages.is_late(1000 * (now - took.min(now)), ms(now.into())));
        }
        assert!((1000..3100).contains(&late), "{late}");
        // Nothing came for long: what is known is old.
        assert!(!ages.is_late(0, ms(20_000)));
    }
}
