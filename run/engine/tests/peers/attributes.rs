//! Attributes that a program changes its queue pair by.

use std::net::{IpAddr, Ipv4Addr};

use weft_engine::types::{Access, QpState};
use weft_engine::{QpAttr, QpAttrMask as A};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// No attribute yet, and values that are right for any.
pub fn nothing() -> QpAttr {
    QpAttr {
        named: A::empty(),
        state: QpState::Reset,
        cur_state: QpState::Reset,
        en_sqd_async_notify: false,
        access: Access::REMOTE_WRITE,
        pkey_index: 0,
        port: 1,
        path_port: 1,
        ends: Some((LOCALHOST, LOCALHOST)),
        path_mtu: 3,
        timeout: 18,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        rq_psn: 0,
        sq_psn: 0,
        dest_qp: 0,
        qkey: 0,
    }
}

/// The state and what is named beside it.
pub fn to(state: QpState, named: A) -> QpAttr {
    QpAttr {
        named: named | A::STATE,
        state,
        ..nothing()
    }
}
