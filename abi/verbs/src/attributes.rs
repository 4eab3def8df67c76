//! The attributes of a queue pair as `ibv_modify_qp(3)` sets them and `ibv_query_qp(3)` gives them
//! back, and as the engine takes them.

use std::net::IpAddr;

use weft_engine::device::Device;
use weft_engine::types::{Access, QpState};
use weft_engine::{QpAttr, QpAttrMask};

use crate::entry::{invalid, Outcome};
use crate::gids;
use crate::layout::numbers::*;
use crate::layout::{ibv_ah_attr, ibv_qp_attr};

/// Takes the fields that `mask` names over into `to`. The fields are read one by one, since
/// programs initialise only those.
///
/// # Safety
/// `attr` is valid; the fields that `mask` names are initialised.
pub unsafe fn take_over(to: &mut ibv_qp_attr, attr: *const ibv_qp_attr, mask: i64) {
    macro_rules! fields {
        ($($bit:ident: $($field:ident),+;)+) => {
            $(if mask & $bit != 0 {
                // SAFETY: the caller promises: `attr` is valid; the fields that `mask` names are initialised.
                $(to.$field = unsafe { (*attr).$field };)+
            })+
        };
    }
    fields! {
        IBV_QP_STATE: qp_state;
        IBV_QP_CUR_STATE: cur_qp_state;
        IBV_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_DEST_QPN: dest_qp_num;
    }
}

/// What the engine is to change of a queue pair of this device.
///
/// # Errors
/// `EINVAL`: a state or rights that do not exist are named.
pub fn of_engine(device: &Device, attr: &ibv_qp_attr, named: QpAttrMask) -> Outcome<QpAttr> {
    let state_of = |number: i32, mask| match named.contains(mask) {
        true => state(number.into()),
        false => Ok(QpState::Reset),
    };
    let access = match named.contains(QpAttrMask::ACCESS_FLAGS) {
        true => rights(attr.qp_access_flags)?,
        false => Access::NONE,
    };
    // Which address an index stands for is asked of the kernel, so only where the path is named.
    let ends = match named.contains(QpAttrMask::AV) {
        true => ends(device, &attr.ah_attr).ok(),
        false => None,
    };
    Ok(QpAttr {
        named,
        state: state_of(attr.qp_state, QpAttrMask::STATE)?,
        cur_state: state_of(attr.cur_qp_state, QpAttrMask::CUR_STATE)?,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        access,
        pkey_index: attr.pkey_index,
        port: attr.port_num,
        path_port: attr.ah_attr.port_num,
        ends,
        path_mtu: attr.path_mtu,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        min_rnr_timer: attr.min_rnr_timer,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp: attr.dest_qp_num,
        qkey: attr.qkey,
    })
}

/// The rights in a queue pair's access mask.
fn rights(mask: u32) -> Outcome<Access> {
    let mask = i64::from(mask) & !IBV_ACCESS_OPTIONAL_RANGE;
    let known = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC
        | IBV_ACCESS_MW_BIND;
    if mask & !known != 0 {
        return invalid();
    }
    Ok(Access::from_bits_retain(mask as u32))
}

/// The number of a state.
pub fn state_number(state: QpState) -> i64 {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    }
}

/// The state of a number.
///
/// # Errors
/// `EINVAL`: there is none.
fn state(number: i64) -> Outcome<QpState> {
    Ok(match number {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Error,
        _ => return invalid(),
    })
}

/// The addresses of both ends of a path from a device, this one first.
///
/// # Errors
/// `EINVAL`: not an address that could be reached: an Ethernet link needs a global route and a GID of
/// each end.
pub fn ends(device: &Device, path: &ibv_ah_attr) -> Outcome<(IpAddr, IpAddr)> {
    if path.is_global == 0 {
        return invalid();
    }
    let local = gids::address_at(device, path.grh.sgid_index)?;
    let peer = weft_engine::device::address_of(path.grh.dgid.raw);
    let same_family = local.is_ipv4() == peer.is_ipv4();
    if !same_family || peer.is_unspecified() || peer.is_multicast() {
        return invalid();
    }
    Ok((local, peer))
}
