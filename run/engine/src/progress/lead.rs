//! The lead: a program thread that serves everything while it waits for an event.

use std::cell::Cell;
use std::time::Duration;

use weft_os::busy_poll::giving_way;

use super::member::Served;
use super::serving::SWEEP_EVERY_LOOKS;
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

    /// Looks for something to serve until then, and serves it. Gives whether anything came, as `wait_busily` does.
    fn look_until(&self, until: Duration) -> Result<bool, Error> {
        for look in 0u32.. {
            // What shows without a system call is looked at every time, the set only now and then where there is such.
            let mut served = false;
            let any = self.look_at_silent(|member, what| {
                served = true;
                if what == Served::Active {
                    self.note_active(&member);
                }
            });
            if served {
                return Ok(true);
            }
            if !any || look.is_multiple_of(SWEEP_EVERY_LOOKS) {
                let swept = self.serve_ready(Some(Duration::ZERO))?;
                if swept.woken || swept.any {
                    return Ok(!swept.woken);
                }
            }
            if self.clock.now() >= until {
                break;
            }
            // A handler of a signal that forks returns here in the child too.
            if self.is_foreign() {
                return Err(Error::forked());
            }
            // The peer may need this very core for its answer.
            giving_way::look();
        }
        Ok(false)
    }
}

impl Lead<'_> {
    /// Sends what posts have gathered; whether there was anything.
    pub(crate) fn flush_deferred(&self) -> bool {
        self.progress.flush_deferred()
    }

    /// Waits for something to serve, and serves it. Looks for it until `looks_until` (engine time) before it sleeps.
    ///
    /// # Errors
    /// [`Error::Interrupted`] by a signal; [`Error::Forked`] in a child that a signal's handler made.
    pub(crate) fn serve_once(&self, looks_until: Option<Duration>) -> Result<(), Error> {
        if self.progress.wait_busily()? {
            return Ok(());
        }
        if let Some(until) = looks_until {
            if self.progress.look_until(until)? {
                return Ok(());
            }
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
