//! What time brings: proofs again, pings, the end of a carrier that nobody uses.

use core::time::Duration;

use super::{Carrier, State, IDLE_TIMEOUT, PING_AFTER, PING_TIMEOUT};
use crate::control::{Control, Why};

impl Carrier {
    /// When the ping is due, or its answer.
    fn silence_deadline(&self) -> Option<Duration> {
        match (self.ping_at, self.sent_at) {
            (Some(ping_at), _) => Some(ping_at.saturating_add(PING_TIMEOUT)),
            (None, Some(sent_at)) => Some(sent_at.max(self.heard_at).saturating_add(PING_AFTER)),
            (None, None) => None,
        }
    }

    /// When the carrier ends for want of use.
    fn idle_deadline(&self) -> Duration {
        let idle = self.used_at.saturating_add(IDLE_TIMEOUT);
        self.unproven_until.unwrap_or(idle).min(idle)
    }

    /// When to call [`Carrier::handle_timeout`].
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Closed => return None,
            State::Greeting(until) => return Some(until),
            State::Up | State::Draining(_) => {}
        }
        let deadlines = [
            Some(self.idle_deadline()),
            self.silence_deadline(),
            self.outgoing.deadline(),
            self.incoming.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        match self.state {
            State::Closed => return,
            State::Greeting(until) if now >= until => return self.end(Why::Ends),
            State::Greeting(_) => return,
            State::Up | State::Draining(_) => {}
        }
        self.handle_proofs_due(now);
        if now >= self.idle_deadline() {
            return self.shut(Why::Idle, now);
        }
        if self.silence_deadline().is_none_or(|at| now < at) {
            return;
        }
        if self.ping_at.is_some() {
            return self.end(Why::Ends);
        }
        self.pings = self.pings.wrapping_add(1);
        self.say(Control::Ping { number: self.pings }, now);
        self.ping_at = Some(now);
    }

    fn handle_proofs_due(&mut self, now: Duration) {
        while let Some((proof, from, to)) = self.outgoing.poll_again(now) {
            self.prove(proof, from, to);
        }
        while let Some(channel) = self.outgoing.poll_late(now) {
            let why = Why::NoProof;
            self.close(channel, why, now);
            self.events.push_back(super::Event::Lost { channel, why });
        }
        while let Some(channel) = self.incoming.poll_late(now) {
            self.refuse(channel, Why::NoProof, now);
            // The driver has not said so itself, and keeps something for each.
            let mark = None;
            self.events
                .push_back(super::Event::Finished { channel, mark });
        }
        self.incoming.forget_marks(now);
    }
}
