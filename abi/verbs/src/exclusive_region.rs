//! A region of code that one thread at a time is in, entered and left by different calls of C.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::event_references::lock;

/// Whether a thread is inside.
#[derive(Default)]
pub struct Region {
    busy: Mutex<bool>,
    left: Condvar,
}

impl Region {
    /// Enters, once nobody is inside.
    pub fn enter(&self) {
        let busy = lock(&self.busy);
        let mut busy = self
            .left
            .wait_while(busy, |busy| *busy)
            .unwrap_or_else(PoisonError::into_inner);
        *busy = true;
    }

    /// Leaves.
    pub fn leave(&self) {
        *lock(&self.busy) = false;
        self.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn the_second_waits_for_the_first() {
        let region = Region::default();
        let inside = AtomicBool::new(false);
        region.enter();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                region.enter();
                inside.store(true, Ordering::SeqCst);
                region.leave();
            });
            std::thread::sleep(Duration::from_millis(30));
            assert!(!inside.load(Ordering::SeqCst));
            region.leave();
        });
        assert!(inside.load(Ordering::SeqCst));
    }
}
