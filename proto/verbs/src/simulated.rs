//! A device in memory, for tests, fuzzers and simulators: regions in one arena with canaries
//! between them, and lists of what completed.

use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use weft_iwarp::AtomicOperation;

use crate::host::{AtomicFault, Host, MemoryFault, RegionFault, Scope, Span};
use crate::mr::{RegionSpec, Regions};
use crate::srq::SharedReceiveQueue;
use crate::types::{Access, AsyncEventKind, Bind, Completion, PdId, Stag};
use crate::wqe::RecvWqe;

/// The domain of every region that names no other.
pub const PD: PdId = PdId(1);
const CANARY: u8 = 0xC5;
const GAP: usize = 64;

/// A source of STags: `first`, and what follows from it where that one is taken.
pub fn draws(first: u32) -> impl FnMut() -> u32 {
    let mut next = first;
    move || {
        let drawn = next;
        // The low bits of such a sequence repeat soon; those of an STag that say its place are in the middle.
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        drawn
    }
}

/// Memory, and what a queue pair on it reported.
#[derive(Debug, Default)]
pub struct Device {
    arena: Vec<u8>,
    /// Regions and windows; the handle is the region's place in the arena.
    pub regions: Regions<usize>,
    granted: Vec<Range<usize>>,
    /// Regions whose memory the program unmapped: they are checked like others, and reached no more.
    pub unmapped: Vec<Stag>,
    /// Completions of the send queue.
    pub sends: Vec<Completion>,
    /// Completions of the receive queue.
    pub recvs: Vec<Completion>,
    /// Completions of [`Device::sends`] that count as not polled yet, from the newest on.
    pub unpolled: usize,
    /// Asynchronous events.
    pub async_events: Vec<AsyncEventKind>,
    /// The time.
    pub now: Duration,
    /// The shared receive queue, where the queue pair uses one.
    pub srq: Option<SharedReceiveQueue>,
}

impl Device {
    /// Registers `len` octets of zeros under the address `iova`, and under the STag `random` if its place is free.
    ///
    /// # Panics
    /// The device is full, or the range wraps.
    pub fn region(&mut self, len: usize, iova: u64, access: Access, random: u32) -> Stag {
        self.region_in(PD, len, iova, access, random)
    }

    /// The same in a domain of the caller's.
    ///
    /// # Panics
    /// The device is full, or the range wraps.
    pub fn region_in(
        &mut self,
        pd: PdId,
        len: usize,
        iova: u64,
        access: Access,
        random: u32,
    ) -> Stag {
        let at = self.arena.len() + GAP;
        self.arena.resize(at, CANARY);
        self.arena.resize(at + len, 0);
        self.arena.resize(at + len + GAP, CANARY);
        self.granted.push(at..at + len);
        let spec = RegionSpec {
            iova,
            len: len as u64,
            access,
            pd,
        };
        self.regions
            .insert(spec, at, draws(random))
            .expect("a region")
    }

    /// A region's octets.
    ///
    /// # Panics
    /// There is no such region.
    pub fn octets(&mut self, stag: Stag) -> &mut [u8] {
        let region = self.regions.get(stag).expect("a region");
        let (at, len) = (region.memory, region.len as usize);
        &mut self.arena[at..at + len]
    }

    /// What was registered by the `n`th call, whether it still is or not.
    pub fn ever_registered(&self, n: usize) -> &[u8] {
        &self.arena[self.granted[n].clone()]
    }

    /// The octets that a span names, if it is still valid.
    pub fn octets_of(&self, span: Span) -> Option<&[u8]> {
        Some(&self.arena[self.place_of(span)?])
    }

    fn place_of(&self, span: Span) -> Option<Range<usize>> {
        if self.unmapped.contains(&span.stag) {
            return None;
        }
        let (at, offset) = self.regions.locate(span)?;
        let start = at + offset as usize;
        Some(start..start + span.len as usize)
    }

    /// Checks that no octet outside a region was ever touched.
    ///
    /// # Panics
    /// One was.
    pub fn check_canaries(&self) {
        let mut at = 0;
        for granted in &self.granted {
            assert!(self.arena[at..granted.start].iter().all(|o| *o == CANARY));
            at = granted.end;
        }
        assert!(self.arena[at..].iter().all(|o| *o == CANARY));
    }
}

impl Host for Device {
    fn now(&self) -> Duration {
        self.now
    }

    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<Span, RegionFault> {
        self.regions.check(stag, addr, len, access, scope)
    }

    fn is_region(&self, stag: Stag) -> bool {
        self.regions.get(stag).is_some()
    }

    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault> {
        let place = self.place_of(span).ok_or(MemoryFault)?;
        out.extend_from_slice(&self.arena[place]);
        Ok(())
    }

    fn write(&mut self, span: Span, octets: &[u8]) -> Result<(), MemoryFault> {
        let place = self.place_of(span).ok_or(MemoryFault)?;
        self.arena[place].copy_from_slice(octets);
        Ok(())
    }

    fn atomic(&mut self, span: Span, operation: &AtomicOperation) -> Result<u64, AtomicFault> {
        let place = self.place_of(span).ok_or(AtomicFault::Memory)?;
        let (start, _) = self.regions.locate(span).ok_or(AtomicFault::Memory)?;
        // Regions are taken to begin at aligned addresses.
        if !(place.start - start).is_multiple_of(8) {
            return Err(AtomicFault::Alignment);
        }
        let mut octets = [0; 8];
        octets.copy_from_slice(&self.arena[place.clone()]);
        let old = u64::from_ne_bytes(octets);
        self.arena[place].copy_from_slice(&operation.apply(old).to_ne_bytes());
        Ok(old)
    }

    fn invalidate(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.regions.invalidate(stag, scope)
    }

    fn invalidate_for_peer(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        self.regions.invalidate_for_peer(stag, scope)
    }

    fn bind(&mut self, bind: &Bind, scope: Scope) -> Result<(), RegionFault> {
        self.regions.bind(bind, scope)
    }

    fn polled_slots(&self) -> u64 {
        let polled = self.sends.len().saturating_sub(self.unpolled);
        self.sends[..polled]
            .iter()
            .map(|c| u64::from(c.slots))
            .sum()
    }

    fn complete_send(&mut self, completion: Completion) {
        self.sends.push(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.recvs.push(completion);
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        self.srq.as_mut()?.pop().0
    }

    fn async_event(&mut self, kind: AsyncEventKind) {
        self.async_events.push(kind);
    }
}
