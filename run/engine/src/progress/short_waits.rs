//! Whether a thread that is about to sleep for an event looks for it for a moment first.
//!
//! A thread that sleeps costs each message a wake-up: its own, and where the peer waits for the answer the peer's as
//! well. On one machine that is ten times what the message takes. Looking for as long as a wake-up or two takes saves
//! both, if the event does come so soon. That is learnt, for each channel: events that came soon to a sleeper say that
//! the next one may be looked for, and each look in vain asks for twice as many of them. A program whose events are far
//! apart never looks, and one whose peer shares its core hardly ever does.

use std::time::Duration;

/// Events in a row that have to come soon to a sleeper before the next one is looked for.
const NEEDED_MIN: u32 = 2;
const NEEDED_MAX: u32 = 1024;

/// What one channel's waits were lately.
#[derive(Debug)]
pub(crate) struct ShortWaits {
    /// In a row.
    soon: u32,
    needed: u32,
}

/// One wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    since: Duration,
    looks: bool,
    /// Nobody looks for longer.
    most: Duration,
}

impl Wait {
    /// When the thread that looks goes to sleep, engine time.
    pub(crate) fn looks_until(&self) -> Option<Duration> {
        self.looks.then_some(self.since + self.most)
    }

    /// To a sleeper an event comes later by its own wake-up, and by that of the peer.
    fn soon_asleep(&self) -> Duration {
        2 * self.most
    }
}

impl Default for ShortWaits {
    fn default() -> ShortWaits {
        ShortWaits {
            soon: 0,
            needed: NEEDED_MIN,
        }
    }
}

impl ShortWaits {
    /// A wait begins, of which at most so long is spent on looking; zero where nobody looks.
    pub(crate) fn begin(&self, now: Duration, most: Duration) -> Wait {
        Wait {
            since: now,
            looks: self.soon >= self.needed && !most.is_zero(),
            most,
        }
    }

    /// Its event is there.
    pub(crate) fn end(&mut self, wait: Wait, now: Duration) {
        let took = now.saturating_sub(wait.since);
        match wait.looks {
            true if took <= wait.most => self.needed = (self.needed - 1).max(NEEDED_MIN),
            true => {
                self.soon = 0;
                self.needed = (self.needed * 2).min(NEEDED_MAX);
            }
            false if took <= wait.soon_asleep() => self.soon += 1,
            false => self.soon = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_micros(50);
    const SOON: Duration = Duration::from_micros(30);
    const LATE: Duration = Duration::from_millis(1);

    /// One wait for an event that comes so late; whether it was looked for.
    fn wait(waits: &mut ShortWaits, took: Duration) -> bool {
        let now = Duration::from_secs(1);
        let wait = waits.begin(now, LOOK);
        waits.end(wait, now + took);
        assert_eq!(wait.looks_until(), wait.looks.then_some(now + LOOK));
        wait.looks
    }

    #[test]
    fn events_that_come_soon_are_looked_for_after_a_few() {
        let mut waits = ShortWaits::default();
        let looks = (0..10).filter(|_| wait(&mut waits, SOON)).count();
        assert_eq!(looks, 10 - NEEDED_MIN as usize);
    }

    #[test]
    fn events_that_come_late_are_slept_for() {
        let mut waits = ShortWaits::default();
        assert!((0..10).all(|_| !wait(&mut waits, LATE)));
        for _ in 0..10 {
            assert!(!wait(&mut waits, SOON) && !wait(&mut waits, LATE));
        }
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
