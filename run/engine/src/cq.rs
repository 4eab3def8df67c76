//! Completion queues. Polling one serves every connection of the process.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use weft_verbs::cq::CompletionQueue;
use weft_verbs::types::{AsyncEventKind, Completion, QpNumber, MAX_CQE};

use crate::context::{AsyncEvent, AsyncObject, CompChannel, Context};
use crate::error::Error;
use crate::progress::polling::{self, Taken};

/// A queue pair that may keep a finished completion to itself for a moment (decision 0057).
pub(crate) trait Withholds: std::fmt::Debug + Send + Sync {
    /// What it withholds is the program's now.
    fn end_withholding(&self);
}

/// A queue pair that sends its completions to a queue.
#[derive(Debug)]
struct Sender {
    number: QpNumber,
    /// What polling gave back to it.
    polled: Arc<AtomicU64>,
    withholds: Option<Weak<dyn Withholds>>,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    context: Arc<Context>,
    cookie: u64,
    inner: Mutex<Inner>,
    users: AtomicUsize,
    /// A hint: a sender withholds a completion.
    withheld: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    queue: CompletionQueue,
    /// Where its events go, until it is destroyed.
    channel: Option<Arc<CompChannel>>,
    /// The queue pairs that send here, by number.
    senders: Vec<Sender>,
    /// Where the last one stands that was polled.
    recent: usize,
}

impl Inner {
    fn find(&self, qp: QpNumber) -> Result<usize, usize> {
        self.senders
            .binary_search_by_key(&qp.0, |sender| sender.number.0)
    }

    /// A completion is polled: the places it stands for are free.
    #[inline]
    fn give_back(&mut self, qp: QpNumber, slots: u32) {
        if self.senders.get(self.recent).is_none_or(|s| s.number != qp) {
            let Ok(found) = self.find(qp) else {
                return;
            };
            self.recent = found;
        }
        // The queue's lock makes this the only writer.
        let polled = &self.senders[self.recent].polled;
        let sum = polled.load(Ordering::Relaxed) + u64::from(slots);
        polled.store(sum, Ordering::Release);
    }
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
            cookie,
            inner: Mutex::new(Inner {
                queue: CompletionQueue::new(entries),
                channel,
                senders: Vec::new(),
                recent: 0,
            }),
            users: AtomicUsize::new(0),
            withheld: AtomicBool::new(false),
        }))
    }

    /// Takes up to `max` completions, oldest first, and gives each to `each`. When none waits,
    /// the calling thread serves the connections first. Returns how many there were.
    ///
    /// # Errors
    /// The queue overflowed and holds nothing more: completions were lost. [`Error::Forked`] in a child: it is the
    /// parent's.
    #[inline]
    pub fn poll(&self, max: usize, mut each: impl FnMut(Completion)) -> Result<usize, Error> {
        let progress = &self.context.engine().progress;
        if progress.is_foreign() {
            return Err(Error::forked());
        }
        progress.flush_deferred();
        let taken = self.take(max, &mut each)?;
        if taken.completions > 0 {
            progress.note_take(taken);
            return Ok(taken.completions);
        }
        let unacknowledged = progress.poll();
        let taken = self.take(max, &mut each)?;
        progress.note_look(taken, unacknowledged);
        if taken.completions == 0 && progress.oversubscription.is_in_the_way() {
            progress.nap();
            return self.poll_ready(max, each);
        }
        Ok(taken.completions)
    }

    /// Takes up to `max` of the completions that are there, and serves nothing.
    ///
    /// # Errors
    /// As for [`Cq::poll`].
    #[inline]
    pub fn poll_ready(&self, max: usize, mut each: impl FnMut(Completion)) -> Result<usize, Error> {
        Ok(self.take(max, &mut each)?.completions)
    }

    #[inline]
    fn take(&self, max: usize, each: &mut impl FnMut(Completion)) -> Result<Taken, Error> {
        let mut inner = self.inner.lock();
        let mut taken = Taken::default();
        while taken.completions < max {
            let Some(completion) = inner.queue.pop() else {
                break;
            };
            if completion.slots > 0 {
                inner.give_back(completion.qp, completion.slots);
            }
            taken.messages += usize::from(completion.opcode.is_receive());
            taken.completions += 1;
            each(completion);
        }
        taken.left = !inner.queue.is_empty();
        if taken.completions == 0 && inner.queue.overflowed() {
            return Err(Error::NoMemory("completion queue entries; some were lost"));
        }
        Ok(taken)
    }

    /// Asks for an event on the channel at the next completion, or only the next solicited or
    /// failed one. In a child nothing is told: the queue is the parent's.
    pub fn request_notify(&self, solicited_only: bool) {
        let progress = &self.context.engine().progress;
        if progress.is_foreign() {
            return;
        }
        progress.end_lease();
        // Who asks for an event stops polling, and what is finished is there by then.
        if self.withheld.load(Ordering::Relaxed) {
            self.end_withholding();
        }
        polling::note_armed();
        self.inner.lock().queue.arm(solicited_only);
        // Who arms is about to sleep, maybe on the descriptor alone.
        progress.flush_deferred();
    }

    /// A sender withholds a completion.
    pub(crate) fn note_withheld(&self) {
        self.withheld.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn end_withholding(&self) {
        self.withheld.store(false, Ordering::Relaxed);
        let senders: Vec<_> = {
            let inner = self.inner.lock();
            let withholding = |sender: &Sender| sender.withholds.as_ref()?.upgrade();
            inner.senders.iter().filter_map(withholding).collect()
        };
        // They publish what they have here.
        senders.iter().for_each(|sender| sender.end_withholding());
    }

    /// Whether somebody waits for its next event, or is about to.
    pub(crate) fn is_armed(&self) -> bool {
        self.inner.lock().queue.is_armed()
    }

    /// Changes how many completions the queue holds.
    ///
    /// # Errors
    /// Out of range, or more completions wait.
    pub fn resize(&self, entries: u32) -> Result<(), Error> {
        if entries == 0 || entries > MAX_CQE || !self.inner.lock().queue.resize(entries) {
            return Err(Error::Invalid("number of completion queue entries"));
        }
        Ok(())
    }

    /// Completions the queue holds at most.
    pub fn capacity(&self) -> u32 {
        self.inner.lock().queue.capacity()
    }

    /// Ends the queue: its undelivered events are dropped.
    ///
    /// # Errors
    /// Queue pairs still use it.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.users.load(Ordering::Acquire) > 0 {
            return Err(Error::Busy("queue pairs"));
        }
        if let Some(channel) = self.inner.lock().channel.take() {
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

    /// A queue pair's send completions come here; `polled` counts what polling gives back.
    pub(crate) fn add_sender(
        &self,
        number: QpNumber,
        polled: &Arc<AtomicU64>,
        withholds: Option<Weak<dyn Withholds>>,
    ) {
        let mut inner = self.inner.lock();
        if let Err(at) = inner.find(number) {
            let sender = Sender {
                number,
                polled: polled.clone(),
                withholds,
            };
            inner.senders.insert(at, sender);
        }
    }

    pub(crate) fn remove_sender(&self, qp: QpNumber) {
        let mut inner = self.inner.lock();
        if let Ok(at) = inner.find(qp) {
            inner.senders.remove(at);
        }
    }

    /// Drops the completions of a queue pair that is reset or destroyed; nothing is given back
    /// for them.
    pub(crate) fn forget(&self, qp: QpNumber) {
        self.inner.lock().queue.forget(qp);
    }

    /// Publishes the completions of a pass.
    pub(crate) fn publish(&self, completions: &mut Vec<Completion>) {
        let mut notify = false;
        let mut overflow = false;
        let channel = {
            let mut inner = self.inner.lock();
            for completion in completions.iter() {
                let pushed = inner.queue.push(*completion);
                notify |= pushed.notify;
                overflow |= pushed.overflow;
            }
            completions.clear();
            notify.then(|| inner.channel.clone()).flatten()
        };
        if let Some(channel) = channel {
            channel.post(self.cookie);
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

impl Context {
    /// A completion queue for `entries` completions; `cookie` names it in events.
    ///
    /// # Errors
    /// The size is out of range.
    pub fn create_cq(
        self: &Arc<Self>,
        entries: u32,
        channel: Option<&Arc<CompChannel>>,
        cookie: u64,
    ) -> Result<Arc<Cq>, Error> {
        Cq::new(self, entries, channel.cloned(), cookie)
    }
}
