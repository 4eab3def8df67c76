//! The service thread: it serves the connections while nobody of the program does, and runs the timers.

use std::sync::Arc;
use std::time::Duration;

use weft_os::{sched, stack};

use super::wakeups::{Memory, Mode, Place, Polled, Wake};
use super::Progress;
use crate::error::Error;
use crate::stats::Total;

/// The service thread asks for this scheduler slice, nanoseconds.
const SLICE_NS: u64 = 100_000;
const STACK_OCTETS: usize = 512 * 1024;

/// Starts the service thread for whoever holds the progress.
///
/// # Errors
/// No thread is to be had.
pub(crate) fn start_service(
    owner: &Arc<impl AsRef<Progress> + Send + Sync + 'static>,
) -> Result<(), Error> {
    let served = owner.clone();
    let handle = std::thread::Builder::new()
        .name("weft-service".to_owned())
        .stack_size(stack::octets_with(STACK_OCTETS))
        .spawn(move || {
            sched::block_all_signals();
            sched::prefer_short_slices(SLICE_NS);
            service_loop((*served).as_ref());
        })
        .map_err(|_| {
            Error::NoMemory("threads of this user (ulimit -u), or memory for one's stack")
        })?;
    let progress: &Progress = (**owner).as_ref();
    let _ = progress.service.set(handle.thread().clone());
    Ok(())
}

fn service_loop(progress: &Progress) {
    let mut memory = Memory::default();
    loop {
        progress.wakeups.serve(progress, &mut memory);
        progress.flush_deferred();
        progress.run_timers();
    }
}

impl Progress {
    fn run_timers(&self) {
        while let Some(token) = self.timers.take_due(self.clock.now()) {
            let member = self.members.read().get(token);
            if let Some(member) = member {
                member.on_timer();
            }
        }
    }
}

impl Wake for Progress {
    fn set_waker(&self) {
        self.waker.wake();
    }

    fn clear_waker(&self) {
        self.waker.clear();
    }

    fn unpark(&self) {
        if let Some(thread) = self.service.get() {
            thread.unpark();
        }
    }
}

impl Place for Progress {
    type Error = Error;
    type Wake = Progress;

    fn wake(&self) -> &Progress {
        self
    }

    fn sweep(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        Ok(self.serve_ready(timeout)?.woken)
    }

    fn park(&self, timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => std::thread::park_timeout(timeout),
            None => std::thread::park(),
        }
    }

    fn until_timer(&self) -> Option<Duration> {
        let next = self.timers.next();
        next.map(|at| at.saturating_sub(self.clock.now()))
    }

    fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn polled(&self) -> Polled {
        self.polls.polled()
    }

    fn begins(&self, mode: Mode) {
        self.stats.set(Total::Polled, mode as u64);
        self.stats.set(Total::EmptyPolls, self.polls.empty());
        if mode == Mode::Served {
            self.stats.add(Total::ServicePasses, 1);
        }
    }

    fn tick(&self) -> Duration {
        self.tick
    }
}
