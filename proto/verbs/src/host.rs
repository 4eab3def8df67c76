//! What a queue pair asks of whoever drives it: memory, completions, shared queues.
//!
//! "Memory is a trait": the queue pair checks keys, bounds and rights through [`Host::check`]
//! and then names a [`Span`]; only the driver knows where those octets are.

use alloc::vec::Vec;
use core::time::Duration;

use weft_iwarp::AtomicOperation;

use crate::types::{Access, AsyncEventKind, Bind, Completion, PdId, QpNumber, Sge, Stag};
use crate::wqe::RecvWqe;

/// On whose behalf memory is reached: what STags are associated with (RFC 5041 section 8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The queue pair's protection domain.
    pub pd: PdId,
    /// The queue pair, which memory windows of type 2 belong to.
    pub qp: QpNumber,
}

/// Octets of a registered region that passed every check when it was made.
///
/// A span does not keep its region alive: the driver checks the STag again when it uses one
/// later, so that a region deregistered meanwhile is an error and not an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The region's STag.
    pub stag: Stag,
    /// Octets from the start of the region.
    pub offset: u64,
    /// Octets.
    pub len: u32,
}

impl Span {
    /// The span without its first `octets`.
    #[must_use]
    pub fn skip(self, octets: u32) -> Span {
        Span {
            stag: self.stag,
            offset: self.offset + u64::from(octets),
            len: self.len - octets,
        }
    }

    /// The span's first `octets`.
    #[must_use]
    pub fn first(self, octets: u32) -> Span {
        Span {
            len: octets.min(self.len),
            ..self
        }
    }
}

/// Why an access to a region is refused (RFC 5041 section 7, RFC 5040 section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionFault {
    /// No such STag, a stale key, or invalidated.
    InvalidStag,
    /// The region belongs to another protection domain.
    WrongPd,
    /// Outside the region.
    Bounds,
    /// Offset plus length exceeds 2^64.
    Wrap,
    /// The region does not grant the right.
    Access,
}

/// The octets of a span could not be reached although the region is registered: the program
/// unmapped them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFault;

/// Why octets could not be copied to or from where an STag says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessFault {
    /// The region refuses it.
    Region(RegionFault),
    /// The region grants it, and its memory is gone.
    Memory,
}

impl From<RegionFault> for AccessFault {
    fn from(fault: RegionFault) -> Self {
        AccessFault::Region(fault)
    }
}

impl From<MemoryFault> for AccessFault {
    fn from(_: MemoryFault) -> Self {
        AccessFault::Memory
    }
}

/// Why an atomic operation was not carried out; its target is then as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicFault {
    /// The region is gone or its memory is.
    Memory,
    /// The address is not a multiple of eight (RFC 7306 section 5.1).
    Alignment,
}

impl From<MemoryFault> for AtomicFault {
    fn from(_: MemoryFault) -> AtomicFault {
        AtomicFault::Memory
    }
}

/// What a queue pair asks of its driver.
pub trait Host {
    /// The time since any epoch that all calls for the queue pair share; it never goes back. A method, because few
    /// passes need it and a clock takes as long to read as a message to frame.
    fn now(&self) -> Duration;

    /// Checks `[addr, addr + len)` of the region or window `stag` for a queue pair.
    ///
    /// # Errors
    /// The first rule that the access breaks.
    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<Span, RegionFault>;

    /// Whether `stag` names a region: the same memory for as long as it names any, which a window does not.
    fn is_region(&self, stag: Stag) -> bool;

    /// Appends a copy of a span to `out`.
    ///
    /// # Errors
    /// The region is gone or its memory is.
    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault>;

    /// Copies into a span, first octet first; `octets.len()` equals the span's length.
    ///
    /// # Errors
    /// The region is gone or its memory is.
    fn write(&mut self, span: Span, octets: &[u8]) -> Result<(), MemoryFault>;

    /// [`Host::check`] and [`Host::read`] of what it grants, in one: a driver that finds the region once saves a good
    /// part of what a short message costs.
    ///
    /// # Errors
    /// Those of the two.
    #[inline]
    fn read_checked(
        &mut self,
        sge: Sge,
        access: Access,
        scope: Scope,
        out: &mut Vec<u8>,
    ) -> Result<(), AccessFault> {
        let span = self.check(Stag(sge.lkey), sge.addr, sge.length, access, scope)?;
        Ok(self.read(span, out)?)
    }

    /// [`Host::check`] and [`Host::write`] to what it grants, in one.
    ///
    /// # Errors
    /// Those of the two.
    #[inline]
    fn write_checked(
        &mut self,
        (stag, addr): (Stag, u64),
        octets: &[u8],
        access: Access,
        scope: Scope,
    ) -> Result<(), AccessFault> {
        let span = self.check(stag, addr, octets.len() as u32, access, scope)?;
        Ok(self.write(span, octets)?)
    }

    /// Replaces the 64-bit value that a span of eight octets names, in the machine's own byte
    /// order and in one step to every other atomic operation; gives what it was.
    ///
    /// # Errors
    /// See [`AtomicFault`].
    fn atomic(&mut self, span: Span, operation: &AtomicOperation) -> Result<u64, AtomicFault>;

    /// Makes a region of the domain, or a window of the queue pair, invalid. Placement that is
    /// under way elsewhere ends before completions of this pass are published.
    ///
    /// # Errors
    /// No such region, or of another domain. An STag that is invalid already is no error.
    fn invalidate(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault>;

    /// The same as the peer asks for it (Send with Invalidate), whom only what was opened to peers is any business.
    ///
    /// # Errors
    /// As [`Host::invalidate`]; and a region without a remote right, or a window that was never bound, does not exist
    /// for the peer.
    fn invalidate_for_peer(&mut self, stag: Stag, scope: Scope) -> Result<(), RegionFault>;

    /// Binds a memory window.
    ///
    /// # Errors
    /// What of window, region, range or rights does not fit.
    fn bind(&mut self, bind: &Bind, scope: Scope) -> Result<(), RegionFault>;

    /// Sum of [`Completion::slots`] over the queue pair's completions that were polled since it
    /// was made or reset.
    fn polled_slots(&self) -> u64;

    /// A completion for the send queue's CQ.
    fn complete_send(&mut self, completion: Completion);

    /// A completion for the receive queue's CQ.
    fn complete_recv(&mut self, completion: Completion);

    /// The next receive of the shared receive queue; called only for queue pairs that have one.
    fn take_shared_recv(&mut self) -> Option<RecvWqe>;

    /// Something asynchronous happened to the queue pair.
    fn async_event(&mut self, kind: AsyncEventKind);
}
