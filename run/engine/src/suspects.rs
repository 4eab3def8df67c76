//! Peers that reach for memory they were not given, by address.
//!
//! Over a reliable connection a peer has one try: the access is refused and the connection ends. So whoever wants to
//! find an STag by trying connects again and again, and what slows that down is to make new connections from its address
//! wait. A program with a bug does the same once or a few times: the first refusals of an address ([`Suspects::new`]) cost
//! nothing, and each is forgotten after [`FORGIVEN_AFTER`]. Beyond them the address gets one start-up at a time, each a
//! pause after the one before. The pause begins with [`PAUSE_FIRST`], doubles with every further refusal and ends at
//! [`PAUSE_MOST`], which no initiator's start-up timeout is below; a connection that would have to wait for longer than
//! [`WAIT_MOST`] is refused.
//!
//! Of IPv6 the network of 64 bits counts, since whoever has one address of it has them all.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// One refusal less to remember after each such time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// The first pause between two start-ups.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest.
const PAUSE_MOST: Duration = Duration::from_secs(5);
/// What no connection waits longer for.
const WAIT_MOST: Duration = Duration::from_secs(5);
/// Addresses that are remembered; the one with the fewest refusals makes room for another.
pub(crate) const MOST: usize = 256;

/// The addresses that were refused something.
#[derive(Debug)]
pub(crate) struct Suspects {
    allowed: u32,
    known: Vec<Suspect>,
}

/// One address, for the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Suspect {
    /// The address, or the network, as [`network`] has it.
    pub(crate) address: IpAddr,
    /// Accesses that it was refused ever.
    pub(crate) refusals: u64,
    /// Connections of it that waited or were refused.
    pub(crate) slowed: u64,
    /// Refusals that are not forgotten at `as_of`.
    level: u32,
    as_of: Duration,
    /// When the newest of its start-ups may go on.
    last: Duration,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Now,
    /// It goes on at that time.
    At(Duration),
    Never,
}

/// Where refusals are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) place: usize,
    pub(crate) suspect: Suspect,
    /// From now on its connections wait.
    pub(crate) slowed_now: bool,
}

/// The address that counts: an IPv4 address, or the network of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match crate::bring_up::plain(address) {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64)))
        }
        other => other,
    }
}

impl Suspect {
    fn forgive(&mut self, now: Duration) {
        let since = now.saturating_sub(self.as_of);
        let forgiven = (since.as_millis() / FORGIVEN_AFTER.as_millis()) as u32;
        self.as_of += FORGIVEN_AFTER * forgiven;
        self.level = self.level.saturating_sub(forgiven);
    }
}

impl Suspects {
    /// `allowed` refusals of an address cost it nothing; with 0 no number does.
    pub(crate) fn new(allowed: u32) -> Suspects {
        Suspects {
            allowed,
            known: Vec::new(),
        }
    }

    /// An address was refused `count` accesses.
    pub(crate) fn note(&mut self, address: IpAddr, count: u64, now: Duration) -> Noted {
        let place = self.place_of(network(address), now);
        let suspect = &mut self.known[place];
        suspect.forgive(now);
        if suspect.level == 0 {
            suspect.as_of = now;
        }
        let before = suspect.level;
        // Bounded, so that the end of an attack is forgotten in time.
        let most = self.allowed.saturating_mul(2).saturating_add(16);
        suspect.level = before.saturating_add(count.min(1 << 16) as u32).min(most);
        suspect.refusals += count;
        Noted {
            place,
            suspect: *suspect,
            slowed_now: self.allowed > 0 && before <= self.allowed && suspect.level > self.allowed,
        }
    }

    /// Whether a connection from that address may begin its start-up.
    pub(crate) fn admit(&mut self, address: IpAddr, now: Duration) -> (Admission, Option<Noted>) {
        let address = network(address);
        let allowed = self.allowed;
        let Some(place) = self.known.iter().position(|s| s.address == address) else {
            return (Admission::Now, None);
        };
        let suspect = &mut self.known[place];
        suspect.forgive(now);
        if allowed == 0 || suspect.level <= allowed {
            return (Admission::Now, None);
        }
        let doublings = (suspect.level - allowed - 1).min(16);
        let pause = (PAUSE_FIRST * (1 << doublings)).min(PAUSE_MOST);
        let at = suspect.last.max(now) + pause;
        suspect.slowed += 1;
        let noted = Noted {
            place,
            suspect: *suspect,
            slowed_now: false,
        };
        if at > now + WAIT_MOST {
            return (Admission::Never, Some(noted));
        }
        self.known[place].last = at;
        (Admission::At(at), Some(noted))
    }

    fn place_of(&mut self, address: IpAddr, now: Duration) -> usize {
        if let Some(place) = self.known.iter().position(|s| s.address == address) {
            return place;
        }
        let fresh = Suspect {
            address,
            refusals: 0,
            slowed: 0,
            level: 0,
            as_of: now,
            last: Duration::ZERO,
        };
        if self.known.len() < MOST {
            self.known.push(fresh);
            return self.known.len() - 1;
        }
        self.known.iter_mut().for_each(|s| s.forgive(now));
        let least = (0..MOST).min_by_key(|place| self.known[*place].level);
        let place = least.unwrap_or(0);
        self.known[place] = fresh;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const ALLOWED: u32 = 4;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from(0x0A00_0000 + n))
    }

    fn after(refusals: u64) -> Suspects {
        let mut suspects = Suspects::new(ALLOWED);
        for _ in 0..refusals {
            suspects.note(address(1), 1, NOW);
        }
        suspects
    }

    #[test]
    fn a_bug_costs_nothing_and_others_never_pay() {
        let mut suspects = after(u64::from(ALLOWED));
        assert_eq!(suspects.admit(address(1), NOW).0, Admission::Now);
        let noted = suspects.note(address(1), 1, NOW);
        assert!(noted.slowed_now, "{noted:?}");
        assert_eq!(noted.suspect.refusals, 5);
        assert_eq!(suspects.admit(address(2), NOW).0, Admission::Now);
        let slowed = suspects.admit(address(1), NOW).0;
        assert_eq!(slowed, Admission::At(NOW + PAUSE_FIRST));
    }

    #[test]
    fn start_ups_go_on_one_at_a_time() {
        let mut suspects = after(6);
        let pause = 2 * PAUSE_FIRST;
        for n in 1..=50 {
            let admission = suspects.admit(address(1), NOW).0;
            assert_eq!(admission, Admission::At(NOW + pause * n));
        }
        let (admission, noted) = suspects.admit(address(1), NOW);
        assert_eq!(admission, Admission::Never);
        assert_eq!(noted.map(|n| n.suspect.slowed), Some(51));
        // What waited is through: the next one waits for its own pause alone.
        let later = NOW + WAIT_MOST;
        let admission = suspects.admit(address(1), later).0;
        assert_eq!(admission, Admission::At(later + pause));
    }

    #[test]
    fn whoever_goes_on_gets_a_try_in_five_seconds() {
        let mut suspects = Suspects::new(ALLOWED);
        let (mut now, mut tries) = (NOW, 0);
        // It connects again as soon as it was refused, and each connection is a try.
        while now < NOW + Duration::from_secs(3600) {
            now = match suspects.admit(address(1), now).0 {
                Admission::Now => now,
                Admission::At(at) => at,
                Admission::Never => panic!("it waited its turn"),
            };
            suspects.note(address(1), 1, now);
            tries += 1;
        }
        assert!((700..760).contains(&tries), "{tries} in an hour");
    }

    #[test]
    fn refusals_are_forgotten_one_by_one() {
        let mut suspects = after(6);
        let mut at = |seconds| {
            suspects
                .admit(address(1), NOW + Duration::from_secs(seconds))
                .0
        };
        assert!(matches!(at(0), Admission::At(_)));
        assert!(matches!(at(19), Admission::At(_)));
        assert_eq!(at(20), Admission::Now);
        let mut suspects = after(1 << 20);
        let hour = NOW + Duration::from_secs(3600);
        assert_eq!(suspects.admit(address(1), hour).0, Admission::Now);
    }

    #[test]
    fn without_a_limit_they_are_only_counted() {
        let mut suspects = Suspects::new(0);
        for _ in 0..1000 {
            let noted = suspects.note(address(1), 1, NOW);
            assert!(!noted.slowed_now);
        }
        assert_eq!(suspects.admit(address(1), NOW), (Admission::Now, None));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_worst() {
        let mut suspects = after(100);
        for n in 2..5000 {
            let noted = suspects.note(address(n), 1, NOW);
            assert!(noted.place < MOST);
        }
        assert_eq!(suspects.known.len(), MOST);
        assert_ne!(suspects.admit(address(1), NOW).0, Admission::Now);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let mut suspects = Suspects::new(1);
        for host in 1..10u16 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, host);
            suspects.note(IpAddr::V6(address), 1, NOW);
        }
        let same: IpAddr = "2001:db8:0:7:ffff::1".parse().unwrap();
        let other: IpAddr = "2001:db8:0:8::1".parse().unwrap();
        assert_ne!(suspects.admit(same, NOW).0, Admission::Now);
        assert_eq!(suspects.admit(other, NOW).0, Admission::Now);
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(network(mapped), address(1));
    }
}
