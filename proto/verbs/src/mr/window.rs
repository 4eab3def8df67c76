//! Memory windows: STags that open a part of a region to peers, with rights of their own.
//!
//! A window has an index for as long as it exists; each binding gives it another key. Type 1 is
//! bound for all queue pairs of its domain and is rebound or unbound by binding again; type 2
//! (2B of the verbs specification) is bound for one queue pair and must be invalidated between.

use core::sync::atomic::{AtomicBool, Ordering};

use super::{offset_in, Regions, Slot};
use crate::host::{RegionFault, Scope, Span};
use crate::types::{Access, Bind, PdId, QpNumber, Stag, WindowKind};

/// Rights that a window may give.
pub(super) const REMOTE: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);
/// Rights that only a region with local write access may give through a window.
const CHANGING: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

/// A memory window.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) pd: PdId,
    kind: WindowKind,
    stag: Stag,
    bound: Option<Bound>,
    /// Cleared by invalidation; atomic because that happens while others look the window up.
    valid: AtomicBool,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
struct Bound {
    region: Stag,
    /// Octets from the start of the region.
    offset: u64,
    /// Address of the first octet as peers name it.
    iova: u64,
    len: u64,
    access: Access,
    /// The queue pair it was bound through.
    qp: QpNumber,
}

impl<M> Regions<M> {
    /// A window, not bound, under an STag that `random` draws. `None` when the device is full.
    pub fn insert_window(
        &mut self,
        kind: WindowKind,
        pd: PdId,
        random: impl FnMut() -> u32,
    ) -> Option<Stag> {
        let stag = self.free_stag(random)?;
        let window = Window {
            pd,
            kind,
            stag,
            bound: None,
            valid: AtomicBool::new(false),
        };
        self.occupy(stag, Slot::Window(window));
        self.windows += 1;
        Some(stag)
    }

    /// Ends a window, by any STag it had; false when there is none.
    pub fn remove_window(&mut self, stag: Stag) -> bool {
        let found = matches!(
            &self.slots[self.place_of(stag)],
            Slot::Window(window) if window.stag.index() == stag.index()
        );
        if found {
            self.free(stag);
            self.windows -= 1;
        }
        found
    }

    /// Whether a window is bound to a region.
    pub fn has_windows(&self, region: Stag) -> bool {
        self.windows > 0
            && self.slots.iter().any(|slot| match slot {
                Slot::Window(window) => window.bound().is_some_and(|bound| bound.region == region),
                Slot::Free | Slot::Region(_) => false,
            })
    }

    /// Invalidates the windows of type 2 that are bound through a queue pair which ends.
    pub fn release_windows(&self, qp: QpNumber) {
        if self.windows == 0 {
            return;
        }
        for slot in &self.slots {
            if let Slot::Window(window) = slot {
                let through = |bound: &Bound| bound.qp == qp;
                if window.kind == WindowKind::Two && window.bound().is_some_and(through) {
                    window.valid.store(false, Ordering::Release);
                }
            }
        }
    }

    /// Binds a window; on an error everything is as before.
    ///
    /// # Errors
    /// Window, region, range or rights do not fit each other.
    pub fn bind(&mut self, bind: &Bind, scope: Scope) -> Result<(), RegionFault> {
        let bound = self.binding(bind, scope)?;
        let place = self.place_of(bind.window);
        let Slot::Window(window) = &mut self.slots[place] else {
            return Err(RegionFault::InvalidStag);
        };
        window.stag = bind.rkey;
        *window.valid.get_mut() = bound.is_some();
        window.bound = bound;
        Ok(())
    }

    /// What a window would be bound to; `None` when it would be unbound.
    fn binding(&self, bind: &Bind, scope: Scope) -> Result<Option<Bound>, RegionFault> {
        let window = match &self.slots[self.place_of(bind.window)] {
            Slot::Window(window) if window.stag.index() == bind.rkey.index() => window,
            _ => return Err(RegionFault::InvalidStag),
        };
        if window.pd != scope.pd {
            return Err(RegionFault::WrongPd);
        }
        match window.kind {
            WindowKind::One if bind.len == 0 => return Ok(None),
            // It has to be invalidated first, and cannot be bound to nothing.
            WindowKind::Two if window.bound().is_some() => return Err(RegionFault::Access),
            WindowKind::Two if bind.len == 0 => return Err(RegionFault::Bounds),
            WindowKind::One | WindowKind::Two => {}
        }
        let region = self.get(bind.region).ok_or(RegionFault::InvalidStag)?;
        if region.pd != scope.pd {
            return Err(RegionFault::WrongPd);
        }
        let offset = offset_in(region.iova, region.len, bind.addr, bind.len)?;
        let changes = bind.access.intersects(CHANGING);
        if !region.access.contains(Access::MW_BIND)
            || (changes && !region.access.contains(Access::LOCAL_WRITE))
        {
            return Err(RegionFault::Access);
        }
        Ok(Some(Bound {
            region: bind.region,
            offset,
            iova: if bind.zero_based { 0 } else { bind.addr },
            len: bind.len,
            access: bind.access & REMOTE,
            qp: scope.qp,
        }))
    }

    fn window(&self, stag: Stag) -> Option<&Window> {
        match self.slots.get(self.place_of(stag))? {
            Slot::Window(window) => (window.stag == stag).then_some(window),
            Slot::Free | Slot::Region(_) => None,
        }
    }

    /// Checks an access through a window; gives where it begins in what the window is bound to. Work requests of this
    /// device cannot name one.
    #[cold]
    pub(super) fn check_window(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        scope: Scope,
    ) -> Result<u64, RegionFault> {
        let window = self.window(stag).ok_or(RegionFault::InvalidStag)?;
        let bound = window.bound().ok_or(RegionFault::InvalidStag)?;
        let region = self.get(bound.region).ok_or(RegionFault::InvalidStag)?;
        let foreign = window.kind == WindowKind::Two && bound.qp != scope.qp;
        if region.pd != scope.pd || foreign {
            return Err(RegionFault::WrongPd);
        }
        let offset = offset_in(bound.iova, bound.len, addr, u64::from(len))?;
        if !access.intersects(REMOTE) || !bound.access.contains(access) {
            return Err(RegionFault::Access);
        }
        Ok(offset)
    }

    #[cold]
    pub(super) fn locate_in_window(&self, span: Span) -> Option<(&M, u64)> {
        let bound = self.window(span.stag)?.bound()?;
        let region = self.get(bound.region)?;
        Some((&region.memory, bound.offset + span.offset))
    }

    /// Whether a window of that STag was bound under it, invalidated since or not.
    pub(super) fn was_bound(&self, stag: Stag) -> bool {
        self.window(stag).is_some_and(|w| w.bound.is_some())
    }

    /// Only windows of type 2 can be invalidated, through the queue pair they are bound to.
    pub(super) fn invalidate_window(&self, stag: Stag, scope: Scope) -> Result<(), RegionFault> {
        let window = self.window(stag).ok_or(RegionFault::InvalidStag)?;
        let through = |bound: Bound| bound.qp == scope.qp;
        if window.kind == WindowKind::One
            || window.pd != scope.pd
            || !window.bound.is_none_or(through)
        {
            return Err(RegionFault::WrongPd);
        }
        window.valid.store(false, Ordering::Release);
        Ok(())
    }
}

impl Window {
    pub(super) fn stag(&self) -> Stag {
        self.stag
    }

    fn bound(&self) -> Option<&Bound> {
        self.bound
            .as_ref()
            .filter(|_| self.valid.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::RegionSpec;

    const SCOPE: Scope = Scope {
        pd: PdId(1),
        qp: QpNumber(7),
    };
    const ELSEWHERE: Scope = Scope {
        pd: PdId(1),
        qp: QpNumber(8),
    };
    const ALL: Access = Access::from_bits_retain(0x1F);

    fn device(kind: WindowKind, access: Access) -> (Regions<&'static str>, Stag, Bind) {
        let mut regions = Regions::default();
        let spec = RegionSpec {
            iova: 0x1000,
            len: 0x100,
            access,
            pd: SCOPE.pd,
        };
        let region = regions
            .insert(spec, "memory", || 0x1234_5678)
            .expect("room");
        let window = regions
            .insert_window(kind, SCOPE.pd, || 0x4321_8765)
            .expect("room");
        let bind = Bind {
            window,
            rkey: Stag(window.0 ^ 1),
            region,
            addr: 0x1010,
            len: 0x20,
            access: Access::REMOTE_WRITE,
            zero_based: false,
        };
        (regions, region, bind)
    }

    fn write(
        regions: &Regions<&str>,
        stag: Stag,
        addr: u64,
        scope: Scope,
    ) -> Result<(), RegionFault> {
        let checked = regions.check(stag, addr, 8, Access::REMOTE_WRITE, scope);
        let found = regions.find(stag, addr, 8, Access::REMOTE_WRITE, scope);
        let located = checked.map(|span| regions.locate(span).expect("it is there"));
        assert_eq!(found, located, "both ways are one");
        checked.map(|_| ())
    }

    #[test]
    fn a_window_opens_its_part_with_its_rights_and_no_more() {
        for kind in [WindowKind::One, WindowKind::Two] {
            let (mut regions, _, bind) = device(kind, ALL);
            assert_eq!(
                write(&regions, bind.window, 0x1010, SCOPE),
                Err(RegionFault::InvalidStag),
                "not bound"
            );
            regions.bind(&bind, SCOPE).expect("bound");
            let inside = regions.check(bind.rkey, 0x1018, 8, Access::REMOTE_WRITE, SCOPE);
            let span = inside.expect("inside");
            assert_eq!((span.offset, span.len), (8, 8));
            assert_eq!(regions.locate(span), Some((&"memory", 0x18)));
            let fault = |addr, access| regions.check(bind.rkey, addr, 8, access, SCOPE).err();
            assert_eq!(
                fault(0x1029, Access::REMOTE_WRITE),
                Some(RegionFault::Bounds)
            );
            assert_eq!(
                fault(0x100F, Access::REMOTE_WRITE),
                Some(RegionFault::Bounds)
            );
            assert_eq!(
                fault(u64::MAX - 3, Access::REMOTE_WRITE),
                Some(RegionFault::Wrap)
            );
            assert_eq!(
                fault(0x1010, Access::REMOTE_READ),
                Some(RegionFault::Access)
            );
            assert_eq!(fault(0x1010, Access::NONE), Some(RegionFault::Access));
            assert_eq!(
                write(&regions, bind.window, 0x1010, SCOPE),
                Err(RegionFault::InvalidStag),
                "the key of before"
            );
        }
    }

    #[test]
    fn a_zero_based_window_begins_at_zero() {
        let (mut regions, _, mut bind) = device(WindowKind::One, ALL);
        bind.zero_based = true;
        regions.bind(&bind, SCOPE).expect("bound");
        let span = regions
            .check(bind.rkey, 0x18, 8, Access::REMOTE_WRITE, SCOPE)
            .expect("the last eight octets");
        assert_eq!(regions.locate(span), Some((&"memory", 0x28)));
        assert_eq!(
            write(&regions, bind.rkey, 0x1010, SCOPE),
            Err(RegionFault::Bounds)
        );
    }

    #[test]
    fn type_1_is_everybodys_of_the_domain_and_unbound_by_length_0() {
        let (mut regions, region, mut bind) = device(WindowKind::One, ALL);
        regions.bind(&bind, SCOPE).expect("bound");
        assert_eq!(write(&regions, bind.rkey, 0x1010, ELSEWHERE), Ok(()));
        assert_eq!(
            regions.invalidate(bind.rkey, SCOPE),
            Err(RegionFault::WrongPd),
            "type 1 cannot be invalidated"
        );
        assert!(regions.has_windows(region));
        bind.len = 0;
        regions.bind(&bind, SCOPE).expect("unbound");
        assert!(!regions.has_windows(region));
        assert_eq!(
            write(&regions, bind.rkey, 0x1010, SCOPE),
            Err(RegionFault::InvalidStag)
        );
    }

    #[test]
    fn type_2_is_its_queue_pairs_and_bound_again_only_after_invalidation() {
        let (mut regions, region, bind) = device(WindowKind::Two, ALL);
        assert_eq!(
            regions.invalidate_for_peer(bind.window, SCOPE),
            Err(RegionFault::InvalidStag),
            "no peer was told of it yet"
        );
        regions.bind(&bind, SCOPE).expect("bound");
        assert_eq!(
            regions.invalidate_for_peer(bind.rkey, ELSEWHERE),
            Err(RegionFault::WrongPd)
        );
        assert_eq!(
            write(&regions, bind.rkey, 0x1010, ELSEWHERE),
            Err(RegionFault::WrongPd)
        );
        assert_eq!(regions.bind(&bind, SCOPE), Err(RegionFault::Access));
        assert_eq!(
            regions.invalidate(bind.rkey, ELSEWHERE),
            Err(RegionFault::WrongPd)
        );
        regions
            .invalidate_for_peer(bind.rkey, SCOPE)
            .expect("invalidated");
        regions
            .invalidate(bind.rkey, SCOPE)
            .expect("no error twice");
        assert!(!regions.has_windows(region));
        let again = Bind {
            rkey: Stag(bind.rkey.0 ^ 0xFF),
            ..bind
        };
        regions.bind(&again, ELSEWHERE).expect("bound again");
        assert_eq!(write(&regions, again.rkey, 0x1010, ELSEWHERE), Ok(()));
        regions.release_windows(ELSEWHERE.qp);
        assert_eq!(
            write(&regions, again.rkey, 0x1010, ELSEWHERE),
            Err(RegionFault::InvalidStag)
        );
    }

    #[test]
    fn a_window_opens_nothing_to_another_domain() {
        for kind in [WindowKind::One, WindowKind::Two] {
            let (mut regions, _, bind) = device(kind, ALL);
            regions.bind(&bind, SCOPE).expect("bound");
            for qp in [SCOPE.qp, ELSEWHERE.qp] {
                let stranger = Scope { pd: PdId(2), qp };
                assert_eq!(
                    write(&regions, bind.rkey, 0x1010, stranger),
                    Err(RegionFault::WrongPd)
                );
                assert_eq!(
                    regions.invalidate(bind.rkey, stranger),
                    Err(RegionFault::WrongPd)
                );
            }
            assert_eq!(write(&regions, bind.rkey, 0x1010, SCOPE), Ok(()));
        }
    }

    #[test]
    fn a_window_is_bound_to_valid_regions_of_its_own_domain_alone() {
        let (mut regions, region, bind) = device(WindowKind::One, ALL);
        let foreign = RegionSpec {
            iova: 0x1000,
            len: 0x100,
            access: ALL,
            pd: PdId(2),
        };
        let foreign = regions.insert(foreign, "foreign", || 0x7777_7777);
        let bad = Bind {
            region: foreign.expect("room"),
            ..bind
        };
        assert_eq!(regions.bind(&bad, SCOPE), Err(RegionFault::WrongPd));
        let theirs = Scope {
            pd: PdId(2),
            ..SCOPE
        };
        let fault = regions.bind(&bad, theirs);
        assert_eq!(fault, Err(RegionFault::WrongPd), "the window is not theirs");
        regions.bind(&bind, SCOPE).expect("bound");
        let span = regions.check(bind.rkey, 0x1010, 8, Access::REMOTE_WRITE, SCOPE);
        let span = span.expect("inside");
        regions.invalidate(region, SCOPE).expect("invalidated");
        assert_eq!(
            write(&regions, bind.rkey, 0x1010, SCOPE),
            Err(RegionFault::InvalidStag)
        );
        assert_eq!(regions.locate(span), None, "what was checked before");
        assert_eq!(regions.bind(&bind, SCOPE), Err(RegionFault::InvalidStag));
    }

    #[test]
    fn only_what_changes_memory_needs_a_region_with_local_write() {
        let readable = Access::MW_BIND.union(Access::REMOTE_READ);
        let (mut regions, _, bind) = device(WindowKind::One, readable);
        assert_eq!(regions.bind(&bind, SCOPE), Err(RegionFault::Access));
        let to_read = Bind {
            access: Access::REMOTE_READ,
            ..bind
        };
        assert_eq!(regions.bind(&to_read, SCOPE), Ok(()));
    }

    #[test]
    fn a_window_is_that_of_its_region_alone() {
        let (mut regions, region, bind) = device(WindowKind::One, ALL);
        let other = RegionSpec {
            iova: 0x1000,
            len: 0x100,
            access: ALL,
            pd: SCOPE.pd,
        };
        let other = regions.insert(other, "other", || 0x7777_7777);
        regions.bind(&bind, SCOPE).expect("bound");
        assert!(regions.has_windows(region));
        assert!(!regions.has_windows(other.expect("room")));
    }

    #[test]
    fn a_queue_pair_that_ends_takes_no_window_of_type_1_with_it() {
        let (mut regions, _, bind) = device(WindowKind::One, ALL);
        regions.bind(&bind, SCOPE).expect("bound");
        regions.release_windows(SCOPE.qp);
        assert_eq!(write(&regions, bind.rkey, 0x1010, SCOPE), Ok(()));
    }

    #[test]
    fn a_window_keeps_its_index_and_only_its_key_changes() {
        let (mut regions, region, mut bind) = device(WindowKind::One, ALL);
        for key in 0..=0xFF {
            bind.rkey = Stag(bind.window.0 & !0xFF | key);
            regions.bind(&bind, SCOPE).expect("bound");
            for tried in [
                bind.rkey.0 ^ 1,
                bind.rkey.0 ^ 0x80,
                bind.rkey.0 ^ 0x8000_0000,
            ] {
                let fault = write(&regions, Stag(tried), 0x1010, SCOPE);
                assert_eq!(fault, Err(RegionFault::InvalidStag));
            }
            assert_eq!(write(&regions, bind.rkey, 0x1010, SCOPE), Ok(()));
        }
        // The table grows under it, whatever its key is by now.
        for n in 1..1000 {
            let spec = RegionSpec {
                iova: 0,
                len: 1,
                access: ALL,
                pd: SCOPE.pd,
            };
            regions.insert(spec, "other", || 0x0BAD_0000_u32.wrapping_add(n << 8));
        }
        assert_eq!(write(&regions, bind.rkey, 0x1010, SCOPE), Ok(()));
        assert!(regions.has_windows(region));
        assert!(regions.remove_window(bind.window), "by the STag of before");
    }

    #[test]
    fn each_bad_binding_has_its_fault_and_changes_nothing() {
        let other_pd = Scope {
            pd: PdId(2),
            ..SCOPE
        };
        type Change = fn(&mut Bind);
        let cases: [(Access, Scope, Change, RegionFault); 7] = [
            (ALL, other_pd, |_| {}, RegionFault::WrongPd),
            (ALL, SCOPE, |b| b.len = 0, RegionFault::Bounds),
            (ALL, SCOPE, |b| b.len = 0xF1, RegionFault::Bounds),
            (ALL, SCOPE, |b| b.addr = u64::MAX, RegionFault::Wrap),
            (ALL, SCOPE, |b| b.rkey.0 ^= 0x100, RegionFault::InvalidStag),
            (
                Access::from_bits_retain(0xF),
                SCOPE,
                |_| {},
                RegionFault::Access,
            ),
            (
                Access::from_bits_retain(0x16),
                SCOPE,
                |_| {},
                RegionFault::Access,
            ),
        ];
        for (at, (access, scope, change, fault)) in cases.into_iter().enumerate() {
            let (mut regions, region, bind) = device(WindowKind::Two, access);
            let mut bad = bind;
            change(&mut bad);
            assert_eq!(regions.bind(&bad, scope), Err(fault), "case {at}");
            assert!(!regions.has_windows(region));
        }
    }

    #[test]
    fn a_window_ends_with_itself_or_with_its_region() {
        let (mut regions, region, bind) = device(WindowKind::One, ALL);
        regions.bind(&bind, SCOPE).expect("bound");
        assert!(regions.any_in(SCOPE.pd));
        assert!(regions.remove(bind.rkey).is_none(), "it is no region");
        assert!(!regions.remove_window(region), "and a region no window");
        regions.remove(region);
        assert_eq!(
            write(&regions, bind.rkey, 0x1010, SCOPE),
            Err(RegionFault::InvalidStag)
        );
        assert!(regions.any_in(SCOPE.pd), "the window is there still");
        let same_place = Stag(bind.window.0 ^ 0x8000_0000);
        assert!(!regions.remove_window(same_place));
        assert!(regions.remove_window(bind.window));
        assert_eq!(regions.count(), 0);
        assert!(!regions.any_in(SCOPE.pd));
    }
}
