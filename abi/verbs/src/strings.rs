//! Numbers in words, as libibverbs and librdmacm have them.

use std::ffi::CStr;

use libc::{c_char, c_int};

/// The text at a number's place.
fn text(texts: &[&'static CStr], number: c_int, otherwise: &'static CStr) -> *const c_char {
    usize::try_from(number)
        .ok()
        .and_then(|number| texts.get(number))
        .unwrap_or(&otherwise)
        .as_ptr()
}

const UNKNOWN: &CStr = c"unknown";

const NODE_TYPES: [&CStr; 8] = [
    UNKNOWN,
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: [&CStr; 6] = [
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const COMPLETION_STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const CM_EVENTS: [&CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

export! {
    /// `ibv_node_type_str(3)`.
    fn ibv_node_type_str(node_type: c_int) -> *const c_char {
        text(&NODE_TYPES, node_type, UNKNOWN)
    }

    /// `ibv_port_state_str(3)`.
    fn ibv_port_state_str(state: c_int) -> *const c_char {
        text(&PORT_STATES, state, UNKNOWN)
    }

    /// `ibv_event_type_str(3)`.
    fn ibv_event_type_str(event: c_int) -> *const c_char {
        text(&EVENTS, event, UNKNOWN)
    }

    /// The meaning of a completion's status.
    fn ibv_wc_status_str(status: c_int) -> *const c_char {
        text(&COMPLETION_STATUSES, status, UNKNOWN)
    }

    /// `rdma_event_str(3)`.
    fn rdma_event_str(event: c_int) -> *const c_char {
        text(&CM_EVENTS, event, c"UNKNOWN EVENT")
    }
}
