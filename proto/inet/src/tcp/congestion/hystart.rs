//! HyStart++ (RFC 9406): slow start ends when the round trip grows, before the queue overflows.
//!
//! Section 4.3 also bounds what one ACK adds where nothing paces. That is left out: an ACK may stand for any number of
//! segments here, and a bound for each ACK would take from those connections whose ACKs are thinned.

use super::Acknowledged;
use crate::tcp::seq::Position;
use core::time::Duration;

/// A round counts with so many samples (section 4.3, N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// MIN_RTT_THRESH and MAX_RTT_THRESH.
const THRESHOLDS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// MIN_RTT_DIVISOR.
const DIVISOR: u32 = 8;
/// CSS_GROWTH_DIVISOR: how much more slowly conservative slow start grows.
pub const CONSERVATIVE: f64 = 4.0;
/// CSS_ROUNDS: rounds of conservative slow start until congestion avoidance.
const ROUNDS: u32 = 5;

/// What an ACK in slow start may do to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// As in slow start.
    Full,
    /// In conservative slow start: divided by [`CONSERVATIVE`].
    Slow,
    /// Slow start is over.
    None,
}

/// The first slow start of a connection.
#[derive(Clone, Debug, Default)]
pub struct HyStart {
    /// The round ends when this is acknowledged.
    round_end: Position,
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
}

#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The round trip that made slow start slower.
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    /// An ACK came in slow start.
    pub fn acknowledged(&mut self, news: &Acknowledged) -> Growth {
        if let Some(rtt) = news.rtt {
            self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        self.judge();
        if news.una >= self.round_end {
            self.next_round(news.nxt);
        }
        match &self.conservative {
            None => Growth::Full,
            Some(conservative) if conservative.rounds < ROUNDS => Growth::Slow,
            Some(_) => Growth::None,
        }
    }

    fn judge(&mut self) {
        let Some(current) = self.current.filter(|_| self.samples >= SAMPLES) else {
            return;
        };
        match (&self.conservative, self.last) {
            (None, Some(last)) => {
                let (least, most) = THRESHOLDS;
                if current >= last + (last / DIVISOR).clamp(least, most) {
                    self.conservative = Some(Conservative {
                        baseline: current,
                        rounds: 0,
                    });
                }
            }
            // It was jitter: the path is as short as before.
            (Some(conservative), _) if current < conservative.baseline => self.conservative = None,
            _ => {}
        }
    }

    fn next_round(&mut self, end: Position) {
        self.round_end = end;
        self.last = self.current.take();
        self.samples = 0;
        if let Some(conservative) = &mut self.conservative {
            conservative.rounds += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ten ACKs with this round trip; the growth after the last of them.
    fn round(hystart: &mut HyStart, at: &mut Position, rtt_ms: u64) -> Growth {
        let mut growth = Growth::None;
        for _ in 0..10 {
            *at += 1;
            growth = hystart.acknowledged(&Acknowledged {
                octets: 1,
                srtt: Duration::ZERO,
                min_rtt: Duration::ZERO,
                rtt: Some(Duration::from_millis(rtt_ms)),
                una: *at,
                nxt: *at + 10,
                limited: true,
                now: Duration::ZERO,
            });
        }
        growth
    }

    #[test]
    fn a_growing_round_trip_ends_slow_start_after_five_slow_rounds() {
        let (mut hystart, mut at) = (HyStart::default(), 0);
        assert_eq!(round(&mut hystart, &mut at, 20), Growth::Full);
        assert_eq!(round(&mut hystart, &mut at, 22), Growth::Full, "below 4 ms");
        let rounds = (0..20)
            .take_while(|_| round(&mut hystart, &mut at, 30) != Growth::None)
            .count();
        assert!((5..=6).contains(&rounds), "{rounds}");
    }

    #[test]
    fn jitter_is_forgiven() {
        let (mut hystart, mut at) = (HyStart::default(), 0);
        round(&mut hystart, &mut at, 20);
        assert_eq!(round(&mut hystart, &mut at, 30), Growth::Slow);
        round(&mut hystart, &mut at, 20);
        assert_eq!(round(&mut hystart, &mut at, 20), Growth::Full);
    }
}
