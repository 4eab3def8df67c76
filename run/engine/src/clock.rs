//! Engine time: what every deadline of the engine is counted in.

use std::time::{Duration, Instant};

/// The time since the engine started. Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Instant,
}

impl Clock {
    /// Starts at zero.
    pub(crate) fn start() -> Clock {
        Clock {
            epoch: Instant::now(),
        }
    }

    /// Engine time.
    pub(crate) fn now(self) -> Duration {
        self.epoch.elapsed()
    }
}
