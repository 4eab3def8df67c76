//! What is said at the end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use weft_link::{Counters, PathCounters};

use crate::lateness::Lateness;
use crate::tally::{Sums, Tally};
use crate::HELD_OCTETS_MAX;

/// How many of a hundred frames may be later than the bound.
const LATE_SHARE: f64 = 0.99;

/// What a bridge did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seconds since it began.
    pub seconds: f64,
    /// From the first interface to the second, and back.
    pub directions: [DirectionReport; 2],
    /// It did what it was told, in time.
    pub kept_up: bool,
    /// Where it did not.
    pub shortfalls: Vec<Shortfall>,
}

/// What happened in one direction. Counts are of frames unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DirectionReport {
    /// Interface where frames arrived.
    pub from: String,
    /// Interface where they left.
    pub to: String,
    /// Came in, as the sender's kernel gave them.
    pub received: u64,
    /// Of these, large ones that were cut for the wire.
    pub cut: u64,
    /// Cuts that the resegmenting box made in TCP segments.
    pub split: u64,
    /// TCP segments that the resegmenting box joined to the one before.
    pub joined: u64,
    /// Fragmented by the router.
    pub fragmented: u64,
    /// Dropped by the router as too big.
    pub too_big: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Came to the link, cut, resegmented and fragmented.
    pub sent: u64,
    /// Lost by the link.
    pub lost: u64,
    /// Dropped for want of room in the link's queue.
    pub queue_dropped: u64,
    /// Held back by the link.
    pub reordered: u64,
    /// Sent on twice by the link.
    pub duplicated: u64,
    /// Damaged by the link.
    pub corrupted: u64,
    /// Arrived.
    pub delivered: u64,
    /// Octets of these.
    pub octets: u64,
    /// Still on the link. At the end these are lost.
    pub on_the_way: u64,
    /// Lateness that half of the frames did not exceed, in microseconds.
    pub late_p50_us: f64,
    /// Lateness that 99 of 100 frames did not exceed, in microseconds.
    pub late_p99_us: f64,
    /// Greatest lateness, in microseconds.
    pub late_max_us: f64,
}

/// Where the emulator did not do what it was told.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    /// Frames left too late.
    Late {
        /// Interface where they left.
        to: String,
        /// What 99 of 100 did not exceed, in microseconds.
        p99_us: f64,
        /// The bound, in microseconds.
        bound_us: f64,
    },
    /// Frames were dropped before they were taken in.
    Overrun {
        /// Interface where they arrived.
        from: String,
        /// How many; a large one counts as one.
        frames: u64,
    },
    /// Frames were dropped because too much was on the way already.
    Overflowed {
        /// Interface where they should have left.
        to: String,
        /// How many.
        frames: u64,
        /// Octets that may be on the way.
        bound: u64,
    },
    /// An interface did not take frames.
    NotSent {
        /// Interface where they should have left.
        to: String,
        /// How many.
        frames: u64,
    },
    /// Frames were longer than an interface's MTU allows.
    TooLong {
        /// Interface where they should have left.
        to: String,
        /// How many.
        frames: u64,
    },
    /// Large frames could not be cut.
    NotCut {
        /// Interface where they arrived.
        from: String,
        /// How many.
        frames: u64,
    },
    /// Forwarding ended by itself.
    Ended(String),
    /// The capture is not whole.
    Capture(String),
    /// The file of holes is not whole.
    Holes(String),
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortfall::Late {
                to,
                p99_us,
                bound_us,
            } => write!(
                f,
                "one of 100 frames left {to} more than {p99_us:.0} us late, beyond the bound of {bound_us:.0} us"
            ),
            Shortfall::Overrun { from, frames } => write!(
                f,
                "{frames} frames came to {from} faster than they could be taken in, and were dropped"
            ),
            Shortfall::Overflowed { to, frames, bound } => write!(
                f,
                "{frames} frames to {to} were dropped, as {} MiB were on the way already \
                 (give it a --rate, or less --delay)",
                bound >> 20
            ),
            Shortfall::NotSent { to, frames } => write!(f, "{to} did not take {frames} frames"),
            Shortfall::TooLong { to, frames } => {
                write!(f, "{frames} frames were longer than the MTU of {to} allows")
            }
            Shortfall::NotCut { from, frames } => write!(
                f,
                "{frames} large frames from {from} were of a kind that cannot be cut \
                 (turn segmentation offload off there: ethtool -K IF tso off gso off)"
            ),
            Shortfall::Ended(why) => write!(f, "it ended by itself: {why}"),
            Shortfall::Capture(why) => write!(f, "the capture is not whole: {why}"),
            Shortfall::Holes(why) => write!(f, "the file of holes is not whole: {why}"),
        }
    }
}

impl Report {
    pub(crate) fn new(
        ran: Duration,
        tallies: &[Arc<Tally>; 2],
        late_max: Duration,
        files: impl IntoIterator<Item = Shortfall>,
    ) -> Report {
        let mut shortfalls = Vec::new();
        let directions = tallies.each_ref().map(|tally| {
            let sums = tally.sums();
            shortfalls.extend(shortfalls_of(tally, &sums, late_max));
            direction(tally, &sums)
        });
        shortfalls.extend(files);
        Report {
            seconds: ran.as_secs_f64(),
            directions,
            kept_up: shortfalls.is_empty(),
            shortfalls,
        }
    }
}

fn direction(tally: &Tally, sums: &Sums) -> DirectionReport {
    let PathCounters {
        received,
        cut,
        not_cut: _,
        resegment,
        router,
        link,
        on_the_way,
        octets,
    } = sums.path;
    let Counters {
        sent,
        delivered,
        lost,
        dropped,
        overflowed: _,
        reordered,
        duplicated,
        corrupted,
    } = link;
    let Lates { p50, p99, max } = Lates::of(&sums.lateness);
    DirectionReport {
        from: tally.from.clone(),
        to: tally.to.clone(),
        received,
        cut,
        split: resegment.split,
        joined: resegment.joined,
        fragmented: router.fragmented,
        too_big: router.too_big,
        answered: router.answered,
        sent,
        lost,
        queue_dropped: dropped,
        reordered,
        duplicated,
        corrupted,
        delivered,
        octets,
        on_the_way,
        late_p50_us: p50,
        late_p99_us: p99,
        late_max_us: max,
    }
}

/// Figures of a histogram in microseconds.
struct Lates {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Lates {
    fn of(lateness: &Lateness) -> Lates {
        Lates {
            p50: micros(lateness.quantile(0.5)),
            p99: micros(lateness.quantile(LATE_SHARE)),
            max: micros(lateness.max()),
        }
    }
}

fn shortfalls_of(tally: &Tally, sums: &Sums, late_max: Duration) -> Vec<Shortfall> {
    let (from, to) = (|| tally.from.clone(), || tally.to.clone());
    let p99 = sums.lateness.quantile(LATE_SHARE);
    let late = (p99 > late_max).then(|| Shortfall::Late {
        to: to(),
        p99_us: micros(p99),
        bound_us: micros(late_max),
    });
    let counted = [
        (
            sums.overrun,
            Shortfall::Overrun {
                from: from(),
                frames: sums.overrun,
            },
        ),
        (
            sums.path.link.overflowed,
            Shortfall::Overflowed {
                to: to(),
                frames: sums.path.link.overflowed,
                bound: HELD_OCTETS_MAX as u64,
            },
        ),
        (
            sums.not_sent,
            Shortfall::NotSent {
                to: to(),
                frames: sums.not_sent,
            },
        ),
        (
            sums.too_long + sums.truncated,
            Shortfall::TooLong {
                to: to(),
                frames: sums.too_long + sums.truncated,
            },
        ),
        (
            sums.path.not_cut,
            Shortfall::NotCut {
                from: from(),
                frames: sums.path.not_cut,
            },
        ),
    ];
    let counted = counted
        .into_iter()
        .filter_map(|(frames, shortfall)| (frames > 0).then_some(shortfall));
    let ended = sums.ended.clone().map(Shortfall::Ended);
    late.into_iter().chain(counted).chain(ended).collect()
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(5);

    fn report(change: impl FnOnce(&mut Sums)) -> Report {
        let tally = |from: &str, to: &str| Arc::new(Tally::new(from.into(), to.into()));
        let tallies = [tally("a", "b"), tally("b", "a")];
        for late in 0..1000 {
            tallies[0].sums().lateness.add(Duration::from_micros(late));
        }
        change(&mut tallies[0].sums());
        Report::new(Duration::from_secs(2), &tallies, BOUND, [])
    }

    #[test]
    fn who_was_in_time_kept_up() {
        let report = report(|_| ());
        assert!(report.kept_up, "{:?}", report.shortfalls);
        let p99 = report.directions[0].late_p99_us;
        assert!((980.0..1060.0).contains(&p99), "{p99}");
        assert_eq!(report.directions[0].late_max_us, 999.0);
    }

    #[test]
    fn one_very_late_frame_is_no_failure_and_two_of_a_hundred_are() {
        let late = Duration::from_millis(50);
        assert!(report(|sums| sums.lateness.add(late)).kept_up);
        let report = report(|sums| (0..20).for_each(|_| sums.lateness.add(late)));
        assert!(matches!(report.shortfalls[..], [Shortfall::Late { .. }]));
    }

    #[test]
    fn every_shortfall_is_said() {
        let said = |change: fn(&mut Sums)| {
            let report = report(change);
            assert!(!report.kept_up);
            report.shortfalls[0].to_string()
        };
        assert!(said(|sums| sums.overrun = 7).contains("7 frames came to a faster"));
        assert!(said(|sums| sums.path.link.overflowed = 7).contains("7 frames to b were dropped"));
        assert!(said(|sums| sums.not_sent = 7).contains("b did not take 7 frames"));
        assert!(said(|sums| sums.too_long = 7).contains("7 frames were longer"));
        assert!(said(|sums| sums.truncated = 7).contains("7 frames were longer"));
        assert!(said(|sums| sums.path.not_cut = 7).contains("7 large frames from a"));
        assert!(said(|sums| sums.ended = Some("gone".into())).contains("gone"));
    }
}
