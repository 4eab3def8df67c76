//! The client: one question, until it is settled.

use core::time::Duration;

use crate::message::{Answer, Question};

/// The least that a client waits for the answer, counted from when its connection stood: the other end's thread has to
/// get a core. Below it a busy machine on the same switch would seem to be none of Weft's.
pub const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(5);
/// The most: who is farther away than this has more to fear from waiting than to hope from DDP.
pub const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// What became of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing yet; it is over at that time. `None`: the connection does not stand yet, and nobody waits for more.
    Waits(Option<Duration>),
    /// The other end is Weft.
    Yes,
    /// It is not, or nobody can tell.
    No,
}

/// A question that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asking {
    question: Question,
    sent_at: Duration,
    over_at: Option<Duration>,
    settled: Option<bool>,
    answer: Option<Answer>,
}

impl Asking {
    /// The question has just been sent, with the SYN.
    pub fn new(question: Question, now: Duration) -> Asking {
        Asking {
            question,
            sent_at: now,
            over_at: None,
            settled: None,
            answer: None,
        }
    }

    /// The question has just been sent, and nobody waits for its answer, so that it may take as long as any.
    pub fn unhurried(question: Question, now: Duration) -> Asking {
        Asking {
            over_at: Some(now.saturating_add(ANSWER_TIMEOUT_MAX)),
            ..Asking::new(question, now)
        }
    }

    /// What was asked.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// The connection stands: what is left of the answer's time begins. The SYN and its answer took one round trip, and
    /// the answer is waited for no longer than one more.
    pub fn handle_connected(&mut self, now: Duration) {
        if self.over_at.is_none() {
            let round_trip = now.saturating_sub(self.sent_at);
            let timeout = round_trip.clamp(ANSWER_TIMEOUT_MIN, ANSWER_TIMEOUT_MAX);
            self.over_at = Some(now + timeout);
        }
    }

    /// A datagram came from where the question went. What is not its answer is passed over: somebody may guess.
    pub fn handle_datagram(&mut self, octets: &[u8]) {
        if self.settled.is_some() {
            return;
        }
        if let Some(answer) = self.question.answer(octets) {
            self.settled = Some(true);
            self.answer = Some(answer);
        }
    }

    /// What the answer says, if one came in time.
    pub fn answer(&self) -> Option<Answer> {
        self.answer
    }

    /// The network says that nobody is there to answer (ICMP).
    pub fn handle_unreachable(&mut self) {
        self.settled.get_or_insert(false);
    }

    /// What became of it. Who is told that it is over is told so from then on, whatever comes later.
    pub fn poll_outcome(&mut self, now: Duration) -> Outcome {
        if self.settled.is_none() && self.over_at.is_some_and(|at| now >= at) {
            self.settled = Some(false);
        }
        match self.settled {
            None => Outcome::Waits(self.over_at),
            Some(true) => Outcome::Yes,
            Some(false) => Outcome::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{About, Connection, End};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn asking() -> Asking {
        let end = |port| End::new([192, 0, 2, 1].into(), port);
        let connection = Connection {
            about: About::Stream,
            client: end(1),
            server: end(2),
        };
        let nonce = [7; 16];
        Asking::new(Question { connection, nonce }, ms(100))
    }

    #[test]
    fn nothing_is_over_before_the_connection_stands() {
        let mut asking = asking();
        assert_eq!(asking.poll_outcome(ms(90_000)), Outcome::Waits(None));
    }

    #[test]
    fn the_answer_has_one_more_round_trip() {
        for (stands_at, over_at) in [(120, 140), (101, 106), (100, 105), (5100, 6100)] {
            let mut asking = asking();
            asking.handle_connected(ms(stands_at));
            asking.handle_connected(ms(stands_at + 1));
            assert_eq!(
                asking.poll_outcome(ms(stands_at)),
                Outcome::Waits(Some(ms(over_at)))
            );
            assert_eq!(asking.poll_outcome(ms(over_at)), Outcome::No);
        }
    }

    #[test]
    fn who_is_in_no_hurry_waits_a_second() {
        let question = *asking().question();
        let mut asking = Asking::unhurried(question, ms(100));
        assert_eq!(
            asking.poll_outcome(ms(1099)),
            Outcome::Waits(Some(ms(1100)))
        );
        asking.handle_datagram(&question.yes());
        assert_eq!(asking.answer(), Some(Answer::Yes));
        let mut late = Asking::unhurried(question, ms(100));
        assert_eq!(late.poll_outcome(ms(1100)), Outcome::No);
        late.handle_datagram(&question.yes());
        assert_eq!(late.answer(), None);
    }

    #[test]
    fn a_yes_counts_until_somebody_was_told_no() {
        let mut asked = asking();
        let yes = asked.question().yes();
        asked.handle_datagram(b"something else");
        asked.handle_datagram(&yes);
        asked.handle_unreachable();
        asked.handle_connected(ms(101));
        assert_eq!(asked.poll_outcome(ms(1000)), Outcome::Yes);
        let mut late = asking();
        late.handle_connected(ms(101));
        assert_eq!(late.poll_outcome(ms(107)), Outcome::No);
        late.handle_datagram(&yes);
        assert_eq!(late.poll_outcome(ms(107)), Outcome::No);
    }

    #[test]
    fn who_is_unreachable_is_not_waited_for() {
        let mut asking = asking();
        asking.handle_unreachable();
        assert_eq!(asking.poll_outcome(ms(100)), Outcome::No);
    }
}
