//! Buffers for octets on their way from a socket to where they belong.
//!
//! A stream needs one only while it holds octets that are not consumed yet, which at the end of a pass it seldom does.
//! So buffers belong to the threads that receive: a thousand idle queue pairs have none, and the one that a thread uses
//! for all of its streams stays in its core's cache.

use std::cell::RefCell;

/// Octets that a new buffer has at least, beside those it is to hold. The memory of a whole one would be touched while
/// the thread's first connection comes up.
pub(super) const BUFFER_OCTETS_MIN: usize = 8 * 1024;
/// Octets of a buffer once a read has filled it.
pub(super) const BUFFER_OCTETS: usize = 64 * 1024;
/// Buffers that a thread keeps for its next streams.
const BUFFERS_KEPT_MAX: usize = 4;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of at least [`BUFFER_OCTETS_MIN`] octets beside `held`; what stands in it is of no meaning.
pub(super) fn take(held: usize) -> Vec<u8> {
    let free = FREE.try_with(|free| free.borrow_mut().pop());
    let mut buffer = free.ok().flatten().unwrap_or_default();
    if buffer.len() < held + BUFFER_OCTETS_MIN {
        buffer.resize(held + BUFFER_OCTETS_MIN, 0);
    }
    buffer
}

/// Gives a buffer back.
pub(super) fn give_back(buffer: Vec<u8>) {
    if buffer.len() < BUFFER_OCTETS_MIN {
        return;
    }
    // A thread that is ending keeps none.
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < BUFFERS_KEPT_MAX {
            free.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_the_same_buffer_again() {
        let buffer = take(0);
        assert!(buffer.len() >= BUFFER_OCTETS_MIN);
        let at = buffer.as_ptr();
        give_back(buffer);
        let again = take(0);
        assert_eq!(again.as_ptr(), at);
        give_back(Vec::new());
        assert!(take(0).len() >= BUFFER_OCTETS_MIN, "an empty one is none");
        give_back(again);
        assert!(take(100_000).len() >= 100_000 + BUFFER_OCTETS_MIN);
    }

    #[test]
    fn a_thread_keeps_a_few() {
        let many: Vec<_> = (0..3 * BUFFERS_KEPT_MAX).map(|_| take(0)).collect();
        many.into_iter().for_each(give_back);
        assert_eq!(FREE.with(|free| free.borrow().len()), BUFFERS_KEPT_MAX);
    }
}
