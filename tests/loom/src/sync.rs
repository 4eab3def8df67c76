//! What threads meet on, as the model checker has it.

use std::io;

use loom::sync::atomic::fence;
use loom::sync::{Condvar, MutexGuard};

pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::thread::yield_now;

/// loom takes sequentially consistent accesses for acquire and release ones, and its fences for what they are. A full
/// fence on each side gives an access its order back.
fn in_order<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    let total = order == Ordering::SeqCst;
    if total {
        fence(Ordering::SeqCst);
    }
    let result = access();
    if total {
        fence(Ordering::SeqCst);
    }
    result
}

/// An atomic with the operations that are used of it.
macro_rules! atomic {
    ($name:ident, $value:ty: $($more:ident)*) => {
        #[derive(Debug)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> $name {
                $name(loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                in_order(order, || self.0.load(order))
            }

            $(atomic!($more $value);)*
        }
    };
    (store $value:ty) => {
        pub(crate) fn store(&self, value: $value, order: Ordering) {
            in_order(order, || self.0.store(value, order));
        }
    };
    (swap $value:ty) => {
        pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
            in_order(order, || self.0.swap(value, order))
        }
    };
    (fetch_sub $value:ty) => {
        pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
            in_order(order, || self.0.fetch_sub(value, order))
        }
    };
    (fetch_add $value:ty) => {
        pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
            in_order(order, || self.0.fetch_add(value, order))
        }
    };
    (compare_exchange $value:ty) => {
        pub(crate) fn compare_exchange(
            &self,
            old: $value,
            new: $value,
            order: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            in_order(order, || self.0.compare_exchange(old, new, order, failure))
        }
    };
}

atomic!(AtomicBool, bool: store compare_exchange);
atomic!(AtomicU32, u32: store fetch_add fetch_sub);
atomic!(AtomicU64, u64: store swap fetch_add);
atomic!(AtomicUsize, usize: store fetch_add);

/// A lock in the manner of `parking_lot`.
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a model that panicked has ended")
    }
}

/// A value that threads sleep on until it is as they want it.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Watched<T> {
        Watched {
            value: Mutex::new(value),
            changed: Condvar::new(),
        }
    }

    /// Changes the value; whoever sleeps looks again.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock());
        self.changed.notify_all();
        result
    }

    /// Sleeps until `take` makes something of the value.
    pub(crate) fn wait<R>(&self, mut take: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock();
        loop {
            if let Some(result) = take(&mut value) {
                return result;
            }
            value = self
                .changed
                .wait(value)
                .expect("a model that panicked has ended");
        }
    }
}

/// A descriptor that counts.
#[derive(Debug)]
pub(crate) struct EventCounter {
    count: Watched<u64>,
}

impl EventCounter {
    pub(crate) fn new() -> io::Result<EventCounter> {
        Ok(EventCounter {
            count: Watched::new(0),
        })
    }

    pub(crate) fn add(&self) {
        self.count.change(|count| *count += 1);
    }

    pub(crate) fn take(&self) -> bool {
        self.count.change(|count| {
            let some = *count > 0;
            *count -= u64::from(some);
            some
        })
    }

    pub(crate) fn wait(&self) -> io::Result<()> {
        self.count.wait(|count| (*count > 0).then_some(()));
        Ok(())
    }

    /// Programs of the models block.
    pub(crate) fn is_nonblocking(&self) -> bool {
        false
    }

    /// In place of a descriptor's number: what it counts.
    pub(crate) fn raw(&self) -> std::os::fd::RawFd {
        self.count.change(|count| *count as std::os::fd::RawFd)
    }
}
