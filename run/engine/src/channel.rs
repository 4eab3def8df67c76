//! Event channels: a queue behind a descriptor that programs wait on.
//!
//! A thread that blocks in [`Channel::get`] serves all connections of the process while it waits,
//! so no other thread has to wake up first and then wake this one. Events that such a thread
//! takes itself never touch the descriptor.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use weft_os::busy_poll::short_waits::ShortWaits;
use weft_os::signals;

use crate::error::Error;
use crate::progress::{Lead, Progress};
use crate::sync::{EventCounter, Mutex};

#[derive(Debug)]
pub(crate) struct Channel<T> {
    counter: EventCounter,
    /// How many times [`Progress::busy_poll`] a wait looks for its event before it sleeps.
    looks: u32,
    queue: Mutex<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    events: VecDeque<Entry<T>>,
    /// A thread serves the connections on behalf of this channel and looks here by itself.
    served: bool,
    /// The waits of such threads.
    waits: ShortWaits,
}

#[derive(Debug)]
struct Entry<T> {
    event: T,
    /// The descriptor counts this event.
    counted: bool,
}

impl<T> Channel<T> {
    /// Its waits look for so many times [`Progress::busy_poll`], where events come soon.
    pub(crate) fn new(looks: u32) -> Result<Channel<T>, Error> {
        Ok(Channel {
            counter: EventCounter::new()?,
            looks,
            queue: Mutex::new(Queue {
                events: VecDeque::new(),
                served: false,
                waits: ShortWaits::default(),
            }),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.counter.raw()
    }

    pub(crate) fn post(&self, event: T, progress: &Progress) {
        let mut queue = self.queue.lock();
        let counted = !queue.served;
        queue.events.push_back(Entry { event, counted });
        if counted {
            // Under the lock: whoever takes the entry relies on the count.
            self.counter.add();
        } else if !progress.is_lead() {
            // The lead looks here only after it served something, and may be asleep.
            progress.wake_lead();
        }
    }

    /// Drops the events that `unwanted` says, as when their object is destroyed; returns them.
    pub(crate) fn remove(&self, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut queue = self.queue.lock();
        let mut removed = Vec::new();
        let mut kept = VecDeque::with_capacity(queue.events.len());
        for entry in queue.events.drain(..) {
            if unwanted(&entry.event) {
                if entry.counted {
                    self.counter.take();
                }
                removed.push(entry.event);
            } else {
                kept.push_back(entry);
            }
        }
        queue.events = kept;
        removed
    }

    fn take(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        let entry = queue.events.pop_front()?;
        if entry.counted {
            self.counter.take();
        }
        Some(entry.event)
    }

    /// The next event; waits for it unless the descriptor is non-blocking. In a child it is the parent's, as is what
    /// would be served meanwhile.
    pub(crate) fn get(&self, progress: &Progress) -> Result<T, Error> {
        if progress.is_foreign() {
            return Err(Error::forked());
        }
        progress.flush_deferred();
        loop {
            if let Some(event) = self.take() {
                return Ok(event);
            }
            if self.counter.is_nonblocking() {
                return Err(Error::WouldBlock);
            }
            match progress.lead() {
                Some(lead) => return self.serve(&lead, progress),
                None => self.wait_on_descriptor()?,
            }
        }
    }

    /// Serves the connections until this channel has an event.
    fn serve(&self, lead: &Lead<'_>, progress: &Progress) -> Result<T, Error> {
        let wait = {
            let mut queue = self.queue.lock();
            queue.served = true;
            queue
                .waits
                .begin(progress.now(), self.looks * progress.busy_poll())
        };
        let outcome = loop {
            if let Some(event) = self.take() {
                break Ok(event);
            }
            // Behind the event: what is due for a connection that was just told leaves with the program's first
            // message.
            if lead.flush_deferred() {
                // That may have made an event.
                continue;
            }
            match lead.serve_once(wait.looks_until()) {
                // The queue's lock may be held for good.
                Err(Error::Forked) => return Err(Error::Forked),
                Err(Error::Interrupted) if signals::restart_after_interrupt() => {}
                Err(error) => break Err(error),
                Ok(()) => {}
            }
        };
        let mut queue = self.queue.lock();
        queue.served = false;
        queue.waits.end(wait, progress.now());
        for entry in queue.events.iter_mut().filter(|e| !e.counted) {
            entry.counted = true;
            self.counter.add();
        }
        outcome
    }

    /// Somebody else serves: the descriptor says when there is an event.
    fn wait_on_descriptor(&self) -> Result<(), Error> {
        match self.counter.wait().map_err(Error::from) {
            Err(Error::Interrupted) if signals::restart_after_interrupt() => Ok(()),
            result => result,
        }
    }
}
