//! Changes of a number in memory that other threads, or other processes, change too.

use std::sync::atomic::{AtomicU32, Ordering};

/// Stores what `change` makes of the number, and says what it was. Another change that comes between makes it look
/// again: `change` may be called several times.
///
/// # Errors
/// `change` made nothing of it; what the number is.
#[inline]
pub fn try_update(number: &AtomicU32, change: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
    // Rust 1.99 wants it called `try_update`; the oldest Rust that builds Weft has only this name.
    #[allow(deprecated)]
    number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_changed_or_told() {
        let number = AtomicU32::new(1);
        assert_eq!(try_update(&number, |it| it.checked_sub(1)), Ok(1));
        assert_eq!(try_update(&number, |it| it.checked_sub(1)), Err(0));
        assert_eq!(number.into_inner(), 0);
    }
}
