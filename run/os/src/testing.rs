//! What tests do to a process that no program of ours does.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use crate::mem::Registered;

/// A child of `fork` that runs `work` and leaves without running anybody's handlers; its status is 0 where `work` says
/// so. Gives its number.
pub fn fork(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child allocates, which the C library allows after `fork`. A lock of the standard library's that
    // another thread holds may hang it, not harm it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    child
}

/// Waits for a child that [`fork`] made; whether its status was 0.
pub fn await_child(child: i32) -> bool {
    let mut status = -1;
    // SAFETY: waits for a child, and fills `status`.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status == 0
}

/// A child as of [`fork`] that is killed: `work` runs up to its [`halt`], and from there so many instructions. Whether
/// it lived so long; nothing where the machine lets nobody trace a child.
///
/// # Panics
/// Where `work` has ended, and not well.
pub fn killed_after(instructions: usize, work: impl FnOnce() -> bool) -> Option<bool> {
    let trace = |request: u32, child: i32| {
        // SAFETY: neither request names memory.
        unsafe { libc::ptrace(request, child, 0, 0) == 0 }
    };
    let child = fork(|| !trace(libc::PTRACE_TRACEME, 0) || work());
    let is_halted = || {
        let mut status = 0;
        // SAFETY: waits for a child, and fills `status`.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFSTOPPED(status) || status == 0, "{status:#x}");
        libc::WIFSTOPPED(status)
    };
    if !is_halted() {
        return None;
    }
    for _ in 0..instructions {
        assert!(trace(libc::PTRACE_SINGLESTEP, child));
        if !is_halted() {
            return Some(false);
        }
    }
    // SAFETY: the child is this process's, and has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    await_child(child);
    Some(true)
}

/// Where [`killed_after`] begins to count.
pub fn halt() {
    // SAFETY: names no memory.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Makes a number stand for another file, as a program does that closes numbers which it did not open.
pub fn take_number(number: RawFd, file: impl AsFd) {
    // SAFETY: names no memory. Whoever had the number has to expect this: that is what is tested.
    unsafe { libc::dup2(file.as_fd().as_raw_fd(), number) };
}

/// Registered memory that the program has unmapped: any use of it fails. At most a page.
///
/// # Panics
/// With more octets.
pub fn unmapped(len: usize) -> Registered {
    assert!(len <= 4096, "what follows may be mapped");
    // SAFETY: the page at address 4096 is never mapped (vm.mmap_min_addr), so nothing is read or written there.
    unsafe { Registered::new(std::ptr::without_provenance_mut(4096), len) }
}
