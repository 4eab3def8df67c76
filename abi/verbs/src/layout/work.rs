//! Work requests and completions: the fast path.

use libc::c_int;

use super::objects::{ibv_ah, ibv_mr, ibv_mw};

c_struct! {
    /// One element of a scatter/gather list.
    pub struct ibv_sge = 16 {
        0: addr: u64,
        8: length: u32,
        12: lkey: u32,
    }
}

c_struct! {
    /// What a memory window is bound to.
    pub struct ibv_mw_bind_info = 32 {
        0: mr: *mut ibv_mr,
        8: addr: u64,
        16: length: u64,
        /// `IBV_ACCESS_*`.
        24: mw_access_flags: u32,
    }
}

c_struct! {
    /// The binding of a window of type 1.
    pub struct ibv_mw_bind = 48 {
        0: wr_id: u64,
        /// `IBV_SEND_*`.
        8: send_flags: u32,
        16: bind_info: ibv_mw_bind_info,
    }
}

c_struct! {
    /// A work request for a send queue; of the unions, the members that are served.
    pub struct ibv_send_wr = 128 {
        0: wr_id: u64,
        8: next: *mut ibv_send_wr,
        16: sg_list: *mut ibv_sge,
        24: num_sge: c_int,
        /// `IBV_WR_*`.
        28: opcode: c_int,
        /// `IBV_SEND_*`.
        32: send_flags: u32,
        36: invalidate_rkey: u32,
        /// Or `wr.ud.ah`.
        40 as "wr.rdma.remote_addr": remote_addr: u64,
        /// Or `wr.ud.remote_qpn`.
        48 as "wr.rdma.rkey": rkey: u32,
        /// With `rkey` in front of it `wr.atomic.compare_add`.
        52 as "wr.ud.remote_qkey": remote_qkey: u32,
        56 as "wr.atomic.swap": swap: u64,
        64 as "wr.atomic.rkey": atomic_rkey: u32,
        72 as "qp_type": _qp_type: u64,
        80 as "bind_mw.mw": mw: *mut ibv_mw,
        88 as "bind_mw.rkey": mw_rkey: u32,
        96 as "bind_mw.bind_info": bind_info: ibv_mw_bind_info,
    }
}

c_struct! {
    /// A work request for a receive queue.
    pub struct ibv_recv_wr = 32 {
        0: wr_id: u64,
        8: next: *mut ibv_recv_wr,
        16: sg_list: *mut ibv_sge,
        24: num_sge: c_int,
    }
}

c_struct! {
    /// A completion.
    pub struct ibv_wc = 48 {
        0: wr_id: u64,
        /// `IBV_WC_*`.
        8: status: c_int,
        12: opcode: c_int,
        16: vendor_err: u32,
        20: byte_len: u32,
        24: invalidated_rkey: u32,
        28: qp_num: u32,
        32: src_qp: u32,
        36: wc_flags: u32,
        40: pkey_index: u16,
        42: slid: u16,
        44: sl: u8,
        45: dlid_path_bits: u8,
    }
}

impl ibv_send_wr {
    /// `wr.ud.ah`, which shares its octets with other members of the union.
    #[inline]
    pub fn ud_ah(&self) -> *mut ibv_ah {
        self.remote_addr as *mut ibv_ah
    }

    /// `wr.atomic.compare_add`, which shares its octets with other members of the union.
    #[inline]
    pub fn compare_add(&self) -> u64 {
        let mut octets = [0; 8];
        octets[..4].copy_from_slice(&self.rkey.to_ne_bytes());
        octets[4..].copy_from_slice(&self.remote_qkey.to_ne_bytes());
        u64::from_ne_bytes(octets)
    }
}
