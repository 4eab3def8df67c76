//! Posting to the send queue, and what decides whether a post leaves at once or with others.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::MutexGuard;
use weft_verbs::types::{Payload, PostError, SendOp, SendRequest};

use super::{Inner, Qp};
use crate::engine::Engine;
use crate::host::{lock_regions, EngineHost, LockedRegions};
use crate::progress::Flush;

/// Posts between two polls that make a burst: from then on posts gather.
const BURST_POSTS_MIN: u32 = 4;
/// The same while the program works off many messages that one poll took: it polls again when it is through with them,
/// and messages that came together are answered together.
const BURST_POSTS_AFTER_MANY_MIN: u32 = 2;
/// Posts that gather at most before they are sent.
const GATHERED_POSTS_MAX: u32 = 64;
/// Payloads longer than this are sent at once: the copy or the system call dominates anyway.
const GATHERED_OCTETS_MAX: u64 = 4096;

/// What a queue pair remembers of its posts.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// The interval between polls that `posts` counts in; see [`Gathering::gathers`].
    interval: AtomicU64,
    /// Posts in that interval.
    posts: AtomicU32,
    /// The interval before had a burst of posts.
    bursting: AtomicBool,
    /// It stands in the engine's list of deferred queue pairs.
    deferred: AtomicBool,
}

impl Gathering {
    /// Whether a post waits for the next poll to be sent together with others.
    ///
    /// The first messages on a quiet queue pair leave at once. A program that posts bursts
    /// between polls gathers: its next poll sends everything, and if it does not poll the service
    /// thread's tick does. Only while that ticks may anything wait.
    #[inline]
    pub(crate) fn gathers(
        &self,
        count: u32,
        short: bool,
        engine: &Engine,
        who: impl FnOnce() -> Option<Arc<dyn Flush>>,
    ) -> bool {
        // All under the queue pair's lock, so that plain loads and stores do.
        let interval = engine.progress.polls.interval();
        let burst = match engine.progress.polls.has_many() {
            false => BURST_POSTS_MIN,
            true => BURST_POSTS_AFTER_MANY_MIN,
        };
        let mut before = self.posts.load(Ordering::Relaxed);
        if self.interval.load(Ordering::Relaxed) != interval {
            self.interval.store(interval, Ordering::Relaxed);
            self.bursting.store(before >= burst, Ordering::Relaxed);
            before = 0;
        }
        let posts = before + count;
        self.posts.store(posts, Ordering::Relaxed);
        if before < burst && posts >= burst {
            self.bursting.store(true, Ordering::Relaxed);
            engine.progress.note_polling();
        }
        if !short
            || before / GATHERED_POSTS_MAX != posts / GATHERED_POSTS_MAX
            || !self.bursting.load(Ordering::Relaxed)
            || !engine.progress.may_defer()
        {
            return false;
        }
        self.defer(engine, who);
        true
    }

    /// What is to be sent waits for the program's next call, or the service thread's tick. The caller has the queue
    /// pair's lock: who takes it from the list does so before it waits for that lock, so that one which seems to stand
    /// there still is sent with what was posted.
    pub(crate) fn defer(&self, engine: &Engine, who: impl FnOnce() -> Option<Arc<dyn Flush>>) {
        if !self.deferred.load(Ordering::Relaxed) {
            self.deferred.store(true, Ordering::Release);
            if let Some(who) = who() {
                engine.progress.defer(who);
            }
        }
    }

    /// What has gathered is about to be sent.
    pub(crate) fn end(&self) {
        self.deferred.store(false, Ordering::Release);
    }
}

impl Qp {
    /// Posts to the send queue.
    ///
    /// # Errors
    /// See [`PostError`].
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let engine = self.pd.engine();
        let mut inner = self.inner.lock();
        let posted = {
            let inner = &mut *inner;
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.post_send(request, &mut host)
        };
        if posted.is_ok() && self.gathers(1, is_short(request), engine) {
            drop(inner);
            return posted;
        }
        self.post_locked(inner, is_write(request), engine);
        posted
    }

    /// Begins a list of posts that are sent together when the batch is dropped.
    pub fn send_batch(&self) -> SendBatch<'_> {
        SendBatch {
            qp: self,
            inner: Some(self.inner.lock()),
            regions: None,
            posts: 0,
            all_short: true,
            writes: false,
        }
    }

    /// Whether a post waits for the next poll to be sent together with others.
    #[inline]
    fn gathers(&self, count: u32, short: bool, engine: &Engine) -> bool {
        self.gathering
            .gathers(count, short, engine, || self.as_flush())
    }

    fn as_flush(&self) -> Option<Arc<dyn Flush>> {
        let me: Arc<dyn Flush> = self.me.upgrade()?;
        Some(me)
    }

    /// What is due waits for the program's next call.
    pub(super) fn defer(&self, engine: &Engine) {
        self.gathering.defer(engine, || self.as_flush());
    }
}

impl Flush for Qp {
    fn flush(&self) {
        self.gathering.end();
        self.post_locked(self.inner.lock(), false, self.pd.engine());
    }
}

/// Whether a request's payload is so short that gathering it with others pays.
#[inline]
pub(crate) fn is_short(request: &SendRequest<'_>) -> bool {
    matches!(request.payload, Payload::Inline(_)) || request.payload.octets() <= GATHERED_OCTETS_MAX
}

#[inline]
fn is_write(request: &SendRequest<'_>) -> bool {
    matches!(request.op, SendOp::Write { .. })
}

/// Posts that are sent together when this is dropped, or with the next ones of a burst.
#[derive(Debug)]
pub struct SendBatch<'a> {
    qp: &'a Qp,
    inner: Option<MutexGuard<'a, Inner>>,
    /// Locked by the first post, for all of them.
    regions: Option<LockedRegions<'a>>,
    posts: u32,
    all_short: bool,
    /// The last of them is a Write.
    writes: bool,
}

impl SendBatch<'_> {
    /// Posts one request.
    ///
    /// # Errors
    /// See [`PostError`]; earlier posts of the batch stand.
    #[inline(always)]
    pub fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.posts += 1;
        self.all_short &= is_short(request);
        self.writes = is_write(request);
        let Some(inner) = &mut self.inner else {
            return Err(PostError::InvalidState);
        };
        let engine = self.qp.pd.engine();
        let regions = self.regions.get_or_insert_with(|| lock_regions(engine));
        let (inner, srq) = (&mut **inner, self.qp.srq.as_ref());
        let mut host = EngineHost::begin_under(regions, engine, &mut inner.results, srq);
        inner.machine.post_send(request, &mut host)
    }
}

impl SendBatch<'_> {
    /// Whether a request could be posted if `earlier` others were before it.
    ///
    /// # Errors
    /// Those that posting it would give.
    pub fn check(&mut self, request: &SendRequest<'_>, earlier: u32) -> Result<(), PostError> {
        let Some(inner) = &mut self.inner else {
            return Err(PostError::InvalidState);
        };
        let engine = self.qp.pd.engine();
        let inner = &mut **inner;
        let host = EngineHost::begin(engine, &mut inner.results, self.qp.srq.as_ref());
        inner.machine.check_send(request, earlier, &host)
    }
}

impl Drop for SendBatch<'_> {
    fn drop(&mut self) {
        let engine = self.qp.pd.engine();
        drop(self.regions.take());
        if let Some(inner) = self.inner.take() {
            if !self.qp.gathers(self.posts, self.all_short, engine) {
                self.qp
                    .post_locked(inner, self.posts == 1 && self.writes, engine);
            }
        }
    }
}
