//! The queues that belong to an id: its queue pair, the completion queues made for it, its shared
//! receive queue.

use std::mem::{size_of, zeroed};
use std::ptr::null_mut;

use libc::c_int;
use weft_engine::cm::QKEY;

use super::connect::attach;
use super::id::{of, CmId};
use crate::completion;
use crate::entry::{invalid, status, unsupported, Outcome};
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id,
};
use crate::query::PORT;
use crate::{qp, srq};

/// What the connection manager lets a peer do through a queue pair; the regions' rights decide.
pub const ACCESS: i64 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// A completion queue with a channel of its own.
///
/// # Safety
/// `id` is a live id, bound to a device.
unsafe fn make_queue(
    id: *mut rdma_cm_id,
    entries: u32,
) -> Outcome<(*mut ibv_comp_channel, *mut ibv_cq)> {
    // SAFETY: the caller promises: `id` is a live id, bound to a device.
    unsafe {
        let context: *mut ibv_context = (*id).verbs;
        let channel = completion::create_channel(context)?;
        let entries = c_int::try_from(entries).or(invalid())?;
        match completion::create(context, entries, id.cast(), channel, 0) {
            Ok(cq) => Ok((channel, cq)),
            Err(errno) => {
                completion::destroy_channel(channel)?;
                Err(errno)
            }
        }
    }
}

/// Makes the completion queues that the program did not bring; a size of 0 means it did.
///
/// # Safety
/// As for [`make_queue`].
unsafe fn make_queues(id: *mut rdma_cm_id, send: u32, receive: u32) -> Outcome<()> {
    // SAFETY: the caller promises: what `make_queue` asks for; the fields are librdmacm's to write.
    unsafe {
        if receive > 0 {
            ((*id).recv_cq_channel, (*id).recv_cq) = make_queue(id, receive)?;
        }
        if send > 0 {
            match make_queue(id, send) {
                Ok(made) => ((*id).send_cq_channel, (*id).send_cq) = made,
                Err(errno) => {
                    drop_queues(id);
                    return Err(errno);
                }
            }
        }
    }
    Ok(())
}

/// Ends the completion queues that were made for the id.
///
/// # Safety
/// `id` is a live id, and no queue pair uses the queues.
unsafe fn drop_queues(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises: `id` is a live id, and no queue pair uses the queues; the fields are null or what
    // `make_queues` made.
    unsafe {
        for cq in [&raw mut (*id).recv_cq, &raw mut (*id).send_cq] {
            if !(*cq).is_null() {
                // It can only be busy with a queue pair that the program put on it by hand.
                let _ = completion::destroy(*cq);
                *cq = null_mut();
            }
        }
        for channel in [
            &raw mut (*id).recv_cq_channel,
            &raw mut (*id).send_cq_channel,
        ] {
            if !(*channel).is_null() {
                let _ = completion::destroy_channel(*channel);
                *channel = null_mut();
            }
        }
    }
}

/// Makes an id's queue pair and takes it to INIT, or, where it is for datagrams, to RTS. What the program left out -
/// domain, completion queues, shared receive queue - is the id's own, or made.
///
/// # Safety
/// `id` is null or of ours; `attr` is the program's, with objects of ours or null in it.
unsafe fn create_qp(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; `attr` is the program's, with objects of ours or null in
    // it.
    unsafe {
        let handle = of(id)?;
        if !(*id).qp.is_null() || (*id).verbs.is_null() {
            return invalid();
        }
        if i64::from(attr.comp_mask) & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD as u32;
            attr.pd = (*id).pd;
        } else if (*attr.pd).context != (*id).verbs {
            return invalid();
        }
        let clash = |mine: *mut ibv_cq, theirs: *mut ibv_cq| {
            !mine.is_null() && !theirs.is_null() && mine != theirs
        };
        if clash((*id).recv_cq, attr.recv_cq) || clash((*id).send_cq, attr.send_cq) {
            return invalid();
        }
        let brought = |mine: *mut ibv_cq, theirs: *mut ibv_cq| !mine.is_null() || !theirs.is_null();
        let send = match brought((*id).send_cq, attr.send_cq) {
            true => 0,
            false => attr.cap.max_send_wr,
        };
        let receive = match brought((*id).recv_cq, attr.recv_cq) {
            true => 0,
            false => attr.cap.max_recv_wr,
        };
        make_queues(id, send, receive)?;
        if attr.send_cq.is_null() {
            attr.send_cq = (*id).send_cq;
        }
        if attr.recv_cq.is_null() {
            attr.recv_cq = (*id).recv_cq;
        }
        if attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        let made = create_initialised(handle, attr);
        if made.is_err() {
            drop_queues(id);
        }
        (*id).qp = made?;
        (*id).pd = attr.pd;
    }
    Ok(())
}

/// Where the connection manager takes a queue pair when it is made, with which attributes: one for connections to INIT,
const CONNECTION_STATES: [(i64, i64); 1] = [(
    IBV_QPS_INIT,
    IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX,
)];
/// and one for datagrams, which has no other end to wait for, to RTS.
const DATAGRAM_STATES: [(i64, i64); 3] = [
    (IBV_QPS_INIT, DATAGRAM_ATTRIBUTES),
    (IBV_QPS_RTR, IBV_QP_STATE),
    (IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN),
];
/// What the connection manager sets of a queue pair for datagrams.
pub const DATAGRAM_ATTRIBUTES: i64 = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

/// # Safety
/// As for [`create_qp`].
unsafe fn create_initialised(
    id: &Handle<CmId>,
    attr: &mut ibv_qp_init_attr_ex,
) -> Outcome<*mut ibv_qp> {
    // SAFETY: the caller promises: what `create_qp` asks for.
    unsafe {
        let made = qp::create_extended(attr)?;
        let states = match id.engine.is_for_datagrams() {
            true => &DATAGRAM_STATES[..],
            false => &CONNECTION_STATES[..],
        };
        let taken_up = states
            .iter()
            .try_for_each(|(state, mask)| qp::modify(made, &attributes(*state), *mask));
        let ready = taken_up.and_then(|()| attach(id, made));
        if let Err(errno) = ready {
            qp::destroy(made)?;
            return Err(errno);
        }
        Ok(made)
    }
}

/// Attributes that take a queue pair of an id to a state.
pub fn attributes(state: i64) -> ibv_qp_attr {
    // SAFETY: numbers, for which zero is a value.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.qp_state = state as c_int;
    attr.qp_access_flags = ACCESS as u32;
    attr.port_num = PORT;
    attr.qkey = QKEY;
    attr
}

/// The extended structure around a plain one. The fields behind it are zero.
///
/// # Safety
/// `plain` may be read.
unsafe fn extend(plain: *const ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: numbers and addresses, for which zero is a value; the extended structure begins with
    // the plain one.
    unsafe {
        let mut extended: ibv_qp_init_attr_ex = zeroed();
        (&raw mut extended)
            .cast::<ibv_qp_init_attr>()
            .write(plain.read());
        extended
    }
}

const _: () = assert!(
    size_of::<ibv_qp_init_attr>() <= std::mem::offset_of!(ibv_qp_init_attr_ex, comp_mask) + 4
);

/// Makes an id's queue pair from plain attributes, and writes what it got back into them.
///
/// # Safety
/// As for [`create_qp`].
pub unsafe fn create_plain_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    if attr.is_null() {
        return invalid();
    }
    // SAFETY: the caller promises: what `create_qp` asks for.
    unsafe {
        let mut extended = extend(attr);
        extended.comp_mask = IBV_QP_INIT_ATTR_PD as u32;
        extended.pd = pd;
        let made = create_qp(id, &mut extended);
        *attr = (&raw const extended).cast::<ibv_qp_init_attr>().read();
        made
    }
}

/// Ends an id's queue pair and what was made for it.
///
/// # Safety
/// `id` is null or of ours.
pub unsafe fn destroy_qp(id: *mut rdma_cm_id) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; the queue pair is null or of ours.
    unsafe {
        let handle = of(id)?;
        handle.engine.detach_qp();
        handle.state().shown_qp = 0;
        if !(*id).qp.is_null() {
            qp::destroy((*id).qp)?;
            (*id).qp = null_mut();
        }
        drop_queues(id);
    }
    Ok(())
}

/// Makes an id's shared receive queue.
///
/// # Safety
/// `id` is null or of ours; `attr` is the program's.
unsafe fn create_srq(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; `attr` is the program's.
    unsafe {
        of(id)?;
        if i64::from(attr.comp_mask) & IBV_SRQ_INIT_ATTR_TYPE == 0 || (*id).verbs.is_null() {
            return invalid();
        }
        if i64::from(attr.srq_type) != IBV_SRQT_BASIC {
            return unsupported();
        }
        if i64::from(attr.comp_mask) & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.pd = (*id).pd;
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD as u32;
        }
        (*id).srq = srq::create_extended(attr)?;
        (*id).pd = attr.pd;
    }
    Ok(())
}

/// Ends an id's shared receive queue.
///
/// # Safety
/// `id` is null or of ours.
pub unsafe fn destroy_srq(id: *mut rdma_cm_id) -> Outcome<()> {
    // SAFETY: the caller promises: `id` is null or of ours; the queue is null or of ours.
    unsafe {
        of(id)?;
        if !(*id).srq.is_null() {
            srq::destroy((*id).srq)?;
            (*id).srq = null_mut();
        }
        drop_queues(id);
    }
    Ok(())
}

export! {
    /// `rdma_create_qp(3)`. A null `pd` takes the device's default domain.
    fn rdma_create_qp(
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
    ) -> c_int {
        // SAFETY: objects of ours or null, and the program's structure.
        status(|| unsafe { create_plain_qp(id, pd, attr) })
    }

    /// `rdma_create_qp_ex(3)`.
    fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
        status(|| {
            // SAFETY: the program's structure, which nobody else uses during the call.
            let Some(attr) = (unsafe { attr.as_mut() }) else {
                return invalid();
            };
            // SAFETY: an id of ours or null.
            unsafe { create_qp(id, attr) }
        })
    }

    /// `rdma_destroy_qp(3)`.
    fn rdma_destroy_qp(id: *mut rdma_cm_id) {
        // SAFETY: an id of ours or null.
        let _ = status(|| unsafe { destroy_qp(id) });
    }

    /// `rdma_create_srq(3)`. A null `pd` takes the device's default domain.
    fn rdma_create_srq(
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        attr: *mut ibv_srq_init_attr,
    ) -> c_int {
        status(|| {
            if attr.is_null() {
                return invalid();
            }
            // SAFETY: numbers and addresses, for which zero is a value.
            let mut extended: ibv_srq_init_attr_ex = unsafe { zeroed() };
            extended.comp_mask = (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) as u32;
            extended.srq_type = IBV_SRQT_BASIC as c_int;
            extended.pd = pd;
            // SAFETY: an id of ours or null, and the program's structure.
            unsafe {
                extended.srq_context = (*attr).srq_context;
                extended.attr = (*attr).attr;
                let made = create_srq(id, &mut extended);
                (*attr).attr = extended.attr;
                made
            }
        })
    }

    /// `rdma_create_srq_ex(3)`.
    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
        status(|| {
            // SAFETY: the program's structure, which nobody else uses during the call.
            let Some(attr) = (unsafe { attr.as_mut() }) else {
                return invalid();
            };
            // SAFETY: an id of ours or null.
            unsafe { create_srq(id, attr) }
        })
    }

    /// `rdma_destroy_srq(3)`.
    fn rdma_destroy_srq(id: *mut rdma_cm_id) {
        // SAFETY: an id of ours or null.
        let _ = status(|| unsafe { destroy_srq(id) });
    }
}
