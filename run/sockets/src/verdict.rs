//! What becomes of a call of the program's.

use crate::Errno;

/// Who answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel is to do it.
    Kernel,
    /// It is done; the result.
    Done(Result<usize, Errno>),
}
