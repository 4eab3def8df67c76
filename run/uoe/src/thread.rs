//! The thread as calls see it: whether there is one, what it is told, and how it is woken.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Locked};
use weft_os::poll::Waker;
use weft_os::process;

use crate::mail::Mail;
use crate::offload::Offload;
use crate::service;
use crate::worker::Worker;

impl Offload {
    fn thread(&self) -> Option<Guard<'_, Worker>> {
        let (Locked::Held(mut thread) | Locked::Orphaned(mut thread)) = self.thread.lock() else {
            return None;
        };
        if thread.process != process::id() {
            // A child has none of its parent's threads, and what the parent's was told is not for it.
            *thread = Worker {
                process: process::id(),
                ..Worker::default()
            };
            self.takes_port.store(0, Ordering::Release);
            self.forget_adapter();
            self.has_adapter.store(false, Ordering::Relaxed);
            self.is_serving.store(false, Ordering::Relaxed);
            self.ending.store(false, Ordering::Relaxed);
            self.ended.store(false, Ordering::Relaxed);
            self.counts.clear();
            self.forget_left();
            if let Locked::Held(mut mail) | Locked::Orphaned(mut mail) = self.mail.lock() {
                mail.clear();
            }
        }
        Some(thread)
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.thread().is_some_and(|thread| thread.runs)
    }

    pub(crate) fn ensure_thread(&'static self) {
        let Some(mut thread) = self.thread() else {
            return;
        };
        if thread.runs || self.is_over() {
            return;
        }
        let Ok(waker) = Waker::apart() else { return };
        thread.waker = Some(Guarded::new(waker));
        let run = move || service::run(self);
        thread.runs = self.own_thread.start("weft-uoe", 256 * 1024, run);
    }

    /// Tells the thread something; says whether there was room for it.
    pub(crate) fn tell(&self, mail: Mail) -> bool {
        let is_put = match self.mail.lock() {
            Locked::Held(mut mailbox) | Locked::Orphaned(mut mailbox) => mailbox.put(mail),
            Locked::Again => false,
        };
        self.wake();
        is_put
    }

    /// What the thread was told.
    pub(crate) fn take_mail(&self, into: &mut Vec<Mail>) {
        if let Locked::Held(mut mailbox) | Locked::Orphaned(mut mailbox) = self.mail.lock() {
            mailbox.take(into);
        }
    }

    /// Makes the thread look up.
    pub(crate) fn wake(&self) {
        if let Some(mut thread) = self.thread() {
            if let Some(waker) = thread.waker.as_mut().and_then(Guarded::get) {
                waker.wake();
            }
        }
    }

    /// The number that the thread waits for.
    pub(crate) fn waker(&self) -> RawFd {
        let Some(mut thread) = self.thread() else {
            return -1;
        };
        if thread.waker.as_mut().and_then(Guarded::get).is_none() {
            // The program has closed it.
            thread.waker = Waker::apart().ok().map(Guarded::new);
        }
        thread.waker.as_ref().map_or(-1, Guarded::number)
    }

    /// Takes back what woke the thread. What it was told is to be read afterwards.
    pub(crate) fn clear_waker(&self) {
        if let Some(mut thread) = self.thread() {
            if let Some(waker) = thread.waker.as_mut().and_then(Guarded::get) {
                waker.clear();
            }
        }
    }

    /// The thread is gone.
    pub(crate) fn thread_ended(&self) {
        self.takes_port.store(0, Ordering::Release);
        if let Some(mut thread) = self.thread() {
            (thread.runs, thread.waker) = (false, None);
        }
    }
}
