//! Device contexts, protection domains and completion channels.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use weft_verbs::types::{AsyncEventKind, PdId};

use crate::channel::Channel;
use crate::engine::{engine, Engine};
use crate::error::Error;

/// The object an asynchronous event is about, by the cookie it was created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncObject {
    /// A completion queue.
    Cq(u64),
    /// A queue pair.
    Qp(u64),
    /// A shared receive queue.
    Srq(u64),
}

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// To what.
    pub object: AsyncObject,
}

/// An open device.
#[derive(Debug)]
pub struct Context {
    engine: Arc<Engine>,
    events: Channel<AsyncEvent>,
}

impl Context {
    /// Opens the device.
    ///
    /// # Errors
    /// The engine cannot start.
    pub fn open() -> Result<Arc<Context>, Error> {
        Ok(Arc::new(Context {
            engine: engine()?,
            events: Channel::new(1)?,
        }))
    }

    /// The process's engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// A descriptor that is readable while an asynchronous event waits.
    pub fn async_fd(&self) -> RawFd {
        self.events.fd()
    }

    /// The next asynchronous event; waits for it unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn get_async_event(&self) -> Result<AsyncEvent, Error> {
        self.events.get(&self.engine.progress)
    }

    pub(crate) fn raise(&self, event: AsyncEvent) {
        self.events.post(event, &self.engine.progress);
    }

    /// Drops the undelivered events of an object that is destroyed.
    pub fn forget_events(&self, object: AsyncObject) {
        self.events.remove(|event| event.object == object);
    }

    /// A new protection domain.
    pub fn alloc_pd(self: &Arc<Self>) -> Arc<Pd> {
        Arc::new(Pd {
            id: PdId(self.engine.new_pd_number()),
            context: self.clone(),
            users: AtomicUsize::new(0),
        })
    }

    /// A new completion channel.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn create_comp_channel(self: &Arc<Self>) -> Result<Arc<CompChannel>, Error> {
        Ok(Arc::new(CompChannel {
            context: self.clone(),
            events: Channel::new(1)?,
        }))
    }
}

/// A completion channel.
#[derive(Debug)]
pub struct CompChannel {
    context: Arc<Context>,
    events: Channel<u64>,
}

impl CompChannel {
    /// A descriptor that is readable while a completion event waits.
    pub fn fd(&self) -> RawFd {
        self.events.fd()
    }

    /// The next completion event, as the cookie of its queue; waits for it unless the descriptor
    /// is non-blocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn get_event(&self) -> Result<u64, Error> {
        self.events.get(&self.context.engine.progress)
    }

    pub(crate) fn post(&self, cookie: u64) {
        self.events.post(cookie, &self.context.engine.progress);
    }

    pub(crate) fn forget(&self, cookie: u64) {
        self.events.remove(|c| *c == cookie);
    }
}

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    id: PdId,
    context: Arc<Context>,
    users: AtomicUsize,
}

impl Pd {
    /// Its number.
    pub fn id(&self) -> PdId {
        self.id
    }

    /// The device context it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.context.engine
    }

    /// Ends the domain.
    ///
    /// # Errors
    /// Regions, windows, queue pairs or shared receive queues still belong to it.
    pub fn dealloc(&self) -> Result<(), Error> {
        if self.users.load(Ordering::Acquire) > 0 {
            return Err(Error::Busy("queue pairs or shared receive queues"));
        }
        if self.engine().regions.read().any_in(self.id) {
            return Err(Error::Busy("memory regions or windows"));
        }
        Ok(())
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn drop_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}
