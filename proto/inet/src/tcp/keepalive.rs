//! Keep-alive and zero-window probes: both are a segment without data, one number before SND.UNA, which every TCP has
//! to answer (RFC 9293 sections 3.8.4 and 3.8.6.1).

use core::time::Duration;

/// When an idle connection is probed. Off unless the program asks (RFC 9293 section 3.8.4, MUST-25).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe (MUST-28: two hours unless the program says otherwise).
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer that end the connection.
    pub count: u32,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            count: 9,
        }
    }
}

/// Probes that were not answered.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    unanswered: u32,
    /// When the first of them left.
    since: Option<Duration>,
}

impl Probes {
    /// A probe leaves.
    pub fn sent(&mut self, now: Duration) {
        self.unanswered += 1;
        self.since.get_or_insert(now);
    }

    /// Something came from the peer.
    pub fn answered(&mut self) {
        *self = Probes::default();
    }

    /// How many are out.
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// How long nothing was heard.
    pub fn silence(&self, now: Duration) -> Duration {
        self.since
            .map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}
