//! Endpoints: an id with everything that an address list implies.

use std::ptr::null_mut;

use libc::c_int;

use super::id::{self, Kind};
use super::{channel, connect, queues};
use crate::entry::{invalid, status, Errno, Outcome};
use crate::layout::numbers::{RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST};
use crate::layout::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};

/// How long resolving may take, as in librdmacm.
const RESOLVE_MS: c_int = 2000;

/// Makes an endpoint: a listener-to-be, or an id that is ready to connect.
///
/// # Safety
/// `info` is valid; the others are null or valid.
unsafe fn create(
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init: *mut ibv_qp_init_attr,
) -> Outcome<*mut rdma_cm_id> {
    let kind = Kind {
        port_space: info.ai_port_space,
        qp_type: info.ai_qp_type,
    };
    // SAFETY: the caller promises: `info` is valid; the others are null or valid; a fresh id that nobody else calls
    // on.
    unsafe {
        let id = id::create(null_mut(), null_mut(), kind)?;
        let ready = if i64::from(info.ai_flags) & RAI_PASSIVE != 0 {
            prepare_passive(id, info, pd, qp_init)
        } else {
            prepare_active(id, info, pd, qp_init)
        };
        if let Err(errno) = ready {
            destroy(id)?;
            return Err(errno);
        }
        Ok(id)
    }
}

/// # Safety
/// As for [`create`].
unsafe fn prepare_passive(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    // SAFETY: the caller promises: what `create` asks for.
    unsafe {
        connect::bind(id, info.ai_src_addr)?;
        if !pd.is_null() {
            (*id).pd = pd;
        }
        if let Some(init) = qp_init.as_ref() {
            let mut init = *init;
            init.qp_type = info.ai_qp_type;
            id::of(id)?.state().qp_init = Some(init);
        }
    }
    Ok(())
}

/// # Safety
/// As for [`create`].
unsafe fn prepare_active(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    // SAFETY: the caller promises: what `create` asks for.
    unsafe {
        connect::resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, RESOLVE_MS)?;
        connect::resolve_route(id)?;
        if let Some(init) = qp_init.as_mut() {
            init.qp_type = info.ai_qp_type;
            queues::create_plain_qp(id, pd, init)?;
        }
    }
    Ok(())
}

/// Ends an endpoint and all that belongs to it.
///
/// # Safety
/// `id` is an id of ours or null, and given up.
unsafe fn destroy(id: *mut rdma_cm_id) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is an id of ours or null, and given up.
    unsafe {
        id::of(id)?;
        if !(*id).qp.is_null() {
            queues::destroy_qp(id)?;
        }
        if !(*id).srq.is_null() {
            queues::destroy_srq(id)?;
        }
        id::destroy(id)
    }
}

/// Waits for a connect request on a synchronous listener, and gives it its queue pair.
///
/// # Safety
/// `listener` is null or of ours; nobody else calls on it.
unsafe fn get_request(listener: *mut rdma_cm_id) -> Outcome<*mut rdma_cm_id> {
    // SAFETY: the caller promises: `listener` is null or of ours; nobody else calls on it.
    unsafe {
        let handle = id::of(listener)?;
        if !handle.state().synchronous {
            return invalid();
        }
        id::drop_event(handle);
        let event = channel::next(channel::of((*listener).channel)?)?;
        if (*event).status != 0 || i64::from((*event).event) != RDMA_CM_EVENT_CONNECT_REQUEST {
            (*listener).event = event;
            let errno = match (*event).status {
                0 => libc::EINVAL,
                status => status.abs(),
            };
            return Err(Errno(errno));
        }
        let id = (*event).id;
        let init = handle.state().qp_init;
        if let Some(mut init) = init {
            if let Err(errno) = queues::create_plain_qp(id, (*listener).pd, &mut init) {
                // The request cannot be answered without its queue pair.
                channel::acknowledge(event);
                id::destroy(id)?;
                return Err(errno);
            }
        }
        (*id).event = event;
        Ok(id)
    }
}

export! {
    /// `rdma_create_ep(3)`. Null `pd` and `qp_init` are allowed.
    fn rdma_create_ep(
        id: *mut *mut rdma_cm_id,
        info: *mut rdma_addrinfo,
        pd: *mut ibv_pd,
        qp_init: *mut ibv_qp_init_attr,
    ) -> c_int {
        status(|| {
            // SAFETY: the program's structure.
            let Some(info) = (unsafe { info.as_ref() }) else {
                return invalid();
            };
            if id.is_null() {
                return invalid();
            }
            // SAFETY: objects of ours or null; the program gave the address for the answer.
            unsafe { *id = create(info, pd, qp_init)? };
            Ok(())
        })
    }

    /// `rdma_destroy_ep(3)`.
    fn rdma_destroy_ep(id: *mut rdma_cm_id) {
        // SAFETY: an id of ours or null; the program gives it up.
        let _ = status(|| unsafe { destroy(id) });
    }

    /// `rdma_get_request(3)`: for synchronous listeners only.
    fn rdma_get_request(listener: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
        status(|| {
            if id.is_null() {
                return invalid();
            }
            // SAFETY: an id of ours or null; the program gave the address for the answer.
            unsafe { *id = get_request(listener)? };
            Ok(())
        })
    }
}
