//! Memory regions: STags, bounds and rights. Memory windows are in [`window`].
//!
//! An STag is 32 random bits (RFC 5040 section 8.1.1: hard to predict), and still one step finds what it names: the
//! low bits of its index say the place in a table, and an STag is drawn again where that place is taken. Of the places
//! at most half are taken, so a place is found in two draws, and whoever knows every other STag has learnt one bit
//! of the next. When the table grows, the places double and each entry goes to one of the two that were its own.

mod window;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::host::{RegionFault, Scope, Span};
use crate::types::{Access, PdId, Stag};
use window::Window;

/// Most regions and windows a device has at once.
pub const MAX_REGIONS: usize = 1 << 18;
/// Places of a device that has none.
const FIRST_PLACES: usize = 64;
/// Draws for one STag; only a source that is not random needs so many.
const DRAWS: usize = 64;

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

impl<M> Region<M> {
    /// Checks an access to `[addr, addr + len)` of it; gives where that begins.
    #[inline]
    fn check(&self, addr: u64, len: u32, access: Access, scope: Scope) -> Result<u64, RegionFault> {
        if self.pd != scope.pd {
            return Err(RegionFault::WrongPd);
        }
        let offset = offset_in(self.iova, self.len, addr, u64::from(len))?;
        if !self.access.contains(access) {
            return Err(RegionFault::Access);
        }
        Ok(offset)
    }
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

/// What a place of the table holds.
#[derive(Debug)]
enum Slot<M> {
    Free,
    Region(Region<M>),
    Window(Window),
}

impl<M> Slot<M> {
    fn stag(&self) -> Option<Stag> {
        match self {
            Slot::Free => None,
            Slot::Region(region) => Some(region.stag),
            Slot::Window(window) => Some(window.stag()),
        }
    }
}

/// All regions and windows of a device.
#[derive(Debug)]
pub struct Regions<M> {
    /// A power of two of them, at least twice as many as are used.
    slots: Vec<Slot<M>>,
    used: usize,
    windows: usize,
}

impl<M> Default for Regions<M> {
    fn default() -> Self {
        Regions {
            slots: free_places(FIRST_PLACES),
            used: 0,
            windows: 0,
        }
    }
}

fn free_places<M>(count: usize) -> Vec<Slot<M>> {
    (0..count).map(|_| Slot::Free).collect()
}

impl<M> Regions<M> {
    /// The place that an STag would have. The key is no part of it: bindings change it.
    #[inline]
    fn place_of(&self, stag: Stag) -> usize {
        stag.index() as usize & (self.slots.len() - 1)
    }

    /// Registers a region under an STag that `random` draws. `None` when the device holds [`MAX_REGIONS`] or the range
    /// wraps the address space.
    pub fn insert(
        &mut self,
        spec: RegionSpec,
        memory: M,
        random: impl FnMut() -> u32,
    ) -> Option<Stag> {
        spec.iova.checked_add(spec.len)?;
        let stag = self.free_stag(random)?;
        let region = Region {
            stag,
            iova: spec.iova,
            len: spec.len,
            access: spec.access,
            pd: spec.pd,
            valid: AtomicBool::new(true),
            memory,
        };
        self.occupy(stag, Slot::Region(region));
        Some(stag)
    }

    /// An STag whose place is free, and whose index is not 0.
    fn free_stag(&mut self, mut random: impl FnMut() -> u32) -> Option<Stag> {
        if self.used >= MAX_REGIONS - 1 {
            return None;
        }
        if 2 * (self.used + 1) > self.slots.len() {
            self.grow();
        }
        let is_free = |stag: &Stag| {
            stag.index() != 0 && matches!(self.slots[self.place_of(*stag)], Slot::Free)
        };
        let first = random();
        let drawn = core::iter::once(first)
            .chain(core::iter::from_fn(|| Some(random())).take(DRAWS))
            .map(Stag)
            .find(is_free);
        // Half of the places are free, so that one is met on the way through the indices.
        let next = || {
            (1..)
                .map(|n: u32| Stag(first.wrapping_add(n << 8)))
                .find(is_free)
        };
        drawn.or_else(next)
    }

    fn grow(&mut self) {
        let places = 2 * self.slots.len();
        for slot in core::mem::replace(&mut self.slots, free_places(places)) {
            if let Some(stag) = slot.stag() {
                let place = self.place_of(stag);
                self.slots[place] = slot;
            }
        }
    }

    fn occupy(&mut self, stag: Stag, slot: Slot<M>) {
        let place = self.place_of(stag);
        self.slots[place] = slot;
        self.used += 1;
    }

    /// Gives a valid region other rights under its STag. False for any other: an STag that was invalidated does not
    /// come back.
    pub fn change_access(&mut self, stag: Stag, access: Access) -> bool {
        let valid = self.get(stag).is_some();
        let place = self.place_of(stag);
        match &mut self.slots[place] {
            Slot::Region(region) if valid => {
                region.access = access;
                true
            }
            _ => false,
        }
    }

    /// Deregisters a region and gives the driver's handle back.
    pub fn remove(&mut self, stag: Stag) -> Option<M> {
        self.get_any(stag)?;
        match self.free(stag) {
            Slot::Region(region) => Some(region.memory),
            Slot::Free | Slot::Window(_) => None,
        }
    }

    fn free(&mut self, stag: Stag) -> Slot<M> {
        self.used -= 1;
        let place = self.place_of(stag);
        core::mem::replace(&mut self.slots[place], Slot::Free)
    }

    /// The region, valid or not.
    #[inline]
    fn get_any(&self, stag: Stag) -> Option<&Region<M>> {
        match self.slots.get(self.place_of(stag))? {
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
            let offset = self.check_window(stag, addr, len, access, scope)?;
            return Ok(Span { stag, offset, len });
        };
        let offset = region.check(addr, len, access, scope)?;
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

    /// [`Regions::check`] and [`Regions::locate`] in one: where the octets of an access are.
    ///
    /// # Errors
    /// The first rule broken.
    #[inline]
    pub fn find(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<(&M, u64), RegionFault> {
        let Some(region) = self.get(stag) else {
            let span = self.check(stag, addr, len, access, scope)?;
            return self.locate(span).ok_or(RegionFault::InvalidStag);
        };
        let offset = region.check(addr, len, access, scope)?;
        Ok((&region.memory, offset))
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

    /// The same as a peer asks for it. What was never opened to peers does not exist for them: a region without a
    /// remote right, a window that was never bound.
    ///
    /// # Errors
    /// As [`Regions::invalidate`].
    pub fn invalidate_for_peer(&self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        let opened = match self.get_any(stag) {
            Some(region) => region.access.intersects(window::REMOTE),
            None => self.was_bound(stag),
        };
        if !opened {
            return Err(RegionFault::InvalidStag);
        }
        self.invalidate(stag, scope)
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
        self.used
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
    use crate::types::{QpNumber, WindowKind};
    use std::vec::Vec;

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

    /// A seeded source of draws.
    fn draws(mut seed: u64) -> impl FnMut() -> u32 {
        move || {
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            ((mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32) as u32
        }
    }

    fn one(iova: u64, len: u64, access: Access) -> (Regions<()>, Stag) {
        let mut regions = Regions::default();
        let stag = regions
            .insert(spec(iova, len, access), (), draws(1))
            .unwrap();
        (regions, stag)
    }

    /// So many regions, each with its number as its memory.
    fn many(count: usize, mut random: impl FnMut() -> u32) -> (Regions<usize>, Vec<Stag>) {
        let mut regions = Regions::default();
        let mut insert = |n| {
            let spec = spec(0, 64, Access::REMOTE_READ);
            regions.insert(spec, n, &mut random).expect("room")
        };
        let stags = (0..count).map(&mut insert).collect();
        (regions, stags)
    }

    #[test]
    fn what_is_found_at_once_is_what_is_checked_and_then_located() {
        let (regions, stags) = many(3, draws(5));
        let mut granted = 0;
        for stag in [stags[1], stags[2], Stag(stags[1].0 ^ 1)] {
            for (addr, len) in [(0, 64), (10, 54), (10, 55), (65, 0), (u64::MAX, 2)] {
                for access in [Access::REMOTE_READ, Access::REMOTE_WRITE] {
                    for scope in [SCOPE, of_domain(2)] {
                        let checked = regions.check(stag, addr, len, access, scope);
                        let located = checked.map(|span| regions.locate(span).expect("there"));
                        let found = regions.find(stag, addr, len, access, scope);
                        assert_eq!(found, located, "{stag:?} {addr} {len} {access:?}");
                        granted += usize::from(found.is_ok());
                    }
                }
            }
        }
        assert_eq!(
            granted, 4,
            "two ranges of two regions, to read, in their domain"
        );
    }

    #[test]
    fn each_of_the_32_bits_of_an_stag_is_drawn() {
        let mut regions = Regions::default();
        for drawn in [0xDEAD_BEEF, 0x0000_0100, 0xFFFF_FFFF, 0x8000_4200] {
            let stag = regions.insert(spec(0, 64, Access::NONE), (), || drawn);
            assert_eq!(stag, Some(Stag(drawn)), "not a bit of it is replaced");
        }
        let (_, stags) = many(4096, draws(2));
        for bit in 0..32 {
            let ones = stags.iter().filter(|stag| stag.0 >> bit & 1 == 1).count();
            // Five standard deviations of 32.
            assert!(
                (2048 - 160..=2048 + 160).contains(&ones),
                "bit {bit}: {ones}"
            );
        }
    }

    #[test]
    fn every_region_is_found_as_the_table_grows() {
        let (mut regions, stags) = many(10_000, draws(3));
        for (n, stag) in stags.iter().enumerate() {
            assert_eq!(regions.get(*stag).map(|region| region.memory), Some(n));
            assert!(stag.index() != 0);
        }
        for (n, stag) in stags.iter().enumerate() {
            assert_eq!(regions.remove(*stag), Some(n));
        }
        assert_eq!(regions.count(), 0);
    }

    #[test]
    fn a_source_that_is_not_random_does_not_hang_or_repeat() {
        for drawn in [0, 7, 0xFFFF_FF00] {
            let (regions, stags) = many(1000, || drawn);
            assert_eq!(regions.count(), 1000);
            for (n, stag) in stags.iter().enumerate() {
                assert_eq!(regions.get(*stag).map(|region| region.memory), Some(n));
                assert!(stag.index() != 0, "{stag:?}");
            }
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut draw = draws(4);
        let (mut regions, stags) = many(MAX_REGIONS - 1, &mut draw);
        let one_more = spec(0, 64, Access::NONE);
        assert_eq!(regions.insert(one_more, 0, &mut draw), None);
        assert_eq!(regions.insert_window(WindowKind::One, PD, &mut draw), None);
        assert_eq!(regions.slots.len(), 2 * MAX_REGIONS);
        regions.remove(stags[5]);
        assert!(regions.insert(one_more, 0, &mut draw).is_some());
        assert_eq!(regions.slots.len(), 2 * MAX_REGIONS);
    }

    #[test]
    fn guesses_hit_as_seldom_as_32_bits_make_them() {
        let (regions, _) = many(1000, draws(5));
        let mut draw = draws(6);
        let tries = 1 << 22;
        let hits = (0..tries).filter(|_| regions.get(Stag(draw())).is_some());
        // One is expected; that there are more than eight has a chance of one in a million.
        let hits = hits.count();
        assert!(hits <= 8, "{hits} hits in {tries} tries");
    }

    #[test]
    fn whoever_knows_every_other_stag_has_learnt_next_to_nothing_of_the_next() {
        let (mut regions, known) = many(1000, draws(7));
        let next = regions.insert(spec(0, 64, Access::NONE), 0, draws(8));
        let next = next.expect("room");
        // What would find an STag that is counted up, or made of a place in a table and few random bits.
        for stag in &known {
            for low in 0..1024 {
                for guess in [
                    stag.0.wrapping_add(low),
                    stag.0.wrapping_sub(low),
                    stag.0.wrapping_add(low << 8),
                    stag.0.wrapping_sub(low << 8),
                    stag.0 & !(0x3FF << 8) | low << 8,
                ] {
                    assert_ne!(Stag(guess), next);
                }
            }
        }
        // It is somewhere in the places that are free, and those are at least half of all.
        assert!(2 * regions.count() <= regions.slots.len());
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
            .insert(spec(u64::MAX, 2, Access::NONE), (), || 1 << 8)
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
    fn rights_change_under_the_same_key_while_it_is_valid() {
        let (mut regions, stag) = one(0, 64, Access::REMOTE_READ);
        let may = |regions: &Regions<()>, access| regions.check(stag, 0, 64, access, SCOPE).is_ok();
        assert!(regions.change_access(stag, Access::REMOTE_WRITE));
        assert!(may(&regions, Access::REMOTE_WRITE) && !may(&regions, Access::REMOTE_READ));
        assert!(!regions.change_access(Stag(stag.0 ^ 1), Access::REMOTE_READ));
        assert_eq!(regions.invalidate(stag, SCOPE), Ok(()));
        assert!(!regions.change_access(stag, Access::REMOTE_READ));
        assert!(!may(&regions, Access::REMOTE_READ));
    }

    #[test]
    fn a_stale_stag_fails_after_its_place_is_used_again() {
        let (mut regions, old) = one(0, 64, Access::REMOTE_READ);
        assert!(regions.remove(old).is_some());
        assert!(regions.remove(old).is_none(), "it is gone");
        let same_place = old.0 ^ 0xABCD_0000;
        let new = regions
            .insert(spec(0, 64, Access::REMOTE_READ), (), || same_place)
            .unwrap();
        assert_eq!(regions.place_of(old), regions.place_of(new));
        assert!(regions.get(old).is_none());
        assert!(regions.get(new).is_some());
        assert!(regions.remove(old).is_none());
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

    #[test]
    fn a_peer_invalidates_only_what_was_opened_to_peers() {
        let local = Access::LOCAL_WRITE.union(Access::MW_BIND);
        for rights in 0..32 {
            let access = Access::from_bits_retain(rights);
            let (regions, stag) = one(0, 64, access);
            let never_opened = local.contains(access);
            let outcome = regions.invalidate_for_peer(stag, SCOPE);
            assert_eq!(outcome.is_err(), never_opened, "{access:?}");
            assert_eq!(regions.get(stag).is_some(), never_opened, "{access:?}");
            // The program itself may.
            assert_eq!(regions.invalidate(stag, SCOPE), Ok(()));
        }
        let (regions, stag) = one(0, 64, Access::REMOTE_READ);
        assert_eq!(
            regions.invalidate_for_peer(stag, of_domain(9)),
            Err(RegionFault::WrongPd)
        );
    }
}
