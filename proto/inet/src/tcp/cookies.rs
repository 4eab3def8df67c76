//! SYN cookies (RFC 4987 section 3.6): when the SYN queue is full, all that must be remembered goes into the sequence
//! number of the SYN+ACK, and comes back with the ACK.
//!
//! ```text
//!  31      27 26    24 23                        0
//! +----------+--------+---------------------------+
//! |  minute  |  MSS   | a + b * peer's first SN   |
//! +----------+--------+---------------------------+
//! ```
//!
//! `a` and `b`, an odd number, are a keyed hash of the addresses and of what stands before. The peer's sequence number
//! is not hashed with them: so no later segment of a connection that waits for its first one, which brings the same
//! cookie with another number, is ever taken for that. By a hash one of 16 million would be, and the stream would begin
//! in its midst. Without `b` the ACK of a connection that is over would begin a new one, where both ends had sent as
//! many octets.
//!
//! Window scaling and SACK hide in the low bits of the timestamp, where the peer uses timestamps.

use super::isn::{Purpose, Secret, Tuple};
use super::options::Options;
use super::seq::Seq;
use core::time::Duration;

/// The MSS values that can be remembered; a peer's is rounded down.
const MSS: [u16; 8] = [64, 536, 1220, 1300, 1440, 1460, 4312, 8960];
/// How long a "minute" lasts; a cookie is good for this one and the next.
const MINUTE_SECS: u64 = 64;
const MINUTE_BITS: u32 = 5;
const HASH_BITS: u32 = 24;
/// Low bits of the timestamp that are lent: shift (15: none) and SACK.
const LENT: u32 = 0x1f;

/// The sequence number that answers a SYN.
pub fn make(secret: &Secret, tuple: &Tuple, peer: Seq, mss: Option<u16>, now: Duration) -> Seq {
    let mss = mss.unwrap_or(536);
    let index = MSS.iter().rposition(|known| *known <= mss).unwrap_or(0) as u32;
    with_minute(secret, tuple, peer, index, minute(now))
}

/// The MSS that a cookie remembers, if it is one of ours and not too old.
pub fn check(secret: &Secret, tuple: &Tuple, peer: Seq, cookie: Seq, now: Duration) -> Option<u16> {
    let index = (cookie.0 >> HASH_BITS) & 7;
    let current = minute(now);
    let recent = [current, current.wrapping_sub(1)];
    let known = recent
        .into_iter()
        .any(|minute| with_minute(secret, tuple, peer, index, minute) == cookie);
    known.then(|| MSS[index as usize])
}

fn minute(now: Duration) -> u32 {
    (now.as_secs() / MINUTE_SECS) as u32
}

fn with_minute(secret: &Secret, tuple: &Tuple, peer: Seq, index: u32, minute: u32) -> Seq {
    let hash = secret.hash(Purpose::Cookie, tuple, &[index, minute]);
    let (a, b) = (hash as u32, (hash >> 32) as u32 | 1);
    let sum = a.wrapping_add(peer.0.wrapping_mul(b)) & ((1 << HASH_BITS) - 1);
    let minute = minute & ((1 << MINUTE_BITS) - 1);
    Seq(minute << (32 - MINUTE_BITS) | index << HASH_BITS | sum)
}

/// The timestamp of a SYN+ACK that remembers shift and SACK.
pub fn lend(clock: u32, options: &Options) -> u32 {
    let shift = u32::from(options.window_scale.unwrap_or(15));
    let lent = shift | u32::from(options.sack_permitted) << 4;
    let value = (clock & !LENT) | lent;
    // The clock must not run ahead of what later segments will say.
    if value > clock {
        value.wrapping_sub(LENT + 1)
    } else {
        value
    }
}

/// The options that an echoed timestamp remembers.
pub fn recall(echo: u32) -> Options {
    let shift = (echo & 15) as u8;
    Options {
        window_scale: (shift != 15).then_some(shift),
        sack_permitted: echo & 16 != 0,
        ..Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    const SECRET: Secret = Secret([3; 16]);

    fn tuple() -> Tuple {
        Tuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], 5000)),
        }
    }

    #[test]
    fn a_cookie_comes_back_with_its_mss_for_a_while() {
        let now = Duration::from_secs(1000);
        let cookie = make(&SECRET, &tuple(), Seq(5), Some(1400), now);
        assert_eq!(check(&SECRET, &tuple(), Seq(5), cookie, now), Some(1300));
        let soon = now + Duration::from_secs(MINUTE_SECS);
        assert_eq!(check(&SECRET, &tuple(), Seq(5), cookie, soon), Some(1300));
        let late = now + Duration::from_secs(2 * MINUTE_SECS);
        assert_eq!(check(&SECRET, &tuple(), Seq(5), cookie, late), None);
    }

    #[test]
    fn a_guess_is_not_a_cookie() {
        let now = Duration::from_secs(1000);
        let good = (0..100_000u32)
            .filter(|i| {
                let guess = Seq(i.wrapping_mul(0x9e37_79b9));
                check(&SECRET, &tuple(), Seq(5), guess, now).is_some()
            })
            .count();
        assert!(good <= 1, "{good}");
        let cookie = make(&SECRET, &tuple(), Seq(5), None, now);
        assert_eq!(check(&SECRET, &tuple(), Seq(6), cookie, now), None);
        assert_eq!(check(&Secret([4; 16]), &tuple(), Seq(5), cookie, now), None);
    }

    #[test]
    fn a_later_segment_is_never_taken_for_the_first() {
        let now = Duration::from_secs(1000);
        let secret = Secret([8; 16]);
        let first = Seq(u32::MAX - 5);
        let cookie = make(&secret, &tuple(), first, None, now);
        for ahead in 1..600_000u32 {
            let peer = Seq(first.0.wrapping_add(ahead));
            // With that secret a hash of the number, too, is the same for one 565002 octets ahead.
            assert_eq!(check(&secret, &tuple(), peer, cookie, now), None, "{ahead}");
            // Both ends have sent as many.
            let later = Seq(cookie.0.wrapping_add(ahead));
            assert_eq!(check(&secret, &tuple(), peer, later, now), None, "{ahead}");
        }
    }

    #[test]
    fn options_hide_in_the_timestamp() {
        for shift in [None, Some(0), Some(7), Some(14)] {
            for sack in [false, true] {
                let options = Options {
                    window_scale: shift,
                    sack_permitted: sack,
                    ..Options::default()
                };
                let value = lend(123_456, &options);
                assert!(value <= 123_456 && value > 123_456 - 64);
                let recalled = recall(value);
                assert_eq!(
                    (recalled.window_scale, recalled.sack_permitted),
                    (shift, sack)
                );
            }
        }
    }
}
