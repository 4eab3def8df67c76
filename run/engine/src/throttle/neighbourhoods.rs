//! What bounds the tries of all peers together: turns by neighbourhood.
//!
//! Whoever has many addresses has what is free for each, and a fresh address after every refusal. So refusals are
//! counted over all addresses too. Beyond [`FREE_SHARES`] times what is free for one, every connection needs a turn
//! of its neighbourhood ([`neighbourhood`]): the more neighbourhoods come, the longer is the pause between two turns
//! of one, so that there are about [`TURNS`] of them a second in all, and from [`PLACES`] places at most one in
//! [`PAUSE_MAX`] each.
//!
//! An honest peer pays with a wait at most: its turn comes back when its connection ends well, and nobody takes the
//! turns of another neighbourhood, except by coming from thousands, of which some share its place.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use super::line::{Line, Ticket};
use super::peer_address::neighbourhood;
use super::PAUSE_MAX;

/// So many times what is free for one address is free for all of them.
const FREE_SHARES: u32 = 16;
/// One refusal less to remember after each such time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(1);
/// Refusals beyond what is free that are remembered: the turns end five minutes behind an attack.
const ARRIVALS_REMEMBERED: u32 = 300;
/// Turns a second, of all neighbourhoods, while they are no more than 100.
pub(super) const TURNS: u32 = 20;
/// Places that neighbourhoods share.
pub(super) const PLACES: usize = 1024;

/// The refusals of everybody, and the turns that they bring. `W` leads to a connection that waits.
#[derive(Debug)]
pub(super) struct Neighbourhoods<W> {
    free: u32,
    level: u32,
    as_of: Duration,
    /// Whose place is where: by a key that nobody knows.
    key: RandomState,
    /// None while no turns are needed.
    places: Vec<Place<W>>,
}

#[derive(Debug)]
struct Place<W> {
    line: Line<W>,
    /// When somebody came last.
    came: Option<Duration>,
}

impl<W: Copy> Neighbourhoods<W> {
    /// `allowed` refusals of one address are free.
    pub(super) fn new(allowed: u32) -> Neighbourhoods<W> {
        Neighbourhoods {
            free: allowed.saturating_mul(FREE_SHARES),
            level: 0,
            as_of: Duration::ZERO,
            key: RandomState::new(),
            places: Vec::new(),
        }
    }

    /// An address was refused so many accesses; whether everybody needs turns from now on.
    pub(super) fn note(&mut self, address: IpAddr, count: u64, now: Duration) -> bool {
        let needed = self.needs_turns(now);
        let most = self.free.saturating_add(ARRIVALS_REMEMBERED);
        let count = count.min(1 << 16) as u32;
        self.level = self.level.saturating_add(count).min(most);
        if let Some(place) = self.place_of(address) {
            // Its turn was a guess, so it is not given back.
            place.line.shut(now);
        }
        !needed && self.needs_turns(now)
    }

    /// The line that a connection from that address has to wait in; `None`: it need not.
    pub(super) fn line_for(&mut self, address: IpAddr, now: Duration) -> Option<&mut Line<W>> {
        if !self.needs_turns(now) {
            return None;
        }
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Place::default);
        }
        let place = self.place_of(address)?;
        place.came = Some(now);
        Some(&mut place.line)
    }

    /// The line that holds that ticket, and the pause between its turns, if they are needed still.
    pub(super) fn line_of(
        &mut self,
        address: IpAddr,
        ticket: Ticket,
        now: Duration,
    ) -> Option<(&mut Line<W>, Option<Duration>)> {
        let pause = self.pause(now);
        let line = &mut self.place_of(address)?.line;
        line.has(ticket).then_some((line, pause))
    }

    fn pause(&mut self, now: Duration) -> Option<Duration> {
        if !self.needs_turns(now) {
            return None;
        }
        let lately = |place: &&Place<W>| place.came.is_some_and(|came| came + PAUSE_MAX > now);
        let neighbourhoods = self.places.iter().filter(lately).count() as u32;
        let pause = Duration::from_secs(1) / TURNS * neighbourhoods.max(1);
        Some(pause.min(PAUSE_MAX))
    }

    fn place_of(&mut self, address: IpAddr) -> Option<&mut Place<W>> {
        let place = self.number_of_place(address);
        self.places.get_mut(place)
    }

    fn number_of_place(&self, address: IpAddr) -> usize {
        self.key.hash_one(neighbourhood(address)) as usize % PLACES
    }

    fn needs_turns(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.as_of);
        let forgiven = (since.as_millis() / FORGIVEN_AFTER.as_millis()) as u32;
        self.as_of += FORGIVEN_AFTER * forgiven;
        self.level = self.level.saturating_sub(forgiven);
        self.free > 0 && self.level > self.free
    }
}

impl<W> Default for Place<W> {
    fn default() -> Place<W> {
        Place {
            line: Line::default(),
            came: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Admission, Standing, Throttle, THIS_MACHINE};
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, HashSet};
    use std::net::{Ipv4Addr, Ipv6Addr};

    const ALLOWED: u32 = 16;
    const ARRIVALS: u32 = 300;
    const SECONDS: u32 = 120;

    /// An attack of many addresses, each new connection from the next one; a turn is a try at once.
    struct Attack {
        throttle: Throttle<u32>,
        waiting: BinaryHeap<Reverse<(Duration, u32)>>,
        /// From where each comes, its ticket, whether it guesses, and since when.
        known: Vec<(IpAddr, Ticket, bool, Duration)>,
        /// Those that have had their turn.
        over: HashSet<u32>,
        tries: u32,
        /// How long honest ones waited; `None`: in vain.
        honest: Vec<Option<Duration>>,
    }

    impl Attack {
        /// Two minutes of it. Every ten seconds an honest peer comes, each from a neighbourhood of its own; `apart`:
        /// that has not, by the key's chance, a place of the attack.
        fn run(address: impl Fn(u32) -> IpAddr, apart: bool) -> Attack {
            let mut attack = Attack {
                throttle: Throttle::new(ALLOWED),
                waiting: BinaryHeap::new(),
                known: Vec::new(),
                over: HashSet::new(),
                tries: 0,
                honest: Vec::new(),
            };
            let of_attack = (0..=255).map(|n| address(n * 256));
            let places = of_attack.map(|from| attack.throttle.crowd.number_of_place(from));
            let taken: HashSet<usize> = places.filter(|_| apart).collect();
            for n in 0..ARRIVALS * SECONDS {
                let now = Duration::from_secs(1000) + Duration::from_secs(1) / ARRIVALS * n;
                attack.look_until(now);
                attack.come(address(n), true, now);
                if n % (10 * ARRIVALS) == 5 {
                    let third = (n / ARRIVALS) as u8;
                    let candidate = |second| IpAddr::V4(Ipv4Addr::new(192, second, third, 1));
                    let place = |from: &IpAddr| attack.throttle.crowd.number_of_place(*from);
                    let is_fit = |from: &IpAddr| !taken.contains(&place(from));
                    let from = (0..=u8::MAX).map(candidate).find(is_fit);
                    attack.come(from.expect("a place apart"), false, now);
                }
            }
            attack.look_until(Duration::from_secs(1000 + u64::from(SECONDS)) + PAUSE_MAX * 2);
            attack
        }

        fn come(&mut self, from: IpAddr, guesses: bool, now: Duration) {
            let number = self.known.len() as u32;
            match self.throttle.ask(from, number, now).0 {
                Admission::Free => self.goes_on(from, guesses, now, now),
                Admission::InLine(ticket) => {
                    self.known.push((from, ticket, guesses, now));
                    self.waiting.push(Reverse((now, number)));
                }
                Admission::Never if guesses => {}
                Admission::Never => self.honest.push(None),
            }
        }

        fn goes_on(&mut self, from: IpAddr, guesses: bool, since: Duration, now: Duration) {
            if guesses {
                self.throttle.note(from, 1, now);
                self.tries += 1;
            } else {
                self.honest.push(Some(now - since));
            }
        }

        fn look_until(&mut self, now: Duration) {
            while self.waiting.peek().is_some_and(|next| next.0 .0 <= now) {
                let Some(Reverse((at, number))) = self.waiting.pop() else {
                    return;
                };
                let (from, ticket, guesses, since) = self.known[number as usize];
                let lot = u64::from(random_bits(self.tries ^ number));
                let (standing, other) = self.throttle.look(from, ticket, at, lot);
                if let Some(other) = other.filter(|other| *other != number) {
                    self.waiting.push(Reverse((at, other)));
                }
                match standing {
                    Standing::Turn if self.over.insert(number) => {
                        self.goes_on(from, guesses, since, at);
                    }
                    Standing::Waits(until) => self.waiting.push(Reverse((until.max(at), number))),
                    Standing::Over if !guesses => self.honest.push(None),
                    Standing::Turn | Standing::Over => {}
                }
            }
        }
    }

    fn random_bits(n: u32) -> u32 {
        let mut x = u64::from(n)
            .wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x >> 32) as u32
    }

    #[test]
    fn many_addresses_have_few_tries_together_and_shut_no_other_neighbourhood_out() {
        let v6 = |bits: u64| IpAddr::V6(Ipv6Addr::from(u128::from(bits) << 64));
        type Address = Box<dyn Fn(u32) -> IpAddr>;
        // From where, which addresses, tries a second, whether others always get in.
        let attacks: [(&str, Address, u32, bool); 4] = [
            (
                "all of an IPv4 network of 24 bits",
                Box::new(|n| IpAddr::V4(Ipv4Addr::from(0x0A01_0200 + n % 256))),
                20,
                true,
            ),
            (
                "all of one of 16 bits, such as containers have",
                Box::new(|n| IpAddr::V4(Ipv4Addr::from(0xAC11_0000 + n % 65_536))),
                52,
                true,
            ),
            (
                "an IPv6 allocation of 48 bits",
                Box::new(move |n| v6(0x2001_0DB8_0007_0000 + u64::from(n % 65_536))),
                20,
                true,
            ),
            (
                "all over the world",
                Box::new(|n| IpAddr::V4(Ipv4Addr::from(random_bits(n)))),
                PLACES as u32 / 5,
                false,
            ),
        ];
        for (whence, address, most_a_second, others_get_in) in attacks {
            let Attack { tries, honest, .. } = Attack::run(address, others_get_in);
            // What was free, a first turn for each place, and one more each before its pause was the longest.
            let most = ALLOWED * FREE_SHARES + 2 * PLACES as u32 + most_a_second * SECONDS;
            assert!(tries <= most, "{whence}: {tries} tries, {most} at most");
            assert!(
                tries >= 10 * SECONDS,
                "{whence}: {tries} tries, the attack went on"
            );
            let refused = honest.iter().filter(|wait| wait.is_none()).count();
            let allowed = if others_get_in { 0 } else { 9 };
            assert_eq!(honest.len(), 12);
            assert!(refused <= allowed, "{whence}: {honest:?}");
        }
    }

    #[test]
    fn it_begins_beyond_what_is_free_and_is_forgotten() {
        let mut crowd = Neighbourhoods::<u32>::new(1);
        let now = Duration::from_secs(50);
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        assert!(!crowd.note(from, u64::from(FREE_SHARES), now));
        assert!(crowd.line_for(from, now).is_none());
        assert!(crowd.note(from, 1, now), "turns begin");
        assert!(!crowd.note(from, 1 << 20, now), "they began");
        let line = crowd.line_for(from, now).expect("a line");
        assert!(line.join(Ticket(1), 1, now) && line.join(Ticket(2), 2, now));
        let (line, pause) = crowd.line_of(from, Ticket(1), now).expect("its line");
        assert_eq!(pause, Some(Duration::from_secs(1) / TURNS));
        assert_eq!(line.look_or_go(Ticket(1), now, pause, 0).0, Standing::Turn);
        // A guess is not given back, and the second waits for the pause.
        crowd.note(from, 1, now);
        let (line, pause) = crowd.line_of(from, Ticket(2), now).expect("its line");
        let standing = line.look_or_go(Ticket(2), now, pause, 0).0;
        assert_eq!(
            standing,
            Standing::Waits(now + Duration::from_secs(1) / TURNS)
        );
        assert!(crowd.line_of(from, Ticket(1), now).is_none());
        let over = now + FORGIVEN_AFTER * (ARRIVALS_REMEMBERED + 1);
        assert!(crowd.line_for(from, over).is_none());
        let (line, pause) = crowd.line_of(from, Ticket(2), over).expect("its line");
        assert_eq!(pause, None, "no turns any more");
        assert_eq!(line.look_or_go(Ticket(2), over, pause, 0).0, Standing::Turn);
    }

    #[test]
    fn without_a_limit_nobody_needs_turns() {
        let mut crowd = Neighbourhoods::<u32>::new(0);
        assert!(!crowd.note(THIS_MACHINE, 1 << 20, Duration::ZERO));
        assert!(crowd.line_for(THIS_MACHINE, Duration::ZERO).is_none());
    }
}
