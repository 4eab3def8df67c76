//! Memory regions: STags, bounds and rights.
//!
//! An STag is `[random 6][slot 18][random 8]` bits, the slot in the low bits of the 24-bit index
//! of the RDMAC verbs: dense enough to look up in one step, and with fourteen random bits that
//! change with every registration (RFC 5040 section 8.1.1: hard to predict, not reused).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::host::{RegionFault, Span};
use crate::types::{Access, PdId, Stag};

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

/// All regions of a device.
#[derive(Debug)]
pub struct Regions<M> {
    slots: Vec<Option<Region<M>>>,
    free: Vec<u32>,
}

impl<M> Default for Regions<M> {
    fn default() -> Self {
        // Slot 0 is never used, so that no STag has index 0.
        Regions {
            slots: Vec::from([None]),
            free: Vec::new(),
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
        let slot = self.free_slot()?;
        let high = (random >> 8) & !((1 << SLOT_BITS) - 1) & 0x00FF_FFFF;
        let stag = Stag(((high | slot) << 8) | (random & 0xFF));
        self.slots[slot as usize] = Some(Region {
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

    fn free_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() >= MAX_REGIONS {
            return None;
        }
        self.slots.push(None);
        Some(self.slots.len() as u32 - 1)
    }

    /// Deregisters a region and gives the driver's handle back.
    pub fn remove(&mut self, stag: Stag) -> Option<M> {
        let slot = slot_of(stag);
        self.get_any(stag)?;
        let region = self.slots[slot].take()?;
        self.free.push(slot as u32);
        Some(region.memory)
    }

    /// The region, valid or not.
    #[inline]
    fn get_any(&self, stag: Stag) -> Option<&Region<M>> {
        let region = self.slots.get(slot_of(stag))?.as_ref()?;
        (region.stag == stag).then_some(region)
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
        pd: PdId,
    ) -> Result<Span, RegionFault> {
        let region = self.get(stag).ok_or(RegionFault::InvalidStag)?;
        if region.pd != pd {
            return Err(RegionFault::WrongPd);
        }
        let end = addr.checked_add(u64::from(len)).ok_or(RegionFault::Wrap)?;
        if addr < region.iova || end > region.iova + region.len {
            return Err(RegionFault::Bounds);
        }
        if !region.access.contains(access) {
            return Err(RegionFault::Access);
        }
        Ok(Span {
            stag,
            offset: addr - region.iova,
            len,
        })
    }

    /// Makes a region invalid; accesses that start afterwards fail.
    ///
    /// # Errors
    /// No such region, or it belongs to another domain.
    pub fn invalidate(&self, stag: Stag, pd: PdId) -> Result<(), RegionFault> {
        let region = self.get_any(stag).ok_or(RegionFault::InvalidStag)?;
        if region.pd != pd {
            return Err(RegionFault::WrongPd);
        }
        region.valid.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether a domain has regions.
    pub fn any_in(&self, pd: PdId) -> bool {
        self.slots.iter().flatten().any(|r| r.pd == pd)
    }

    /// Regions registered.
    pub fn count(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

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
        let check = |addr, len| regions.check(stag, addr, len, Access::REMOTE_WRITE, PD);
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
            .check(stag, u64::MAX - 1, 1, Access::REMOTE_READ, PD)
            .is_ok());
        let mut regions = Regions::<()>::default();
        assert!(regions
            .insert(spec(u64::MAX, 2, Access::NONE), (), 1)
            .is_none());
    }

    #[test]
    fn each_rule_has_its_fault() {
        let (regions, stag) = one(0, 64, Access::REMOTE_READ);
        let check = |stag, access, pd| regions.check(stag, 0, 64, access, pd);
        assert_eq!(
            check(Stag(stag.0 ^ 1), Access::REMOTE_READ, PD),
            Err(RegionFault::InvalidStag)
        );
        assert_eq!(
            check(Stag(0), Access::NONE, PD),
            Err(RegionFault::InvalidStag)
        );
        assert_eq!(
            check(stag, Access::REMOTE_WRITE, PD),
            Err(RegionFault::Access)
        );
        assert_eq!(
            check(stag, Access::REMOTE_READ, PdId(2)),
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
        assert_eq!(regions.invalidate(stag, PdId(9)), Err(RegionFault::WrongPd));
        assert_eq!(regions.invalidate(stag, PD), Ok(()));
        assert_eq!(regions.invalidate(stag, PD), Ok(()));
        assert!(regions.get(stag).is_none());
        assert!(regions.remove(stag).is_some());
        assert_eq!(regions.invalidate(stag, PD), Err(RegionFault::InvalidStag));
    }
}
