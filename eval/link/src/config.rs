//! What a link does to what travels over it.

use core::time::Duration;

/// One direction of a link. The default is perfect: no delay, no limit, no fault.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkConfig {
    /// Time from the end of transmission to arrival.
    pub delay: Duration,
    /// Up to so much is added to the delay of each item, drawn evenly. Order is kept all the same, as on a real path
    /// whose delay varies; use [`Reordering`] to break it.
    pub jitter: Duration,
    /// Bits per second; without it transmission takes no time.
    pub rate: Option<u64>,
    /// Octets that may wait for transmission; what finds no room is dropped (tail drop). Needs a rate to matter.
    pub queue: Option<usize>,
    /// Octets that may be on the way, waiting or travelling: a bound of the emulator's memory and of nothing that is
    /// emulated. What exceeds it is dropped, and counted as [`overflowed`](crate::Counters::overflowed).
    pub held_octets_max: Option<usize>,
    /// What gets lost.
    pub loss: Loss,
    /// What is overtaken.
    pub reordering: Reordering,
    /// Probability that an item arrives twice.
    pub duplication: f64,
    /// Probability that an item arrives damaged.
    pub corruption: f64,
}

/// How items get lost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Loss {
    /// Never.
    #[default]
    None,
    /// Each by itself, with this probability.
    Random(f64),
    /// In bursts: two states, each with its own probability of loss (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        /// Probability to go from the good state to the bad one, for each item.
        to_bad: f64,
        /// Probability to go back.
        to_good: f64,
        /// Loss in the good state.
        good: f64,
        /// Loss in the bad state.
        bad: f64,
    },
}

/// How items get out of order.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reordering {
    /// Probability that an item is held back.
    pub probability: f64,
    /// For how long it is held back; what comes meanwhile overtakes it.
    pub extra: Duration,
}

impl LinkConfig {
    /// With this delay.
    pub fn delay(self, delay: Duration) -> LinkConfig {
        LinkConfig { delay, ..self }
    }

    /// With jitter up to this.
    pub fn jitter(self, jitter: Duration) -> LinkConfig {
        LinkConfig { jitter, ..self }
    }

    /// With this rate, bits per second, and a queue of so many octets before it.
    pub fn rate(self, rate: u64, queue: usize) -> LinkConfig {
        LinkConfig {
            rate: Some(rate),
            queue: Some(queue),
            ..self
        }
    }

    /// With this loss.
    pub fn loss(self, loss: Loss) -> LinkConfig {
        LinkConfig { loss, ..self }
    }

    /// With items held back: how likely, and for how long.
    pub fn reordering(self, probability: f64, extra: Duration) -> LinkConfig {
        LinkConfig {
            reordering: Reordering { probability, extra },
            ..self
        }
    }

    /// With duplicates, with this probability.
    pub fn duplication(self, duplication: f64) -> LinkConfig {
        LinkConfig {
            duplication,
            ..self
        }
    }

    /// With damage, with this probability.
    pub fn corruption(self, corruption: f64) -> LinkConfig {
        LinkConfig { corruption, ..self }
    }
}
