//! Attributes that objects are made with, changed to and asked for.

use libc::{c_int, c_void};

use super::device::ibv_gid;
use super::objects::{ibv_cq, ibv_pd, ibv_srq};

c_struct! {
    /// Sizes of a queue pair.
    pub struct ibv_qp_cap = 20 {
        0: max_send_wr: u32,
        4: max_recv_wr: u32,
        8: max_send_sge: u32,
        12: max_recv_sge: u32,
        16: max_inline_data: u32,
    }
}

c_struct! {
    /// What a queue pair is made with.
    pub struct ibv_qp_init_attr = 64 {
        0: qp_context: *mut c_void,
        8: send_cq: *mut ibv_cq,
        16: recv_cq: *mut ibv_cq,
        24: srq: *mut ibv_srq,
        32: cap: ibv_qp_cap,
        52: qp_type: c_int,
        56: sq_sig_all: c_int,
    }
}

c_struct! {
    /// [`ibv_qp_init_attr`] and what was added later.
    pub struct ibv_qp_init_attr_ex = 136 {
        0: qp_context: *mut c_void,
        8: send_cq: *mut ibv_cq,
        16: recv_cq: *mut ibv_cq,
        24: srq: *mut ibv_srq,
        32: cap: ibv_qp_cap,
        52: qp_type: c_int,
        56: sq_sig_all: c_int,
        60: comp_mask: u32,
        64: pd: *mut ibv_pd,
        72: xrcd: *mut c_void,
        80: create_flags: u32,
        84: max_tso_header: u16,
        88: rwq_ind_tbl: *mut c_void,
        96: rx_hash_conf: [u64; 3],
        120: source_qpn: u32,
        128: send_ops_flags: u64,
    }
}

c_struct! {
    /// The global part of an address.
    pub struct ibv_global_route = 24 {
        0: dgid: ibv_gid,
        16: flow_label: u32,
        20: sgid_index: u8,
        21: hop_limit: u8,
        22: traffic_class: u8,
    }
}

c_struct! {
    /// An address.
    pub struct ibv_ah_attr = 32 {
        0: grh: ibv_global_route,
        24: dlid: u16,
        26: sl: u8,
        27: src_path_bits: u8,
        28: static_rate: u8,
        29: is_global: u8,
        30: port_num: u8,
    }
}

c_struct! {
    /// What a queue pair is changed to.
    pub struct ibv_qp_attr = 144 {
        0: qp_state: c_int,
        4: cur_qp_state: c_int,
        8: path_mtu: c_int,
        12: path_mig_state: c_int,
        16: qkey: u32,
        20: rq_psn: u32,
        24: sq_psn: u32,
        28: dest_qp_num: u32,
        32: qp_access_flags: u32,
        36: cap: ibv_qp_cap,
        56: ah_attr: ibv_ah_attr,
        88: alt_ah_attr: ibv_ah_attr,
        120: pkey_index: u16,
        122: alt_pkey_index: u16,
        124: en_sqd_async_notify: u8,
        125: sq_draining: u8,
        126: max_rd_atomic: u8,
        127: max_dest_rd_atomic: u8,
        128: min_rnr_timer: u8,
        129: port_num: u8,
        130: timeout: u8,
        131: retry_cnt: u8,
        132: rnr_retry: u8,
        133: alt_port_num: u8,
        134: alt_timeout: u8,
        136: rate_limit: u32,
    }
}

c_struct! {
    /// Sizes of a shared receive queue.
    pub struct ibv_srq_attr = 12 {
        0: max_wr: u32,
        4: max_sge: u32,
        8: srq_limit: u32,
    }
}

c_struct! {
    /// What a shared receive queue is made with.
    pub struct ibv_srq_init_attr = 24 {
        0: srq_context: *mut c_void,
        8: attr: ibv_srq_attr,
    }
}

c_struct! {
    /// [`ibv_srq_init_attr`] and what was added later.
    pub struct ibv_srq_init_attr_ex = 64 {
        0: srq_context: *mut c_void,
        8: attr: ibv_srq_attr,
        20: comp_mask: u32,
        24: srq_type: c_int,
        32: pd: *mut ibv_pd,
        40: xrcd: *mut c_void,
        48: cq: *mut ibv_cq,
        56: tm_cap: [u32; 2],
    }
}

c_struct! {
    /// Enhanced connection establishment options of a vendor.
    pub struct ibv_ece = 12 {
        0: vendor_id: u32,
        4: options: u32,
        8: comp_mask: u32,
    }
}
