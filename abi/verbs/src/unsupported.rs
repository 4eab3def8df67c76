//! What this device does not have: multicast, hardware addresses of others; and what needs no work here:
//! safety across fork.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, size_t};

use crate::entry::{code, pointer, unsupported, Errno, Outcome};
use crate::layout::numbers::IBV_FORK_UNNEEDED;
use crate::layout::{ibv_ah_attr, ibv_context, ibv_gid, ibv_qp};

/// Refuses with `EOPNOTSUPP`, and says the first time what is not served and what to do; `said` is the caller's own.
pub fn in_words<T>(said: &AtomicBool, words: &str) -> Outcome<T> {
    if !said.swap(true, Ordering::Relaxed) {
        weft_engine::warn!("{words}");
    }
    unsupported()
}

export! {
    /// Finds the hardware address behind a GID: the kernel does that for each datagram.
    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        _attr: *mut ibv_ah_attr,
        _mac: *mut u8,
        _vlan: *mut u16,
    ) -> c_int, of context(context) {
        code(unsupported)
    }

    /// `ibv_attach_mcast(3)`: datagrams go to one queue pair each.
    fn ibv_attach_mcast(
        qp: *mut ibv_qp,
        _gid: *const ibv_gid,
        _lid: u16,
    ) -> c_int, of object(qp) {
        code(unsupported)
    }

    /// `ibv_detach_mcast(3)`: datagrams go to one queue pair each.
    fn ibv_detach_mcast(
        qp: *mut ibv_qp,
        _gid: *const ibv_gid,
        _lid: u16,
    ) -> c_int, of object(qp) {
        code(unsupported)
    }

    /// `ibv_fork_init(3)`: registered memory is not pinned, so a fork moves nothing away from it.
    fn ibv_fork_init() -> c_int {
        0
    }

    /// `ibv_is_fork_initialized(3)`.
    fn ibv_is_fork_initialized() -> c_int {
        IBV_FORK_UNNEEDED as c_int
    }

    /// Keeps memory out of child processes: nothing to do.
    fn ibv_dontfork_range(_base: *mut c_void, _size: size_t) -> c_int {
        0
    }

    /// Undoes `ibv_dontfork_range`: nothing to do.
    fn ibv_dofork_range(_base: *mut c_void, _size: size_t) -> c_int {
        0
    }
}

/// What the shells forward the interface between libibverbs and drivers to: functions that return
/// an errno value.
#[no_mangle]
extern "C" fn weft_unserved_errno() -> c_int {
    libc::ENOSYS
}

/// The same for functions that return a pointer.
#[no_mangle]
extern "C" fn weft_unserved_null() -> *mut c_void {
    pointer(|| Err(Errno(libc::ENOSYS)))
}

/// The same for functions that return nothing. Drivers of real devices register themselves by such
/// a call when they are loaded; they find no devices here.
#[no_mangle]
extern "C" fn weft_unserved_void() {}
