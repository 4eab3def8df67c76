//! One time for both directions.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A time of arrival so much before the ring was last seen empty is not believed: the calendar was set, or it is a time
/// of another clock.
const BELIEVED_MAX: Duration = Duration::from_secs(1);

/// Time since the bridge was opened, and what it is on the calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// The start, since 1970.
    calendar: Duration,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            start: Instant::now(),
            calendar: calendar(),
        }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A time since the start as one since 1970.
    pub(crate) fn on_calendar(&self, at: Duration) -> Duration {
        self.calendar + at
    }

    /// The two clocks as they are now.
    pub(crate) fn read(&self) -> Reading {
        Reading {
            now: self.now(),
            calendar: calendar(),
        }
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    now: Duration,
    calendar: Duration,
}

impl Reading {
    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// When a frame came, since the start, whose arrival the kernel noted on the calendar. At `empty_at` it was not
    /// there yet.
    ///
    /// What was noted is believed however long ago it is, if nobody looked meanwhile: a process that stood still has to
    /// know for how long.
    pub(crate) fn arrival(&self, noted: Duration, empty_at: Duration) -> Duration {
        let unseen = self.now.saturating_sub(empty_at);
        let ago = self.calendar.checked_sub(noted);
        let ago = ago.filter(|ago| *ago <= unseen + BELIEVED_MAX);
        self.now.saturating_sub(ago.unwrap_or_default())
    }
}

fn calendar() -> Duration {
    // A clock before 1970 gives captures of that year, and the bridge works all the same.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_is_believed_if_it_can_be() {
        let reading = Reading {
            now: Duration::from_secs(10),
            calendar: Duration::from_secs(1000),
        };
        for (noted, arrival) in [
            (999_990, 9_990),
            (1_000_000, 10_000),
            // From the future, and from another clock.
            (1_000_500, 10_000),
            (5_000, 10_000),
        ] {
            let noted = Duration::from_millis(noted);
            let empty_at = Duration::from_millis(9_980);
            assert_eq!(
                reading.arrival(noted, empty_at),
                Duration::from_millis(arrival)
            );
        }
        // Four seconds ago, to a process that stood still for five.
        let noted = Duration::from_secs(996);
        let empty_at = Duration::from_secs(5);
        assert_eq!(reading.arrival(noted, empty_at), Duration::from_secs(6));
        assert_eq!(reading.arrival(noted, reading.now), reading.now);
    }
}
