//! What threads meet on, for the files that `tests/loom` runs under a model checker: it has a module of the same name
//! with the checker's own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::thread::yield_now;

pub(crate) use parking_lot::Mutex;
pub(crate) use weft_os::poll::EventCounter;
