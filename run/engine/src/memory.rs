//! Memory regions and windows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use weft_os::mem::Registered;
use weft_verbs::mr::{RegionSpec, Regions};
use weft_verbs::types::{Access, Stag, WindowKind};

use crate::context::Pd;
use crate::error::Error;
use crate::stats::Total;

/// What STags are drawn from.
fn random() -> u32 {
    weft_os::random_u64() as u32
}

/// A registered memory region. Dropping it deregisters.
#[derive(Debug)]
pub struct Mr {
    pd: Arc<Pd>,
    stag: Stag,
    memory: Registered,
    gone: AtomicBool,
}

impl Mr {
    pub(crate) fn register(
        pd: &Arc<Pd>,
        memory: Registered,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        check_rights(access)?;
        let spec = RegionSpec {
            iova,
            len: memory.len() as u64,
            access,
            pd: pd.id(),
        };
        let engine = pd.engine();
        let stag = engine
            .regions
            .write()
            .insert(spec, memory.clone(), random)
            .ok_or(Error::NoMemory(
                "memory regions, or the address range wraps",
            ))?;
        engine.stats.add(Total::Regions, 1);
        Ok(Arc::new(Mr {
            pd: pd.clone(),
            stag,
            memory,
            gone: AtomicBool::new(false),
        }))
    }

    /// The STag: local and remote key.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// The region's memory.
    pub fn memory(&self) -> &Registered {
        &self.memory
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Gives it other rights under the same STag, once accesses that are under way are over. False when the STag was
    /// invalidated: such a region has to be registered anew.
    ///
    /// # Errors
    /// The rights contradict each other, or a memory window is bound to it.
    pub fn change_access(&self, access: Access) -> Result<bool, Error> {
        check_rights(access)?;
        let mut regions = self.pd.engine().regions.write();
        if regions.has_windows(self.stag) {
            return Err(Error::Busy("memory windows"));
        }
        Ok(regions.change_access(self.stag, access))
    }

    /// Deregisters: waits for placement in flight; afterwards no octet of it is touched.
    ///
    /// # Errors
    /// A memory window is bound to it.
    pub fn deregister(&self) -> Result<(), Error> {
        let mut regions = self.pd.engine().regions.write();
        if regions.has_windows(self.stag) {
            return Err(Error::Busy("memory windows"));
        }
        self.remove_from(&mut regions);
        Ok(())
    }

    fn remove_from(&self, regions: &mut Regions<Registered>) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            regions.remove(self.stag);
            self.pd.engine().network.deregistered(&self.memory);
            self.pd.engine().stats.subtract(Total::Regions, 1);
        }
    }
}

fn check_rights(access: Access) -> Result<(), Error> {
    let remote = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(remote) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Error::Invalid(
            "remote write or atomic access needs local write access too",
        ));
    }
    Ok(())
}

impl Drop for Mr {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Acquire) {
            self.remove_from(&mut self.pd.engine().regions.write());
        }
    }
}

/// A memory window. Dropping it deallocates it, bound or not.
#[derive(Debug)]
pub struct Mw {
    pd: Arc<Pd>,
    stag: Stag,
    kind: WindowKind,
}

impl Mw {
    pub(crate) fn allocate(pd: &Arc<Pd>, kind: WindowKind) -> Result<Arc<Mw>, Error> {
        let stag = pd
            .engine()
            .regions
            .write()
            .insert_window(kind, pd.id(), random)
            .ok_or(Error::NoMemory("memory regions and windows"))?;
        Ok(Arc::new(Mw {
            pd: pd.clone(),
            stag,
            kind,
        }))
    }

    /// The STag it was allocated with; it opens nothing. Bindings change the key.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// The STag for a binding whose key is left to the device: with another key than `now`, drawn, so that a peer that
    /// was given the last one does not know the next.
    pub fn rebound(&self, now: Stag) -> Stag {
        let further = 1 + random() % 0xFF;
        Stag(now.0 & !0xFF | now.0.wrapping_add(further) & 0xFF)
    }

    /// Its kind.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        self.pd.engine().regions.write().remove_window(self.stag);
    }
}
impl Pd {
    /// Registers memory under the address `iova`.
    ///
    /// # Errors
    /// The rights contradict each other, the range wraps, or the device is full.
    pub fn register(
        self: &Arc<Self>,
        memory: Registered,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        Mr::register(self, memory, iova, access)
    }

    /// A memory window, not bound to anything.
    ///
    /// # Errors
    /// The device is full.
    pub fn alloc_window(self: &Arc<Self>, kind: WindowKind) -> Result<Arc<Mw>, Error> {
        Mw::allocate(self, kind)
    }
}
