//! A destination that is asked for: when its question is asked once more, and until when it is waited for.

use std::os::fd::RawFd;
use std::time::Duration;

use weft_discovery::{Inquiry, Learnt};

use super::channels::Wanted;
use crate::offload::now;

/// How soon a question is asked once more, doubled each time, where a rule says that the other end has Weft.
const ASKED_AGAIN: Duration = Duration::from_millis(25);
/// How soon others are asked once more, and for the last time: a receiver that has just begun may not listen yet.
const ASKED_ONCE_MORE: Duration = Duration::from_millis(250);

/// A destination that is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) inquiry: Inquiry,
    pub(super) wanted: Wanted,
    pub(super) asked_at: Duration,
    /// When it is asked once more.
    again_at: Option<Duration>,
    over_at: Duration,
}

impl Asked {
    /// One whose question has left.
    pub(super) fn new(mut inquiry: Inquiry, wanted: Wanted) -> Asked {
        let now = now();
        let over_at = match inquiry.poll(now) {
            Learnt::Waits(until) => until,
            _ => now,
        };
        let again = match wanted.is_required {
            true => ASKED_AGAIN,
            false => ASKED_ONCE_MORE,
        };
        Asked {
            inquiry,
            wanted,
            asked_at: now,
            again_at: Some(now + again),
            over_at,
        }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.inquiry.number()
    }

    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub(super) fn wanted_mut(&mut self) -> &mut Wanted {
        &mut self.wanted
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.again_at
            .map_or(self.over_at, |at| at.min(self.over_at))
    }

    /// Whether that is still to come, where nobody requires an answer. Who does goes on without one at once.
    pub(super) fn is_asked_once_more(&self) -> bool {
        self.again_at.is_some() && !self.wanted.is_required
    }

    /// Asks once more where it is time.
    pub(super) fn repeat(&mut self, now: Duration) {
        if let Some(at) = self.again_at.filter(|at| now >= *at) {
            self.inquiry.repeat();
            let is_required = self.wanted.is_required;
            self.again_at = is_required.then(|| now + (at - self.asked_at));
        }
    }
}
