//! Memory regions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use weft_os::mem::Registered;
use weft_verbs::mr::RegionSpec;
use weft_verbs::types::{Access, Stag};

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
    pub fn deregister(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            let engine = self.pd.engine();
            engine.regions.write().remove(self.stag);
            engine.stats.subtract(Total::Regions, 1);
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.deregister();
    }
}
