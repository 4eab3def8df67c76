//! How much may be under way to one socket: what keeps a sender from overflowing a receive buffer.
//!
//! The sender marks a datagram now and then; the receiver's socket grants credit up to the mark when it
//! has read so far. Without credit for [`CREDIT_TIMEOUT`] the sender no longer waits, until one
//! comes: a datagram may be lost, a sender may not be stopped for ever.

use core::time::Duration;

/// What may be under way before the first credit, and at least, octets of [`weight`].
const WINDOW_INITIAL_OCTETS: u32 = 128 * 1024;
/// The same at most.
const WINDOW_MAX_OCTETS: u32 = 4 * 1024 * 1024;
/// How long credit is waited for: longer than a loaded machine keeps a receiver from a core, or what the sender
/// sends then overflows a buffer that the receiver would have emptied.
const CREDIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Beyond this the count of a flow to which nobody grants credit follows what was sent.
const OUT_OF_RANGE_OCTETS: u32 = 1 << 30;

/// What a datagram of so many octets takes of a receive buffer, about: the kernel counts its own
/// structures and rounds up.
pub fn weight(octets: usize) -> u32 {
    1024 + 2 * octets as u32
}

/// What is under way to one socket.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Weight of all that was sent, modulo 2^32.
    sent: u32,
    /// Of that, what credit was granted for.
    granted: u32,
    /// Of that, what credit was asked for.
    asked: u32,
    window: u32,
    /// Nobody grants credit.
    silent: bool,
    waits_until: Option<Duration>,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow {
            sent: 0,
            granted: 0,
            asked: 0,
            window: WINDOW_INITIAL_OCTETS,
            silent: false,
            waits_until: None,
        }
    }
}

impl Flow {
    /// Whether another datagram may leave.
    pub fn may_send(&self) -> bool {
        self.silent || self.under_way() < self.window
    }

    fn under_way(&self) -> u32 {
        self.sent.wrapping_sub(self.granted)
    }

    /// A datagram of that weight leaves. The mark that it carries, if it has to ask for credit.
    pub fn send(&mut self, weight: u32) -> Option<u32> {
        self.sent = self.sent.wrapping_add(weight);
        if self.under_way() > OUT_OF_RANGE_OCTETS {
            self.granted = self.sent.wrapping_sub(OUT_OF_RANGE_OCTETS);
        }
        if self.sent.wrapping_sub(self.asked) < self.window / 4 {
            return None;
        }
        self.asked = self.sent;
        Some(self.sent)
    }

    /// Datagrams of that weight, the last ones, have not left after all. If one of them asked for credit the next one
    /// asks anew.
    pub fn take_back(&mut self, weight: u32) {
        self.sent = self.sent.wrapping_sub(weight);
        let has_asked_beyond = (self.sent.wrapping_sub(self.asked) as i32) < 0;
        if has_asked_beyond {
            self.asked = self.sent.wrapping_sub(self.window);
        }
    }

    /// The other socket has read up to `mark`; its receive buffer has `room` octets. Marks that
    /// were never sent are ignored.
    pub fn grant(&mut self, mark: u32, room: u32) {
        let progress = mark.wrapping_sub(self.granted);
        if progress > self.under_way() {
            return;
        }
        self.granted = mark;
        self.window = (room / 2).clamp(WINDOW_INITIAL_OCTETS, WINDOW_MAX_OCTETS);
        self.silent = false;
        self.waits_until = None;
    }

    /// A sender waits; gives until when.
    pub fn wait(&mut self, now: Duration) -> Duration {
        *self.waits_until.get_or_insert(now + CREDIT_TIMEOUT)
    }

    /// Stops waiting when the time is over; true when senders may go on.
    pub fn expire(&mut self, now: Duration) -> bool {
        let over = self.waits_until.is_some_and(|until| until <= now);
        if over {
            self.silent = true;
            self.waits_until = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    /// Sends until the flow is full; the marks.
    fn fill(flow: &mut Flow, most: usize) -> (usize, std::vec::Vec<u32>) {
        let mut marks = std::vec::Vec::new();
        for sent in 0..most {
            if !flow.may_send() {
                return (sent, marks);
            }
            marks.extend(flow.send(weight(64)));
        }
        (most, marks)
    }

    #[test]
    fn a_full_flow_goes_on_after_credit() {
        let mut flow = Flow::default();
        let (first, marks) = fill(&mut flow, 10_000);
        assert_eq!(first, (WINDOW_INITIAL_OCTETS / weight(64)) as usize + 1);
        assert_eq!(marks.len(), 3, "asked in time, and not by each: {marks:?}");
        flow.grant(marks[0], 0);
        let (more, _) = fill(&mut flow, 10_000);
        assert!(more > 0 && more < first);
    }

    #[test]
    fn a_window_that_is_just_full_is_full() {
        let mut flow = Flow::default();
        assert_eq!(flow.send(WINDOW_INITIAL_OCTETS / 4 - 1), None);
        assert_eq!(
            flow.send(1),
            Some(WINDOW_INITIAL_OCTETS / 4),
            "a quarter: time to ask"
        );
        flow.send(WINDOW_INITIAL_OCTETS / 4 * 3 - 1);
        assert!(flow.may_send());
        flow.send(1);
        assert!(!flow.may_send());
    }

    #[test]
    fn the_window_is_half_of_the_receivers_buffer() {
        let mut flow = Flow::default();
        let (_, marks) = fill(&mut flow, 10_000);
        flow.grant(*marks.last().unwrap(), 1 << 20);
        let (more, _) = fill(&mut flow, 10_000);
        assert!(more * weight(64) as usize > (1 << 19) - WINDOW_INITIAL_OCTETS as usize / 2);
        flow.grant(flow.sent, u32::MAX);
        assert_eq!(
            fill(&mut flow, 100_000).0,
            (WINDOW_MAX_OCTETS / weight(64)) as usize + 1
        );
    }

    /// A socket that takes nothing is tried again and again: the same datagrams are under way once, and ask once more.
    #[test]
    fn what_has_not_left_is_not_under_way() {
        let mut flow = Flow::default();
        let quarter = WINDOW_INITIAL_OCTETS / 4;
        assert_eq!(flow.send(1), None);
        flow.take_back(1);
        for _ in 0..1000 {
            assert_eq!(flow.send(quarter), Some(quarter));
            assert_eq!(flow.send(1), None);
            flow.take_back(quarter + 1);
            assert_eq!(flow.under_way(), 0);
        }
        assert_eq!(flow.send(quarter), Some(quarter));
        flow.grant(quarter, 0);
        assert_eq!(flow.under_way(), 0);
    }

    #[test]
    fn without_credit_nobody_waits_for_ever() {
        let mut flow = Flow::default();
        let (_, marks) = fill(&mut flow, 10_000);
        let until = flow.wait(NOW);
        assert_eq!(
            flow.wait(NOW + CREDIT_TIMEOUT / 2),
            until,
            "from the first wait on"
        );
        assert!(!flow.expire(NOW));
        assert!(flow.expire(until));
        assert_eq!(fill(&mut flow, 100_000).0, 100_000);
        flow.grant(marks[0], 0);
        assert!(
            !flow.may_send(),
            "credit, even old credit: somebody is there"
        );
    }

    /// More than the count holds may leave before somebody reads what came of late, and grants credit.
    #[test]
    fn who_was_silent_for_long_is_heard_again() {
        let mut flow = Flow::default();
        flow.wait(NOW);
        assert!(flow.expire(NOW + CREDIT_TIMEOUT));
        let mut mark = 0;
        for _ in 0..u32::MAX / OUT_OF_RANGE_OCTETS {
            mark = flow.send(OUT_OF_RANGE_OCTETS).expect("it asks");
        }
        flow.send(OUT_OF_RANGE_OCTETS);
        flow.grant(mark, 0);
        assert!(!flow.may_send(), "what was sent behind the mark counts");
    }

    #[test]
    fn invented_marks_change_nothing() {
        let mut flow = Flow::default();
        fill(&mut flow, 10_000);
        flow.grant(flow.sent.wrapping_add(1), u32::MAX);
        flow.grant(flow.granted.wrapping_sub(1), u32::MAX);
        assert!(!flow.may_send());
    }

    #[test]
    fn counts_may_wrap() {
        let mut flow = Flow {
            sent: u32::MAX - 10_000,
            granted: u32::MAX - 10_000,
            asked: u32::MAX - 10_000,
            ..Flow::default()
        };
        for _ in 0..1000 {
            let (sent, marks) = fill(&mut flow, 50);
            assert!(sent > 0);
            marks.iter().for_each(|mark| flow.grant(*mark, 0));
        }
    }
}
