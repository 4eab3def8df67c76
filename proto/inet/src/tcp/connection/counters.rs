//! What a connection tells of itself: its sums, and how it sends.

use super::super::congestion::Algorithm;
use super::Connection;
use core::time::Duration;

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

impl Connection {
    /// Smoothed round-trip time, once there is one.
    pub fn srtt(&self) -> Option<Duration> {
        self.send.rtt.smoothed()
    }

    /// The least round-trip time of the last minutes, once there is one. The smoothed one has in it what the other end
    /// waits before it acknowledges.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.send.rtt.minimum()
    }

    /// Octets a second at which it sends, where it is paced.
    pub fn rate(&self) -> Option<u64> {
        self.send.rate()
    }

    /// Its congestion control.
    pub fn algorithm(&self) -> Algorithm {
        self.config.algorithm
    }

    /// Octets the congestion control allows in flight.
    pub fn congestion_window(&self) -> u64 {
        self.send.control.window()
    }
}
