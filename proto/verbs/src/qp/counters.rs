//! What a queue pair counts.

/// Counts since the queue pair was connected.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpCounters {
    /// Send work requests completed, by success.
    pub sends_completed: u64,
    /// Receives completed.
    pub recvs_completed: u64,
    /// Octets of payload placed.
    pub octets_placed: u64,
    /// Octets of payload framed for sending.
    pub octets_framed: u64,
    /// DDP segments received.
    pub segments_in: u64,
    /// DDP segments framed.
    pub segments_out: u64,
    /// Work requests that ended in an error other than a flush.
    pub errors: u64,
    /// Times the peer reached for memory that it was not given.
    pub refused_accesses: u64,
}
