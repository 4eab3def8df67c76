//! Queue pairs and completion queues with functions of their own behind the plain layout.

use libc::{c_int, c_void, pthread_cond_t, pthread_mutex_t, size_t};

use super::device::{ibv_context, Op};
use super::objects::{ibv_ah, ibv_comp_channel, ibv_mw, ibv_pd, ibv_qp};
use super::work::{ibv_mw_bind_info, ibv_sge};

/// A function of an extended completion queue that gives a number of the current completion.
pub type Read<T> = Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> T>;

c_struct! {
    /// Octets to copy when they are posted.
    pub struct ibv_data_buf = 16 {
        0: addr: *mut c_void,
        8: length: size_t,
    }
}

c_struct! {
    /// A queue pair with the functions behind `ibv_wr_*`.
    pub struct ibv_qp_ex = 352 + MUTEX_MORE {
        0: qp_base: ibv_qp,
        160 + MUTEX_MORE: comp_mask: u64,
        168 + MUTEX_MORE: wr_id: u64,
        /// `IBV_SEND_*`.
        176 + MUTEX_MORE: wr_flags: u32,
        184 + MUTEX_MORE: wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
        192 + MUTEX_MORE: wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
        200 + MUTEX_MORE: wr_bind_mw: Option<
            unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info),
        >,
        208 + MUTEX_MORE: wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        216 + MUTEX_MORE: wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        224 + MUTEX_MORE: wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        232 + MUTEX_MORE: wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        240 + MUTEX_MORE: wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        248 + MUTEX_MORE: wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        256 + MUTEX_MORE: wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        264 + MUTEX_MORE: wr_send_tso: Op,
        272 + MUTEX_MORE: wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        280 + MUTEX_MORE: wr_set_xrc_srqn: Op,
        288 + MUTEX_MORE: wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, size_t)>,
        296 + MUTEX_MORE: wr_set_inline_data_list: Option<
            unsafe extern "C" fn(*mut ibv_qp_ex, size_t, *const ibv_data_buf),
        >,
        304 + MUTEX_MORE: wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        312 + MUTEX_MORE: wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, size_t, *const ibv_sge)>,
        320 + MUTEX_MORE: wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        328 + MUTEX_MORE: wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        336 + MUTEX_MORE: wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        344 + MUTEX_MORE: wr_atomic_write: Op,
    }
}

c_struct! {
    /// What `ibv_start_poll` is given; nothing is defined yet.
    pub struct ibv_poll_cq_attr = 4 {
        0: comp_mask: u32,
    }
}

c_struct! {
    /// A completion queue, with the functions that read one completion after the other.
    pub struct ibv_cq_ex = 288 + MUTEX_MORE {
        0: context: *mut ibv_context,
        8: channel: *mut ibv_comp_channel,
        16: cq_context: *mut c_void,
        24: handle: u32,
        28: cqe: c_int,
        32: mutex: pthread_mutex_t,
        72 + MUTEX_MORE: cond: pthread_cond_t,
        120 + MUTEX_MORE: comp_events_completed: u32,
        124 + MUTEX_MORE: async_events_completed: u32,
        128 + MUTEX_MORE: comp_mask: u32,
        /// `IBV_WC_*` of the current completion.
        132 + MUTEX_MORE: status: c_int,
        136 + MUTEX_MORE: wr_id: u64,
        144 + MUTEX_MORE: start_poll: Option<
            unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
        >,
        152 + MUTEX_MORE: next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
        160 + MUTEX_MORE: end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
        168 + MUTEX_MORE: read_opcode: Read<c_int>,
        176 + MUTEX_MORE: read_vendor_err: Read<u32>,
        184 + MUTEX_MORE: read_byte_len: Read<u32>,
        192 + MUTEX_MORE: read_imm_data: Read<u32>,
        200 + MUTEX_MORE: read_qp_num: Read<u32>,
        208 + MUTEX_MORE: read_src_qp: Read<u32>,
        216 + MUTEX_MORE: read_wc_flags: Read<u32>,
        224 + MUTEX_MORE: read_slid: Read<u32>,
        232 + MUTEX_MORE: read_sl: Read<u8>,
        240 + MUTEX_MORE: read_dlid_path_bits: Read<u8>,
        248 + MUTEX_MORE: read_completion_ts: Op,
        256 + MUTEX_MORE: read_cvlan: Op,
        264 + MUTEX_MORE: read_flow_tag: Op,
        272 + MUTEX_MORE: read_tm_info: Op,
        280 + MUTEX_MORE: read_completion_wallclock_ns: Op,
    }
}

c_struct! {
    /// What an extended completion queue is made with.
    pub struct ibv_cq_init_attr_ex = 56 {
        0: cqe: u32,
        8: cq_context: *mut c_void,
        16: channel: *mut ibv_comp_channel,
        24: comp_vector: u32,
        /// `IBV_WC_EX_*`.
        32: wc_flags: u64,
        40: comp_mask: u32,
        44: flags: u32,
        48: parent_domain: *mut ibv_pd,
    }
}
