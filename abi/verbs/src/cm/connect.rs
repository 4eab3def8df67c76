//! The way to a connection and out of it.

use std::time::Duration;

use libc::{c_int, c_void, sockaddr};
use weft_engine::cm::ConnParam;

use super::address;
use super::id::{complete, drop_event, of, CmId};
use crate::entry::{invalid, status, Outcome};
use crate::handle::Handle;
use crate::layout::numbers::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES};
use crate::layout::{rdma_cm_id, rdma_conn_param};
use crate::queue_pair::{Engine, Pair};

/// Binds an id to a local address.
///
/// # Safety
/// `id` and `addr` are null or valid.
pub unsafe fn bind(id: *mut rdma_cm_id, addr: *const sockaddr) -> Outcome<()> {
    // SAFETY: the caller promises: `id` and `addr` are null or valid.
    let (id, addr) = unsafe { (of(id)?, address::read(addr)?) };
    id.engine.bind(addr)?;
    id.refresh_addresses();
    if weft_engine::device::belongs_at_once(addr) {
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
) -> Outcome<()> {
    // SAFETY: the caller promises: `id`, `source` and `peer` are null or valid; nobody else calls on the id.
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
pub unsafe fn resolve_route(id: *mut rdma_cm_id) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or an id of ours; nobody else calls on it.
    unsafe {
        let id = of(id)?;
        id.engine.resolve_route()?;
        complete(id)
    }
}

/// Most Reads outstanding that a connection can be made with.
fn most_reads() -> u8 {
    let most = weft_engine::types::MAX_RD_ATOMIC;
    // The value 255 asks for whatever the device has.
    u8::try_from(most).unwrap_or(u8::MAX - 1)
}

/// One direction's outstanding Reads: what the program says, or `otherwise` if it leaves it open.
///
/// # Errors
/// `EINVAL`: more than the device has.
fn reads(wanted: Option<u8>, open: i64, otherwise: u8) -> Outcome<u8> {
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

/// Sees that the id's queue pair is the one that stands on it. uDAPL moves a queue pair to the id of a connect
/// request by writing both ids' fields, which is all that librdmacm goes by.
///
/// # Errors
/// `EINVAL`: what stands there is none, or none for this id.
///
/// # Safety
/// The id's queue pair is null or of ours.
unsafe fn take_what_is_shown(id: &Handle<CmId>) -> Outcome<()> {
    // SAFETY: a live id's own field.
    let shown = unsafe { (*id.public()).qp };
    let before = id.state().shown_qp;
    if before == shown as usize {
        return Ok(());
    }
    id.engine.detach_qp();
    id.state().shown_qp = 0;
    match shown.is_null() {
        true => Ok(()),
        // SAFETY: the caller promises: the id's queue pair is null or of ours.
        false => unsafe { attach(id, shown) },
    }
}

/// Gives the connection its queue pair, if the program named it by number only.
///
/// # Errors
/// `EINVAL`: no queue pair, on the id or of that number.
fn attach_by_number(id: &Handle<CmId>, param: Option<&rdma_conn_param>) -> Outcome<()> {
    if id.engine.qp().is_some() {
        return Ok(());
    }
    let number = param.map_or(0, |param| param.qp_num);
    match weft_engine::Qp::by_number(&*weft_engine::engine()?, number) {
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
            // SAFETY: the caller promises: the parameters' pointer and length belong together.
            unsafe { std::slice::from_raw_parts(param.private_data.cast(), length) }
        }
        _ => &[],
    }
}

/// Asks for the queue pair that serves datagrams at the resolved address.
///
/// # Safety
/// `param` is null or the program's; nobody else calls on the id.
unsafe fn look_up(id: &Handle<CmId>, param: *const rdma_conn_param) -> Outcome<()> {
    // SAFETY: the caller promises: `param` is null or the program's; nobody else calls on the id.
    unsafe {
        take_what_is_shown(id)?;
        id.engine.look_up(private_data(param.as_ref()))?;
        complete(id)
    }
}

/// Answers who asks for the queue pair that serves datagrams here. There is no event about that on this side.
///
/// # Safety
/// As for [`look_up`].
unsafe fn accept_lookup(id: &Handle<CmId>, param: *const rdma_conn_param) -> Outcome<()> {
    // SAFETY: the caller promises: what `look_up` asks for.
    unsafe {
        take_what_is_shown(id)?;
        let param = param.as_ref();
        let number = param.map_or(0, |param| param.qp_num);
        id.engine.accept_lookup(number, private_data(param))?;
        if id.state().synchronous {
            drop_event(id);
        }
    }
    Ok(())
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
) -> Outcome<()> {
    // SAFETY: the caller promises: `param` is null or the program's; nobody else calls on the id.
    let param = unsafe { param.as_ref() };
    let responder = param.map(|param| param.responder_resources);
    let initiator = param.map(|param| param.initiator_depth);
    let responder_resources = reads(responder, RDMA_MAX_RESP_RES, otherwise.0)?;
    let initiator_depth = reads(initiator, RDMA_MAX_INIT_DEPTH, otherwise.1)?;
    // SAFETY: the caller promises: `param` is null or the program's; nobody else calls on the id.
    unsafe { take_what_is_shown(id)? };
    attach_by_number(id, param)?;
    {
        let mut state = id.state();
        state.responder_resources = responder_resources;
        state.initiator_depth = initiator_depth;
    }
    let param = ConnParam {
        // SAFETY: the caller promises: `param` is null or the program's; nobody else calls on the id.
        private_data: unsafe { private_data(param) },
        responder_resources,
        initiator_depth,
    };
    act(&id.engine, param)?;
    // SAFETY: the caller promises: `param` is null or the program's; nobody else calls on the id.
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
            // An id that listens on every address belongs to no device until a request comes.
            match id.engine.local_addr() {
                Some(local) if !local.ip().is_unspecified() => id.bind_to_device(),
                _ => Ok(()),
            }
        })
    }

    /// `rdma_connect(3)`. A null `param` takes the device's limits and no private data.
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null, and the program's parameters.
            unsafe {
                let id = of(id)?;
                if id.engine.is_for_datagrams() {
                    return look_up(id, param);
                }
                act(id, param, (u8::MAX, u8::MAX), |id, param| id.connect(param))
            }
        })
    }

    /// `rdma_accept(3)`. A null `param` takes what the connect request asks for.
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null.
            let id = unsafe { of(id)? };
            if id.engine.is_for_datagrams() {
                // SAFETY: the program's parameters.
                return unsafe { accept_lookup(id, param) };
            }
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
            // The end is reported once, and that of datagrams never; a synchronous program that saw it has nothing to
            // wait for.
            if id.state().ended || id.engine.is_for_datagrams() {
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
unsafe fn reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; `data` has `length` octets or is null.
    let id = unsafe { of(id)? };
    let data = if data.is_null() {
        &[]
    } else {
        // SAFETY: the caller promises: `id` is null or of ours; `data` has `length` octets or is null.
        unsafe { std::slice::from_raw_parts(data.cast(), length.into()) }
    };
    Ok(id.engine.reject(data)?)
}

/// Puts a queue pair on an id.
///
/// # Safety
/// `qp` is a queue pair of ours.
pub unsafe fn attach(id: &Handle<CmId>, qp: *mut crate::layout::ibv_qp) -> Outcome<()> {
    // SAFETY: the caller promises: `qp` is a queue pair of ours.
    let pair = unsafe { Handle::<Pair>::of(qp)? };
    match &pair.engine {
        Engine::Connected(qp) => id.engine.attach_qp(qp)?,
        Engine::Datagrams(qp) => id.engine.attach_ud_qp(qp)?,
    }
    id.state().shown_qp = qp as usize;
    Ok(())
}
