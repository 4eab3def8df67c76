//! What readiness comes from: a descriptor in the epoll set, or a source that says by itself that it is ready.

use std::cell::Cell;
use std::fmt::Debug;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use weft_os::poll::{Interest, Waker};

use super::member::Token;

thread_local! {
    /// This thread is in a sweep, and looks at the list before it leaves.
    static SWEEPING: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread sweeps the set until this is dropped.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    list: &'a ReadyList,
    /// It may sleep in the set meanwhile.
    sleeps: bool,
    /// It swept already, further up.
    outer: bool,
}

impl Drop for Sweep<'_> {
    fn drop(&mut self) {
        SWEEPING.set(self.outer);
        if self.sleeps {
            self.list.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        // What it left it did not wake anybody for.
        if !self.outer && self.list.any.load(Ordering::SeqCst) {
            self.list.wake();
        }
    }
}

/// What was ready. Its memory serves the list again when this is dropped: what is said to be ready allocates nothing.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    list: &'a ReadyList,
    tokens: Vec<(Token, bool)>,
}

impl Deref for Taken<'_> {
    type Target = [(Token, bool)];

    fn deref(&self) -> &[(Token, bool)] {
        &self.tokens
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.tokens.capacity() > 0 {
            self.tokens.clear();
            *self.list.spare.lock() = std::mem::take(&mut self.tokens);
        }
    }
}

/// The members that said so, and what wakes the thread that sleeps in the set.
#[derive(Debug)]
pub(super) struct ReadyList {
    /// A hint: the list is not empty.
    any: AtomicBool,
    tokens: Mutex<Vec<(Token, bool)>>,
    /// Memory for the next tokens, while others are served.
    spare: Mutex<Vec<(Token, bool)>>,
    /// Threads that sleep in the set, or are about to.
    sleepers: AtomicUsize,
    waker: Arc<Waker>,
}

impl ReadyList {
    pub(super) fn new(waker: Arc<Waker>) -> ReadyList {
        ReadyList {
            any: AtomicBool::new(false),
            tokens: Mutex::default(),
            spare: Mutex::default(),
            sleepers: AtomicUsize::new(0),
            waker,
        }
    }

    /// Takes what is ready: the token, and whether it can be written.
    #[inline]
    pub(super) fn take(&self) -> Taken<'_> {
        let mut tokens = Vec::new();
        if self.any.load(Ordering::SeqCst) {
            tokens = std::mem::take(&mut *self.spare.lock());
            let mut list = self.tokens.lock();
            self.any.store(false, Ordering::SeqCst);
            std::mem::swap(&mut *list, &mut tokens);
        }
        Taken { list: self, tokens }
    }

    /// Begins a sweep of the calling thread, which may sleep in the set or does not. It looks at the list after this.
    pub(super) fn sweep(&self, sleeps: bool) -> Sweep<'_> {
        if sleeps {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
        }
        Sweep {
            list: self,
            sleeps,
            outer: SWEEPING.replace(true),
        }
    }

    /// Wakes who sleeps in the set. Who is about to looks at the list after it was counted: either it sees what is
    /// there, or it is seen here.
    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.waker.wake();
        }
    }

    fn add(&self, token: Token, writable: bool) {
        let first = {
            let mut tokens = self.tokens.lock();
            match tokens.iter_mut().find(|(known, _)| *known == token) {
                Some((_, can)) => *can |= writable,
                None => tokens.push((token, writable)),
            }
            !self.any.swap(true, Ordering::SeqCst)
        };
        // Whoever clears the waker looks at the list after that, before it sleeps: who finds others there has been
        // preceded by somebody who woke it.
        if first && !SWEEPING.get() {
            self.wake();
        }
    }
}

/// Where a source without a descriptor says that it is ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    pub(super) list: Arc<ReadyList>,
    pub(super) token: Token,
}

impl Readiness {
    /// What was waited for is there: octets, a connection or the end; or, with `writable`, room to write. Whoever
    /// serves the engine comes by.
    pub fn set(&self, writable: bool) {
        self.list.add(self.token, writable);
    }
}

/// Something whose readiness is waited for.
pub trait Source: Debug + Send {
    /// Its descriptor, which the engine's epoll set watches; `None` for a source that says by itself when it is ready.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What is waited for from now on, and where to say that it is there, for a source that has no descriptor or more
    /// to it than one. It is said as long as it is so and more is not taken: readiness is a level.
    fn wait_for(&self, _interest: Interest, _readiness: &Readiness) {}

    /// The descriptor of the part of its network ([`crate::carrier::Drive`]) that makes it ready, for a source without
    /// one. Who reads the source runs that part.
    fn run_by(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weft_os::poll::Epoll;

    /// A list, and a look at whether its waker was set.
    fn list() -> (Arc<ReadyList>, impl Fn() -> bool) {
        let waker = Arc::new(Waker::new().unwrap());
        let epoll = Epoll::new().unwrap();
        epoll.add(&*waker, 1, Interest::Read).unwrap();
        let list = Arc::new(ReadyList::new(waker));
        let woken = move || epoll.wait(Some(Duration::ZERO), 1, |_| ()).unwrap() > 0;
        (list, woken)
    }

    fn token(number: u64) -> Token {
        Token::from_number(number)
    }

    #[test]
    fn who_sleeps_is_woken_once_and_who_polls_is_not() {
        let (list, woken) = list();
        list.add(token(1), false);
        assert!(!woken(), "nobody sleeps");
        let other = list.clone();
        std::thread::spawn(move || {
            // A sleeper that has looked.
            let asleep = other.sweep(true);
            assert_eq!(*other.take(), [(token(1), false)]);
            std::mem::forget(asleep);
        })
        .join()
        .unwrap();
        list.add(token(2), false);
        assert!(woken());
        list.waker.clear();
        list.add(token(3), true);
        list.add(token(2), true);
        assert!(!woken(), "it looks at the list before it sleeps again");
        assert_eq!(*list.take(), [(token(2), true), (token(3), true)]);
    }

    #[test]
    fn memory_is_used_again() {
        let (list, _) = list();
        let place = |number| {
            list.add(token(number), false);
            list.take().as_ptr()
        };
        let places: Vec<_> = (0..6).map(place).collect();
        assert!(list.take().is_empty());
        assert_eq!(places[2..], [places[0], places[1], places[0], places[1]]);
    }

    #[test]
    fn who_sweeps_wakes_nobody_but_for_what_it_leaves() {
        let (list, woken) = list();
        let other = list.clone();
        std::thread::spawn(move || std::mem::forget(other.sweep(true)))
            .join()
            .unwrap();
        let sweep = list.sweep(false);
        list.add(token(1), false);
        assert!(!woken());
        assert_eq!(list.take().len(), 1);
        list.add(token(2), false);
        drop(sweep);
        assert!(woken());
    }
}
