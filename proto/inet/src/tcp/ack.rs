//! When to acknowledge (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2), and how seldom.

use super::receive::Arrival;
use core::time::Duration;

/// How ACKs are thinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckPolicy {
    /// One ACK for so many full segments. 2 is the standard's most; more is for a peer that needs no ACK clock.
    pub every: u32,
    /// But no later than this (the standard allows 500 ms).
    pub delay: Duration,
}

impl Default for AckPolicy {
    /// Every second segment, after 40 ms at the latest.
    fn default() -> AckPolicy {
        AckPolicy {
            every: 2,
            delay: Duration::from_millis(40),
        }
    }
}

impl AckPolicy {
    /// One ACK for `every` segments, after 25 ms at the latest.
    pub fn thinned(every: u32) -> AckPolicy {
        AckPolicy {
            every: every.max(1),
            delay: Duration::from_millis(25),
        }
    }

    fn is_thinned(&self) -> bool {
        self.every > 2
    }
}

/// What is owed to the peer.
#[derive(Clone, Debug)]
pub struct Acknowledger {
    policy: AckPolicy,
    /// Octets received since the last ACK.
    owed: u64,
    /// An ACK is due at once.
    now: bool,
}

/// What to do after a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// An ACK is due now.
    Now,
    /// An ACK is due after this time, if none left before.
    After(Duration),
}

impl Acknowledger {
    /// Nothing is owed.
    pub fn new(policy: AckPolicy) -> Acknowledger {
        Acknowledger {
            policy,
            owed: 0,
            now: false,
        }
    }

    /// Changes the policy of a connection that exists.
    pub fn set_policy(&mut self, policy: AckPolicy) {
        self.policy = policy;
    }

    /// A segment with `octets` of data arrived.
    ///
    /// Out of order or duplicate segments are acknowledged at once, so that the sender's repair is prompt (RFC 5681
    /// section 4.2, RFC 2883 section 4). When ACKs are thinned, only what changes the number of holes is: then each
    /// hole is reported when it opens and when it closes, and a hole that is merely still open costs nothing. But the
    /// last segment of what the sender had to send (`push`) is acknowledged at once: the sender waits for that to have
    /// its memory back, and nothing else will come that brings it.
    pub fn data(&mut self, arrival: &Arrival, octets: u64, push: bool, mss: u64) -> Due {
        self.owed += octets;
        let disorder = if self.policy.is_thinned() {
            arrival.holes_changed || !arrival.news || (push && arrival.advanced)
        } else {
            arrival.out_of_order || arrival.duplicate || !arrival.news
        };
        if disorder || self.owed >= u64::from(self.policy.every) * mss.max(1) {
            self.now = true;
            return Due::Now;
        }
        Due::After(self.policy.delay)
    }

    /// An ACK is due at once, whatever the policy.
    pub fn at_once(&mut self) {
        self.now = true;
    }

    /// An ACK is due.
    pub fn is_due(&self) -> bool {
        self.now
    }

    /// A segment with an ACK left.
    pub fn sent(&mut self) {
        self.owed = 0;
        self.now = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_ORDER: Arrival = Arrival {
        news: true,
        advanced: true,
        out_of_order: false,
        holes_changed: false,
        duplicate: false,
    };

    #[test]
    fn every_second_full_segment() {
        let mut ack = Acknowledger::new(AckPolicy::default());
        assert_eq!(
            ack.data(&IN_ORDER, 1000, false, 1000),
            Due::After(Duration::from_millis(40))
        );
        assert_eq!(ack.data(&IN_ORDER, 1000, false, 1000), Due::Now);
        ack.sent();
        assert!(!ack.is_due());
    }

    #[test]
    fn disorder_at_once_and_thinned_only_when_holes_change() {
        let open = Arrival {
            out_of_order: true,
            advanced: false,
            ..IN_ORDER
        };
        let new = Arrival {
            holes_changed: true,
            ..open
        };
        let mut ack = Acknowledger::new(AckPolicy::default());
        assert_eq!(ack.data(&open, 1000, false, 1000), Due::Now);
        let mut thinned = Acknowledger::new(AckPolicy::thinned(64));
        assert!(matches!(
            thinned.data(&open, 1000, false, 1000),
            Due::After(_)
        ));
        assert_eq!(thinned.data(&new, 1000, false, 1000), Due::Now);
    }
    #[test]
    fn the_end_of_a_burst_is_acknowledged_at_once_when_acks_are_thinned() {
        let mut thinned = Acknowledger::new(AckPolicy::thinned(64));
        assert!(matches!(
            thinned.data(&IN_ORDER, 1000, false, 1000),
            Due::After(_)
        ));
        assert_eq!(thinned.data(&IN_ORDER, 1000, true, 1000), Due::Now);
        thinned.sent();
        // Behind a hole no ACK gives any memory back: the one that fills the hole will.
        let behind = Arrival {
            out_of_order: true,
            advanced: false,
            ..IN_ORDER
        };
        assert!(matches!(
            thinned.data(&behind, 1000, true, 1000),
            Due::After(_)
        ));
        let mut usual = Acknowledger::new(AckPolicy::default());
        assert!(matches!(
            usual.data(&IN_ORDER, 1000, true, 1000),
            Due::After(_)
        ));
    }
}
