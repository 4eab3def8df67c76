//! Whether the program uses `io_uring`: what goes through its rings is the kernel's alone.

use std::sync::atomic::{AtomicBool, Ordering};

/// The program has made a ring by way of `syscall`.
static MADE: AtomicBool = AtomicBool::new(false);

/// The program makes a ring.
pub fn note_setup() {
    MADE.store(true, Ordering::Relaxed);
}

/// Whether it made one, by way of `syscall` or by itself.
pub fn is_used() -> bool {
    MADE.load(Ordering::Relaxed) || has_ring()
}

/// Whether a descriptor of the program is a ring of `io_uring`, which libraries make without the C library.
fn has_ring() -> bool {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return false;
    };
    entries
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|link| link.to_string_lossy().contains("[io_uring]"))
}
