//! Devices, contexts and what is asked of them.

use libc::{c_char, c_int, c_void, pthread_mutex_t, size_t};

use super::attr::{ibv_qp_init_attr_ex, ibv_srq_init_attr_ex};
use super::extended::{ibv_cq_ex, ibv_cq_init_attr_ex};
use super::objects::{ibv_cq, ibv_mw, ibv_pd, ibv_qp, ibv_srq};
use super::work::{ibv_mw_bind, ibv_recv_wr, ibv_send_wr, ibv_wc};

/// An operation that is not served, or whose signature nobody here calls it by.
pub type Op = Option<unsafe extern "C" fn()>;
/// `ibv_query_port` behind the inline function.
pub type QueryPort =
    unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, size_t) -> c_int;
/// `ibv_query_device_ex` behind the inline function.
pub type QueryDeviceEx = unsafe extern "C" fn(
    *mut ibv_context,
    *const ibv_query_device_ex_input,
    *mut ibv_device_attr_ex,
    size_t,
) -> c_int;
/// `ibv_create_qp_ex` behind the inline function.
pub type CreateQpEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
/// `ibv_create_cq_ex` behind the inline function.
pub type CreateCqEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
/// `ibv_create_srq_ex` behind the inline function.
pub type CreateSrqEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
/// `ibv_post_send` behind the inline function.
pub type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// `ibv_post_recv` behind the inline function.
pub type PostRecv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `ibv_post_srq_recv` behind the inline function.
pub type PostSrqRecv =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// A GID, in network byte order. The header's is a union with 64-bit members, hence the alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

c_struct! {
    /// A device as `ibv_get_device_list` names it.
    pub struct ibv_device = 664 {
        0: _ops: [usize; 2],
        /// `IBV_NODE_*`.
        16: node_type: c_int,
        /// `IBV_TRANSPORT_*`.
        20: transport_type: c_int,
        24: name: [c_char; 64],
        88: dev_name: [c_char; 64],
        152: dev_path: [c_char; 256],
        408: ibdev_path: [c_char; 256],
    }
}

c_struct! {
    /// The operations that inline functions of the header call straight.
    pub struct ibv_context_ops = 256 {
        0: _compat_query_device: Op,
        8: _compat_query_port: Op,
        16: _compat_alloc_pd: Op,
        24: _compat_dealloc_pd: Op,
        32: _compat_reg_mr: Op,
        40: _compat_rereg_mr: Op,
        48: _compat_dereg_mr: Op,
        56: alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
        64: bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        72: dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        80: _compat_create_cq: Op,
        88: poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        96: req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        104: _compat_cq_event: Op,
        112: _compat_resize_cq: Op,
        120: _compat_destroy_cq: Op,
        128: _compat_create_srq: Op,
        136: _compat_modify_srq: Op,
        144: _compat_query_srq: Op,
        152: _compat_destroy_srq: Op,
        160: post_srq_recv: Option<PostSrqRecv>,
        168: _compat_create_qp: Op,
        176: _compat_query_qp: Op,
        184: _compat_modify_qp: Op,
        192: _compat_destroy_qp: Op,
        200: post_send: Option<PostSend>,
        208: post_recv: Option<PostRecv>,
        216: _compat_create_ah: Op,
        224: _compat_destroy_ah: Op,
        232: _compat_attach_mcast: Op,
        240: _compat_detach_mcast: Op,
        248: _compat_async_event: Op,
    }
}

c_struct! {
    /// An open device.
    pub struct ibv_context = 328 + MUTEX_MORE {
        0: device: *mut ibv_device,
        8: ops: ibv_context_ops,
        264: cmd_fd: c_int,
        268: async_fd: c_int,
        272: num_comp_vectors: c_int,
        280: mutex: pthread_mutex_t,
        320 + MUTEX_MORE: abi_compat: usize,
    }
}

c_struct! {
    /// What stands around [`ibv_context`]: the extended operations in front of it.
    pub struct verbs_context = 648 + MUTEX_MORE {
        0: query_port: Option<QueryPort>,
        8: advise_mr: Op,
        16: alloc_null_mr: Op,
        24: read_counters: Op,
        32: attach_counters_point_flow: Op,
        40: create_counters: Op,
        48: destroy_counters: Op,
        56: reg_dm_mr: Op,
        64: alloc_dm: Op,
        72: free_dm: Op,
        80: modify_flow_action_esp: Op,
        88: destroy_flow_action: Op,
        96: create_flow_action_esp: Op,
        104: modify_qp_rate_limit: Op,
        112: alloc_parent_domain: Op,
        120: dealloc_td: Op,
        128: alloc_td: Op,
        136: modify_cq: Op,
        144: post_srq_ops: Op,
        152: destroy_rwq_ind_table: Op,
        160: create_rwq_ind_table: Op,
        168: destroy_wq: Op,
        176: modify_wq: Op,
        184: create_wq: Op,
        192: query_rt_values: Op,
        200: create_cq_ex: Option<CreateCqEx>,
        208: r#priv: *mut c_void,
        216: query_device_ex: Option<QueryDeviceEx>,
        224: ibv_destroy_flow: Op,
        232: ABI_placeholder2: Op,
        240: ibv_create_flow: Op,
        248: ABI_placeholder1: Op,
        256: open_qp: Op,
        264: create_qp_ex: Option<CreateQpEx>,
        272: get_srq_num: Op,
        280: create_srq_ex: Option<CreateSrqEx>,
        288: open_xrcd: Op,
        296: close_xrcd: Op,
        304: _ABI_placeholder3: u64,
        312: sz: size_t,
        320: context: ibv_context,
    }
}

c_struct! {
    /// Limits and properties of a device.
    pub struct ibv_device_attr = 232 {
        0: fw_ver: [c_char; 64],
        /// Network byte order.
        64: node_guid: u64,
        /// Network byte order.
        72: sys_image_guid: u64,
        80: max_mr_size: u64,
        88: page_size_cap: u64,
        96: vendor_id: u32,
        100: vendor_part_id: u32,
        104: hw_ver: u32,
        108: max_qp: c_int,
        112: max_qp_wr: c_int,
        116: device_cap_flags: u32,
        120: max_sge: c_int,
        124: max_sge_rd: c_int,
        128: max_cq: c_int,
        132: max_cqe: c_int,
        136: max_mr: c_int,
        140: max_pd: c_int,
        144: max_qp_rd_atom: c_int,
        148: max_ee_rd_atom: c_int,
        152: max_res_rd_atom: c_int,
        156: max_qp_init_rd_atom: c_int,
        160: max_ee_init_rd_atom: c_int,
        164: atomic_cap: c_int,
        168: max_ee: c_int,
        172: max_rdd: c_int,
        176: max_mw: c_int,
        180: max_raw_ipv6_qp: c_int,
        184: max_raw_ethy_qp: c_int,
        188: max_mcast_grp: c_int,
        192: max_mcast_qp_attach: c_int,
        196: max_total_mcast_qp_attach: c_int,
        200: max_ah: c_int,
        204: max_fmr: c_int,
        208: max_map_per_fmr: c_int,
        212: max_srq: c_int,
        216: max_srq_wr: c_int,
        220: max_srq_sge: c_int,
        224: max_pkeys: u16,
        226: local_ca_ack_delay: u8,
        227: phys_port_cnt: u8,
    }
}

c_struct! {
    /// What is asked of `ibv_query_device_ex`.
    pub struct ibv_query_device_ex_input = 4 {
        0: comp_mask: u32,
    }
}

c_struct! {
    /// [`ibv_device_attr`] and what was added later; only the parts that are served have names.
    pub struct ibv_device_attr_ex = 400 {
        0: orig_attr: ibv_device_attr,
        232: comp_mask: u32,
        /// On-demand paging: none.
        240: odp_caps: [u64; 3],
        264: completion_timestamp_mask: u64,
        272: hca_core_clock: u64,
        280: device_cap_flags_ex: u64,
        288: tso_caps: [u32; 2],
        296: rss_caps: [u64; 4],
        328: max_wq_type_rq: u32,
        332: packet_pacing_caps: [u32; 3],
        344: raw_packet_caps: u32,
        348: tm_caps: [u32; 5],
        368: cq_mod_caps: [u16; 2],
        376: max_dm_size: u64,
        384: pci_atomic_caps: [u16; 3],
        392: xrc_odp_caps: u32,
        396: phys_port_cnt_ex: u32,
    }
}

c_struct! {
    /// State and properties of a port.
    pub struct ibv_port_attr = 52 {
        0: state: c_int,
        4: max_mtu: c_int,
        8: active_mtu: c_int,
        12: gid_tbl_len: c_int,
        16: port_cap_flags: u32,
        20: max_msg_sz: u32,
        24: bad_pkey_cntr: u32,
        28: qkey_viol_cntr: u32,
        32: pkey_tbl_len: u16,
        34: lid: u16,
        36: sm_lid: u16,
        38: lmc: u8,
        39: max_vl_num: u8,
        40: sm_sl: u8,
        41: subnet_timeout: u8,
        42: init_type_reply: u8,
        43: active_width: u8,
        44: active_speed: u8,
        45: phys_state: u8,
        46: link_layer: u8,
        47: flags: u8,
        48: port_cap_flags2: u16,
    }
}

c_struct! {
    /// An entry of the GID table.
    pub struct ibv_gid_entry = 32 {
        0: gid: ibv_gid,
        16: gid_index: u32,
        20: port_num: u32,
        24: gid_type: u32,
        28: ndev_ifindex: u32,
    }
}

c_struct! {
    /// An asynchronous event.
    pub struct ibv_async_event = 16 {
        /// The object's address, or the port's number.
        0: element: usize,
        8: event_type: c_int,
    }
}
