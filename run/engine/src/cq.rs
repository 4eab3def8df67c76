//! Completion queues. Polling one serves every connection of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use weft_verbs::cq::CompletionQueue;
use weft_verbs::types::{AsyncEventKind, Completion, QpNumber, MAX_CQE};

use crate::context::{AsyncEvent, AsyncObject, CompChannel, Context};
use crate::error::Error;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    context: Arc<Context>,
    channel: Option<Arc<CompChannel>>,
    cookie: u64,
    inner: Mutex<CompletionQueue>,
    users: AtomicUsize,
}

impl Cq {
    pub(crate) fn new(
        context: &Arc<Context>,
        entries: u32,
        channel: Option<Arc<CompChannel>>,
        cookie: u64,
    ) -> Result<Arc<Cq>, Error> {
        if entries == 0 || entries > MAX_CQE {
            return Err(Error::Invalid("number of completion queue entries"));
        }
        Ok(Arc::new(Cq {
            context: context.clone(),
            channel,
            cookie,
            inner: Mutex::new(CompletionQueue::new(entries)),
            users: AtomicUsize::new(0),
        }))
    }

    /// Takes up to `max` completions, oldest first, and gives each to `each`. When none waits,
    /// the calling thread serves the connections first. Returns how many there were.
    ///
    /// # Errors
    /// The queue overflowed and holds nothing more: completions were lost.
    #[inline]
    pub fn poll(&self, max: usize, mut each: impl FnMut(Completion)) -> Result<usize, Error> {
        let engine = self.context.engine();
        engine.flush_deferred();
        let taken = self.take(max, &mut each)?;
        if taken > 0 {
            engine.note_full_poll();
            return Ok(taken);
        }
        if weft_os::fork::is_child() {
            return Err(Error::Forked);
        }
        engine.poll_streams();
        let taken = self.take(max, &mut each)?;
        if taken > 0 {
            engine.note_full_poll();
        } else {
            engine.note_empty_poll();
        }
        Ok(taken)
    }

    #[inline]
    fn take(&self, max: usize, each: &mut impl FnMut(Completion)) -> Result<usize, Error> {
        let mut inner = self.inner.lock();
        let mut taken = 0;
        while taken < max {
            let Some(completion) = inner.pop() else {
                break;
            };
            each(completion);
            taken += 1;
        }
        if taken == 0 && inner.overflowed() {
            return Err(Error::NoMemory("completion queue entries; some were lost"));
        }
        Ok(taken)
    }

    /// Asks for an event on the channel at the next completion, or only the next solicited or
    /// failed one.
    pub fn request_notify(&self, solicited_only: bool) {
        self.inner.lock().arm(solicited_only);
    }

    /// Changes how many completions the queue holds.
    ///
    /// # Errors
    /// Out of range, or more completions wait.
    pub fn resize(&self, entries: u32) -> Result<(), Error> {
        if entries == 0 || entries > MAX_CQE || !self.inner.lock().resize(entries) {
            return Err(Error::Invalid("number of completion queue entries"));
        }
        Ok(())
    }

    /// Completions the queue holds at most.
    pub fn capacity(&self) -> u32 {
        self.inner.lock().capacity()
    }

    /// Ends the queue: its undelivered events are dropped.
    ///
    /// # Errors
    /// Queue pairs still use it.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.users.load(Ordering::Acquire) > 0 {
            return Err(Error::Busy("queue pairs"));
        }
        if let Some(channel) = &self.channel {
            channel.forget(self.cookie);
        }
        self.context.forget_events(AsyncObject::Cq(self.cookie));
        Ok(())
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn drop_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn forget(&self, qp: QpNumber) {
        self.inner.lock().forget(qp);
    }

    /// Publishes the completions of a pass.
    pub(crate) fn publish(&self, completions: &mut Vec<Completion>) {
        let mut notify = false;
        let mut overflow = false;
        {
            let mut inner = self.inner.lock();
            for completion in completions.drain(..) {
                let pushed = inner.push(completion);
                notify |= pushed.notify;
                overflow |= pushed.overflow;
            }
        }
        if notify {
            if let Some(channel) = &self.channel {
                channel.post(self.cookie);
            }
        }
        if overflow {
            crate::error!(
                "completion queue overflow: it holds {} entries",
                self.capacity()
            );
            self.context.raise(AsyncEvent {
                kind: AsyncEventKind::CqError,
                object: AsyncObject::Cq(self.cookie),
            });
        }
    }
}
