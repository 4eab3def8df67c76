//! What librdmacm shows of ids and events.

use libc::{c_char, c_int, c_void, size_t, sockaddr, sockaddr_storage, socklen_t};

use super::attr::ibv_ah_attr;
use super::device::{ibv_context, ibv_gid};
use super::objects::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp, ibv_srq};

c_struct! {
    /// The two ends of a connection.
    pub struct rdma_addr = 296 {
        0 as "src_storage": src_addr: sockaddr_storage,
        128 as "dst_storage": dst_addr: sockaddr_storage,
        256 as "addr.ibaddr.sgid": sgid: ibv_gid,
        272 as "addr.ibaddr.dgid": dgid: ibv_gid,
        288 as "addr.ibaddr.pkey": pkey: u16,
    }
}

c_struct! {
    /// A route; iWARP has no path records.
    pub struct rdma_route = 312 {
        0: addr: rdma_addr,
        296: path_rec: *mut c_void,
        304: num_paths: c_int,
    }
}

c_struct! {
    /// An event channel.
    pub struct rdma_event_channel = 4 {
        0: fd: c_int,
    }
}

c_struct! {
    /// A communication identifier.
    pub struct rdma_cm_id = 416 {
        0: verbs: *mut ibv_context,
        8: channel: *mut rdma_event_channel,
        16: context: *mut c_void,
        24: qp: *mut ibv_qp,
        32: route: rdma_route,
        344: ps: c_int,
        348: port_num: u8,
        352: event: *mut rdma_cm_event,
        360: send_cq_channel: *mut ibv_comp_channel,
        368: send_cq: *mut ibv_cq,
        376: recv_cq_channel: *mut ibv_comp_channel,
        384: recv_cq: *mut ibv_cq,
        392: srq: *mut ibv_srq,
        400: pd: *mut ibv_pd,
        408: qp_type: c_int,
    }
}

c_struct! {
    /// What a connection is made with.
    pub struct rdma_conn_param = 24 {
        0: private_data: *const c_void,
        8: private_data_len: u8,
        9: responder_resources: u8,
        10: initiator_depth: u8,
        11: flow_control: u8,
        12: retry_count: u8,
        13: rnr_retry_count: u8,
        14: srq: u8,
        16: qp_num: u32,
    }
}

c_struct! {
    /// What an event of the datagram service tells.
    pub struct rdma_ud_param = 56 {
        0: private_data: *const c_void,
        8: private_data_len: u8,
        16: ah_attr: ibv_ah_attr,
        48: qp_num: u32,
        52: qkey: u32,
    }
}

/// What an event tells, by what its id is for.
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_cm_event_param {
    /// Of connections.
    pub conn: rdma_conn_param,
    /// Of the datagram service.
    pub ud: rdma_ud_param,
}

c_struct! {
    /// A communication event.
    pub struct rdma_cm_event = 80 {
        0: id: *mut rdma_cm_id,
        8: listen_id: *mut rdma_cm_id,
        /// `RDMA_CM_EVENT_*`.
        16: event: c_int,
        20: status: c_int,
        24: param: rdma_cm_event_param,
    }
}

c_struct! {
    /// What `rdma_getaddrinfo` found.
    pub struct rdma_addrinfo = 96 {
        0: ai_flags: c_int,
        4: ai_family: c_int,
        8: ai_qp_type: c_int,
        12: ai_port_space: c_int,
        16: ai_src_len: socklen_t,
        20: ai_dst_len: socklen_t,
        24: ai_src_addr: *mut sockaddr,
        32: ai_dst_addr: *mut sockaddr,
        40: ai_src_canonname: *mut c_char,
        48: ai_dst_canonname: *mut c_char,
        56: ai_route_len: size_t,
        64: ai_route: *mut c_void,
        72: ai_connect_len: size_t,
        80: ai_connect: *mut c_void,
        88: ai_next: *mut rdma_addrinfo,
    }
}

c_struct! {
    /// What a multicast group is joined with.
    pub struct rdma_cm_join_mc_attr_ex = 16 {
        0: comp_mask: u32,
        4: join_flags: u32,
        8: addr: *mut sockaddr,
    }
}
