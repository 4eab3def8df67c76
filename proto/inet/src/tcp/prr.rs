//! Proportional rate reduction (RFC 6937, RFC 9937): during a recovery what is sent follows what is delivered, so that
//! the window comes down to the threshold by its end, without a burst and without a pause.

/// One recovery.
#[derive(Clone, Debug)]
pub struct Prr {
    /// Flight when the recovery began.
    recover_flight: u64,
    delivered: u64,
    out: u64,
    threshold: u64,
}

impl Prr {
    /// A recovery begins with `flight` octets out, to end with a window of `threshold`.
    pub fn new(flight: u64, threshold: u64) -> Prr {
        Prr {
            recover_flight: flight.max(1),
            delivered: 0,
            out: 0,
            threshold,
        }
    }

    /// `octets` were sent, new ones or old.
    pub fn sent(&mut self, octets: u64) {
        self.out += octets;
    }

    /// An ACK delivered `octets`; `pipe` are in flight. `safe` says that it moved SND.UNA and found no further loss.
    /// Returns the window to use now.
    pub fn acknowledged(&mut self, octets: u64, pipe: u64, mss: u64, safe: bool) -> u64 {
        self.delivered += octets;
        let allowed = if pipe > self.threshold {
            let share = u128::from(self.delivered) * u128::from(self.threshold);
            let share = share.div_ceil(u128::from(self.recover_flight)) as u64;
            share.saturating_sub(self.out)
        } else {
            let conserved = self.delivered.saturating_sub(self.out);
            let limit = if safe {
                conserved.max(octets) + mss
            } else {
                conserved
            };
            limit.min(self.threshold - pipe)
        };
        // The first retransmission leaves at once (RFC 9937 section 6).
        let allowed = if self.out == 0 {
            allowed.max(mss)
        } else {
            allowed
        };
        pipe + allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_twenty_halves_over_one_round_trip() {
        let mss = 1000;
        let mut prr = Prr::new(20 * mss, 10 * mss);
        let mut pipe = 19 * mss;
        let mut sent = 0;
        for _ in 0..18 {
            pipe -= mss;
            let window = prr.acknowledged(mss, pipe, mss, false);
            while pipe + mss <= window {
                prr.sent(mss);
                pipe += mss;
                sent += 1;
            }
        }
        assert!((8..=10).contains(&sent), "{sent}");
        assert!((9 * mss..=10 * mss).contains(&pipe), "{pipe}");
    }

    #[test]
    fn below_the_threshold_it_grows_like_slow_start_when_safe() {
        let mut prr = Prr::new(10_000, 5_000);
        prr.sent(1_000);
        assert_eq!(prr.acknowledged(1_000, 2_000, 1_000, true), 4_000);
        prr.sent(2_000);
        assert_eq!(prr.acknowledged(1_000, 2_000, 1_000, false), 2_000);
    }
}
