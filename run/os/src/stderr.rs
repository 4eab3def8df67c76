//! Lines on standard error.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::stdout::Reader;

/// Writes a line in one call, so that lines of several threads and processes do not mix, and says whether anybody takes
/// more. A closed standard error is no reason to fail.
///
/// Without the lock of the standard library's stream: a thread may hold that for long, as somebody has to read what it
/// writes, and the child of a fork meanwhile would wait for a thread that it does not have.
pub fn line(text: &str) -> Reader {
    // SAFETY: the number is borrowed for the call; where the program has closed it the kernel says so.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    let mut left = text.as_bytes();
    while !left.is_empty() {
        match rustix::io::write(stderr, left) {
            Ok(written) => left = &left[written..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return Reader::Gone,
            Err(_) => return Reader::Listens,
        }
    }
    Reader::Listens
}
