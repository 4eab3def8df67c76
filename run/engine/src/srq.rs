//! Shared receive queues.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{AsyncEventKind, PostError, RecvRequest, MAX_SGE, MAX_WR};
use weft_verbs::wqe::RecvWqe;

use crate::context::{AsyncEvent, AsyncObject, Pd};
use crate::error::Error;

/// A queue pair that holds messages until receives are posted.
pub(crate) trait AwaitsReceives: Debug + Send + Sync {
    /// The shared receive queue has receives again.
    fn on_receives(&self);
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    pd: Arc<Pd>,
    inner: Mutex<SharedReceiveQueue>,
    cookie: u64,
    users: AtomicUsize,
    /// Queue pairs that hold messages until receives are posted.
    waiting: Mutex<Vec<Weak<dyn AwaitsReceives>>>,
    any_waiting: AtomicBool,
    destroyed: AtomicBool,
}

impl Srq {
    pub(crate) fn new(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        cookie: u64,
    ) -> Result<Arc<Srq>, Error> {
        if max_wr == 0 || max_wr > MAX_WR || max_sge as usize > MAX_SGE {
            return Err(Error::Invalid("size of the shared receive queue"));
        }
        pd.add_user();
        Ok(Arc::new(Srq {
            pd: pd.clone(),
            inner: Mutex::new(SharedReceiveQueue::new(max_wr, max_sge.max(1))),
            cookie,
            users: AtomicUsize::new(0),
            waiting: Mutex::new(Vec::new()),
            any_waiting: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
        }))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full or the scatter list too long.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.inner.lock().push(request)?;
        if self.any_waiting.load(Ordering::SeqCst) {
            self.wake_waiting();
        }
        Ok(())
    }

    /// A queue pair found no receive here, and holds a message until there is one. False when
    /// that was known.
    pub(crate) fn remember_waiting(&self, who: Weak<dyn AwaitsReceives>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.iter().any(|known| Weak::ptr_eq(known, &who)) {
            return false;
        }
        waiting.push(who);
        self.any_waiting.store(true, Ordering::SeqCst);
        true
    }

    fn wake_waiting(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.any_waiting.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        for who in waiting.iter().filter_map(Weak::upgrade) {
            who.on_receives();
        }
    }

    /// Arms the limit event; 0 disarms.
    ///
    /// # Errors
    /// The limit is larger than the queue.
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        let due = {
            let mut inner = self.inner.lock();
            if limit > inner.depth() {
                return Err(Error::Invalid("limit larger than the queue"));
            }
            inner.arm(limit)
        };
        if due {
            self.raise_limit();
        }
        Ok(())
    }

    /// Changes the depth.
    ///
    /// # Errors
    /// More receives are posted, or larger than the device allows.
    pub fn resize(&self, max_wr: u32) -> Result<(), Error> {
        if max_wr == 0 || max_wr > MAX_WR {
            return Err(Error::Invalid("size of the shared receive queue"));
        }
        Ok(self.inner.lock().resize(max_wr)?)
    }

    /// `(max_wr, max_sge, limit)`.
    pub fn attributes(&self) -> (u32, u32, u32) {
        let inner = self.inner.lock();
        (inner.depth(), inner.max_sge(), inner.limit())
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Ends the queue: its undelivered events are dropped.
    ///
    /// # Errors
    /// Queue pairs still use it.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.users.load(Ordering::Acquire) > 0 {
            return Err(Error::Busy("queue pairs"));
        }
        if !self.destroyed.swap(true, Ordering::AcqRel) {
            self.pd
                .context()
                .forget_events(AsyncObject::Srq(self.cookie));
            self.pd.drop_user();
        }
        Ok(())
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn drop_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn take(&self) -> Option<RecvWqe> {
        let (wqe, limit_reached) = self.inner.lock().pop();
        if limit_reached {
            self.raise_limit();
        }
        wqe
    }

    fn raise_limit(&self) {
        self.pd.context().raise(AsyncEvent {
            kind: AsyncEventKind::SrqLimitReached,
            object: AsyncObject::Srq(self.cookie),
        });
    }
}

impl Pd {
    /// A shared receive queue; `cookie` names it in events.
    ///
    /// # Errors
    /// The size is out of range.
    pub fn create_srq(
        self: &Arc<Self>,
        max_wr: u32,
        max_sge: u32,
        cookie: u64,
    ) -> Result<Arc<Srq>, Error> {
        Srq::new(self, max_wr, max_sge, cookie)
    }
}
