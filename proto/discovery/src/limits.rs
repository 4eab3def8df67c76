//! The server: how many questions an address may ask, and how many are looked into in all.
//!
//! Each address has a bucket of tokens, and a question takes one. A bucket that is full is as good as none, so that
//! addresses that ask seldom need no place.

use core::net::IpAddr;
use core::time::Duration;

use zerocopy::FromBytes;

use crate::places::{hash, neighbour, to_us, Places};

/// Questions that an address may ask at once: a program that opens its thousand connections.
pub const BURST_OF_ADDRESS: u32 = 1024;
/// Questions of all addresses together at once.
pub const BURST_OF_ALL: u32 = 4096;
/// How long it takes until an address may ask one more.
pub const EACH_OF_ADDRESS: Duration = Duration::from_micros(1000);
/// The same for all together.
pub const EACH_OF_ALL: Duration = Duration::from_micros(125);

const WAYS: usize = 8;
const SETS: usize = 128;
/// Addresses that are told apart at a time; beyond, who has asked least of late is forgotten.
pub const ADDRESSES_MAX: usize = SETS * WAYS;

/// A bucket of tokens.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct Bucket {
    /// Up to when tokens were given out: earlier than now by as many as there are.
    as_of_us: u64,
}

impl Bucket {
    /// Takes a token out of a bucket of `burst` that gets one in each `each`; whether there was one.
    fn take(&mut self, burst: u32, each: Duration, now_us: u64) -> bool {
        let each_us = to_us(each);
        let full_us = now_us.saturating_sub(u64::from(burst) * each_us);
        let next_us = self.as_of_us.max(full_us).saturating_add(each_us);
        let may = next_us <= now_us;
        if may {
            self.as_of_us = next_us;
        }
        may
    }
}

#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct Source {
    /// 0 for nobody.
    who: u64,
    bucket: Bucket,
}

/// Buckets of those who have asked of late. Empty while it is zero; nothing may be asked of it in the first
/// [`EACH_OF_ADDRESS`] of time.
#[derive(Debug, FromBytes)]
#[repr(C)]
pub struct Limits {
    seed: u64,
    all: Bucket,
    sources: Places<Source, SETS, WAYS>,
}

impl Limits {
    /// Makes it unforeseeable which addresses share places. To be called while it is empty.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Whether a question of this address is looked into.
    pub fn allow(&mut self, source: IpAddr, now: Duration) -> bool {
        let (who, now_us) = (neighbour(source), to_us(now));
        let ways = self.sources.set(hash(self.seed, &who.to_ne_bytes()));
        let own = ways.iter().position(|source| source.who == who);
        // Who has the fullest bucket loses least by being forgotten.
        let fullest = (0..WAYS).min_by_key(|at| ways[*at].bucket.as_of_us);
        let Some(at) = own.or(fullest) else {
            return false;
        };
        if own.is_none() {
            let bucket = Bucket { as_of_us: 0 };
            ways[at] = Source { who, bucket };
        }
        ways[at]
            .bucket
            .take(BURST_OF_ADDRESS, EACH_OF_ADDRESS, now_us)
            && self.all.take(BURST_OF_ALL, EACH_OF_ALL, now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    use proptest::prelude::*;
    use zerocopy::FromZeros;

    const NOW: Duration = Duration::from_secs(1000);

    fn limits() -> Box<Limits> {
        Box::new(Limits::new_zeroed())
    }

    fn address(number: u32) -> IpAddr {
        number.to_be_bytes().into()
    }

    fn allowed(limits: &mut Limits, source: IpAddr, count: usize, now: Duration) -> usize {
        (0..count).filter(|_| limits.allow(source, now)).count()
    }

    #[test]
    fn an_address_may_ask_a_burst_and_then_at_its_rate() {
        let mut limits = limits();
        assert_eq!(allowed(&mut limits, address(1), 5000, NOW), 1024);
        assert_eq!(
            allowed(
                &mut limits,
                address(1),
                5000,
                NOW + Duration::from_micros(999)
            ),
            0
        );
        assert_eq!(
            allowed(
                &mut limits,
                address(1),
                5000,
                NOW + Duration::from_millis(10)
            ),
            10
        );
        assert_eq!(
            allowed(
                &mut limits,
                address(2),
                5000,
                NOW + Duration::from_millis(10)
            ),
            1024
        );
        assert_eq!(
            allowed(&mut limits, address(1), 5000, NOW + Duration::from_secs(60)),
            1024
        );
    }

    #[test]
    fn a_flood_of_addresses_is_bounded_in_all() {
        let mut limits = limits();
        let flood = (0..100_000).filter(|number| limits.allow(address(*number), NOW));
        assert_eq!(flood.count(), 4096);
        let second = NOW + Duration::from_secs(1);
        let flood = (0..100_000).filter(|number| limits.allow(address(*number), second));
        assert_eq!(
            flood.count(),
            4096,
            "a second is more than enough for the burst"
        );
    }

    #[test]
    fn who_asks_most_is_not_forgotten_for_those_who_ask_once() {
        let mut limits = limits();
        assert_eq!(allowed(&mut limits, address(1), 5000, NOW), 1024);
        for number in 2..3000 {
            limits.allow(address(number), NOW);
        }
        assert_eq!(allowed(&mut limits, address(1), 10, NOW), 0);
    }

    proptest! {
        /// However questions are spread in time, all together are no more than the burst and the rate allow.
        #[test]
        fn work_is_bounded(steps in prop::collection::vec((0u32..50, 0u64..3000, 1usize..200), 1..100)) {
            let mut limits = limits();
            let (mut now, mut count) = (NOW, 0);
            for (number, us, questions) in steps {
                now += Duration::from_micros(us);
                count += allowed(&mut limits, address(number), questions, now);
            }
            let earned = (now - NOW).as_micros() / EACH_OF_ALL.as_micros();
            prop_assert!(count as u128 <= u128::from(BURST_OF_ALL) + earned);
        }
    }
}
