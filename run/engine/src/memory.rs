//! Memory regions and windows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use weft_os::mem::Registered;
use weft_verbs::mr::{RegionSpec, Regions};
use weft_verbs::types::{Access, Stag, WindowKind};

use crate::context::Pd;
use crate::error::Error;
use crate::stats::Total;

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
        let remote = Access(Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0);
        if access.0 & remote.0 != 0 && !access.contains(Access::LOCAL_WRITE) {
            return Err(Error::Invalid(
                "remote write or atomic access needs local write access too",
            ));
        }
        let spec = RegionSpec {
            iova,
            len: memory.len() as u64,
            access,
            pd: pd.id(),
        };
        let random = weft_os::random_u64() as u32;
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
            self.pd.engine().stats.subtract(Total::Regions, 1);
        }
    }
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
        let random = weft_os::random_u64() as u32;
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
