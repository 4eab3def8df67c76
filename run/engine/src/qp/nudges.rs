//! Nudges for a responder that overlooks the first FPDU (decision 0020).
//!
//! Linux siw sends its MPA Reply before it installs the callback that receives FPDUs. One that arrives in between
//! lies in the socket until the next octet comes, and a peer that waits for the answer sends none. So an initiator
//! that has sent and has heard nothing sends an empty RDMA Write now and then, a few times.

use std::time::Duration;

/// Pause before the first nudge. siw's gap is well below a millisecond, unless its machine is busy.
const FIRST: Duration = Duration::from_millis(5);
/// Each pause is so many times the one before.
const GROWTH: u32 = 4;
/// 5 ms to 5 s; a peer that is silent for longer has a reason of its own.
const COUNT: u32 = 6;

/// The nudges that a connection may still send.
#[derive(Debug)]
pub(super) struct Nudges {
    left: u32,
    pause: Duration,
    /// When the next one is due.
    next: Option<Duration>,
}

impl Nudges {
    pub(super) fn new() -> Nudges {
        Nudges {
            left: COUNT,
            pause: FIRST,
            next: None,
        }
    }

    /// Whether there is one to time.
    pub(super) fn wants_timer(&self) -> bool {
        self.next.is_none() && self.left > 0
    }

    /// Times the next one; says when.
    pub(super) fn start_timer(&mut self, now: Duration) -> Duration {
        let at = now + self.pause;
        self.next = Some(at);
        self.pause *= GROWTH;
        at
    }

    /// Whether one is due, which is then spent.
    pub(super) fn take_due(&mut self, now: Duration) -> bool {
        let due = self.next.is_some_and(|at| at <= now);
        if due {
            self.next = None;
            self.left -= 1;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut nudges = Nudges::new();
        let mut now = Duration::from_secs(100);
        let mut pauses = Vec::new();
        while nudges.wants_timer() {
            let at = nudges.start_timer(now);
            assert!(!nudges.wants_timer(), "one at a time");
            assert!(!nudges.take_due(at - Duration::from_nanos(1)));
            assert!(nudges.take_due(at));
            assert!(!nudges.take_due(at), "spent");
            pauses.push((at - now).as_millis());
            now = at;
        }
        assert_eq!(pauses, [5, 20, 80, 320, 1280, 5120]);
    }
}
