//! Peers that reach for memory they were not given, by address.
//!
//! Over a reliable connection a peer has one try: the access is refused and the connection ends. So whoever wants to
//! find an STag by trying connects again and again, and what slows that down is to make new connections from its
//! address wait. A program with a bug does the same once or a few times: the first refusals of an address
//! ([`Throttle::new`]) cost nothing, and each is forgotten after [`FORGIVEN_AFTER`]. Beyond them a connection of the
//! address needs a *turn* before its Request is answered ([`line`]), and there is one in a pause. The pause begins
//! with [`PAUSE_MIN`], doubles with every further refusal and ends at [`PAUSE_MAX`].
//!
//! What counts as one address is said in [`peer_address`], what bounds those who have many in [`neighbourhoods`].

mod line;
mod neighbourhoods;
mod peer_address;

use std::net::IpAddr;
use std::time::Duration;

use crate::stats::REFUSED_ADDRESSES_MAX;
use line::Line;
pub(crate) use line::{Standing, Ticket};
use neighbourhoods::Neighbourhoods;
pub(crate) use peer_address::{PeerAddress, THIS_MACHINE};

/// One refusal less to remember after each such time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// The first pause between two start-ups.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Addresses that are remembered; the one with the fewest refusals makes room for another.
const ADDRESSES_MAX: usize = REFUSED_ADDRESSES_MAX;

/// The addresses that were refused something. `W` leads to a connection that waits for its turn.
#[derive(Debug)]
pub(crate) struct Throttle<W> {
    allowed: u32,
    known: Vec<(Offender, Line<W>)>,
    crowd: Neighbourhoods<W>,
    next_ticket: u64,
}

/// One address, for the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offender {
    /// The address that stands for all of the peer's, as [`PeerAddress`] has it.
    pub(crate) address: IpAddr,
    /// Accesses that it was refused ever.
    pub(crate) refusals: u64,
    /// Connections of it that needed a turn.
    pub(crate) slowed: u64,
    /// Refusals that are not forgotten at `as_of`.
    level: u32,
    as_of: Duration,
}

/// What becomes of a connection whose Request is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Its address is as good as any.
    Free,
    /// It needs a turn, and is in line for it.
    InLine(Ticket),
    /// It needs a turn, and the line is full.
    Never,
}

/// Where refusals are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) place: usize,
    pub(crate) offender: Offender,
    /// From now on its connections wait.
    pub(crate) slowed_now: bool,
    /// From now on everybody's do: all addresses together were refused too much.
    pub(crate) all_slowed_now: bool,
}

impl Offender {
    fn forgive(&mut self, now: Duration) {
        let since = now.saturating_sub(self.as_of);
        let forgiven = (since.as_millis() / FORGIVEN_AFTER.as_millis()) as u32;
        self.as_of += FORGIVEN_AFTER * forgiven;
        self.level = self.level.saturating_sub(forgiven);
    }

    /// The time between two turns; `None` while its connections need none.
    fn pause(&self, allowed: u32) -> Option<Duration> {
        let beyond = self.level.checked_sub(allowed).filter(|n| *n > 0)?;
        let doublings = (beyond - 1).min(16);
        (allowed > 0).then(|| (PAUSE_MIN * (1 << doublings)).min(PAUSE_MAX))
    }
}

impl<W: Copy> Throttle<W> {
    /// `allowed` refusals of an address cost it nothing; with 0 no number does.
    pub(crate) fn new(allowed: u32) -> Throttle<W> {
        Throttle {
            allowed,
            known: Vec::new(),
            crowd: Neighbourhoods::new(allowed),
            next_ticket: 0,
        }
    }

    /// Whether nobody was refused anything yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// An address was refused `count` accesses.
    pub(crate) fn note(&mut self, address: IpAddr, count: u64, now: Duration) -> Noted {
        let all_slowed_now = self.crowd.note(address, count, now);
        let place = self.place_of(address, now);
        let (offender, line) = &mut self.known[place];
        offender.forgive(now);
        if offender.level == 0 {
            offender.as_of = now;
        }
        let before = offender.level;
        // Bounded, so that the end of an attack is forgotten in time.
        let most = self.allowed.saturating_mul(2).saturating_add(16);
        offender.level = before.saturating_add(count.min(1 << 16) as u32).min(most);
        offender.refusals += count;
        if let Some(pause) = offender.pause(self.allowed) {
            line.shut(now + pause);
        }
        Noted {
            place,
            offender: *offender,
            slowed_now: self.allowed > 0 && before <= self.allowed && offender.level > self.allowed,
            all_slowed_now,
        }
    }

    /// A connection from that address has sent its Request. `who` is woken when its turn comes.
    pub(crate) fn ask(
        &mut self,
        address: IpAddr,
        who: W,
        now: Duration,
    ) -> (Admission, Option<Noted>) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let in_line = |joined| match joined {
            true => Admission::InLine(ticket),
            false => Admission::Never,
        };
        let allowed = self.allowed;
        let known = self.known.iter_mut().enumerate();
        let mut known = known.filter(|(_, (offender, _))| offender.address == address);
        if let Some((place, (offender, line))) = known.next() {
            offender.forgive(now);
            if offender.pause(allowed).is_some() {
                offender.slowed += 1;
                let noted = Noted {
                    place,
                    offender: *offender,
                    slowed_now: false,
                    all_slowed_now: false,
                };
                return (in_line(line.join(ticket, who, now)), Some(noted));
            }
        }
        match self.crowd.line_for(address, now) {
            Some(line) => (in_line(line.join(ticket, who, now)), None),
            None => (Admission::Free, None),
        }
    }

    /// How it stands with one in line, and who else has to be woken for its turn. `lot` is any number.
    pub(crate) fn look(
        &mut self,
        address: IpAddr,
        ticket: Ticket,
        now: Duration,
        lot: u64,
    ) -> (Standing, Option<W>) {
        if let Some((line, pause)) = self.crowd.line_of(address, ticket, now) {
            return line.look_or_go(ticket, now, pause, lot);
        }
        let allowed = self.allowed;
        let known = self.known.iter_mut().find(|(s, _)| s.address == address);
        let Some((offender, line)) = known else {
            return (Standing::Turn, None);
        };
        offender.forgive(now);
        line.look_or_go(ticket, now, offender.pause(allowed), lot)
    }

    /// The connection is over, in line or behind its turn; who has to be woken.
    pub(crate) fn leave(&mut self, address: IpAddr, ticket: Ticket, now: Duration) -> Option<W> {
        if let Some((line, _)) = self.crowd.line_of(address, ticket, now) {
            return line.leave(ticket, now);
        }
        let known = self.known.iter_mut().find(|(s, _)| s.address == address);
        known.and_then(|(_, line)| line.leave(ticket, now))
    }

    fn place_of(&mut self, address: IpAddr, now: Duration) -> usize {
        if let Some(place) = self.known.iter().position(|(s, _)| s.address == address) {
            return place;
        }
        let fresh = Offender {
            address,
            refusals: 0,
            slowed: 0,
            level: 0,
            as_of: now,
        };
        if self.known.len() < ADDRESSES_MAX {
            self.known.push((fresh, Line::default()));
            return self.known.len() - 1;
        }
        self.known.iter_mut().for_each(|(s, _)| s.forgive(now));
        let least = (0..ADDRESSES_MAX).min_by_key(|place| self.known[*place].0.level);
        let place = least.unwrap_or(0);
        self.known[place] = (fresh, Line::default());
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

    fn after(refusals: u64) -> Throttle<u32> {
        let mut throttle = Throttle::new(ALLOWED);
        for _ in 0..refusals {
            throttle.note(address(1), 1, NOW);
        }
        throttle
    }

    fn needs_turn(throttle: &mut Throttle<u32>, address: IpAddr, now: Duration) -> bool {
        throttle.ask(address, 0, now).0 != Admission::Free
    }

    #[test]
    fn a_bug_costs_nothing_and_others_never_pay() {
        let mut throttle = after(u64::from(ALLOWED));
        assert!(!needs_turn(&mut throttle, address(1), NOW));
        let noted = throttle.note(address(1), 1, NOW);
        assert!(noted.slowed_now, "{noted:?}");
        assert_eq!(noted.offender.refusals, 5);
        assert!(!needs_turn(&mut throttle, address(2), NOW));
        let (admission, noted) = throttle.ask(address(1), 0, NOW);
        assert_eq!(noted.map(|n| n.offender.slowed), Some(1));
        let Admission::InLine(ticket) = admission else {
            panic!("{admission:?}");
        };
        let standing = throttle.look(address(1), ticket, NOW, 0).0;
        assert_eq!(standing, Standing::Waits(NOW + PAUSE_MIN));
        let later = NOW + PAUSE_MIN;
        let standing = throttle.look(address(1), ticket, later, 0).0;
        assert_eq!(standing, Standing::Turn);
    }

    #[test]
    fn whoever_goes_on_gets_a_try_in_five_seconds() {
        let mut throttle = Throttle::new(ALLOWED);
        let (mut now, mut tries) = (NOW, 0);
        // It connects again as soon as it was refused, and each connection is a try.
        while now < NOW + Duration::from_secs(3600) {
            if let Admission::InLine(ticket) = throttle.ask(address(1), 0, now).0 {
                while let Standing::Waits(until) = throttle.look(address(1), ticket, now, 0).0 {
                    now = until;
                }
            }
            throttle.note(address(1), 1, now);
            tries += 1;
        }
        assert!((700..760).contains(&tries), "{tries} in an hour");
    }

    #[test]
    fn refusals_are_forgotten_one_by_one() {
        let mut throttle = after(6);
        let mut needs = |seconds| {
            let now = NOW + Duration::from_secs(seconds);
            needs_turn(&mut throttle, address(1), now)
        };
        assert!(needs(0) && needs(19) && !needs(20));
        let mut throttle = after(1 << 20);
        let hour = NOW + Duration::from_secs(3600);
        assert!(!needs_turn(&mut throttle, address(1), hour));
    }

    #[test]
    fn a_refusal_does_not_restart_the_time_of_those_before() {
        let mut throttle = after(u64::from(ALLOWED) + 1);
        throttle.note(address(1), 1, NOW + FORGIVEN_AFTER / 2);
        let forgiven = NOW + FORGIVEN_AFTER * 2;
        let just_before = forgiven - Duration::from_millis(1);
        assert!(needs_turn(&mut throttle, address(1), just_before));
        assert!(!needs_turn(&mut throttle, address(1), forgiven));
    }

    #[test]
    fn a_refusal_behind_a_quiet_time_is_remembered_as_long_as_any() {
        let mut throttle = after(1);
        let again = NOW + FORGIVEN_AFTER * 3 / 2;
        throttle.note(address(1), u64::from(ALLOWED) + 1, again);
        let forgiven = again + FORGIVEN_AFTER;
        let just_before = forgiven - Duration::from_millis(1);
        assert!(needs_turn(&mut throttle, address(1), just_before));
        assert!(!needs_turn(&mut throttle, address(1), forgiven));
    }

    #[test]
    fn without_a_limit_they_are_only_counted() {
        let mut throttle = Throttle::new(0);
        for _ in 0..1000 {
            let noted = throttle.note(address(1), 1, NOW);
            assert!(!noted.slowed_now);
        }
        assert_eq!(throttle.ask(address(1), 0, NOW), (Admission::Free, None));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_worst() {
        let mut throttle = after(100);
        for n in 2..5000 {
            let noted = throttle.note(address(n), 1, NOW);
            assert!(noted.place < ADDRESSES_MAX);
        }
        assert_eq!(throttle.known.len(), ADDRESSES_MAX);
        assert!(needs_turn(&mut throttle, address(1), NOW));
    }

    #[test]
    fn what_a_guess_costs() {
        const HOUR: f64 = 3600.0;
        const DAY: f64 = 24.0 * HOUR;
        const YEAR: f64 = 365.25 * DAY;
        // Until one of so many STags is hit among 2^32, on average.
        let tries = |regions: f64| 2f64.powi(32) / (regions + 1.0);
        let one = 1.0 / PAUSE_MAX.as_secs_f64();
        // Those that are slowed each for itself, and besides them those that share turns.
        let known = ADDRESSES_MAX as f64 * one;
        let neighbourhood = known + f64::from(neighbourhoods::TURNS);
        let all = known + neighbourhoods::PLACES as f64 * one;
        let rows = [
            (one, (YEAR, 0, "years"), (DAY, 0, "days")),
            (neighbourhood, (DAY, 0, "days"), (HOUR, 1, "hours")),
            (all, (DAY, 0, "days"), (HOUR, 1, "hours")),
            (3600.0, (DAY, 1, "days"), (60.0, 0, "minutes")),
        ];
        let document = include_str!("../../../docs/hostile.md");
        for (a_second, single, thousand) in rows {
            let time = |regions, (unit, digits, name): (f64, usize, &str)| {
                let time = tries(regions) / a_second / unit;
                format!("{time:.digits$} {name}")
            };
            let row = format!("| {} | {} |", time(1.0, single), time(1000.0, thousand));
            assert!(document.contains(&row), "docs/hostile.md has no {row}");
        }
    }
}
