//! What becomes of a call of the program's.

use crate::Errno;

/// Who answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel is to do it.
    Kernel,
    /// The kernel has begun to connect for the program, and is to be called once more where the program waits: that is
    /// already under way for it.
    Begun,
    /// It is done; the result.
    Done(Result<usize, Errno>),
}
