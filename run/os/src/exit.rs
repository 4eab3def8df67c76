//! The end of the process.

/// Has `act` called when the process exits: `exit(3)`, or the end of `main`. Not where it is killed or calls `_exit`,
/// and not before handlers that were registered later. `act` must not unwind, and must not wait for a lock that a
/// thread may hold for good: `exit` can be called with any lock held.
///
/// False when the C library has no room for it.
pub fn at_exit(act: extern "C" fn()) -> bool {
    // SAFETY: `act` is a function of this library, which is there as long as the process is: where it is unloaded, the
    // C library calls the handlers it registered first.
    unsafe { libc::atexit(act) == 0 }
}
