//! Memory windows: type 1, bound by `ibv_bind_mw(3)`, and type 2, bound by a work request.

use std::sync::Arc;

use libc::c_int;
use weft_engine::types::{Access, Bind, Payload, SendFlags, SendOp, SendRequest, Stag, WindowKind};

use crate::entry::{code, invalid, pointer, Errno, Outcome};
use crate::handle::{Handle, Object};
use crate::layout::numbers::*;
use crate::layout::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use crate::memory::{Mr, Pd};
use crate::queue_pair::Pair;

/// A memory window.
pub struct Window {
    engine: Arc<weft_engine::Mw>,
}

impl Object for Window {
    type Public = ibv_mw;
    type Pointee = ibv_mw;
    const MAGIC: u32 = 0x6d77_3030;
}

/// Rights that a window may give.
const RIGHTS: i64 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Behind the inline `ibv_alloc_mw(3)`.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    pointer(|| {
        let engine_kind = match i64::from(kind) {
            IBV_MW_TYPE_1 => WindowKind::One,
            IBV_MW_TYPE_2 => WindowKind::Two,
            _ => return invalid(),
        };
        // SAFETY: a domain of ours, or null.
        let domain = unsafe { Handle::<Pd>::of(pd)? };
        let engine = domain.engine.alloc_window(engine_kind)?;
        let rkey = engine.stag().0;
        let public = ibv_mw {
            // SAFETY: a live domain; its context does not change.
            context: unsafe { (*domain.public()).context },
            pd,
            rkey,
            handle: rkey >> 8,
            r#type: kind,
        };
        Ok(Handle::create(public, Window { engine }))
    })
}

/// Behind the inline `ibv_dealloc_mw(3)`: a window that is bound is unbound.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    code(|| {
        // SAFETY: a window of ours or null; the program gives it up.
        unsafe {
            Handle::<Window>::of(mw)?;
            Handle::<Window>::release(mw);
        }
        Ok(())
    })
}

/// Behind the inline `ibv_bind_mw(3)`, which checked the type and the domain. The window has its
/// new key when this returns; the binding itself is a work request, in order with the others.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    code(|| {
        // SAFETY: objects of ours, or null.
        let (pair, window) = unsafe { (Handle::<Pair>::of(qp)?, Handle::<Window>::of(mw)?) };
        if bind.is_null() {
            return invalid();
        }
        // SAFETY: the program's structure; the window's own field.
        let (request, rkey) = unsafe { (*bind, (*window.public()).rkey) };
        let next = window.engine.rebound(Stag(rkey));
        let set = |flag: i64| i64::from(request.send_flags) & flag != 0;
        // SAFETY: promised by the program.
        let bind = unsafe { binding(window, next, &request.bind_info)? };
        pair.connected()?.post_send(&SendRequest {
            wr_id: request.wr_id,
            op: SendOp::BindWindow(bind),
            flags: SendFlags {
                fence: set(IBV_SEND_FENCE),
                signaled: set(IBV_SEND_SIGNALED),
                solicited: set(IBV_SEND_SOLICITED),
            },
            payload: Payload::Gather(&[]),
        })?;
        // SAFETY: a live window; the field is ours to write.
        unsafe { (*window.public()).rkey = next.0 };
        Ok(())
    })
}

/// The operation of an `IBV_WR_BIND_MW` work request.
///
/// # Errors
/// `EINVAL`: not a window of type 2, or not with this key or these rights.
///
/// # Safety
/// What the request names is of ours or null.
pub unsafe fn type_2(mw: *mut ibv_mw, rkey: Stag, info: &ibv_mw_bind_info) -> Outcome<SendOp> {
    // SAFETY: the caller promises: what the request names is of ours or null.
    let window = unsafe { Handle::<Window>::of(mw)? };
    if window.engine.kind() != WindowKind::Two || info.mr.is_null() {
        return invalid();
    }
    // SAFETY: the caller promises: what the request names is of ours or null.
    Ok(SendOp::BindWindow(unsafe { binding(window, rkey, info)? }))
}

/// # Safety
/// The region that `info` names is of ours or null.
unsafe fn binding(window: &Window, rkey: Stag, info: &ibv_mw_bind_info) -> Outcome<Bind> {
    // Many programs name it, as a region's remote writing needs it. A window opens nothing locally.
    let flags = i64::from(info.mw_access_flags) & !IBV_ACCESS_LOCAL_WRITE;
    if flags & !(RIGHTS | IBV_ACCESS_ZERO_BASED) != 0 {
        return invalid();
    }
    let region = if info.mr.is_null() {
        Stag(0)
    } else {
        // SAFETY: the caller promises: the region that `info` names is of ours or null.
        let region = unsafe { Handle::<Mr>::of(info.mr)? };
        // SAFETY: a live region's own field.
        Stag(unsafe { (*region.public()).lkey })
    };
    let window = window.engine.stag();
    if rkey.index() != window.index() {
        return Err(Errno(libc::EINVAL));
    }
    Ok(Bind {
        window,
        rkey,
        region,
        addr: info.addr,
        len: info.length,
        access: Access::from_bits_retain((flags & RIGHTS) as u32),
        zero_based: flags & IBV_ACCESS_ZERO_BASED != 0,
    })
}
