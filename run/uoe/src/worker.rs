//! What is known of the thread that runs the carriers.

use weft_os::guarded::Guarded;
use weft_os::poll::Waker;

/// The thread, as long as there is one.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    /// The process that it is a thread of.
    pub(crate) process: u32,
    pub(crate) runs: bool,
    /// Nothing before there has been a thread.
    pub(crate) waker: Option<Guarded<Waker>>,
}
