//! The attributes of a queue pair as `ibv_modify_qp(3)` sets them and `ibv_query_qp(3)` gives them
//! back, and what those of a bring-up by GID and number come to.

use std::net::IpAddr;
use std::time::Duration;

use libc::c_int;
use weft_engine::bring_up::Destination;
use weft_engine::types::MAX_RD_ATOMIC;

use crate::entry::{invalid, Answer};
use crate::layout::numbers::*;
use crate::layout::{ibv_ah_attr, ibv_qp_attr};
use crate::query::{self, PORT};

/// What `ibv_modify_qp(3)` asks for besides the state when it takes a reliable queue pair to RTR.
const TO_RTR: i64 = IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
/// The same for RTS.
const TO_RTS: i64 =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
/// Packet sequence numbers have 24 bits.
const PSN: u32 = 0x00FF_FFFF;
/// The unit of the local acknowledge timeout: 4.096 microseconds times two to its power.
const TIMEOUT_UNIT: Duration = Duration::from_nanos(4096);
/// A device may wait up to four times its timeout (InfiniBand 9.7.6.1.3), and this one, whose
/// answers come from programs that the kernel schedules, does.
const SLACK: u32 = 4;
/// It never waits less than this.
const LEAST: Duration = Duration::from_millis(500);

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

/// Checks the values that `mask` names.
///
/// # Errors
/// `EINVAL`: one is out of its range.
pub fn check(attr: &ibv_qp_attr, mask: i64) -> Answer<()> {
    let named = |bit: i64| mask & bit != 0;
    let mtu = IBV_MTU_256 as c_int..=IBV_MTU_4096 as c_int;
    let wrong = named(IBV_QP_PORT) && attr.port_num != PORT
        || named(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0
        || named(IBV_QP_PATH_MTU) && !mtu.contains(&attr.path_mtu)
        || named(IBV_QP_TIMEOUT) && attr.timeout > 31
        || named(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7
        || named(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7
        || named(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31
        || named(IBV_QP_AV) && attr.ah_attr.port_num != PORT
        || named(IBV_QP_MAX_QP_RD_ATOMIC) && u16::from(attr.max_rd_atomic) > MAX_RD_ATOMIC
        || named(IBV_QP_MAX_DEST_RD_ATOMIC) && u16::from(attr.max_dest_rd_atomic) > MAX_RD_ATOMIC;
    if wrong {
        return invalid();
    }
    Ok(())
}

/// The other end, from what takes a queue pair to RTR. `reliable` is false for UC, which has no
/// reads and no retries.
///
/// # Errors
/// `EINVAL`: an attribute is missing, or an address that could be reached: an Ethernet link needs a
/// global route and a GID of each end.
pub fn destination(attr: &ibv_qp_attr, mask: i64, reliable: bool) -> Answer<Destination> {
    let needed = if reliable {
        TO_RTR
    } else {
        TO_RTR & !(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
    };
    if mask & needed != needed {
        return invalid();
    }
    let (local, peer) = ends(&attr.ah_attr)?;
    Ok(Destination {
        local,
        peer,
        peer_qp: attr.dest_qp_num,
        rq_psn: attr.rq_psn & PSN,
    })
}

/// The addresses of both ends of a path, this one first.
///
/// # Errors
/// `EINVAL`: not an address that could be reached: an Ethernet link needs a global route and a GID of
/// each end.
pub fn ends(path: &ibv_ah_attr) -> Answer<(IpAddr, IpAddr)> {
    if path.is_global == 0 {
        return invalid();
    }
    let local = query::address_at(path.grh.sgid_index)?;
    let peer = weft_engine::device::address_of(path.grh.dgid.raw);
    let same_family = local.is_ipv4() == peer.is_ipv4();
    if !same_family || peer.is_unspecified() || peer.is_multicast() {
        return invalid();
    }
    Ok((local, peer))
}

/// What takes a queue pair to RTS: its first packet sequence number, and how long a send waits for
/// an answer (`None`: for ever).
///
/// # Errors
/// `EINVAL`: an attribute is missing.
pub fn sending(attr: &ibv_qp_attr, mask: i64, reliable: bool) -> Answer<(u32, Option<Duration>)> {
    let needed = if reliable { TO_RTS } else { IBV_QP_SQ_PSN };
    if mask & needed != needed {
        return invalid();
    }
    Ok((attr.sq_psn & PSN, patience(attr)))
}

/// How long a send waits for an answer before it ends in "retry exceeded".
pub fn patience(attr: &ibv_qp_attr) -> Option<Duration> {
    let tries = u32::from(attr.retry_cnt) + 1;
    let once = TIMEOUT_UNIT.checked_mul(1 << attr.timeout)?;
    (attr.timeout != 0).then(|| (once * tries * SLACK).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_four_times_what_the_attributes_say() {
        // SAFETY: numbers, for which zero is a value.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        assert_eq!(patience(&attr), None, "a timeout of 0 is for ever");
        attr.timeout = 14;
        attr.retry_cnt = 7;
        assert_eq!(
            patience(&attr),
            Some(Duration::from_nanos(4096 * 16_384 * 8 * 4))
        );
        attr.timeout = 1;
        assert_eq!(patience(&attr), Some(LEAST));
        attr.timeout = 31;
        assert!(patience(&attr) > Some(Duration::from_secs(8000)));
    }
}
