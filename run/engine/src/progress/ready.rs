//! What readiness comes from: a descriptor in the epoll set, or a source that says by itself that it is ready.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use weft_os::poll::{Interest, Waker};

use super::member::Token;

/// The members that said so, and what wakes the thread that sleeps in the set.
#[derive(Debug)]
pub(super) struct ReadyList {
    /// A hint: the list is not empty.
    any: AtomicBool,
    tokens: Mutex<Vec<(Token, bool)>>,
    waker: Arc<Waker>,
}

impl ReadyList {
    pub(super) fn new(waker: Arc<Waker>) -> ReadyList {
        ReadyList {
            any: AtomicBool::new(false),
            tokens: Mutex::default(),
            waker,
        }
    }

    /// Takes what is ready: the token, and whether it can be written.
    #[inline]
    pub(super) fn take(&self) -> Vec<(Token, bool)> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut tokens = self.tokens.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *tokens)
    }

    fn add(&self, token: Token, writable: bool) {
        {
            let mut tokens = self.tokens.lock();
            match tokens.iter_mut().find(|(known, _)| *known == token) {
                Some((_, can)) => *can |= writable,
                None => tokens.push((token, writable)),
            }
            self.any.store(true, Ordering::Release);
        }
        self.waker.wake();
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

    /// What is waited for from now on, where there is no descriptor, and where to say that it is there. It is said as
    /// long as it is so and more is not taken: readiness is a level.
    fn wait_for(&self, _interest: Interest, _readiness: &Readiness) {}
}
