//! Who still holds an event of which object.
//!
//! An event names its object by address, and the program may look at that address until it
//! acknowledges the event; so destroying an object waits for its events. The engine knows objects
//! by number only: the number is looked up here, under a lock that destruction takes too, which
//! makes "the object is alive" and "one more event is out" one step.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use weft_engine::fork::PerProcess;

/// Events of one object that were handed out and not yet acknowledged.
#[derive(Default)]
pub struct Acks {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    handed_out: u64,
    acknowledged: u64,
    waiters: u32,
}

impl Acks {
    /// Notes that one more event was handed out.
    pub fn hand_out(&self) {
        lock(&self.counts).handed_out += 1;
    }

    /// Notes acknowledgements.
    pub fn acknowledge(&self, events: u64) {
        let mut counts = lock(&self.counts);
        counts.acknowledged += events;
        // Telling nobody would still be a system call.
        if counts.waiters > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until what was handed out before this call is acknowledged.
    pub fn wait(&self) {
        let mut counts = lock(&self.counts);
        let handed_out = counts.handed_out;
        let outstanding = |counts: &mut Counts| counts.acknowledged < handed_out;
        counts.waiters += 1;
        let mut counts = self
            .changed
            .wait_while(counts, outstanding)
            .unwrap_or_else(PoisonError::into_inner);
        counts.waiters -= 1;
    }
}

/// What events of an object need to find.
#[derive(Clone)]
pub struct Entry {
    /// The address that the program knows.
    pub address: usize,
    /// Whom to tell that an event is out.
    pub acks: Arc<Acks>,
}

/// Live objects by the number the engine knows them by.
#[derive(Default)]
struct Registry {
    last: u64,
    live: HashMap<u64, Entry>,
}

static REGISTRY: PerProcess<Mutex<Registry>> = PerProcess::new();

fn registry() -> MutexGuard<'static, Registry> {
    lock(REGISTRY.get_or_init(Mutex::default))
}

/// A number no object had before; 0 is never given.
pub fn new_number() -> u64 {
    let mut registry = registry();
    registry.last += 1;
    registry.last
}

/// Makes events of the object findable.
pub fn enter(number: u64, address: usize, acks: &Arc<Acks>) {
    let acks = Arc::clone(acks);
    registry().live.insert(number, Entry { address, acks });
}

/// The object's events find it no more, and the ones that are out come back before this returns.
pub fn leave(number: u64) {
    // The lock is not held while waiting.
    let entry = registry().live.remove(&number);
    if let Some(entry) = entry {
        entry.acks.wait();
    }
}

/// Finds the object of an event, and counts the event as handed out.
pub fn hand_out(number: u64) -> Option<Entry> {
    let registry = registry();
    let entry = registry.live.get(&number)?.clone();
    entry.acks.hand_out();
    Some(entry)
}

/// Locks; a panic elsewhere leaves nothing half-done in what these locks protect.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn leaving_waits_for_the_events_that_are_out() {
        let number = new_number();
        enter(number, 0x1000, &Arc::default());
        let entry = hand_out(number).unwrap();
        assert_eq!(entry.address, 0x1000);
        let left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                leave(number);
                left.store(true, Ordering::SeqCst);
            });
            // Whenever the thread gets to it: from then on the object is not findable.
            let deadline = Instant::now() + Duration::from_secs(20);
            while let Some(found) = hand_out(number) {
                found.acks.acknowledge(1);
                assert!(Instant::now() < deadline, "it never began to leave");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(30));
            assert!(!left.load(Ordering::SeqCst), "left with an event out");
            entry.acks.acknowledge(1);
        });
        assert!(left.load(Ordering::SeqCst));
    }

    #[test]
    fn numbers_are_never_used_again() {
        let first = new_number();
        enter(first, 1, &Arc::default());
        leave(first);
        assert!(new_number() > first);
        assert!(hand_out(first).is_none());
    }
}
