//! The engine as the host of a queue pair ([`weft_verbs::host::Host`]): memory, completions and the clock.
//!
//! There is a host for each *pass*: what one thread does at a queue pair while it holds that one's lock. The memory
//! table is read-locked from the first access that the pass checks to the end of the pass, so deregistration waits for
//! placement in flight. Completions gather here and are published when the pass is over, behind a barrier if the pass
//! invalidated a region.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLockReadGuard;
use weft_os::mem::{AtomicError, Registered};
use weft_verbs::host::{AccessFault, AtomicFault, Host, MemoryFault, RegionFault, Scope, Span};
use weft_verbs::iwarp::AtomicOperation;
use weft_verbs::mr::Regions;
use weft_verbs::types::{Access, AsyncEventKind, Bind, Completion, Sge, Stag};
use weft_verbs::wqe::RecvWqe;

use crate::cq::Cq;
use crate::engine::Engine;
use crate::srq::Srq;

/// What a pass leaves to be published.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) sends: Vec<Completion>,
    pub(crate) recvs: Vec<Completion>,
    pub(crate) async_events: Vec<AsyncEventKind>,
    pub(crate) invalidated: bool,
    /// Places of the send queue that polling has freed; the send queue's CQ counts.
    pub(crate) polled: Arc<AtomicU64>,
}

impl Results {
    pub(crate) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.recvs.is_empty() && self.async_events.is_empty()
    }

    /// Publishes everything; of a queue pair that is destroyed, nothing.
    pub(crate) fn publish(
        &mut self,
        destroyed: bool,
        (send_cq, recv_cq): (&Cq, &Cq),
        raise: impl FnMut(AsyncEventKind),
    ) {
        if destroyed {
            self.sends.clear();
            self.recvs.clear();
            self.async_events.clear();
            return;
        }
        if !self.sends.is_empty() {
            send_cq.publish(&mut self.sends);
        }
        if !self.recvs.is_empty() {
            recv_cq.publish(&mut self.recvs);
        }
        self.async_events.drain(..).for_each(raise);
    }
}

/// The memory table, locked for readers.
pub(crate) type LockedRegions<'a> = RwLockReadGuard<'a, Regions<Registered>>;

/// A queue pair's host, for one pass.
#[derive(Debug)]
pub(crate) struct EngineHost<'a> {
    engine: &'a Engine,
    /// Locked at the first use: a pass that posts and touches no memory needs no lock, which would be a good part of
    /// what it costs.
    regions: OnceCell<LockedRegions<'a>>,
    /// Locked by whoever began the pass, which is one of several under that lock.
    lent: Option<&'a LockedRegions<'a>>,
    pub(crate) results: &'a mut Results,
    pub(crate) srq: Option<&'a Arc<Srq>>,
}

impl<'a> EngineHost<'a> {
    #[inline]
    pub(crate) fn begin(
        engine: &'a Engine,
        results: &'a mut Results,
        srq: Option<&'a Arc<Srq>>,
    ) -> EngineHost<'a> {
        EngineHost {
            engine,
            regions: OnceCell::new(),
            lent: None,
            results,
            srq,
        }
    }

    /// Begins one of several passes for which the memory table is locked once. None of them binds a window.
    #[inline]
    pub(crate) fn begin_under(
        regions: &'a LockedRegions<'a>,
        engine: &'a Engine,
        results: &'a mut Results,
        srq: Option<&'a Arc<Srq>>,
    ) -> EngineHost<'a> {
        EngineHost {
            lent: Some(regions),
            ..EngineHost::begin(engine, results, srq)
        }
    }

    #[inline]
    fn regions(&self) -> &Regions<Registered> {
        match self.lent {
            Some(regions) => regions,
            None => self.regions.get_or_init(|| lock_regions(self.engine)),
        }
    }

    /// The memory of a span and where in it the span begins, if its STag is still valid.
    #[inline]
    pub(crate) fn locate(&self, span: Span) -> Option<(&Registered, u64)> {
        self.regions().locate(span)
    }
}

/// Locks the memory table for readers.
#[inline]
pub(crate) fn lock_regions(engine: &Engine) -> LockedRegions<'_> {
    // Recursive: a thread that waits to write must not stop the readers that a pass of the same thread already is.
    engine.regions.read_recursive()
}

/// Waits until every pass that began before is over.
pub(crate) fn wait_for_placements(engine: &Engine) {
    drop(engine.regions.write());
}

impl Host for EngineHost<'_> {
    #[inline]
    fn now(&self) -> Duration {
        self.engine.now()
    }

    #[inline]
    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<Span, RegionFault> {
        self.regions().check(stag, addr, len, access, scope)
    }

    fn is_region(&self, stag: Stag) -> bool {
        self.regions().get(stag).is_some()
    }

    #[inline]
    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault> {
        let (memory, offset) = self.locate(span).ok_or(MemoryFault)?;
        memory
            .append_to(offset, span.len as usize, out)
            .map_err(|_| MemoryFault)
    }

    #[inline]
    fn write(&mut self, span: Span, octets: &[u8]) -> Result<(), MemoryFault> {
        let (memory, offset) = self.locate(span).ok_or(MemoryFault)?;
        memory.write(offset, octets).map_err(|_| MemoryFault)
    }

    #[inline]
    fn read_checked(
        &mut self,
        sge: Sge,
        access: Access,
        scope: Scope,
        out: &mut Vec<u8>,
    ) -> Result<(), AccessFault> {
        let (memory, offset) =
            self.regions()
                .find(Stag(sge.lkey), sge.addr, sge.length, access, scope)?;
        memory
            .append_to(offset, sge.length as usize, out)
            .map_err(|_| AccessFault::Memory)
    }

    #[inline]
    fn write_checked(
        &mut self,
        (stag, addr): (Stag, u64),
        octets: &[u8],
        access: Access,
        scope: Scope,
    ) -> Result<(), AccessFault> {
        let (memory, offset) =
            self.regions()
                .find(stag, addr, octets.len() as u32, access, scope)?;
        memory
            .write(offset, octets)
            .map_err(|_| AccessFault::Memory)
    }

    fn atomic(&mut self, span: Span, operation: &AtomicOperation) -> Result<u64, AtomicFault> {
        let (memory, offset) = self.locate(span).ok_or(AtomicFault::Memory)?;
        memory
            .update(offset, |old| operation.apply(old))
            .map_err(|error| match error {
                AtomicError::Unmapped => AtomicFault::Memory,
                AtomicError::Unaligned => AtomicFault::Alignment,
            })
    }

    fn invalidate(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.results.invalidated = true;
        self.regions().invalidate(stag, scope)
    }

    fn invalidate_for_peer(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.results.invalidated = true;
        self.regions().invalidate_for_peer(stag, scope)
    }

    fn bind(&mut self, bind: &Bind, scope: Scope) -> Result<(), RegionFault> {
        // Rare, and it waits for placement under way through the old binding.
        debug_assert!(self.lent.is_none(), "such a pass binds no window");
        drop(self.regions.take());
        self.engine.regions.write().bind(bind, scope)
    }

    fn polled_slots(&self) -> u64 {
        self.results.polled.load(Ordering::Acquire)
    }

    #[inline]
    fn complete_send(&mut self, completion: Completion) {
        self.results.sends.push(completion);
    }

    #[inline]
    fn complete_recv(&mut self, completion: Completion) {
        self.results.recvs.push(completion);
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        self.srq?.take()
    }

    fn async_event(&mut self, kind: AsyncEventKind) {
        self.results.async_events.push(kind);
    }
}
