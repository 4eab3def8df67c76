//! What messages of a measurement carry, so that whoever gets one sees that it is the one that was sent: first its
//! number, then octets that follow from their place.
//!
//! The number is looked at in every message, all of it in few: a look at each octet would be measured with the rest.

use std::sync::LazyLock;

use anyhow::{ensure, Result};

/// Octets of a number; a shorter message has as many of its low-order ones as it holds.
const NUMBER: usize = size_of::<u64>();
/// After how many octets they repeat. No power of two, so that what is a page or a packet too far is not the same.
const PERIOD: usize = 251;
/// Some periods of them, compared at once.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..64 * PERIOD).map(|at| (at % PERIOD) as u8).collect());

/// The message of this length and number.
pub(super) fn message(size: usize, number: u64) -> Vec<u8> {
    let mut message: Vec<u8> = PATTERN.iter().copied().cycle().take(size).collect();
    set_number(&mut message, number);
    message
}

/// Makes it the message of this number.
pub(super) fn set_number(message: &mut [u8], number: u64) {
    let length = message.len().min(NUMBER);
    message[..length].copy_from_slice(&number.to_le_bytes()[..length]);
}

/// Whether this is the message of this number, as far as the number and the last octet tell.
///
/// # Errors
/// What is there instead.
pub(super) fn check_number(message: &[u8], number: u64) -> Result<()> {
    let length = message.len().min(NUMBER);
    let found = &message[..length];
    ensure!(
        *found == number.to_le_bytes()[..length],
        "message {number} begins with {found:02x?}: it is another one"
    );
    match message.len() {
        whole if whole > NUMBER => check_octet(message, whole - 1, number),
        _ => Ok(()),
    }
}

/// Whether this is the message of this number, octet for octet.
///
/// # Errors
/// What is there instead.
pub(super) fn check(message: &[u8], number: u64) -> Result<()> {
    check_number(message, number)?;
    let pattern = PATTERN.as_slice();
    let mut at = message.len().min(NUMBER);
    for part in message.chunks(pattern.len()) {
        let skipped = at % pattern.len();
        if part[skipped..] != pattern[skipped..part.len()] {
            let end = at - skipped + part.len();
            return (at..end).try_for_each(|at| check_octet(message, at, number));
        }
        at += part.len() - skipped;
    }
    Ok(())
}

fn check_octet(message: &[u8], at: usize, number: u64) -> Result<()> {
    let (found, wanted) = (message[at], (at % PERIOD) as u8);
    ensure!(
        found == wanted,
        "octet {at} of message {number} is {found:#04x} instead of {wanted:#04x}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_own_and_no_other() {
        for size in [1, 7, 8, 9, 64, 1000] {
            let message = message(size, 513);
            check(&message, 513).unwrap();
            assert!(check(&message, 514).is_err(), "{size}");
        }
        // One octet tells numbers that are close to each other.
        check(&message(1, 513), 1).unwrap();
    }

    #[test]
    fn an_octet_that_changed_is_named() {
        let mut message = message(1000, 3);
        message[700] ^= 1;
        check_number(&message, 3).unwrap();
        let error = check(&message, 3).unwrap_err().to_string();
        assert!(error.starts_with("octet 700 of message 3 is"), "{error}");
        message[999] ^= 1;
        assert!(check_number(&message, 3).is_err());
    }

    #[test]
    fn any_octet_of_a_long_message_is_looked_at() {
        let whole = message(40_000, 9);
        check(&whole, 9).unwrap();
        for at in [8, 16_063, 16_064, 16_065, 32_127, 32_128, 39_999] {
            let mut message = whole.clone();
            message[at] ^= 1;
            let error = check(&message, 9).unwrap_err().to_string();
            let named = format!("octet {at} of message 9 is");
            assert!(error.starts_with(&named), "{error}");
        }
    }

    #[test]
    fn octets_that_came_from_another_place_are_not_taken_for_these() {
        let mut shifted = message(9000, 0);
        shifted.copy_within(4096.., 8);
        assert!(check(&shifted, 0).is_err());
    }
}
