//! Which process of a family holds the name of a port.
//!
//! Processes that were forked from each other share their promises, so that it is enough to ask one of them. Who it is
//! stands in memory that they share; a process that has died holds nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_discovery_proto::About;
use weft_os::{process, shared};
use zerocopy::FromZeros;

/// Names that a family holds at a time, at most.
const CLAIMS_MAX: usize = 512;

#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
struct Page([AtomicU64; CLAIMS_MAX]);

/// The names of a family.
#[derive(Debug)]
pub(super) struct Claims {
    page: &'static Page,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) about: About,
    pub(super) port: u16,
    /// Distinguishes the names that one port has.
    pub(super) index: u8,
    /// The process that holds it ([`process::member`]).
    pub(super) process: u32,
}

impl Claims {
    /// None yet, shared with every process forked from this one.
    pub(super) fn new() -> Option<Claims> {
        Some(Claims {
            page: shared::values::<Page>(1)?.first()?,
        })
    }

    /// The names that living processes of the family hold for this port.
    pub(super) fn of(&self, about: About, port: u16) -> impl Iterator<Item = Claim> + '_ {
        let words = self.page.0.iter();
        words
            .filter_map(|word| Claim::from_word(word.load(Ordering::Acquire)))
            .filter(move |claim| claim.about == about && claim.port == port)
            .filter(|claim| process::exists(claim.process))
    }

    /// Those of them whose holders this process speaks for: of a stream all, as a family shares its promises; of
    /// datagrams its own, as each process takes its own connections for them.
    pub(super) fn spoken_for(&self, about: About, port: u16) -> impl Iterator<Item = Claim> + '_ {
        let all = self.of(about, port);
        all.filter(move |claim| about == About::Stream || claim.process == process::member())
    }

    /// The indexes of those names, a bit each.
    pub(super) fn indexes_of(&self, about: About, port: u16) -> u64 {
        let indexes = self.spoken_for(about, port).map(|claim| claim.index);
        indexes.fold(0, |bits, index| bits | 1 << (index % 64))
    }

    /// Notes that this process holds a name; false where there is no room.
    pub(super) fn add(&self, claim: Claim) -> bool {
        self.page.0.iter().any(|word| {
            let before = word.load(Ordering::Relaxed);
            let is_free = Claim::from_word(before).is_none_or(|one| !process::exists(one.process));
            is_free
                && word
                    .compare_exchange(before, claim.to_word(), Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// This process holds the name no longer.
    pub(super) fn remove(&self, claim: Claim) {
        for word in &self.page.0 {
            let own = claim.to_word();
            let _ = word.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

impl Claim {
    fn to_word(self) -> u64 {
        let about = match self.about {
            About::Stream => 0,
            About::Datagrams => 1,
        };
        u64::from(self.process) << 32
            | about << 24
            | u64::from(self.index) << 16
            | u64::from(self.port)
    }

    fn from_word(word: u64) -> Option<Claim> {
        let process = (word >> 32) as u32;
        (process != 0).then_some(Claim {
            about: About::ALL[(word >> 24) as usize & 1],
            port: word as u16,
            index: (word >> 16) as u8,
            process,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(port: u16, index: u8, process: u32) -> Claim {
        Claim {
            about: About::Datagrams,
            port,
            index,
            process,
        }
    }

    #[test]
    fn a_relative_speaks_for_streams_and_for_no_datagrams() {
        process::watch();
        let claims = Claims::new().unwrap();
        let relative = std::os::unix::process::parent_id();
        for about in About::ALL {
            let of_relative = Claim {
                about,
                ..claim(80, 2, relative)
            };
            let own = Claim {
                about,
                ..claim(80, 3, process::member())
            };
            assert!(claims.add(of_relative) && claims.add(own));
        }
        assert_eq!(claims.indexes_of(About::Stream, 80), 1 << 2 | 1 << 3);
        assert_eq!(claims.indexes_of(About::Datagrams, 80), 1 << 3);
    }

    #[test]
    fn a_claim_is_its_holders_as_long_as_that_lives() {
        process::watch();
        let claims = Claims::new().unwrap();
        let own = claim(65535, 7, process::member());
        // No process has this number: it is above the kernel's greatest.
        let dead = claim(65535, 3, 1 << 22);
        assert!(claims.add(own) && claims.add(dead) && claims.add(claim(1, 0, own.process)));
        let of = |about| claims.of(about, 65535).collect::<Vec<_>>();
        assert_eq!(of(About::Datagrams), [own]);
        assert_eq!(of(About::Stream), []);
        assert_eq!(claims.indexes_of(About::Datagrams, 65535), 1 << 7);
        claims.remove(own);
        assert_eq!(of(About::Datagrams), []);
    }

    #[test]
    fn the_dead_make_room() {
        let claims = Claims::new().unwrap();
        assert!((0..CLAIMS_MAX).all(|_| claims.add(claim(1, 0, 1 << 22))));
        assert!((0..CLAIMS_MAX).all(|_| claims.add(claim(2, 0, std::process::id()))));
        assert!(!claims.add(claim(3, 0, std::process::id())));
    }
}
