//! Protection domains and memory regions.

use std::sync::{Arc, Mutex, OnceLock};

use libc::{c_int, c_void, size_t};
use weft_engine::fork::once;
use weft_engine::mem::Registered;
use weft_engine::types::Access;

use crate::context::Context;
use crate::entry::{code, invalid, pointer, set_errno, unsupported, Errno, Outcome};
use crate::event_references::lock;
use crate::handle::{Handle, Object};
use crate::layout::numbers::*;
use crate::layout::{ibv_context, ibv_mr, ibv_pd};

/// A protection domain.
pub struct Pd {
    /// The engine's side of it.
    pub engine: Arc<weft_engine::Pd>,
}

impl Object for Pd {
    type Public = ibv_pd;
    type Pointee = ibv_pd;
    const MAGIC: u32 = 0x7064_3030;
}

/// A memory region. Registering again replaces the engine's region under the same address.
pub struct Mr {
    current: Mutex<Current>,
}

/// What is registered now.
struct Current {
    engine: Arc<weft_engine::Mr>,
    region: Region,
}

impl Object for Mr {
    type Public = ibv_mr;
    type Pointee = ibv_mr;
    const MAGIC: u32 = 0x6d72_3030;
}

/// What a region covers and grants, as the program asked for it.
#[derive(Clone, Copy)]
struct Region {
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: Access,
}

/// Rights of ours that have a bit of the same place in the header.
const RIGHTS: i64 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;
const _: () = assert!(
    IBV_ACCESS_LOCAL_WRITE == Access::LOCAL_WRITE.bits() as i64
        && IBV_ACCESS_REMOTE_WRITE == Access::REMOTE_WRITE.bits() as i64
        && IBV_ACCESS_REMOTE_READ == Access::REMOTE_READ.bits() as i64
        && IBV_ACCESS_REMOTE_ATOMIC == Access::REMOTE_ATOMIC.bits() as i64
        && IBV_ACCESS_MW_BIND == Access::MW_BIND.bits() as i64
);

/// The rights in an access mask (ibv_reg_mr(3)). Optional bits are hints and are left out, as the
/// man page allows; so is `IBV_ACCESS_HUGETLB`.
///
/// # Errors
/// `EINVAL` for unknown bits and for remote writing without local writing; `EOPNOTSUPP` for
/// on-demand paging.
pub fn rights(access: u32) -> Outcome<Access> {
    let mask = i64::from(access) & !IBV_ACCESS_OPTIONAL_RANGE & !IBV_ACCESS_HUGETLB;
    if mask & IBV_ACCESS_ON_DEMAND != 0 {
        return unsupported();
    }
    if mask & !(RIGHTS | IBV_ACCESS_ZERO_BASED) != 0 {
        return invalid();
    }
    let changes_memory = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if mask & changes_memory != 0 && mask & IBV_ACCESS_LOCAL_WRITE == 0 {
        return invalid();
    }
    Ok(Access::from_bits_retain((mask & RIGHTS) as u32))
}

/// Whether the whole range is mapped. Registration on a device pins the pages, and programs rely
/// on the `EFAULT` that a bad range gives.
fn is_mapped(addr: usize, length: usize) -> bool {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: asks for a constant of the system.
    let page = *once(&PAGE, || unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
        as usize);
    // The kernel reports on one page an octet; large ranges are asked for piece by piece.
    let mut report = [0u8; 4096];
    let (mut at, end) = (addr & !(page - 1), addr + length);
    while at < end {
        let piece = (end - at).min(report.len() * page);
        // SAFETY: `report` has an octet for each page of the piece.
        let known = unsafe { libc::mincore(at as *mut c_void, piece, report.as_mut_ptr()) };
        // Only ENOMEM speaks of the range; anything else (a seccomp filter) says nothing.
        if known != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
            return false;
        }
        at += piece;
    }
    true
}

/// Registers a region with the engine.
///
/// # Safety
/// The program owns the memory, and lets the device read and change it until deregistration.
unsafe fn register(pd: &Arc<weft_engine::Pd>, region: Region) -> Outcome<Arc<weft_engine::Mr>> {
    let start = region.addr as usize;
    if region.length == 0 || start.checked_add(region.length).is_none() {
        return invalid();
    }
    if !is_mapped(start, region.length) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller promises: the program owns the memory, and lets the device read and change it until
    // deregistration; the program's memory is no Rust object.
    let memory = unsafe { Registered::new(region.addr.cast(), region.length) };
    Ok(pd.register(memory, region.iova, region.access)?)
}

/// Registers and makes the object that the program gets.
///
/// # Safety
/// As for [`register`]; `pd` is null or a domain of ours.
unsafe fn new_region(pd: *mut ibv_pd, region: Region) -> Outcome<*mut ibv_mr> {
    // SAFETY: the caller promises: what `register` asks for; `pd` is null or a domain of ours.
    let (domain, engine) = unsafe {
        let domain = Handle::<Pd>::of(pd)?;
        (domain, register(&domain.engine, region)?)
    };
    let stag = engine.stag().0;
    let public = ibv_mr {
        // SAFETY: a live domain; its context does not change.
        context: unsafe { (*domain.public()).context },
        pd,
        addr: region.addr,
        length: region.length,
        handle: stag >> 8,
        lkey: stag,
        rkey: stag,
    };
    let current = Mutex::new(Current { engine, region });
    Ok(Handle::create(public, Mr { current }))
}

/// The address space of a region: from zero, from the memory's own address, or from where the
/// program says.
fn base(access: u32, own: u64) -> u64 {
    if i64::from(access) & IBV_ACCESS_ZERO_BASED != 0 {
        0
    } else {
        own
    }
}

/// Makes a protection domain.
///
/// # Safety
/// `context` is a context of ours or null.
pub unsafe fn alloc_pd(context: *mut ibv_context) -> Outcome<*mut ibv_pd> {
    // SAFETY: the caller promises: `context` is a context of ours or null.
    let engine = unsafe { Handle::<Context>::of(context)? }.engine.alloc_pd();
    let handle = engine.id().0;
    Ok(Handle::create(ibv_pd { context, handle }, Pd { engine }))
}

export! {
    /// `ibv_alloc_pd(3)`.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd, of context(context) {
        // SAFETY: a context of ours, or null.
        pointer(|| unsafe { alloc_pd(context) })
    }

    /// `ibv_dealloc_pd(3)`: `EBUSY` while anything was made from it.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int, of object(pd) {
        code(|| {
            // SAFETY: a domain of ours or null; the program gives it up unless this fails.
            unsafe {
                Handle::<Pd>::of(pd)?.engine.dealloc()?;
                Handle::<Pd>::release(pd);
            }
            Ok(())
        })
    }

    /// `ibv_reg_mr(3)`.
    fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        access: c_int,
    ) -> *mut ibv_mr, of object(pd) {
        pointer(|| {
            let iova = base(access as u32, addr as u64);
            let access = rights(access as u32)?;
            // SAFETY: a domain of ours or null, and memory of the program's.
            unsafe { new_region(pd, Region { addr, length, iova, access }) }
        })
    }

    /// `ibv_reg_mr_iova(3)`.
    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr, of object(pd) {
        pointer(|| {
            let iova = base(access as u32, iova);
            let access = rights(access as u32)?;
            // SAFETY: a domain of ours or null, and memory of the program's.
            unsafe { new_region(pd, Region { addr, length, iova, access }) }
        })
    }

    /// What the inline functions of `ibv_reg_mr(3)` call when the access mask is no constant.
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        iova: u64,
        access: u32,
    ) -> *mut ibv_mr, of object(pd) {
        pointer(|| {
            let iova = base(access, iova);
            let access = rights(access)?;
            // SAFETY: a domain of ours or null, and memory of the program's.
            unsafe { new_region(pd, Region { addr, length, iova, access }) }
        })
    }

    /// `ibv_reg_dmabuf_mr(3)`: there is no device memory to share.
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        _offset: u64,
        _length: size_t,
        _iova: u64,
        _fd: c_int,
        _access: c_int,
    ) -> *mut ibv_mr, of object(pd) {
        pointer(unsupported)
    }

    /// `ibv_rereg_mr(3)`. Where only the rights change, the keys stay, as devices do it: programs have told their
    /// peers the key by then. Otherwise the new region has new keys; it is registered before the old one goes, so on
    /// failure the old one is still valid: `IBV_REREG_MR_ERR_INPUT`, with errno.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        access: c_int,
    ) -> c_int, of object(mr) {
        let errno = code(|| {
            // SAFETY: objects of ours or null, and memory of the program's.
            unsafe { register_again(mr, i64::from(flags), pd, addr, length, access) }
        });
        if errno == 0 {
            return 0;
        }
        set_errno(Errno(errno));
        IBV_REREG_MR_ERR_INPUT as c_int
    }

    /// `ibv_dereg_mr(3)`. Returns when nothing reads or writes the memory any more; `EBUSY` while
    /// a memory window is bound to it.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int, of object(mr) {
        code(|| {
            // SAFETY: a region of ours or null; the program gives it up.
            unsafe {
                lock(&Handle::<Mr>::of(mr)?.current).engine.deregister()?;
                Handle::<Mr>::release(mr);
            }
            Ok(())
        })
    }

    /// `ibv_import_pd(3)`: what other processes have is not shared.
    fn ibv_import_pd(context: *mut ibv_context, _handle: u32) -> *mut ibv_pd, of context(context) {
        pointer(unsupported)
    }

    /// `ibv_unimport_pd(3)`.
    fn ibv_unimport_pd(pd: *mut ibv_pd), of object(pd) {}

    /// `ibv_import_mr(3)`: what other processes have is not shared.
    fn ibv_import_mr(pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr, of object(pd) {
        pointer(unsupported)
    }

    /// `ibv_unimport_mr(3)`.
    fn ibv_unimport_mr(mr: *mut ibv_mr), of object(mr) {}

    /// `ibv_import_dm(3)`: there is no device memory.
    fn ibv_import_dm(
        context: *mut ibv_context,
        _handle: u32,
    ) -> *mut c_void, of context(context) {
        pointer(unsupported)
    }

    /// `ibv_unimport_dm(3)`.
    fn ibv_unimport_dm(dm: *mut c_void), of object(dm) {}
}

/// # Safety
/// As for [`new_region`].
unsafe fn register_again(
    mr: *mut ibv_mr,
    flags: i64,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Outcome<()> {
    if flags == 0 || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
        return invalid();
    }
    // SAFETY: the caller promises: what `new_region` asks for.
    let object = unsafe { Handle::<Mr>::of(mr)? };
    let mut current = lock(&object.current);
    let mut region = current.region;
    if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
        (region.addr, region.length, region.iova) = (addr, length, addr as u64);
    }
    if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
        region.access = rights(access as u32)?;
    }
    let public = object.public();
    if flags == IBV_REREG_MR_CHANGE_ACCESS && current.engine.change_access(region.access)? {
        current.region = region;
        return Ok(());
    }
    let domain = if flags & IBV_REREG_MR_CHANGE_PD != 0 {
        pd
    } else {
        // SAFETY: a live region's own field.
        unsafe { (*public).pd }
    };
    // SAFETY: the caller promises: what `new_region` asks for.
    let engine = unsafe { register(&Handle::<Pd>::of(domain)?.engine, region)? };
    current.engine.deregister()?;
    let stag = engine.stag().0;
    *current = Current { engine, region };
    // SAFETY: the program does not use the region while it is registered again.
    unsafe {
        (*public).pd = domain;
        (*public).addr = region.addr;
        (*public).length = region.length;
        (*public).lkey = stag;
        (*public).rkey = stag;
    }
    Ok(())
}
