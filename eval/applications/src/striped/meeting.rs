//! Where clients wait for each other, and stop waiting once one of them has gone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{ensure, Result};

/// A place at which so many clients meet, as often as they like.
pub(super) struct Meeting {
    clients: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Clients that wait.
    waiting: u32,
    /// How often all of them have met.
    met: u64,
    /// Whether a client has gone, which the others would wait for until the end of time.
    is_left: bool,
}

impl Meeting {
    pub(super) fn new(clients: u32) -> Meeting {
        Meeting {
            clients,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits until all clients have come.
    ///
    /// # Errors
    /// One has gone, before this or meanwhile.
    pub(super) fn meet(&self) -> Result<()> {
        let mut state = self.state();
        let met = state.met;
        state.waiting += 1;
        if state.waiting == self.clients {
            state.waiting = 0;
            state.met += 1;
            self.changed.notify_all();
        }
        let waits = |state: &mut State| state.met == met && !state.is_left;
        let state = self.changed.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let have_met = state.met > met;
        if !have_met {
            state.waiting -= 1;
        }
        ensure!(have_met, "a client has gone, so that not all can meet");
        Ok(())
    }

    /// A client has gone.
    pub(super) fn leave(&self) {
        self.state().is_left = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn all_meet_as_often_as_they_like() {
        let meeting = Meeting::new(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..100).for_each(|_| meeting.meet().unwrap()));
            }
        });
        assert_eq!(meeting.state().met, 100);
    }

    #[test]
    fn who_waits_for_a_client_that_goes_is_told() {
        let meeting = Meeting::new(2);
        thread::scope(|scope| {
            let waits = scope.spawn(|| meeting.meet());
            while meeting.state().waiting == 0 {
                thread::yield_now();
            }
            meeting.leave();
            assert!(waits.join().unwrap().is_err());
        });
        assert!(
            meeting.meet().is_err(),
            "nor does one that comes later wait"
        );
    }

    #[test]
    fn who_goes_after_the_last_meeting_takes_nothing_back() {
        for _ in 0..1000 {
            let meeting = Meeting::new(2);
            thread::scope(|scope| {
                scope.spawn(|| meeting.meet().unwrap());
                meeting.meet().unwrap();
                meeting.leave();
            });
        }
    }
}
