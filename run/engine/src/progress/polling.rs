//! What the program's polls show of it: whether its threads wait for messages by polling (decision 0002).
//!
//! Two things show it. A poll that finds its queue empty *looks*: it serves the connections before it gives up, and
//! many that give up in a row are of a program that waits. And a poll that takes messages, without having asked for an
//! event, is one of a program that comes for them by itself, even if it never finds the queue empty because they come
//! faster than it works. A program that polls only what it knows to be there and spins on memory meanwhile
//! (`ib_write_lat`) does neither: the completions it takes are those of its own requests.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::wakeups::Polled;

/// Looks that find nothing and messages, together in a row within [`WINDOW`], that make a poller.
const POLLS_IN_A_ROW_MIN: u32 = 32;
/// The same where the peer is to answer for Writes: many times what an answer takes.
const POLLS_IN_A_ROW_AWAITING_MIN: u32 = 1024;
/// Messages that one poll takes to have taken many.
const MESSAGES_OF_A_POLL_MANY: usize = 8;
const WINDOW: Duration = Duration::from_millis(2);

/// What one poll took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Completions.
    pub(crate) completions: usize,
    /// Receives among them.
    pub(crate) messages: usize,
    /// Others were left in the queue.
    pub(crate) left: bool,
}

/// Counts of the polls of all threads.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    /// They looked, and found nothing.
    empty: AtomicU64,
    /// They took something.
    full: AtomicU64,
    /// Messages they took, of threads that did not ask for an event.
    messages: AtomicU64,
    /// The last one took many.
    many: AtomicBool,
}

/// What a thread's polls were lately.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Empty polls and messages.
    length: u32,
    /// Empty polls, since the last one that took something.
    empty: u32,
    since: Option<Instant>,
    /// It asked for an event: it may wait for the channel's descriptor, where messages come without its polling.
    armed: bool,
}

thread_local! {
    static RUN: Cell<Run> = const { Cell::new(Run { length: 0, empty: 0, since: None, armed: false }) };
}

impl Run {
    /// Grows; true whenever it has grown by `enough`, quickly. The poll that begins it counts once, whatever it took:
    /// that may have come together over a long time.
    fn grow(&mut self, by: usize, enough: u32, now: impl FnOnce() -> Instant) -> bool {
        let before = self.length;
        if before == 0 {
            self.length = 1;
            self.since = Some(now());
            return false;
        }
        self.length = before.wrapping_add(by as u32).max(1);
        if before / enough == self.length / enough {
            return false;
        }
        let now = now();
        let quick = self.since.is_some_and(|since| now - since < WINDOW);
        self.since = Some(now);
        self.armed &= !quick;
        quick
    }

    /// A poll took something, `by` messages among it. Only messages say that the program waits by polling, and not
    /// those of a program that may have been woken for them.
    fn take(&mut self, by: usize, enough: u32, now: impl FnOnce() -> Instant) -> bool {
        self.empty = 0;
        if by == 0 || self.armed {
            self.length = 0;
            return false;
        }
        self.grow(by, enough, now)
    }

    /// A poll looked, and found nothing.
    fn find_nothing(&mut self, enough: u32, now: impl FnOnce() -> Instant) -> bool {
        // A number for ever would be no count any more.
        self.empty = self.empty.checked_add(1).unwrap_or(u32::MAX / 2 + 1);
        self.grow(1, enough, now)
    }
}

#[inline]
fn with_run(change: impl FnOnce(&mut Run) -> bool) -> bool {
    let mut run = RUN.get();
    let changed = change(&mut run);
    RUN.set(run);
    changed
}

/// Empty polls of the calling thread in a row.
pub(crate) fn empty_in_a_row() -> u32 {
    RUN.get().empty
}

/// Whether the thread asked for an event, and has not shown since that it polls.
pub(crate) fn is_armed() -> bool {
    RUN.get().armed
}

/// The thread asks for an event.
pub(crate) fn note_armed() {
    RUN.set(Run {
        armed: true,
        ..Run::default()
    });
}

/// The thread waits for an event and serves the connections meanwhile: it does not need to be woken for messages.
pub(crate) fn note_lead() {
    with_run(|run| std::mem::take(&mut run.armed));
}

impl Polls {
    /// A poll took what was there; true when that makes a poller.
    #[inline]
    pub(crate) fn note_take(&self, taken: Taken) -> bool {
        self.note_taken(taken);
        with_run(|run| run.take(taken.messages, POLLS_IN_A_ROW_MIN, Instant::now))
    }

    /// A poll found its queue empty, looked, and took what that brought; true when it makes a poller. `unanswered`: the
    /// peer is to answer for Writes, and a program that waits for what a device does by itself may go on to spin on
    /// memory.
    #[inline]
    pub(crate) fn note_look(&self, taken: Taken, unanswered: bool) -> bool {
        let enough = match unanswered {
            false => POLLS_IN_A_ROW_MIN,
            true => POLLS_IN_A_ROW_AWAITING_MIN,
        };
        if taken.completions == 0 {
            self.empty.fetch_add(1, Ordering::Relaxed);
            return with_run(|run| run.find_nothing(enough, Instant::now));
        }
        self.note_taken(taken);
        with_run(|run| run.take(taken.messages, enough, Instant::now))
    }

    #[inline]
    fn note_taken(&self, taken: Taken) {
        self.full.fetch_add(1, Ordering::Relaxed);
        if taken.messages > 0 && !RUN.get().armed {
            self.messages
                .fetch_add(taken.messages as u64, Ordering::Relaxed);
        }
        let many = taken.messages >= MESSAGES_OF_A_POLL_MANY;
        if many != self.has_many() {
            self.many.store(many, Ordering::Relaxed);
        }
    }

    /// Whether the program works off many messages that it took together, and comes back when it is through with them.
    #[inline]
    pub(crate) fn has_many(&self) -> bool {
        self.many.load(Ordering::Relaxed)
    }

    /// Polls that found nothing.
    pub(crate) fn empty(&self) -> u64 {
        self.empty.load(Ordering::Relaxed)
    }

    /// Names the interval between two polls.
    pub(crate) fn interval(&self) -> u64 {
        self.full.load(Ordering::Relaxed) + self.empty()
    }

    /// What the service thread goes by.
    pub(crate) fn polled(&self) -> Polled {
        Polled {
            empty: self.empty(),
            messages: self.messages.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls that take so many messages each, one every `pause`; how many of them made a poller.
    fn polling_hints(armed: bool, takes: &[usize], pause: Duration) -> usize {
        let mut run = Run {
            armed,
            ..Run::default()
        };
        let mut now = Instant::now();
        let poll = |messages: &&usize| {
            now += pause;
            run.take(**messages, POLLS_IN_A_ROW_MIN, || now)
        };
        takes.iter().filter(poll).count()
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn who_takes_messages_and_never_finds_the_queue_empty_is_a_poller() {
        assert_eq!(polling_hints(false, &[1; 31], US), 0);
        assert_eq!(polling_hints(false, &[8; 5], 300 * US), 1);
        assert_eq!(polling_hints(false, &[8; 5], 600 * US), 0, "too slowly");
    }

    #[test]
    fn what_one_poll_takes_after_a_pause_makes_none() {
        assert_eq!(polling_hints(false, &[1000], US), 0);
    }

    #[test]
    fn completions_of_requests_make_none() {
        assert_eq!(polling_hints(false, &[0; 1000], US), 0);
        assert_eq!(polling_hints(false, &[20, 0].repeat(100), US), 0);
    }

    #[test]
    fn messages_of_a_thread_that_asks_for_events_make_none() {
        assert_eq!(polling_hints(true, &[8; 1000], US), 0);
    }

    #[test]
    fn a_thread_that_asked_for_an_event_and_waits_on_the_descriptor_earns_nothing() {
        let thread = std::thread::spawn(|| {
            let polls = Polls::default();
            let taken = Taken {
                completions: 9,
                messages: 8,
                left: false,
            };
            note_armed();
            polls.note_take(taken);
            polls.note_look(taken, false);
            assert_eq!(polls.polled().messages, 0);
            note_lead();
            polls.note_take(taken);
            polls.note_look(taken, false);
            assert_eq!(polls.polled().messages, 16);
        });
        thread.join().expect("a thread");
    }

    #[test]
    fn empty_polls_in_a_row_make_one_of_any_thread() {
        let mut run = Run {
            armed: true,
            ..Run::default()
        };
        let now = Instant::now();
        assert!((1..POLLS_IN_A_ROW_MIN).all(|_| !run.find_nothing(POLLS_IN_A_ROW_MIN, || now)));
        assert!(run.find_nothing(POLLS_IN_A_ROW_MIN, || now));
        assert_eq!(run.empty, POLLS_IN_A_ROW_MIN);
        assert!(
            !run.take(8, POLLS_IN_A_ROW_MIN, || now),
            "and its messages count now"
        );
        assert_eq!((run.length, run.empty), (POLLS_IN_A_ROW_MIN + 8, 0));
    }
}
