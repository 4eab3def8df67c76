//! One segment that was sent and not yet acknowledged.

use super::seq::Position;
use core::time::Duration;

/// What is known of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Sent, nothing heard of it.
    InFlight,
    /// Counted lost, to be sent again.
    Lost,
    /// The peer has it, out of order.
    Sacked,
}

/// One segment, or one large frame of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its first position.
    pub start: Position,
    /// Behind its last position.
    pub end: Position,
    /// When it was sent last.
    pub sent: Duration,
    /// Number of that transmission; later ones have greater numbers.
    pub transmission: u64,
    /// Octets of each segment a large frame is cut into.
    pub segment: u32,
    /// What is known of it.
    pub status: Status,
    /// It was sent more than once.
    pub retransmitted: bool,
}

impl Record {
    /// Positions it takes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// It takes none. Does not occur.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }
}
