//! Knowing that the process forked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Begins to watch for forks; connections stay the parent's, and a child must know that it is
/// one before it touches them.
pub fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler stores one flag, which is async-signal-safe.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

/// Whether this process is a child of the one that called [`watch`].
#[inline]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
