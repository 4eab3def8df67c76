//! Whether a thread that is about to sleep for a message looks for it for a moment first.
//!
//! A thread that sleeps costs each message a wake-up: its own, and where the peer waits for the answer the peer's as
//! well. On one machine that is ten times what the message takes. Looking for as long as a wake-up or two takes saves
//! both, if the message does come so soon. That is learnt from the waits before: messages that came soon to a sleeper
//! say that the next one may be looked for, and each look in vain asks for twice as many of them. A program whose
//! messages are far apart never looks, and one whose peer shares its core hardly ever does.

use std::time::Duration;

/// Messages in a row that have to come soon to a sleeper before the next one is looked for.
const NEEDED_MIN: u32 = 2;
const NEEDED_MAX: u32 = 1024;

/// What waits of one kind were lately.
#[derive(Clone, Copy, Debug)]
pub struct ShortWaits {
    /// In a row.
    soon: u32,
    needed: u32,
}

/// One wait.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    since: Duration,
    looks: bool,
    /// Nobody looks for longer.
    most: Duration,
}

impl Wait {
    /// When the thread that looks goes to sleep; nothing where it does not look.
    pub fn looks_until(&self) -> Option<Duration> {
        self.looks.then_some(self.since + self.most)
    }

    /// To a sleeper a message comes later by its own wake-up, and by that of the peer.
    fn soon_asleep(&self) -> Duration {
        2 * self.most
    }
}

impl Default for ShortWaits {
    fn default() -> ShortWaits {
        ShortWaits::new()
    }
}

impl ShortWaits {
    /// No wait yet.
    pub const fn new() -> ShortWaits {
        ShortWaits {
            soon: 0,
            needed: NEEDED_MIN,
        }
    }

    /// As one word, for who keeps it in an atomic.
    pub fn to_word(self) -> u64 {
        u64::from(self.needed) << 32 | u64::from(self.soon)
    }

    /// Of such a word; 0 is no wait yet.
    pub fn of_word(word: u64) -> ShortWaits {
        ShortWaits {
            soon: word as u32,
            needed: ((word >> 32) as u32).max(NEEDED_MIN),
        }
    }

    /// A wait begins at `now`, of any clock, of which at most so long is spent on looking; zero where nobody looks.
    pub fn begin(&self, now: Duration, most: Duration) -> Wait {
        Wait {
            since: now,
            looks: self.soon >= self.needed && !most.is_zero(),
            most,
        }
    }

    /// What was waited for is there.
    pub fn end(&mut self, wait: Wait, now: Duration) {
        let took = now.saturating_sub(wait.since);
        match wait.looks {
            true if took <= wait.most => self.needed = (self.needed - 1).max(NEEDED_MIN),
            false if took <= wait.soon_asleep() => self.soon = self.soon.saturating_add(1),
            _ => self.end_in_vain(wait),
        }
    }

    /// The wait is over without what was waited for, or that came late.
    pub fn end_in_vain(&mut self, wait: Wait) {
        self.soon = 0;
        if wait.looks {
            self.needed = (self.needed * 2).min(NEEDED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_micros(50);
    const SOON: Duration = Duration::from_micros(30);
    const LATE: Duration = Duration::from_millis(1);

    /// One wait for a message that comes so late; whether it was looked for.
    fn wait(waits: &mut ShortWaits, took: Duration) -> bool {
        let now = Duration::from_secs(1);
        let wait = waits.begin(now, LOOK);
        waits.end(wait, now + took);
        assert_eq!(wait.looks_until(), wait.looks.then_some(now + LOOK));
        wait.looks
    }

    #[test]
    fn messages_that_come_soon_are_looked_for_after_a_few() {
        let mut waits = ShortWaits::default();
        let looks = (0..10).filter(|_| wait(&mut waits, SOON)).count();
        assert_eq!(looks, 10 - NEEDED_MIN as usize);
    }

    #[test]
    fn messages_that_come_late_are_slept_for() {
        let mut waits = ShortWaits::default();
        assert!((0..10).all(|_| !wait(&mut waits, LATE)));
        for _ in 0..10 {
            assert!(!wait(&mut waits, SOON) && !wait(&mut waits, LATE));
        }
    }

    #[test]
    fn waits_that_end_without_a_message_are_not_looked_for_again() {
        let mut waits = ShortWaits::default();
        while !wait(&mut waits, SOON) {}
        let mut times_out = || {
            let wait = waits.begin(SOON, LOOK);
            waits.end_in_vain(wait);
            wait.looks
        };
        assert!(times_out(), "the first after short ones");
        assert!(
            (0..100).all(|_| !times_out()),
            "as an idle program's timeouts"
        );
        assert_eq!(waits.needed, 2 * NEEDED_MIN);
    }

    #[test]
    fn a_word_holds_what_was_learnt() {
        let mut waits = ShortWaits::of_word(0);
        for took in [SOON, SOON, LATE, SOON, SOON, SOON] {
            wait(&mut waits, took);
            let again = ShortWaits::of_word(waits.to_word());
            assert_eq!((again.soon, again.needed), (waits.soon, waits.needed));
        }
        assert_eq!(waits.needed, 2 * NEEDED_MIN);
    }

    #[test]
    fn where_nobody_is_to_look_nobody_does() {
        let mut waits = ShortWaits::default();
        for _ in 0..10 {
            let wait = waits.begin(SOON, Duration::ZERO);
            assert_eq!(wait.looks_until(), None);
            waits.end(wait, SOON);
        }
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut waits = ShortWaits::default();
        let mut looks = 0;
        for _ in 0..10_000 {
            // Soon for a sleeper, as where the peer has the core meanwhile.
            let is_looked_for = waits.soon >= waits.needed;
            looks += u32::from(wait(&mut waits, if is_looked_for { LATE } else { SOON }));
        }
        assert!((8..30).contains(&looks), "{looks}");
        while !wait(&mut waits, SOON) {}
        assert!(
            (0..10_000).all(|_| wait(&mut waits, SOON)),
            "where it helps it goes on"
        );
        assert_eq!(waits.needed, NEEDED_MIN);
    }
}
