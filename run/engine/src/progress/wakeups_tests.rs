//! Tests: what the service thread makes of a program's polls, tick by tick.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::wakeups::{Memory, Mode, Place, Polled, Wake, Wakeups};

/// What happens in one tick.
#[derive(Clone, Copy)]
struct Tick {
    empty: u64,
    messages: u64,
    sweeps: bool,
}

const NOTHING: Tick = Tick {
    empty: 0,
    messages: 0,
    sweeps: false,
};

struct Program<'a> {
    wakeups: &'a Wakeups,
    tick: Cell<Tick>,
    polled: RefCell<Polled>,
    /// Sweeps by the service thread.
    swept: Cell<u32>,
}

struct Silent;

impl Wake for Silent {
    fn set_waker(&self) {}
    fn clear_waker(&self) {}
    fn unpark(&self) {}
}

impl Place for Program<'_> {
    type Error = ();
    type Wake = Silent;

    fn wake(&self) -> &Silent {
        &Silent
    }

    fn sweep(&self, _timeout: Option<Duration>) -> Result<bool, ()> {
        self.swept.set(self.swept.get() + 1);
        Ok(false)
    }

    fn park(&self, _timeout: Option<Duration>) {
        let tick = self.tick.get();
        let mut polled = self.polled.borrow_mut();
        polled.empty += tick.empty;
        polled.messages += tick.messages;
        if tick.sweeps {
            self.wakeups.swept();
        }
    }

    fn until_timer(&self) -> Option<Duration> {
        None
    }

    fn has_deferred(&self) -> bool {
        false
    }

    fn polled(&self) -> Polled {
        *self.polled.borrow()
    }

    fn begins(&self, _mode: Mode) {}

    fn tick(&self) -> Duration {
        Duration::from_micros(200)
    }
}

/// A program that has shown a sign, and then polls as `ticks` say. Gives how many ticks passed until the service thread
/// was back in the set, and its sweeps before that.
fn watched(ticks: impl Iterator<Item = Tick>) -> (usize, u32) {
    let wakeups = Wakeups::new();
    wakeups.note_polling(&Silent);
    let program = Program {
        wakeups: &wakeups,
        tick: Cell::new(NOTHING),
        polled: RefCell::default(),
        swept: Cell::new(0),
    };
    let mut memory = Memory::default();
    let mut passed = 0;
    for tick in ticks {
        program.tick.set(tick);
        wakeups.serve(&program, &mut memory);
        if wakeups.mode() == Mode::Served {
            break;
        }
        passed += 1;
    }
    (passed, program.swept.get())
}

#[test]
fn a_program_that_stops_to_poll_is_served_after_a_tick() {
    let spins = Tick {
        empty: 100,
        sweeps: true,
        ..NOTHING
    };
    let ticks = [spins, spins, spins, NOTHING, NOTHING];
    assert_eq!(watched(ticks.into_iter()), (3, 0));
}

#[test]
fn a_tick_in_which_nobody_swept_is_made_up_for() {
    let rarely = Tick {
        empty: 3,
        ..NOTHING
    };
    assert_eq!(watched([rarely; 5].into_iter()), (5, 5));
}

#[test]
fn a_program_that_takes_messages_all_the_time_is_left_alone() {
    let busy = Tick {
        messages: 30,
        sweeps: true,
        ..NOTHING
    };
    assert_eq!(watched([busy; 1000].into_iter()), (1000, 0));
}

#[test]
fn one_that_works_off_what_it_took_has_time_for_that_and_others_are_served_meanwhile() {
    let takes = Tick {
        messages: 30,
        sweeps: true,
        ..NOTHING
    };
    let ticks = std::iter::once(takes).chain([NOTHING; 100]);
    assert_eq!(watched(ticks), (8, 7));
}

#[test]
fn one_that_takes_a_message_now_and_then_is_served() {
    // It may spin on memory for the next thing.
    let takes = Tick {
        messages: 1,
        sweeps: true,
        ..NOTHING
    };
    assert_eq!(watched([takes; 100].into_iter()), (0, 0));
}
