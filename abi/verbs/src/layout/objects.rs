//! The objects a program holds pointers to.

use libc::{c_int, c_void, pthread_cond_t, pthread_mutex_t, size_t};

use super::device::ibv_context;

c_struct! {
    /// A protection domain.
    pub struct ibv_pd = 16 {
        0: context: *mut ibv_context,
        8: handle: u32,
    }
}

c_struct! {
    /// A memory region.
    pub struct ibv_mr = 48 {
        0: context: *mut ibv_context,
        8: pd: *mut ibv_pd,
        16: addr: *mut c_void,
        24: length: size_t,
        32: handle: u32,
        36: lkey: u32,
        40: rkey: u32,
    }
}

c_struct! {
    /// A memory window.
    pub struct ibv_mw = 32 {
        0: context: *mut ibv_context,
        8: pd: *mut ibv_pd,
        16: rkey: u32,
        20: handle: u32,
        24: r#type: c_int,
    }
}

c_struct! {
    /// An address handle.
    pub struct ibv_ah = 24 {
        0: context: *mut ibv_context,
        8: pd: *mut ibv_pd,
        16: handle: u32,
    }
}

c_struct! {
    /// A completion event channel.
    pub struct ibv_comp_channel = 16 {
        0: context: *mut ibv_context,
        8: fd: c_int,
        12: refcnt: c_int,
    }
}

c_struct! {
    /// A completion queue.
    pub struct ibv_cq = 128 + MUTEX_MORE {
        0: context: *mut ibv_context,
        8: channel: *mut ibv_comp_channel,
        16: cq_context: *mut c_void,
        24: handle: u32,
        28: cqe: c_int,
        32: mutex: pthread_mutex_t,
        72 + MUTEX_MORE: cond: pthread_cond_t,
        120 + MUTEX_MORE: comp_events_completed: u32,
        124 + MUTEX_MORE: async_events_completed: u32,
    }
}

c_struct! {
    /// A shared receive queue.
    pub struct ibv_srq = 128 + MUTEX_MORE {
        0: context: *mut ibv_context,
        8: srq_context: *mut c_void,
        16: pd: *mut ibv_pd,
        24: handle: u32,
        32: mutex: pthread_mutex_t,
        72 + MUTEX_MORE: cond: pthread_cond_t,
        120 + MUTEX_MORE: events_completed: u32,
    }
}

c_struct! {
    /// A queue pair.
    pub struct ibv_qp = 160 + MUTEX_MORE {
        0: context: *mut ibv_context,
        8: qp_context: *mut c_void,
        16: pd: *mut ibv_pd,
        24: send_cq: *mut ibv_cq,
        32: recv_cq: *mut ibv_cq,
        40: srq: *mut ibv_srq,
        48: handle: u32,
        52: qp_num: u32,
        56: state: c_int,
        60: qp_type: c_int,
        64: mutex: pthread_mutex_t,
        104 + MUTEX_MORE: cond: pthread_cond_t,
        152 + MUTEX_MORE: events_completed: u32,
    }
}
