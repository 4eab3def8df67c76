//! Tail loss probes (RFC 8985 section 7): when nothing is heard for about two round trips, one segment is sent to make
//! the peer say what it has, long before the retransmission timer would.
//!
//! RFC 8985 sends one, and none during a recovery. But RACK finds a lost retransmission by something sent after it, and
//! when the retransmission was the last thing that could be sent (the end of the data, or a window that the hole keeps
//! shut) only the timer is left: 200 ms on a path of 1 ms. Where losses are no sign of congestion, a silent repair is
//! probed too, as RFC 9002 section 6.2 does in all states: with the first segment that is missing, each time after
//! twice the wait.

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
    /// Probes of a repair since anything was delivered.
    repairs: u32,
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

    /// Time from now until a repair is probed.
    pub fn repair_timeout(&self, srtt: Option<Duration>) -> Duration {
        Tlp::timeout(srtt, false) * 2u32.pow(self.repairs.min(16))
    }

    /// A repair was probed.
    pub fn repaired(&mut self) {
        self.repairs += 1;
    }

    /// Something was delivered, or the retransmission timer expired: waits are short again.
    pub fn progress(&mut self) {
        self.repairs = 0;
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
    fn a_repair_is_probed_ever_more_slowly() {
        let mut tlp = Tlp::default();
        let srtt = Some(Duration::from_millis(9));
        for millis in [20, 40, 80] {
            assert_eq!(tlp.repair_timeout(srtt), Duration::from_millis(millis));
            tlp.repaired();
        }
        tlp.progress();
        assert_eq!(tlp.repair_timeout(srtt), Duration::from_millis(20));
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
