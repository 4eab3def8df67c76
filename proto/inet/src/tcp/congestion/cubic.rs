//! CUBIC (RFC 9438).

use super::hystart::{Growth, HyStart, CONSERVATIVE};
use super::{initial_window, Acknowledged, Control};
use core::time::Duration;

/// Multiplicative decrease (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Aggressiveness, segments per second cubed (RFC 9438 section 5).
const C: f64 = 0.4;
/// Additive increase that makes the average window that of Reno (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC's state. Windows are kept in segments, as in the RFC.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: u64,
    window: f64,
    threshold: f64,
    /// Window before the last reduction, or somewhat less after two in a row (fast convergence).
    w_max: f64,
    /// Window before the last reduction.
    prior: f64,
    epoch: Option<Epoch>,
    /// Until the first loss or the end of the first slow start (RFC 9406 section 4.3).
    hystart: Option<HyStart>,
}

/// Congestion avoidance since the last reduction.
#[derive(Clone, Debug)]
struct Epoch {
    start: Duration,
    /// Seconds from the start until the window is at `w_max` again.
    k: f64,
    /// What Reno's window would be.
    w_est: f64,
}

impl Cubic {
    /// Before the first segment.
    pub fn new(mss: u64) -> Cubic {
        Cubic {
            mss,
            window: initial_window(mss) as f64 / mss as f64,
            threshold: f64::INFINITY,
            w_max: 0.0,
            prior: 0.0,
            epoch: None,
            hystart: Some(HyStart::default()),
        }
    }

    /// How fast slow start grows; ends it when the round trip grows (RFC 9406).
    fn slow_start(&mut self, news: &Acknowledged) -> f64 {
        let growth = self
            .hystart
            .as_mut()
            .map_or(Growth::Full, |hystart| hystart.acknowledged(news));
        match growth {
            Growth::Full => 1.0,
            Growth::Slow => 1.0 / CONSERVATIVE,
            Growth::None => {
                self.hystart = None;
                self.threshold = self.window;
                1.0
            }
        }
    }

    fn avoid(&mut self, segments: f64, news: &Acknowledged) {
        let window = self.window;
        let w_max = self.w_max.max(window);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: news.now,
            k: cube_root((w_max - window) / C),
            w_est: window,
        });
        let t = (news.now.saturating_sub(epoch.start)).as_secs_f64();
        let cubic = |t: f64| {
            let from_plateau = t - epoch.k;
            C * from_plateau * from_plateau * from_plateau + w_max
        };
        // Section 4.3: never slower than Reno.
        let alpha = if epoch.w_est >= self.prior {
            1.0
        } else {
            ALPHA
        };
        epoch.w_est += alpha * segments / window;
        let grown = if cubic(t) < epoch.w_est {
            epoch.w_est
        } else {
            // Sections 4.4 and 4.5: aim at where the curve will be one round trip from now, at most half as much again.
            let target = cubic(t + news.srtt.as_secs_f64()).clamp(window, 1.5 * window);
            window + (target - window) / window * segments
        };
        self.window = grown.max(window);
    }

    fn reduce(&mut self, flight: u64) {
        let flight = flight as f64 / self.mss as f64;
        // Section 4.7, fast convergence: two reductions without growth between leave room to others.
        self.w_max = if self.window < self.w_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.prior = self.window;
        self.hystart = None;
        self.threshold = (flight.min(self.window) * BETA).max(2.0);
        self.epoch = None;
    }
}

impl Control for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn window(&self) -> u64 {
        (self.window * self.mss as f64) as u64
    }

    fn threshold(&self) -> u64 {
        (self.threshold * self.mss as f64) as u64
    }

    fn acknowledged(&mut self, news: &Acknowledged) {
        if !news.limited {
            self.slow_start(news);
            // Section 5.8: time in which the program had nothing to send does not count.
            if let Some(epoch) = &mut self.epoch {
                epoch.start += news.srtt.min(news.now.saturating_sub(epoch.start)) / 16;
            }
            return;
        }
        let mut segments = news.octets as f64 / self.mss as f64;
        let factor = self.slow_start(news);
        if self.window < self.threshold {
            let growth = (segments * factor).min(self.threshold - self.window);
            self.window += growth;
            segments -= growth / factor;
        }
        if segments > 0.0 {
            self.avoid(segments, news);
        }
    }

    fn congestion(&mut self, flight: u64, _now: Duration) {
        self.reduce(flight);
        self.window = self.threshold;
    }

    fn recovered(&mut self, _now: Duration) {
        self.window = self.threshold;
    }

    fn timeout(&mut self, flight: u64, first: bool, _now: Duration) {
        if first {
            self.reduce(flight);
        }
        self.window = 1.0;
        self.epoch = None;
    }

    fn idle(&mut self) {
        let initial = initial_window(self.mss) as f64 / self.mss as f64;
        self.window = self.window.min(initial);
        self.epoch = None;
    }

    fn set_mss(&mut self, mss: u64) {
        let scale = self.mss as f64 / mss as f64;
        self.window = (self.window * scale).max(1.0);
        self.threshold *= scale;
        self.w_max *= scale;
        self.prior *= scale;
        self.mss = mss;
        self.epoch = None;
    }
}

/// Newton's method; `core` has no cube root.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = f64::from_bits(x.to_bits() / 3 + (1023u64 << 52) / 3 * 2);
    for _ in 0..6 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for x in [1e-6f64, 0.5, 1.0, 8.0, 1234.5, 1e12] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-9, "{x} {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    /// Without loss the window is back at its old size after K seconds, as section 4.2 says.
    #[test]
    fn the_curve_is_back_at_its_plateau_after_k() {
        let mut cubic = Cubic::new(1000);
        cubic.window = 1000.0;
        cubic.congestion(1_000_000, Duration::ZERO);
        assert_eq!(cubic.window(), 700_000);
        let k = cube_root(300.0 / C);
        let rtt = Duration::from_millis(100);
        let mut now = Duration::ZERO;
        while now.as_secs_f64() < k {
            now += rtt;
            cubic.acknowledged(&Acknowledged {
                octets: cubic.window(),
                srtt: rtt,
                min_rtt: rtt,
                rtt: Some(rtt),
                una: 0,
                nxt: 0,
                limited: true,
                now,
            });
        }
        let segments = cubic.window() / 1000;
        assert!((980..=1020).contains(&segments), "{segments} after {k} s");
    }

    #[test]
    fn fast_convergence_gives_room() {
        let mut cubic = Cubic::new(1000);
        cubic.window = 100.0;
        cubic.congestion(100_000, Duration::ZERO);
        cubic.congestion(70_000, Duration::ZERO);
        assert!((cubic.w_max - 59.5).abs() < 0.1, "{}", cubic.w_max);
    }
}
