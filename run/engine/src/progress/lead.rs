//! The lead: a program thread that serves everything while it waits for an event.

use std::cell::Cell;
use std::time::Duration;

use super::{polling, Progress};
use crate::error::Error;

thread_local! {
    /// This thread is the lead.
    static LEADING: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is the lead until this is dropped.
#[derive(Debug)]
pub(crate) struct Lead<'a> {
    progress: &'a Progress,
}

impl Progress {
    /// Makes the calling thread the lead, if there is none.
    pub(crate) fn lead(&self) -> Option<Lead<'_>> {
        self.end_lease();
        if !self.wakeups.lead(self) {
            return None;
        }
        LEADING.set(true);
        polling::note_lead();
        Some(Lead { progress: self })
    }

    /// Whether the calling thread is the lead.
    pub(crate) fn is_lead(&self) -> bool {
        LEADING.get()
    }

    /// Makes a sleeping lead look at its channel.
    pub(crate) fn wake_lead(&self) {
        self.waker.wake();
    }

    /// Waits for an expected answer without going to sleep, and serves what comes. Gives whether anything came; what
    /// the waker is set for is left to a wait that clears it.
    fn wait_busily(&self) -> Result<bool, Error> {
        while self.busy_wait.is_expected(self.clock.now()) {
            let swept = self.serve_ready(Some(Duration::ZERO))?;
            if swept.woken || swept.any {
                return Ok(!swept.woken);
            }
        }
        Ok(false)
    }
}

impl Lead<'_> {
    /// Sends what posts have gathered; whether there was anything.
    pub(crate) fn flush_deferred(&self) -> bool {
        self.progress.flush_deferred()
    }

    /// Waits for something to serve, and serves it.
    ///
    /// # Errors
    /// [`Error::Interrupted`] by a signal; [`Error::Forked`] in a child that a signal's handler made.
    pub(crate) fn serve_once(&self) -> Result<(), Error> {
        if self.progress.wait_busily()? {
            return Ok(());
        }
        match self.progress.wakeups.lead_once(self.progress) {
            // A handler of a signal that forks returns here in the child too.
            Err(Error::Interrupted) if self.progress.is_foreign() => Err(Error::forked()),
            outcome => outcome,
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        LEADING.set(false);
        self.progress.wakeups.leave(self.progress);
    }
}
