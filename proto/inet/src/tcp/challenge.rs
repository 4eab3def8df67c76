//! Challenge ACKs, and how many (RFC 5961).
//!
//! The limit is kept for each connection: a limit shared by all would tell an attacker about the others.

use core::time::Duration;

/// Challenge ACKs, and ACKs of segments outside of the window, in one second (RFC 5961 section 7).
const CHALLENGES_PER_SECOND_MAX: u32 = 10;

/// The limiter of one connection.
#[derive(Clone, Debug, Default)]
pub struct Challenges {
    second: u64,
    sent: u32,
}

impl Challenges {
    /// One may be sent now; it counts as sent.
    pub fn allow(&mut self, now: Duration) -> bool {
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.sent = 0;
        }
        self.sent += 1;
        self.sent <= CHALLENGES_PER_SECOND_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_a_second() {
        let mut challenges = Challenges::default();
        let allowed = (0..100)
            .filter(|_| challenges.allow(Duration::from_secs(3)))
            .count();
        assert_eq!(allowed, 10);
        assert!(challenges.allow(Duration::from_secs(4)));
    }
}
