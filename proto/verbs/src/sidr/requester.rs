//! The client's side of a lookup: asks, repeats itself while nothing comes, and gives up in the end.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Message, TooLong, Verdict, REQUEST_OCTETS_MAX};

/// The pause before the second try; each one is twice the one before.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
/// The same at most.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
/// Requests that one lookup sends at most, so that who answers each with a challenge is not asked for ever.
const TRIES_MAX: u32 = 64;

/// What a lookup came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The listener's program decided so, and sent this along.
    Answered(Verdict, Vec<u8>),
    /// No answer came in time.
    TimedOut,
}

/// One lookup.
#[derive(Debug)]
pub struct Requester {
    lookup: u64,
    cookie: u64,
    private_data: Vec<u8>,
    tries: u32,
    due: bool,
    pause: Duration,
    again_at: Duration,
    give_up_at: Duration,
    outcome: Option<Outcome>,
    over: bool,
}

impl Requester {
    /// Begins a lookup that may take `timeout`. `lookup` is a random number that nobody else knows.
    ///
    /// # Errors
    /// More private data than a request has room for.
    pub fn new(
        lookup: u64,
        private_data: &[u8],
        now: Duration,
        timeout: Duration,
    ) -> Result<Requester, TooLong> {
        if private_data.len() > REQUEST_OCTETS_MAX {
            return Err(TooLong);
        }
        Ok(Requester {
            lookup,
            cookie: 0,
            private_data: private_data.to_vec(),
            tries: 0,
            due: true,
            pause: RETRY_DELAY_MIN,
            again_at: now + RETRY_DELAY_MIN,
            give_up_at: now + timeout,
            outcome: None,
            over: false,
        })
    }

    /// The request that is to be sent now.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        if self.over || !core::mem::take(&mut self.due) || self.tries == TRIES_MAX {
            return None;
        }
        self.tries += 1;
        // Before it has shown where it is the client tells nothing, and is told nothing.
        let private_data = match self.cookie {
            0 => &[],
            _ => &self.private_data[..],
        };
        let request = Message::Request {
            lookup: self.lookup,
            cookie: self.cookie,
            private_data,
        };
        Some(request.encode())
    }

    /// A datagram of the listener's socket.
    pub fn handle_datagram(&mut self, octets: &[u8], now: Duration) {
        if self.over {
            return;
        }
        match Message::parse(octets) {
            // The same challenge again is the answer to a request that was repeated.
            Some(Message::Challenge { lookup, cookie })
                if lookup == self.lookup && cookie != self.cookie =>
            {
                self.cookie = cookie;
                self.due = true;
                self.pause = RETRY_DELAY_MIN;
                self.again_at = now + self.pause;
            }
            Some(Message::Reply {
                lookup,
                verdict,
                private_data,
            }) if lookup == self.lookup => {
                self.end(Outcome::Answered(verdict, private_data.to_vec()));
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.over {
            return;
        }
        if now >= self.give_up_at {
            self.end(Outcome::TimedOut);
        } else if now >= self.again_at {
            self.due = true;
            self.pause = (self.pause * 2).min(RETRY_DELAY_MAX);
            self.again_at = now + self.pause;
        }
    }

    /// When [`Requester::handle_timeout`] is to be called.
    pub fn deadline(&self) -> Option<Duration> {
        (!self.over).then(|| self.again_at.min(self.give_up_at))
    }

    /// What it came to, once.
    pub fn poll_event(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    fn end(&mut self, outcome: Outcome) {
        self.over = true;
        self.outcome = Some(outcome);
    }
}
