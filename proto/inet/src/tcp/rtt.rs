//! Round-trip time and the retransmission timeout (RFC 6298).

use core::time::Duration;

/// The estimator of one connection.
#[derive(Clone, Debug)]
pub struct Rtt {
    /// SRTT and RTTVAR in nanoseconds, once there was a sample: they are computed with nearly every segment.
    smoothed: Option<u64>,
    variation: u64,
    minimum: WindowedMinimum,
    /// Exponent of the back-off: how often the timer expired since the last progress.
    backoff: u32,
    /// Nanoseconds that the timeout never goes below.
    floor: u64,
    /// The timeout, backed off: asked for with every segment sent, changed with every sample.
    timeout: Duration,
}

/// RTO before the first sample, in nanoseconds (RFC 6298 section 2.1).
const INITIAL_RTO_NS: u64 = 1_000_000_000;
/// RTO at most, in nanoseconds (RFC 6298 section 2.5 allows no less than 60 s).
const RTO_MAX_NS: u64 = 60_000_000_000;
/// The clock is exact to nanoseconds; G of RFC 6298 is the precision we claim.
const GRANULARITY_NS: u64 = 1_000_000;
/// The longest sample that is computed with.
const SAMPLE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a minimum counts, so that a longer path is noticed (RFC 8985 section 6.2 step 1 leaves the time to us).
const MINIMUM_AGE: Duration = Duration::from_secs(300);

impl Rtt {
    /// An estimator whose timeout never goes below `floor`. RFC 6298 section 2.4 asks for 1 s; with timestamps and SACK
    /// 200 ms is what the field uses.
    pub fn new(floor: Duration) -> Rtt {
        let mut rtt = Rtt {
            smoothed: None,
            variation: 0,
            minimum: WindowedMinimum::default(),
            backoff: 0,
            floor: nanos(floor),
            timeout: Duration::ZERO,
        };
        rtt.set_timeout();
        rtt
    }

    /// Takes a sample (RFC 6298 sections 2.2 and 2.3).
    pub fn sample(&mut self, rtt: Duration, now: Duration) {
        self.minimum.update(rtt, now);
        // A round trip of more than a day is none.
        let rtt = nanos(rtt.min(SAMPLE_MAX));
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                let difference = smoothed.abs_diff(rtt);
                self.variation = self.variation * 3 / 4 + difference / 4;
                self.smoothed = Some(smoothed * 7 / 8 + rtt / 8);
            }
        }
        self.set_timeout();
    }

    /// SRTT, when there was a sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(Duration::from_nanos)
    }

    /// The least RTT of the last minutes, when there was a sample.
    pub fn minimum(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.minimum.value)
    }

    /// The timeout, backed off.
    pub fn rto(&self) -> Duration {
        self.timeout
    }

    fn set_timeout(&mut self) {
        let base = match self.smoothed {
            None => INITIAL_RTO_NS,
            Some(smoothed) => {
                let spread = (self.variation * 4).max(GRANULARITY_NS);
                (smoothed + spread).max(self.floor)
            }
        };
        let backed_off = base.saturating_mul(1 << self.backoff.min(16));
        self.timeout = Duration::from_nanos(backed_off.min(RTO_MAX_NS.max(self.floor)));
    }

    /// The timer expired (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.backoff += 1;
        self.set_timeout();
    }

    /// How often the timer expired since the last progress.
    pub fn backoffs(&self) -> u32 {
        self.backoff
    }

    /// New data was acknowledged: the timer starts at its plain value again.
    pub fn progress(&mut self) {
        if self.backoff > 0 {
            self.backoff = 0;
            self.set_timeout();
        }
    }
}

/// A length of time in nanoseconds; one that is too long for them as the longest.
#[inline]
fn nanos(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(time.subsec_nanos().into())
}

#[derive(Clone, Debug, Default)]
struct WindowedMinimum {
    value: Duration,
    since: Option<Duration>,
}

impl WindowedMinimum {
    fn update(&mut self, rtt: Duration, now: Duration) {
        let expired = self
            .since
            .is_none_or(|since| now.saturating_sub(since) > MINIMUM_AGE);
        if expired || rtt <= self.value {
            self.value = rtt;
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn first_sample_and_convergence() {
        let mut rtt = Rtt::new(200 * MS);
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        rtt.sample(100 * MS, Duration::ZERO);
        assert_eq!(rtt.rto(), 300 * MS);
        for _ in 0..100 {
            rtt.sample(100 * MS, Duration::ZERO);
        }
        assert_eq!(rtt.rto(), 200 * MS);
    }

    #[test]
    fn back_off_doubles_and_progress_ends_it() {
        let mut rtt = Rtt::new(200 * MS);
        rtt.sample(10 * MS, Duration::ZERO);
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), 800 * MS);
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), Duration::from_secs(60));
        rtt.progress();
        assert_eq!(rtt.rto(), 200 * MS);
    }

    #[test]
    fn the_minimum_is_forgotten_after_minutes() {
        let mut rtt = Rtt::new(200 * MS);
        rtt.sample(10 * MS, Duration::ZERO);
        rtt.sample(50 * MS, Duration::from_secs(100));
        assert_eq!(rtt.minimum(), Some(10 * MS));
        rtt.sample(50 * MS, Duration::from_secs(400));
        assert_eq!(rtt.minimum(), Some(50 * MS));
    }
}
