//! How quantities are written on the command line: `20ms`, `1Gbit`, `0.01%`.

use std::time::Duration;

/// A queue before a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Queue {
    /// So many octets.
    Octets(u64),
    /// What the rate passes in this time.
    Time(Duration),
}

/// Loss in bursts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BurstLoss {
    /// Share of all frames that is lost, from 0 to 1.
    pub share: f64,
    /// Frames of a burst on average.
    pub frames: f64,
    /// Share that is lost within a burst.
    pub within: f64,
}

/// Frames that are held back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reorder {
    /// Share of all frames, from 0 to 1.
    pub share: f64,
    /// For how long; others overtake them meanwhile.
    pub extra: Duration,
}

/// For how long a frame is held back where nothing else was asked for.
const USUAL_EXTRA: Duration = Duration::from_millis(1);

/// A time with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
    ];
    const MOST_S: f64 = 1e7;
    let hint = "give a time with its unit, such as 20ms, 150us or 1.5s";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let seconds = with_unit(text, &UNITS).ok_or(hint)?;
    if seconds > MOST_S {
        return Err("that is longer than anybody will wait".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Bits per second.
pub fn rate(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 4] = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    const LEAST: f64 = 1000.0;
    const MOST: f64 = 1e12;
    let lower = text.to_ascii_lowercase();
    let plain = lower.strip_suffix("/s").unwrap_or(&lower);
    let rate = with_unit(plain, &UNITS).ok_or("give bits per second, such as 1Gbit or 100Mbit")?;
    if (LEAST..=MOST).contains(&rate) {
        Ok(rate as u64)
    } else {
        Err("give a rate from 1kbit to 1000Gbit".to_owned())
    }
}

/// A part of all frames, from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    let hint = "give a percentage with its sign, from 0% to 100%, such as 0.01%";
    let percent = with_unit(text, &[("%", 1.0)]).ok_or(hint)?;
    if percent <= 100.0 {
        Ok(percent / 100.0)
    } else {
        Err(hint.to_owned())
    }
}

/// Octets, or the time that they take.
pub fn queue(text: &str) -> Result<Queue, String> {
    const UNITS: [(&str, f64); 6] = [
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GB", 1e9),
    ];
    if let Some(octets) = with_unit(text, &UNITS) {
        return Ok(Queue::Octets(octets as u64));
    }
    let hint = "give octets, such as 256kB or 1MiB, or the time that the rate takes for them, such as 20ms";
    duration(text).map(Queue::Time).map_err(|_| hint.to_owned())
}

/// `SHARE` or `SHARE:EXTRA`.
pub fn reorder(text: &str) -> Result<Reorder, String> {
    let (of, extra) = match text.split_once(':') {
        Some((of, extra)) => (of, duration(extra)?),
        None => (text, USUAL_EXTRA),
    };
    let share = share(of)?;
    Ok(Reorder { share, extra })
}

/// `SHARE:FRAMES` or `SHARE:FRAMES:WITHIN`.
pub fn burst_loss(text: &str) -> Result<BurstLoss, String> {
    let hint = "give the share lost, the mean length of a burst in frames and, if not all of it is lost, the share \
                lost within: 1%:20 or 1%:20:50%";
    let mut parts = text.split(':');
    let (Some(of), Some(frames)) = (parts.next(), parts.next()) else {
        return Err(hint.to_owned());
    };
    let within = parts.next().map_or(Ok(1.0), share)?;
    let of = share(of)?;
    let frames: f64 = frames.parse().map_err(|_| hint)?;
    let sound = frames.is_finite() && frames >= 1.0 && parts.next().is_none();
    if !sound {
        return Err(hint.to_owned());
    }
    if of >= within {
        return Err("more cannot be lost of all frames than within bursts".to_owned());
    }
    let burst = BurstLoss {
        share: of,
        frames,
        within,
    };
    if burst.to_bad() > 1.0 {
        return Err("so much loss needs longer bursts".to_owned());
    }
    Ok(burst)
}

impl BurstLoss {
    /// Probability to leave a burst with each frame.
    pub fn to_good(self) -> f64 {
        1.0 / self.frames
    }

    /// Probability to enter a burst with each frame, so that in the long run the share is lost: bursts then have the
    /// part `share / within` of all frames.
    pub fn to_bad(self) -> f64 {
        let part = self.share / self.within;
        self.to_good() * part / (1.0 - part)
    }
}

/// A number that is not negative, in the unit that stands behind it.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(rate("1Gbit"), Ok(1_000_000_000));
        assert_eq!(rate("2.5mbit/s"), Ok(2_500_000));
        assert_eq!(share("0.01%"), Ok(0.0001));
        assert_eq!(queue("256kB"), Ok(Queue::Octets(256_000)));
        assert_eq!(queue("20ms"), Ok(Queue::Time(Duration::from_millis(20))));
    }

    #[test]
    fn what_has_none_or_another_is_refused_with_an_example() {
        for bad in [
            "50",
            "ms",
            "-1ms",
            "1e3ms",
            "5 parsecs",
            "",
            "1h1s",
            "99999999h",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for bad in ["1G", "1Gbps", "1", "0bit", "5000Gbit", "gbit"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        for bad in ["0.01", "101%", "-1%", "%", "1.2.3%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
        assert!(queue("5").unwrap_err().contains("256kB"));
    }

    #[test]
    fn reorder_has_a_usual_time() {
        let of = |text| reorder(text).unwrap();
        assert_eq!(of("1%").extra, USUAL_EXTRA);
        assert_eq!(of("1%:5ms").extra, Duration::from_millis(5));
        assert!(reorder("1%:5").is_err());
    }

    #[test]
    fn bursts_lose_the_share_they_are_told() {
        for (text, within) in [("1%:10", 1.0), ("1%:10:50%", 0.5)] {
            let burst = burst_loss(text).unwrap();
            // Of the two-state chain: the part of the time in the bad state.
            let bad = burst.to_bad() / (burst.to_bad() + burst.to_good());
            assert!((bad * within - 0.01).abs() < 1e-12, "{text}");
            assert_eq!(burst.to_good(), 0.1);
        }
        for bad in [
            "1%",
            "1%:0.5",
            "1%:x",
            "60%:10:50%",
            "90%:1",
            "1%:2:3%:4",
            "100%:5",
        ] {
            assert!(burst_loss(bad).is_err(), "{bad}");
        }
    }
}
