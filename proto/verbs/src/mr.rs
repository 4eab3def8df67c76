//! Memory regions: STags, bounds and rights. Memory windows are in [`window`].
//!
//! An STag is `[random 6][slot 18][random 8]` bits, the slot in the low bits of the 24-bit index
//! of the RDMAC verbs: dense enough to look up in one step, and with fourteen random bits that
//! change with every registration (RFC 5040 section 8.1.1: hard to predict, not reused).

mod window;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::host::{RegionFault, Scope, Span};
use crate::types::{Access, PdId, Stag};
use window::Window;

const SLOT_BITS: u32 = 18;
/// Most regions a device has at once.
pub const MAX_REGIONS: usize = 1 << SLOT_BITS;

/// A registered region and the driver's handle `M` on its memory.
#[derive(Debug)]
pub struct Region<M> {
    /// Local and remote key.
    pub stag: Stag,
    /// Address of the first octet as work requests and peers name it.
    pub iova: u64,
    /// Octets.
    pub len: u64,
    /// Rights granted.
    pub access: Access,
    /// The protection domain.
    pub pd: PdId,
    /// Cleared by invalidation; atomic because that happens while others look the region up.
    valid: AtomicBool,
    /// The driver's handle.
    pub memory: M,
}

/// What a region is registered with.
#[derive(Clone, Copy, Debug)]
pub struct RegionSpec {
    /// Address of the first octet as work requests and peers name it.
    pub iova: u64,
    /// Octets.
    pub len: u64,
    /// Rights granted.
    pub access: Access,
    /// The protection domain.
    pub pd: PdId,
}

/// What an STag's index names.
#[derive(Debug)]
enum Slot<M> {
    Free,
    Region(Region<M>),
    Window(Window),
}

/// All regions and windows of a device.
#[derive(Debug)]
pub struct Regions<M> {
    slots: Vec<Slot<M>>,
    free: Vec<u32>,
    windows: usize,
}

impl<M> Default for Regions<M> {
    fn default() -> Self {
        // Slot 0 is never used, so that no STag has index 0.
        Regions {
            slots: Vec::from([Slot::Free]),
            free: Vec::new(),
            windows: 0,
        }
    }
}

const fn slot_of(stag: Stag) -> usize {
    ((stag.0 >> 8) & ((1 << SLOT_BITS) - 1)) as usize
}

impl<M> Regions<M> {
    /// Registers a region; `random` makes its STag hard to predict. `None` when the device
    /// holds [`MAX_REGIONS`] or the range wraps the address space.
    pub fn insert(&mut self, spec: RegionSpec, memory: M, random: u32) -> Option<Stag> {
        spec.iova.checked_add(spec.len)?;
        let (slot, stag) = self.free_slot(random)?;
        self.slots[slot] = Slot::Region(Region {
            stag,
            iova: spec.iova,
            len: spec.len,
            access: spec.access,
            pd: spec.pd,
            valid: AtomicBool::new(true),
            memory,
        });
        Some(stag)
    }

    /// A slot, and an STag for it.
    fn free_slot(&mut self, random: u32) -> Option<(usize, Stag)> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() >= MAX_REGIONS => return None,
            None => {
                self.slots.push(Slot::Free);
                self.slots.len() as u32 - 1
            }
        };
        let high = (random >> 8) & !((1 << SLOT_BITS) - 1) & 0x00FF_FFFF;
        let stag = Stag(((high | slot) << 8) | (random & 0xFF));
        Some((slot as usize, stag))
    }

    /// Deregisters a region and gives the driver's handle back.
    pub fn remove(&mut self, stag: Stag) -> Option<M> {
        self.get_any(stag)?;
        match self.free(slot_of(stag)) {
            Slot::Region(region) => Some(region.memory),
            Slot::Free | Slot::Window(_) => None,
        }
    }

    fn free(&mut self, slot: usize) -> Slot<M> {
        self.free.push(slot as u32);
        core::mem::replace(&mut self.slots[slot], Slot::Free)
    }

    /// The region, valid or not.
    #[inline]
    fn get_any(&self, stag: Stag) -> Option<&Region<M>> {
        match self.slots.get(slot_of(stag))? {
            Slot::Region(region) => (region.stag == stag).then_some(region),
            Slot::Free | Slot::Window(_) => None,
        }
    }

    /// The region, if it is valid.
    #[inline]
    pub fn get(&self, stag: Stag) -> Option<&Region<M>> {
        self.get_any(stag)
            .filter(|r| r.valid.load(Ordering::Acquire))
    }

    /// Checks an access to `[addr, addr + len)`; see [`crate::host::Host::check`].
    ///
    /// # Errors
    /// The first rule broken: STag, domain, wrap, bounds, right.
    #[inline]
    pub fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<Span, RegionFault> {
        let Some(region) = self.get(stag) else {
            return self.check_window(stag, addr, len, access, scope);
        };
        if region.pd != scope.pd {
            return Err(RegionFault::WrongPd);
        }
        let offset = offset_in(region.iova, region.len, addr, u64::from(len))?;
        if !region.access.contains(access) {
            return Err(RegionFault::Access);
        }
        Ok(Span { stag, offset, len })
    }

    /// The driver's handle that holds the octets of a span, and the offset of the first in it;
    /// `None` when the STag was invalidated or is gone.
    #[inline]
    pub fn locate(&self, span: Span) -> Option<(&M, u64)> {
        match self.get(span.stag) {
            Some(region) => Some((&region.memory, span.offset)),
            None => self.locate_in_window(span),
        }
    }

    /// Makes a region or a window of type 2 invalid; accesses that start afterwards fail.
    ///
    /// # Errors
    /// No such region, or it belongs to another domain or queue pair, or cannot be invalidated.
    pub fn invalidate(&self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        let Some(region) = self.get_any(stag) else {
            return self.invalidate_window(stag, scope);
        };
        if region.pd != scope.pd {
            return Err(RegionFault::WrongPd);
        }
        region.valid.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether a domain has regions or windows.
    pub fn any_in(&self, pd: PdId) -> bool {
        self.slots.iter().any(|slot| match slot {
            Slot::Free => false,
            Slot::Region(region) => region.pd == pd,
            Slot::Window(window) => window.pd == pd,
        })
    }

    /// Regions and windows.
    pub fn count(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }
}

/// Where `[addr, addr + len)` begins in a range of `size` octets that begins at `base`.
#[inline]
fn offset_in(base: u64, size: u64, addr: u64, len: u64) -> Result<u64, RegionFault> {
    let end = addr.checked_add(len).ok_or(RegionFault::Wrap)?;
    if addr < base || end > base + size {
        return Err(RegionFault::Bounds);
    }
    Ok(addr - base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::QpNumber;

    const PD: PdId = PdId(1);
    const SCOPE: Scope = Scope {
        pd: PD,
        qp: QpNumber(7),
    };

    fn of_domain(pd: u32) -> Scope {
        Scope {
            pd: PdId(pd),
            ..SCOPE
        }
    }

    fn spec(iova: u64, len: u64, access: Access) -> RegionSpec {
        RegionSpec {
            iova,
            len,
            access,
            pd: PD,
        }
    }

    fn one(iova: u64, len: u64, access: Access) -> (Regions<()>, Stag) {
        let mut regions = Regions::default();
        let stag = regions
            .insert(spec(iova, len, access), (), 0xDEAD_BEEF)
            .unwrap();
        (regions, stag)
    }

    #[test]
    fn bounds_cannot_overflow() {
        let (regions, stag) = one(0x1000, 0x100, Access::REMOTE_WRITE);
        let check = |addr, len| regions.check(stag, addr, len, Access::REMOTE_WRITE, SCOPE);
        assert_eq!(check(0x1000, 0x100).unwrap().offset, 0);
        assert_eq!(check(0x10FF, 1).unwrap().offset, 0xFF);
        assert_eq!(check(0x10FF, 2), Err(RegionFault::Bounds));
        assert_eq!(check(0xFFF, 1), Err(RegionFault::Bounds));
        assert_eq!(check(u64::MAX, 2), Err(RegionFault::Wrap));
        assert_eq!(check(u64::MAX - 1, 1), Err(RegionFault::Bounds));
        assert_eq!(
            check(0x1100, 0).unwrap().len,
            0,
            "empty at the end is inside"
        );
    }

    #[test]
    fn a_region_at_the_top_of_the_address_space_is_whole() {
        let (regions, stag) = one(u64::MAX - 16, 16, Access::REMOTE_READ);
        assert!(regions
            .check(stag, u64::MAX - 1, 1, Access::REMOTE_READ, SCOPE)
            .is_ok());
        let mut regions = Regions::<()>::default();
        assert!(regions
            .insert(spec(u64::MAX, 2, Access::NONE), (), 1)
            .is_none());
    }

    #[test]
    fn each_rule_has_its_fault() {
        let (regions, stag) = one(0, 64, Access::REMOTE_READ);
        let check = |stag, access, scope| regions.check(stag, 0, 64, access, scope);
        assert_eq!(
            check(Stag(stag.0 ^ 1), Access::REMOTE_READ, SCOPE),
            Err(RegionFault::InvalidStag)
        );
        assert_eq!(
            check(Stag(0), Access::NONE, SCOPE),
            Err(RegionFault::InvalidStag)
        );
        assert_eq!(
            check(stag, Access::REMOTE_WRITE, SCOPE),
            Err(RegionFault::Access)
        );
        assert_eq!(
            check(stag, Access::REMOTE_READ, of_domain(2)),
            Err(RegionFault::WrongPd)
        );
    }

    #[test]
    fn a_stale_key_fails_after_the_slot_is_used_again() {
        let (mut regions, old) = one(0, 64, Access::REMOTE_READ);
        assert!(regions.remove(old).is_some());
        let new = regions
            .insert(spec(0, 64, Access::REMOTE_READ), (), 0x1234_5678)
            .unwrap();
        assert_eq!(slot_of(old), slot_of(new), "the slot is used again");
        assert!(regions.get(old).is_none());
        assert!(regions.get(new).is_some());
        assert_eq!(regions.count(), 1);
    }

    #[test]
    fn invalidation_holds_until_deregistration_and_is_no_error_twice() {
        let (mut regions, stag) = one(0, 64, Access::REMOTE_READ);
        assert_eq!(
            regions.invalidate(stag, of_domain(9)),
            Err(RegionFault::WrongPd)
        );
        assert_eq!(regions.invalidate(stag, SCOPE), Ok(()));
        assert_eq!(regions.invalidate(stag, SCOPE), Ok(()));
        assert!(regions.get(stag).is_none());
        assert!(regions.remove(stag).is_some());
        assert_eq!(
            regions.invalidate(stag, SCOPE),
            Err(RegionFault::InvalidStag)
        );
    }
}
