//! Options of ids, and the calls that iWARP has no use for.

use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, size_t, sockaddr};
use weft_engine::settings::transport::Policy;

use super::id::of;
use super::{address, queues};
use crate::entry::{invalid, status, unsupported, Errno, Outcome};
use crate::layout::numbers::*;
use crate::layout::{ibv_ece, ibv_qp_attr, rdma_cm_id, rdma_cm_join_mc_attr_ex};
use crate::query::PORT;

/// The level of Weft's own options (abi/include/weft/rdma.h).
const RDMA_OPTION_WEFT: i64 = 0x5745_4654;
/// How the connection's TCP sends.
const RDMA_OPTION_WEFT_TCP: i64 = 1;
/// Octets of a text that is read as a policy: more than the longest that is one.
const POLICY_OCTETS_MAX: usize = 256;

/// An option's value, if it has the size that the option has.
///
/// # Safety
/// `value` is null or has `size` octets.
unsafe fn read<T: Copy>(value: *const c_void, size: size_t) -> Outcome<T> {
    if value.is_null() || size != size_of::<T>() {
        return invalid();
    }
    // SAFETY: the caller promises: `value` is null or has `size` octets; programs need not align it.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// How a connection is to send, from an option's text.
///
/// # Safety
/// `value` is null or has `size` octets.
unsafe fn policy(value: *const c_void, size: size_t) -> Outcome<Policy> {
    if value.is_null() || size > POLICY_OCTETS_MAX {
        return invalid();
    }
    // SAFETY: the caller promises: not null, `value` has `size` octets; they are read before the call ends.
    let octets = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
    // With the zero of a C string or without.
    let text = octets.strip_suffix(&[0]).unwrap_or(octets);
    let text = str::from_utf8(text).or_else(|_| invalid())?;
    Policy::parse(text).or_else(|complaint| {
        weft_engine::warn!("rdma_set_option: {text:?}: {complaint}");
        invalid()
    })
}

/// Sets an option.
///
/// # Safety
/// `id` is null or of ours; `value` is null or has `size` octets.
unsafe fn set(
    id: *mut rdma_cm_id,
    level: i64,
    name: i64,
    value: *const c_void,
    size: size_t,
) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; `value` is null or has `size` octets.
    let id = &unsafe { of(id)? }.engine;
    // SAFETY: the caller promises: `id` is null or of ours; `value` is null or has `size` octets.
    let number = || unsafe { read::<c_int>(value, size) };
    // SAFETY: the caller promises: `id` is null or of ours; `value` is null or has `size` octets.
    let octet = || unsafe { read::<u8>(value, size) };
    match (level, name) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => id.set_tos(octet()?),
        // Addresses are always bound for reuse; the value is checked and means nothing.
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => drop(number()?),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => id.set_v6_only(number()? != 0),
        // TCP times its own retransmissions; the value is checked and means nothing.
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => drop(octet()?),
        (RDMA_OPTION_WEFT, RDMA_OPTION_WEFT_TCP) => {
            // SAFETY: the caller promises: `value` is null or has `size` octets.
            id.set_policy(unsafe { policy(value, size)? })?;
        }
        (RDMA_OPTION_WEFT, _) => return Err(Errno(libc::ENOSYS)),
        // Path records are InfiniBand's; the kernel knows no other option either.
        (RDMA_OPTION_ID | RDMA_OPTION_IB, _) => return Err(Errno(libc::ENOSYS)),
        _ => return invalid(),
    }
    Ok(())
}

/// Attributes for a program that moves its queue pair by hand: on iWARP there is nothing to say but
/// the rights and the port, and the connection manager makes the transitions.
///
/// # Safety
/// `id` is null or of ours; the others are null or the program's.
unsafe fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; the others are null or the program's.
    unsafe {
        let datagrams = of(id)?.engine.is_for_datagrams();
        if attr.is_null() || mask.is_null() || (*id).verbs.is_null() {
            return invalid();
        }
        let state = i64::from((*attr).qp_state);
        let set = match state {
            IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS if datagrams => queues::DATAGRAM_ATTRIBUTES,
            IBV_QPS_INIT => IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX,
            IBV_QPS_RTR => IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT,
            IBV_QPS_RTS => IBV_QP_PORT,
            _ => return invalid(),
        };
        *attr = queues::attributes(state);
        (*attr).port_num = PORT;
        *mask = set as c_int;
    }
    Ok(())
}

/// Joining a multicast group: datagrams go to one queue pair each, and the program is told so.
///
/// # Errors
/// `EINVAL`: not an address; else `EOPNOTSUPP`.
///
/// # Safety
/// `id` is null or of ours; `addr` is null or an address.
unsafe fn join(id: *mut rdma_cm_id, addr: *const sockaddr) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; `addr` is null or an address.
    unsafe {
        of(id)?;
        address::read(addr)?;
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        weft_engine::warn!(
            "rdma_join_multicast: multicast is not served; a datagram goes to one queue pair, \
             which rdma_connect() finds"
        );
    }
    unsupported()
}

export! {
    /// `rdma_set_option(3)`.
    fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        size: size_t,
    ) -> c_int {
        // SAFETY: an id of ours or null, and the program's value.
        status(|| unsafe { set(id, level.into(), name.into(), value, size) })
    }

    /// `rdma_init_qp_attr(3)`.
    fn rdma_init_qp_attr(
        id: *mut rdma_cm_id,
        attr: *mut ibv_qp_attr,
        mask: *mut c_int,
    ) -> c_int {
        // SAFETY: an id of ours or null, and the program's structures.
        status(|| unsafe { init_qp_attr(id, attr, mask) })
    }

    /// `rdma_establish(3)`: answers a connect response, which iWARP does not have, so there is
    /// never one to answer: `EINVAL`.
    fn rdma_establish(_id: *mut rdma_cm_id) -> c_int {
        status(invalid)
    }

    /// `rdma_notify(3)`: the connection manager sees the first message itself.
    fn rdma_notify(id: *mut rdma_cm_id, _event: c_int) -> c_int {
        // SAFETY: an id of ours or null.
        status(|| unsafe { of(id) }.map(drop))
    }

    /// `rdma_join_multicast(3)`: refused.
    fn rdma_join_multicast(
        id: *mut rdma_cm_id,
        addr: *mut sockaddr,
        _context: *mut c_void,
    ) -> c_int {
        // SAFETY: an id of ours or null, and the program's address.
        status(|| unsafe { join(id, addr) })
    }

    /// `rdma_join_multicast_ex(3)`: refused.
    fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id,
        attr: *mut rdma_cm_join_mc_attr_ex,
        _context: *mut c_void,
    ) -> c_int {
        status(|| {
            // SAFETY: the program's structure.
            let Some(attr) = (unsafe { attr.as_ref() }) else {
                return invalid();
            };
            let mask = i64::from(attr.comp_mask);
            if mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
                return unsupported();
            }
            let needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
            if mask & needed != needed || i64::from(attr.join_flags) >= RDMA_MC_JOIN_FLAG_RESERVED {
                return invalid();
            }
            // SAFETY: an id of ours or null, and the program's address.
            unsafe { join(id, attr.addr) }
        })
    }

    /// `rdma_leave_multicast(3)`: no group was joined.
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null, and the program's address.
            unsafe {
                of(id)?;
                address::read(addr)?;
            }
            Err(Errno(libc::EADDRNOTAVAIL))
        })
    }

    /// `rdma_set_local_ece(3)`: taken and not used, as on every device without such options.
    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null, and the program's structure.
            unsafe {
                of(id)?;
                if ece.is_null() || (*ece).comp_mask != 0 {
                    return invalid();
                }
            }
            Ok(())
        })
    }

    /// `rdma_get_remote_ece(3)`: the peer sent none.
    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        status(|| {
            // SAFETY: an id of ours or null; the program gave the address for the answer; numbers,
            // for which zero is a value.
            unsafe {
                of(id)?;
                if ece.is_null() {
                    return invalid();
                }
                *ece = zeroed();
            }
            Ok(())
        })
    }
}
