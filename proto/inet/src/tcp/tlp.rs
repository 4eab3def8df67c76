//! Tail loss probes (RFC 8985 section 7): when nothing is heard for about two round trips, one segment is sent to make
//! the peer say what it has, long before the retransmission timer would.

use super::seq::Position;
use core::time::Duration;

/// How long a peer may delay its ACK of a single segment (RFC 8985 section 7.2).
const WORST_ACK_DELAY: Duration = Duration::from_millis(200);

/// Added to two round trips, so that a path of microseconds does not take a peer's scheduling for a loss.
const SLACK: Duration = Duration::from_millis(2);

/// The probe that is out, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Tlp {
    episode: Option<Episode>,
}

#[derive(Clone, Copy, Debug)]
struct Episode {
    /// SND.NXT when the probe went out.
    end: Position,
    /// The probe was a segment sent before, not new data.
    retransmission: bool,
}

/// What an ACK says about the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing yet, or nothing was lost.
    Nothing,
    /// The probe itself repaired a loss, which has to count as a sign of congestion.
    Repaired,
}

impl Tlp {
    /// Time from now until the probe (RFC 8985 section 7.2).
    pub fn timeout(srtt: Option<Duration>, one_segment: bool) -> Duration {
        match srtt {
            None => Duration::from_secs(1),
            Some(srtt) if one_segment => srtt * 2 + WORST_ACK_DELAY,
            Some(srtt) => srtt * 2 + SLACK,
        }
    }

    /// A probe is out: there is at most one.
    pub fn is_out(&self) -> bool {
        self.episode.is_some()
    }

    /// A probe was sent; `end` is SND.NXT behind it.
    pub fn sent(&mut self, end: Position, retransmission: bool) {
        self.episode = Some(Episode {
            end,
            retransmission,
        });
    }

    /// An ACK came (RFC 8985 section 7.4). `duplicate` is a DSACK of the probe, `bare` an ACK without data or SACK that
    /// acknowledges nothing new.
    pub fn acknowledged(&mut self, ack: Position, duplicate: bool, bare: bool) -> Verdict {
        let Some(episode) = self.episode else {
            return Verdict::Nothing;
        };
        if ack < episode.end {
            return Verdict::Nothing;
        }
        if !episode.retransmission || duplicate {
            self.episode = None;
            return Verdict::Nothing;
        }
        if ack > episode.end {
            self.episode = None;
            return Verdict::Repaired;
        }
        if bare {
            self.episode = None;
        }
        Verdict::Nothing
    }

    /// Recovery takes over.
    pub fn cancel(&mut self) {
        self.episode = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_was_needed_counts_as_loss() {
        let mut tlp = Tlp::default();
        tlp.sent(101, true);
        assert!(tlp.is_out());
        assert_eq!(tlp.acknowledged(50, false, false), Verdict::Nothing);
        assert_eq!(tlp.acknowledged(101, false, false), Verdict::Nothing);
        assert_eq!(tlp.acknowledged(201, false, false), Verdict::Repaired);
        assert!(!tlp.is_out());
    }

    #[test]
    fn a_probe_that_was_not_needed_costs_nothing() {
        for (retransmission, duplicate, bare) in [
            (false, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let mut tlp = Tlp::default();
            tlp.sent(101, retransmission);
            assert_eq!(tlp.acknowledged(101, duplicate, bare), Verdict::Nothing);
            assert!(!tlp.is_out());
        }
    }
}
