//! The way to a connection and out of it.

use std::time::Duration;

use libc::{c_int, c_void, sockaddr};
use weft_engine::cm::ConnParam;

use super::address;
use super::id::{complete, of, CmId};
use crate::entry::{invalid, status, Answer};
use crate::handle::Handle;
use crate::layout::numbers::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES};
use crate::layout::{rdma_cm_id, rdma_conn_param};
use crate::qp::Pair;

/// Binds an id to a local address.
///
/// # Safety
/// `id` and `addr` are null or valid.
pub unsafe fn bind(id: *mut rdma_cm_id, addr: *const sockaddr) -> Answer<()> {
    // SAFETY: promised by the caller.
    let (id, addr) = unsafe { (of(id)?, address::read(addr)?) };
    id.engine.bind(addr)?;
    id.refresh_addresses();
    // An id that listens on every address belongs to no device until a request comes.
    if !addr.ip().is_unspecified() {
        id.bind_to_device()?;
    }
    Ok(())
}

/// Resolves the peer's address.
///
/// # Safety
/// `id`, `source` and `peer` are null or valid; nobody else calls on the id.
pub unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    source: *const sockaddr,
    peer: *const sockaddr,
    timeout_ms: c_int,
) -> Answer<()> {
    // SAFETY: promised by the caller.
    unsafe {
        let id = of(id)?;
        let peer = address::read(peer)?;
        let source = match source.is_null() {
            true => None,
            false => Some(address::read(source)?),
        };
        let timeout = Duration::from_millis(timeout_ms.max(0) as u64);
        id.engine.resolve_addr(source, peer, Some(timeout))?;
        (*id.addresses()).dst_addr = address::storage(peer);
        complete(id)
    }
}

/// Resolves the route.
///
/// # Safety
/// `id` is null or an id of ours; nobody else calls on it.
pub unsafe fn resolve_route(id: *mut rdma_cm_id) -> Answer<()> {
    // SAFETY: promised by the caller.
    unsafe {
        let id = of(id)?;
        id.engine.resolve_route()?;
        complete(id)
    }
}

/// Most Reads outstanding that a connection can be made with.
fn most_reads() -> u8 {
    let most = weft_engine::device::attributes().max_qp_rd_atom;
    // The value 255 asks for whatever the device has.
    u8::try_from(most).unwrap_or(u8::MAX - 1)
}

/// One direction's outstanding Reads: what the program says, or `otherwise` if it leaves it open.
///
/// # Errors
/// `EINVAL`: more than the device has.
fn reads(wanted: Option<u8>, open: i64, otherwise: u8) -> Answer<u8> {
    match wanted {
        Some(wanted) if i64::from(wanted) != open => {
            if wanted > most_reads() {
                return invalid();
            }
            Ok(wanted)
        }
        _ => Ok(otherwise.min(most_reads())),
    }
}

/// Gives the connection its queue pair, if the program named it by number only.
///
/// # Errors
/// `EINVAL`: no queue pair, on the id or of that number.
fn attach_by_number(id: &Handle<CmId>, param: Option<&rdma_conn_param>) -> Answer<()> {
    if id.engine.qp().is_some() {
        return Ok(());
    }
    let number = param.map_or(0, |param| param.qp_num);
    match weft_engine::engine()?.qp_by_number(number) {
        Some(qp) => Ok(id.engine.attach_qp(&qp)?),
        None => invalid(),
    }
}

/// The program's private data.
///
/// # Safety
/// The parameters' pointer and length belong together.
unsafe fn private_data(param: Option<&rdma_conn_param>) -> &[u8] {
    match param {
        Some(param) if !param.private_data.is_null() => {
            let length = param.private_data_len.into();
            // SAFETY: promised by the caller.
            unsafe { std::slice::from_raw_parts(param.private_data.cast(), length) }
        }
        _ => &[],
    }
}

/// What one of the two sides does with checked parameters.
type Act = fn(&weft_engine::cm::Id, ConnParam<'_>) -> Result<(), weft_engine::Error>;

/// Connects or accepts; `otherwise` are the Reads of both directions that parameters left open take.
///
/// # Safety
/// `param` is null or the program's; nobody else calls on the id.
unsafe fn act(
    id: &Handle<CmId>,
    param: *const rdma_conn_param,
    otherwise: (u8, u8),
    act: Act,
) -> Answer<()> {
    // SAFETY: promised by the caller.
    let param = unsafe { param.as_ref() };
    let responder = param.map(|param| param.responder_resources);
    let initiator = param.map(|param| param.initiator_depth);
    let responder_resources = reads(responder, RDMA_MAX_RESP_RES, otherwise.0)?;
    let initiator_depth = reads(initiator, RDMA_MAX_INIT_DEPTH, otherwise.1)?;
    attach_by_number(id, param)?;
    {
        let mut state = id.state();
        state.responder_resources = responder_resources;
        state.initiator_depth = initiator_depth;
    }
    let param = ConnParam {
        // SAFETY: promised by the caller.
        private_data: unsafe { private_data(param) },
        responder_resources,
        initiator_depth,
    };
    act(&id.engine, param)?;
    // SAFETY: promised by the caller.
    unsafe { complete(id) }
}

export! {
    /// `rdma_bind_addr(3)`.
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
        // SAFETY: an id of ours or null, and the program's address.
        status(|| unsafe { bind(id, addr) })
    }

    /// `rdma_resolve_addr(3)`. A null `source` is allowed.
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        source: *mut sockaddr,
        peer: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int {
        // SAFETY: an id of ours or null, and the program's addresses.
        status(|| unsafe { resolve_addr(id, source, peer, timeout_ms) })
    }

    /// `rdma_resolve_route(3)`.
    fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
        // SAFETY: an id of ours or null.
        status(|| unsafe { resolve_route(id) })
    }

    /// `rdma_listen(3)`.
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null.
            let id = unsafe { of(id)? };
            id.engine.listen(backlog)?;
            id.refresh_addresses();
            Ok(())
        })
    }

    /// `rdma_connect(3)`. A null `param` takes the device's limits and no private data.
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null, and the program's parameters.
            unsafe { act(of(id)?, param, (u8::MAX, u8::MAX), |id, param| id.connect(param)) }
        })
    }

    /// `rdma_accept(3)`. A null `param` takes what the connect request asks for.
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null.
            let id = unsafe { of(id)? };
            let asked = {
                let state = id.state();
                (state.responder_resources, state.initiator_depth)
            };
            // SAFETY: the program's parameters.
            unsafe { act(id, param, asked, |id, param| id.accept(param)) }
        })
    }

    /// `rdma_reject(3)`.
    fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
        // SAFETY: an id of ours or null, and the program's octets.
        status(|| unsafe { reject(id, data, length) })
    }

    /// `rdma_reject` for a reason that iWARP has no word for.
    fn rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
        // SAFETY: an id of ours or null, and the program's octets.
        status(|| unsafe { reject(id, data, length) })
    }

    /// `rdma_disconnect(3)`.
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null.
            let id = unsafe { of(id)? };
            id.engine.disconnect()?;
            // The end is reported once; a synchronous program that saw it has nothing to wait for.
            if id.state().ended {
                return Ok(());
            }
            // SAFETY: nobody else calls on the id.
            unsafe { complete(id) }
        })
    }
}

/// Rejects a connect request.
///
/// # Safety
/// `id` is null or of ours; `data` has `length` octets or is null.
unsafe fn reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> Answer<()> {
    // SAFETY: promised by the caller.
    let id = unsafe { of(id)? };
    let data = if data.is_null() {
        &[]
    } else {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(data.cast(), length.into()) }
    };
    Ok(id.engine.reject(data)?)
}

/// Puts a queue pair on an id.
///
/// # Safety
/// `qp` is a queue pair of ours.
pub unsafe fn attach(id: &Handle<CmId>, qp: *mut crate::layout::ibv_qp) -> Answer<()> {
    // SAFETY: promised by the caller.
    let pair = unsafe { Handle::<Pair>::of(qp)? };
    Ok(id.engine.attach_qp(pair.connected()?)?)
}
