//! The client: what was learnt of servers, for a minute.

use core::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use crate::connection::{About, End};
use crate::places::{hash, to_us, Places};

/// How long an answer, or that there was none, is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(60);

const WAYS: usize = 4;
const SETS: usize = 256;
/// Servers that are remembered at most.
pub const SERVERS_MAX: usize = SETS * WAYS;

/// What is known of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing: ask.
    Nothing,
    /// It answered yes.
    Yes,
    /// It did not answer, or it lied.
    No,
}

const YES: u8 = 1;
const NO: u8 = 2;
const LIED: u8 = 3;

#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct Learnt {
    /// 0 where nothing was learnt.
    until_us: u64,
    server: End,
    about: u8,
    what: u8,
    padding: [u8; 4],
}

/// What was learnt, by address and port. Empty while it is zero; of more than there is room for, what is soonest
/// forgotten makes room.
#[derive(Debug, FromBytes)]
#[repr(C)]
pub struct Memory {
    seed: u64,
    places: Places<Learnt, SETS, WAYS>,
}

impl Memory {
    /// Makes it unforeseeable where an entry lies. To be called while it is empty.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// What is known of this server.
    pub fn known(&mut self, about: About, server: End, now: Duration) -> Known {
        match self.find(about, server, now).map(|learnt| learnt.what) {
            None => Known::Nothing,
            Some(YES) => Known::Yes,
            Some(_) => Known::No,
        }
    }

    /// The server answered yes, or did not.
    pub fn learn(&mut self, about: About, server: End, is_weft: bool, now: Duration) {
        let known = self.find(about, server, now);
        // Another connection's question may have been under way when the lie was found out.
        if is_weft && known.is_some_and(|learnt| learnt.what == LIED) {
            return;
        }
        self.put(about, server, if is_weft { YES } else { NO }, now);
    }

    /// The server answered yes, and what came was not Weft: whatever it answers, it is not believed for as long as
    /// things are remembered.
    pub fn learn_that_it_lied(&mut self, about: About, server: End, now: Duration) {
        self.put(about, server, LIED, now);
    }

    fn set(&mut self, about: About, server: End) -> &mut [Learnt; WAYS] {
        let seed = self.seed ^ u64::from(about.to_octet());
        self.places.set(hash(seed, server.as_bytes()))
    }

    fn find(&mut self, about: About, server: End, now: Duration) -> Option<&mut Learnt> {
        let now_us = to_us(now);
        let mut ways = self.set(about, server).iter_mut();
        ways.find(|learnt| learnt.is_of(about, server) && learnt.until_us > now_us)
    }

    fn put(&mut self, about: About, server: End, what: u8, now: Duration) {
        let ways = self.set(about, server);
        let own = ways.iter().position(|learnt| learnt.is_of(about, server));
        // One that is over, or was never there, is the soonest.
        let soonest = (0..WAYS).min_by_key(|at| ways[*at].until_us);
        if let Some(at) = own.or(soonest) {
            ways[at] = Learnt {
                until_us: to_us(now.saturating_add(REMEMBERED)),
                server,
                about: about.to_octet(),
                what,
                padding: [0; 4],
            };
        }
    }
}

impl Learnt {
    fn is_of(&self, about: About, server: End) -> bool {
        self.until_us != 0 && self.server == server && self.about == about.to_octet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use zerocopy::FromZeros;

    fn empty() -> Box<Memory> {
        Box::new(Memory::new_zeroed())
    }

    fn server(number: u32) -> End {
        End::new(number.to_be_bytes().into(), 80)
    }

    const NOW: Duration = Duration::from_secs(1000);
    const STREAM: About = About::Stream;

    #[test]
    fn an_answer_is_known_for_a_minute() {
        let mut memory = empty();
        let (yes, no) = (server(1), server(2));
        assert_eq!(memory.known(STREAM, yes, NOW), Known::Nothing);
        memory.learn(STREAM, yes, true, NOW);
        memory.learn(STREAM, no, false, NOW);
        let late = NOW + REMEMBERED - Duration::from_micros(1);
        for (server, known) in [(yes, Known::Yes), (no, Known::No)] {
            assert_eq!(memory.known(STREAM, server, NOW), known);
            assert_eq!(memory.known(STREAM, server, late), known);
            assert_eq!(
                memory.known(STREAM, server, NOW + REMEMBERED),
                Known::Nothing
            );
            assert_eq!(memory.known(About::Datagrams, server, NOW), Known::Nothing);
        }
    }

    #[test]
    fn an_answer_is_renewed_and_changed() {
        let mut memory = empty();
        memory.learn(STREAM, server(1), true, NOW);
        memory.learn(STREAM, server(1), false, NOW + REMEMBERED / 2);
        assert_eq!(memory.known(STREAM, server(1), NOW + REMEMBERED), Known::No);
        memory.learn(STREAM, server(1), true, NOW + REMEMBERED);
        assert_eq!(
            memory.known(STREAM, server(1), NOW + REMEMBERED),
            Known::Yes
        );
    }

    #[test]
    fn a_lie_is_a_no_whatever_is_answered() {
        let mut memory = empty();
        memory.learn(STREAM, server(1), true, NOW);
        memory.learn_that_it_lied(STREAM, server(1), NOW);
        memory.learn(STREAM, server(1), true, NOW + REMEMBERED / 2);
        assert_eq!(
            memory.known(STREAM, server(1), NOW + REMEMBERED / 2),
            Known::No
        );
        assert_eq!(
            memory.known(STREAM, server(1), NOW + REMEMBERED),
            Known::Nothing
        );
        memory.learn(STREAM, server(1), true, NOW + REMEMBERED);
        assert_eq!(
            memory.known(STREAM, server(1), NOW + REMEMBERED),
            Known::Yes
        );
    }

    #[test]
    fn it_is_bounded_and_keeps_the_newest() {
        let mut memory = empty();
        memory.set_seed(7);
        let at = |number: u32| NOW + Duration::from_micros(number.into());
        for number in 0..100_000 {
            memory.learn(STREAM, server(number), true, at(number));
            assert_eq!(memory.known(STREAM, server(number), at(number)), Known::Yes);
        }
        let known = |number: &u32| memory.known(STREAM, server(*number), at(100_000)) == Known::Yes;
        let kept = (0..100_000).filter(known).count();
        assert_eq!(kept, SERVERS_MAX);
    }

    proptest! {
        /// What it says was once said of that server, within the minute, and is the newest of it.
        #[test]
        fn nothing_is_made_up(
            steps in prop::collection::vec((0u32..40, 0u8..4, 0u64..20_000), 0..300),
        ) {
            let mut memory = empty();
            let mut model: BTreeMap<u32, (u8, Duration)> = BTreeMap::new();
            let mut now = NOW;
            for (number, step, ms) in steps {
                now += Duration::from_millis(ms);
                let alive = model.get(&number).filter(|(_, at)| now < *at + REMEMBERED).copied();
                match step {
                    0 | 1 => {
                        memory.learn(STREAM, server(number), step == 0, now);
                        if !(step == 0 && alive.is_some_and(|(what, _)| what == LIED)) {
                            model.insert(number, (if step == 0 { YES } else { NO }, now));
                        }
                    }
                    2 => {
                        memory.learn_that_it_lied(STREAM, server(number), now);
                        model.insert(number, (LIED, now));
                    }
                    _ => {
                        // Forty servers are far from filling a set, so nothing is forgotten early.
                        let wanted = match alive {
                            None => Known::Nothing,
                            Some((YES, _)) => Known::Yes,
                            Some(_) => Known::No,
                        };
                        prop_assert_eq!(memory.known(STREAM, server(number), now), wanted);
                    }
                }
            }
        }
    }
}
