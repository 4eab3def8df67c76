//! What is counted of octets that arrive ahead of order.

use crate::qp::Waits;

/// Counts since the stream began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlacingCounters {
    /// FPDUs placed ahead of order.
    pub placed_fpdus: u64,
    /// Octets of their payload.
    pub placed_octets: u64,
    /// Octets that arrived ahead of order and had to be kept.
    pub kept_octets: u64,
    /// FPDUs, or segments in which none was found, that had to wait, by reason ([`Waits::ALL`]).
    pub waits: [u64; Waits::ALL.len()],
    /// Placed FPDUs that turned out to be octets of another one.
    pub recalled_fpdus: u64,
    /// Of these, the one whose octets could not be had back, for which the connection ended.
    pub lost_fpdus: u64,
}

impl PlacingCounters {
    /// How many waited for this reason.
    pub fn waited(&self, why: Waits) -> u64 {
        self.waits[why as usize]
    }

    pub(super) fn note(&mut self, why: Waits) {
        self.waits[why as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        for (n, why) in Waits::ALL.into_iter().enumerate() {
            let mut counters = PlacingCounters::default();
            counters.note(why);
            assert_eq!((counters.waits[n], counters.waited(why)), (1, 1), "{why:?}");
        }
    }
}
