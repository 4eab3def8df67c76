//! Answers that wait for what the program posts next.
//!
//! A peer that asks whether its Writes are placed (decision 0009) gets an answer of no octets. Where two programs write
//! to each other in turn (`ib_write_lat`), the program posts its own Write a moment later, and the answer that left
//! alone was a system call and a wake-up of its own at either end, on cores that have other things to do. So where
//! posts have followed answers closely a few times in a row, the next answer waits for the post, and leaves with it.
//!
//! It waits no longer than the program's next poll, and where that does not come [`HOLD`] to twice that; then answers
//! leave at once again, until twice as many posts have followed closely.

use std::time::Duration;

use super::{Inner, Qp};
use crate::engine::Engine;
use crate::progress::Token;

/// A post within this time after an answer follows it closely.
const CLOSELY: Duration = Duration::from_micros(50);
/// How long an answer waits where nothing is posted and nobody polls.
const HOLD: Duration = Duration::from_micros(100);
/// So many posts in a row have to follow closely at first.
const FEW: u32 = 8;
const MANY: u32 = 4096;

/// How one stream's answers leave.
#[derive(Debug)]
pub(super) struct Answers {
    /// When the last one left alone, as long as nothing was posted since.
    alone_at: Option<Duration>,
    /// Posts that followed closely, in a row.
    row: u32,
    /// How many have to.
    needed: u32,
    /// Since when one waits.
    held_at: Option<Duration>,
    /// A timer runs.
    timed: bool,
}

impl Answers {
    pub(super) fn new() -> Answers {
        Answers {
            alone_at: None,
            row: 0,
            needed: FEW,
            held_at: None,
            timed: false,
        }
    }

    /// Nothing but answers is due: whether they wait.
    fn hold(&mut self, now: Duration) -> bool {
        // The second look finds nothing posted: then it is not what comes next.
        if self.row < self.needed || self.held_at.take().is_some() {
            self.alone_at = Some(now);
            return false;
        }
        self.held_at = Some(now);
        true
    }

    /// Everything that is due leaves.
    pub(super) fn note_sent(&mut self) {
        self.held_at = None;
    }

    /// The program posted.
    pub(super) fn note_post(&mut self, now: Duration) {
        if let Some(alone_at) = self.alone_at.take() {
            let closely = now.saturating_sub(alone_at) < CLOSELY;
            self.row = if closely { self.row + 1 } else { 0 };
        }
    }

    /// When to look again, if something waits and no timer runs.
    fn start_timer(&mut self, now: Duration) -> Option<Duration> {
        let starts = self.held_at.is_some() && !self.timed;
        self.timed |= starts;
        starts.then_some(now + HOLD)
    }

    /// A timer: whether an answer has waited in vain and leaves now.
    fn give_up(&mut self, now: Duration) -> bool {
        let timed = std::mem::take(&mut self.timed);
        let late = |held_at: Duration| now.saturating_sub(held_at) >= HOLD;
        if !timed || !self.held_at.is_some_and(late) {
            return false;
        }
        self.row = 0;
        self.needed = (2 * self.needed).min(MANY);
        true
    }
}

impl Answers {
    /// Nothing but answers is due on the stream of that token: whether they wait for what the program posts next.
    pub(super) fn holds(&mut self, token: Token, engine: &Engine) -> bool {
        let holds = self.hold(engine.now());
        self.time(token, engine);
        holds
    }

    fn time(&mut self, token: Token, engine: &Engine) {
        if let Some(at) = self.start_timer(engine.now()) {
            engine.progress.add_timer(at, token);
        }
    }
}

impl Qp {
    /// The stream is about to end, and what waits leaves before that.
    pub(super) fn send_held_answer(&self, inner: &mut Inner, engine: &Engine) {
        if inner.answers.held_at.is_some() {
            // Where that fails the stream ends anyway.
            let _ = self.transmit_all(inner, engine);
        }
    }

    /// A timer: whether an answer has to leave now.
    pub(super) fn answer_is_late(inner: &mut Inner, engine: &Engine) -> bool {
        let Some(stream) = &inner.stream else {
            return false;
        };
        let late = inner.answers.give_up(engine.now());
        if !late {
            inner.answers.time(stream.token, engine);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// `count` answers that leave alone, each with a post so long after it.
    fn rounds(answers: &mut Answers, count: u32, pause: Duration) -> Duration {
        let mut now = Duration::ZERO;
        for _ in 0..count {
            now += 1000 * US;
            assert!(!answers.hold(now));
            answers.note_sent();
            now += pause;
            answers.note_post(now);
        }
        now
    }

    #[test]
    fn an_answer_waits_where_posts_have_followed_closely() {
        let mut answers = Answers::new();
        let now = rounds(&mut answers, FEW, 10 * US);
        assert!(answers.hold(now));
        // The post takes it along, and the next one waits too.
        answers.note_post(now + 3 * US);
        answers.note_sent();
        assert!(answers.hold(now + 20 * US));
        // Nothing was posted, and somebody polls again.
        assert!(!answers.hold(now + 21 * US));
    }

    #[test]
    fn it_does_not_where_they_come_later() {
        let mut answers = Answers::new();
        let now = rounds(&mut answers, 100, 60 * US);
        assert!(!answers.hold(now));
        // One late post, and the row begins anew.
        let mut answers = Answers::new();
        rounds(&mut answers, FEW - 1, 10 * US);
        rounds(&mut answers, 1, 60 * US);
        let now = rounds(&mut answers, FEW - 1, 10 * US);
        assert!(!answers.hold(now));
    }

    #[test]
    fn waiting_in_vain_makes_the_next_time_less_likely() {
        let mut answers = Answers::new();
        let now = rounds(&mut answers, FEW, 10 * US);
        assert!(answers.hold(now));
        assert_eq!(answers.start_timer(now), Some(now + HOLD));
        assert_eq!(answers.start_timer(now), None, "one timer is enough");
        assert!(answers.give_up(now + HOLD));
        answers.note_sent();
        let now = rounds(&mut answers, 2 * FEW, 10 * US);
        assert!(answers.hold(now));
    }

    #[test]
    fn a_timer_of_an_earlier_answer_leaves_a_later_one_its_time() {
        let mut answers = Answers::new();
        let now = rounds(&mut answers, FEW, 10 * US);
        assert!(answers.hold(now));
        let at = answers.start_timer(now).unwrap();
        answers.note_post(now + 5 * US);
        answers.note_sent();
        assert!(answers.hold(at - 10 * US));
        assert!(!answers.give_up(at));
        let again = answers.start_timer(at).unwrap();
        assert!(answers.give_up(again));
    }
}
