//! What waits to be sent, so that it leaves in one go.

use crate::sync::{AtomicUsize, Mutex, Ordering};

/// A list that is cheap to find empty.
#[derive(Debug)]
pub(crate) struct Deferred<T> {
    list: Mutex<Vec<T>>,
    /// Not zero while something is in the list that was there long enough to be counted.
    count: AtomicUsize,
}

impl<T> Deferred<T> {
    pub(crate) fn new() -> Deferred<T> {
        Deferred {
            list: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
        }
    }

    /// Adds one; the caller then sees to it that nobody sleeps over it.
    pub(crate) fn push(&self, one: T) {
        self.list.lock().push(one);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Takes all out and gives them to `each`.
    pub(crate) fn drain(&self, mut each: impl FnMut(T)) {
        let mut waiting = {
            let mut list = self.list.lock();
            self.count.store(0, Ordering::Release);
            std::mem::take(&mut *list)
        };
        for one in waiting.drain(..) {
            each(one);
        }
        // The space is for the next burst: the fast path allocates nothing.
        let mut list = self.list.lock();
        if list.capacity() == 0 {
            *list = waiting;
        }
    }
}
