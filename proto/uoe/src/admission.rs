//! What becomes of a datagram that cannot leave at once.

use core::time::Duration;

/// How long a send that may block waits for a full carrier before the datagram is dropped: UDP has no back-off, and a
/// program that expects none is not to be stopped.
pub const FULL_TIMEOUT: Duration = Duration::from_millis(20);

/// What a rule says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Plain UDP wherever there is no carrier.
    #[default]
    Prefer,
    /// Never plain. Datagrams are put into the queue until the carrier is up (mode 1).
    Buffer,
    /// Never plain. The caller waits for the carrier, so long from its call on or for ever, and then it is as mode 1
    /// (mode 2).
    Wait(Option<Duration>),
}

/// What there is to send on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// No channel that may be used.
    Down,
    /// A channel; the carrier takes nothing more now.
    Full,
    /// A channel with room.
    Ready,
}

/// One attempt to send a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// What there is to send on.
    pub carrier: Carrier,
    /// Datagrams wait in the queue, which leave before this one.
    pub others_wait: bool,
    /// The queue has room for it without dropping any.
    pub has_room: bool,
    /// The call may block.
    pub may_block: bool,
    /// When the program called.
    pub since: Duration,
    /// How long it waits for a full carrier before it is dropped: [`FULL_TIMEOUT`], or what a carrier with a rate of
    /// the program's needs for what is in it.
    pub full_timeout: Duration,
    /// How long it waits where there is no carrier and the queue has no room, before that drops some: no time, or what
    /// the datagram takes at a rate of the program's, which goes by it as it will on the carrier.
    pub down_timeout: Duration,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send it plainly.
    Plain,
    /// Send it on the channel.
    Channel,
    /// Put it into the queue, which drops what its bounds say.
    Queue,
    /// Try again when something changes, or at that time. `None`: only when something changes.
    Wait(Option<Duration>),
    /// Refuse it: EAGAIN.
    Again,
    /// Drop it, and count it.
    Drop,
}

impl Policy {
    /// What becomes of a datagram.
    pub fn admit(self, attempt: Attempt, now: Duration) -> Verdict {
        let waits_until = |timeout: Duration| attempt.since.saturating_add(timeout);
        match (attempt.carrier, self) {
            (Carrier::Ready, _) if !attempt.others_wait => Verdict::Channel,
            (Carrier::Down, Policy::Prefer) => Verdict::Plain,
            (Carrier::Down, Policy::Wait(None)) if attempt.may_block => Verdict::Wait(None),
            (Carrier::Down, Policy::Wait(Some(timeout)))
                if attempt.may_block && now < waits_until(timeout) =>
            {
                Verdict::Wait(Some(waits_until(timeout)))
            }
            (Carrier::Down, Policy::Buffer)
                if attempt.may_block
                    && !attempt.has_room
                    && now < waits_until(attempt.down_timeout) =>
            {
                Verdict::Wait(Some(waits_until(attempt.down_timeout)))
            }
            // It is there to be filled while nobody can send, and drops by its rule.
            (Carrier::Down, _) => Verdict::Queue,
            _ if attempt.has_room => Verdict::Queue,
            _ if !attempt.may_block => Verdict::Again,
            _ if now < waits_until(attempt.full_timeout) => {
                Verdict::Wait(Some(waits_until(attempt.full_timeout)))
            }
            _ => Verdict::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const DOWN: Attempt = Attempt {
        carrier: Carrier::Down,
        others_wait: false,
        has_room: true,
        may_block: true,
        since: ms(100),
        full_timeout: FULL_TIMEOUT,
        down_timeout: Duration::ZERO,
    };

    #[test]
    fn without_a_carrier_the_rule_decides() {
        let full = Attempt {
            has_room: false,
            ..DOWN
        };
        let dont_wait = Attempt {
            may_block: false,
            ..DOWN
        };
        for (policy, attempt, now, wanted) in [
            (Policy::Prefer, DOWN, 100, Verdict::Plain),
            (Policy::Prefer, full, 100, Verdict::Plain),
            (Policy::Buffer, DOWN, 100, Verdict::Queue),
            (Policy::Buffer, full, 100, Verdict::Queue),
            (
                Policy::Wait(Some(ms(50))),
                DOWN,
                149,
                Verdict::Wait(Some(ms(150))),
            ),
            (Policy::Wait(Some(ms(50))), DOWN, 150, Verdict::Queue),
            (Policy::Wait(Some(ms(50))), dont_wait, 100, Verdict::Queue),
            (Policy::Wait(None), DOWN, 100_000, Verdict::Wait(None)),
            (Policy::Wait(None), dont_wait, 100, Verdict::Queue),
        ] {
            assert_eq!(
                policy.admit(attempt, ms(now)),
                wanted,
                "{policy:?} {attempt:?}"
            );
        }
    }

    #[test]
    fn who_has_set_a_rate_keeps_it_without_a_carrier() {
        let full = Attempt {
            has_room: false,
            down_timeout: ms(3),
            ..DOWN
        };
        let dont_wait = Attempt {
            may_block: false,
            ..full
        };
        let room = Attempt {
            has_room: true,
            ..full
        };
        let admit = |attempt, now| Policy::Buffer.admit(attempt, ms(now));
        assert_eq!(admit(full, 100), Verdict::Wait(Some(ms(103))));
        assert_eq!(admit(full, 103), Verdict::Queue);
        assert_eq!(admit(dont_wait, 100), Verdict::Queue);
        assert_eq!(admit(room, 100), Verdict::Queue);
    }

    #[test]
    fn a_full_carrier_is_waited_for_a_little() {
        let full = Attempt {
            carrier: Carrier::Full,
            has_room: false,
            ..DOWN
        };
        let dont_wait = Attempt {
            may_block: false,
            ..full
        };
        let room = Attempt {
            has_room: true,
            ..dont_wait
        };
        for policy in [Policy::Prefer, Policy::Buffer, Policy::Wait(None)] {
            assert_eq!(policy.admit(full, ms(119)), Verdict::Wait(Some(ms(120))));
            assert_eq!(policy.admit(full, ms(120)), Verdict::Drop);
            assert_eq!(policy.admit(dont_wait, ms(100)), Verdict::Again);
            assert_eq!(policy.admit(room, ms(100)), Verdict::Queue);
        }
    }

    #[test]
    fn nobody_overtakes_those_that_wait() {
        let ready = Attempt {
            carrier: Carrier::Ready,
            ..DOWN
        };
        let behind = Attempt {
            others_wait: true,
            ..ready
        };
        for policy in [Policy::Prefer, Policy::Buffer, Policy::Wait(None)] {
            assert_eq!(policy.admit(ready, ms(100)), Verdict::Channel);
            assert_eq!(policy.admit(behind, ms(100)), Verdict::Queue);
        }
    }
}
