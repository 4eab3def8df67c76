//! Sums of one connection.

/// Sums for statistics and experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Segments sent, each of a large frame's counted.
    pub segments_sent: u64,
    /// Octets of data sent, repeated ones too.
    pub octets_sent: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Recoveries begun.
    pub recoveries: u64,
    /// Tail loss probes.
    pub loss_probes: u64,
    /// Segments sent that carry nothing but an ACK.
    pub pure_acks: u64,
    /// Segments received.
    pub segments_received: u64,
    /// Octets of data received for the first time.
    pub octets_received: u64,
    /// Of these, octets that came before what precedes them.
    pub octets_behind_holes: u64,
    /// Challenge ACKs sent.
    pub challenges: u64,
    /// Segments dropped as old by their timestamps, or without one.
    pub old_segments: u64,
    /// The most ranges that ever stood behind holes.
    pub max_holes: usize,
    /// The most octets that ever stood behind holes.
    pub max_out_of_order: u64,
}
