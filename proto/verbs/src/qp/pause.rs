//! A pause in receiving: while messages wait for receives, the rest stays in the transport for a moment.
//!
//! A receiver that is behind its peer posts receives as fast as it can, and soon. Holding each message until then
//! costs more than the message itself: memory of its own, a copy, and a bound on its wait. So nothing more is received
//! once a few messages wait, until they have gone on, and the transport slows the peer down. A receiver that posts
//! nothing for a while still has to hear what stands behind the messages: Writes, a Terminate, the end of the stream.
//! So the pause ends after [`LONGEST`], and then as much is held as `rnr_queue` allows, until the message at the front
//! is another one. Decision 0053 has what was weighed.

use core::time::Duration;

use super::rnr_queue::RnrQueue;
use super::timers::{Timer, Timers};

/// What has to wait, counted as the queue counts it, before the rest is left in the transport: sixteen empty messages,
/// or one of a page.
const ENOUGH_OCTETS: usize = 4096;
/// How long a pause lasts at most.
const LONGEST: Duration = Duration::from_millis(1);

/// Whether receiving pauses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Pause {
    /// It does not.
    #[default]
    None,
    /// It does.
    Lasts,
    /// It did, for as long as it may, and this message was at the front when that ended.
    IsOver { front: u64 },
}

impl Pause {
    #[inline]
    pub(super) fn lasts(self) -> bool {
        self == Pause::Lasts
    }

    /// After whatever may have held a message, or let one go.
    #[inline]
    pub(super) fn follow(
        &mut self,
        queue: &RnrQueue,
        now: impl FnOnce() -> Duration,
        timers: &mut Timers,
    ) {
        if !queue.is_empty() || *self != Pause::None {
            self.begin_or_end(queue, now, timers);
        }
    }

    // Apart: most passes hold nothing.
    #[inline(never)]
    fn begin_or_end(
        &mut self,
        queue: &RnrQueue,
        now: impl FnOnce() -> Duration,
        timers: &mut Timers,
    ) {
        let Some(front) = queue.holding() else {
            timers.cancel(Timer::Pause);
            *self = Pause::None;
            return;
        };
        let may_begin = match *self {
            Pause::None => true,
            Pause::Lasts => false,
            Pause::IsOver { front: same } => same != front,
        };
        if may_begin && queue.weight() >= ENOUGH_OCTETS {
            timers.set(Timer::Pause, now() + LONGEST);
            *self = Pause::Lasts;
        }
    }

    /// It has lasted long enough.
    pub(super) fn end(&mut self, queue: &RnrQueue) {
        *self = match queue.holding() {
            Some(front) => Pause::IsOver { front },
            None => Pause::None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::receives::tests::segment;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn hold(queue: &mut RnrQueue, octets: usize) {
        queue.push_send(segment(octets), None);
        queue.append(&alloc::vec![7; octets]).expect("room");
        queue.complete();
    }

    #[test]
    fn it_begins_with_a_few_messages_and_ends_when_none_is_left() {
        let (mut pause, mut queue, mut timers) =
            (Pause::default(), RnrQueue::default(), Timers::default());
        for _ in 0..15 {
            hold(&mut queue, 0);
            pause.follow(&queue, || unreachable!("no time is asked for"), &mut timers);
            assert!(!pause.lasts());
        }
        hold(&mut queue, 0);
        pause.follow(&queue, || MS, &mut timers);
        assert!(pause.lasts());
        assert_eq!(timers.next(), Some(MS + LONGEST));
        for left in (0..16).rev() {
            queue.pop();
            pause.follow(&queue, || unreachable!("it has begun already"), &mut timers);
            assert_eq!(pause.lasts(), left > 0);
        }
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn one_long_message_is_enough() {
        let (mut pause, mut queue, mut timers) =
            (Pause::default(), RnrQueue::default(), Timers::default());
        hold(&mut queue, 4096);
        pause.follow(&queue, || MS, &mut timers);
        assert!(pause.lasts());
    }

    #[test]
    fn one_that_was_long_enough_begins_again_behind_another_message() {
        let (mut pause, mut queue, mut timers) =
            (Pause::default(), RnrQueue::default(), Timers::default());
        for _ in 0..20 {
            hold(&mut queue, 0);
        }
        pause.follow(&queue, || MS, &mut timers);
        assert_eq!(timers.take_due(MS + LONGEST), Some(Timer::Pause));
        pause.end(&queue);
        hold(&mut queue, 0);
        pause.follow(
            &queue,
            || unreachable!("the same message waits"),
            &mut timers,
        );
        assert!(!pause.lasts());
        queue.pop();
        pause.follow(&queue, || 3 * MS, &mut timers);
        assert!(pause.lasts());
        assert_eq!(timers.next(), Some(3 * MS + LONGEST));
    }
}
