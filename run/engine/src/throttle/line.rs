//! Who goes next of an address that has one turn in a pause.
//!
//! A turn is what a guess takes, so a connection that says nothing needs none: whoever has sent its Request is in line.
//! When a turn is due one of those in line has it, by lot: the first to come would always be the one who connects most.
//! A turn whose connection ends without a refused access was no guess and is given back at once, so that honest
//! connections, one after another, wait for nobody. After a refusal nobody has a turn for a pause.

use std::time::Duration;

/// What no connection waits longer for: start-up timeouts of initiators are above it (Weft's and siw's are 10 s).
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Connections of one address that may be in line; each holds a descriptor.
const IN_LINE_MAX: usize = 16;

/// Names a connection that needs a turn, or has had one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(pub(super) u64);

/// How it stands with one that needs a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It has it.
    Turn,
    /// It should look again at that time, or when it is woken.
    Waits(Duration),
    /// It has waited for too long, and is not in line any more.
    Over,
}

#[derive(Debug)]
struct Waiter<W> {
    ticket: Ticket,
    who: W,
    since: Duration,
}

/// The connections of one address that need a turn.
#[derive(Debug)]
pub(super) struct Line<W> {
    waiting: Vec<Waiter<W>>,
    /// The one that the lot fell on and that has not seen it yet.
    drawn: Option<Ticket>,
    /// The one that had the newest turn, if that is given back should it end well.
    holder: Option<Ticket>,
    /// When the next turn is due.
    next: Duration,
}

impl<W> Default for Line<W> {
    fn default() -> Line<W> {
        Line {
            waiting: Vec::new(),
            drawn: None,
            holder: None,
            next: Duration::ZERO,
        }
    }
}

impl<W: Copy> Line<W> {
    /// An access was refused: no turn before that time.
    pub(super) fn shut(&mut self, until: Duration) {
        self.next = self.next.max(until);
        self.holder = None;
    }

    /// One more; false where the line is full.
    pub(super) fn join(&mut self, ticket: Ticket, who: W, now: Duration) -> bool {
        let room = self.waiting.len() < IN_LINE_MAX;
        if room {
            self.waiting.push(Waiter {
                ticket,
                who,
                since: now,
            });
        }
        room
    }

    /// Draws if a turn is due, and says how it stands with that one. Gives who else was drawn.
    pub(super) fn look(
        &mut self,
        ticket: Ticket,
        now: Duration,
        pause: Duration,
        lot: u64,
    ) -> (Standing, Option<W>) {
        let Some(place) = self.waiting.iter().position(|w| w.ticket == ticket) else {
            // The address was forgotten meanwhile, or forgiven.
            return (Standing::Turn, None);
        };
        if self.drawn.is_none() && self.next <= now {
            let drawn = &self.waiting[(lot % self.waiting.len() as u64) as usize];
            self.drawn = Some(drawn.ticket);
            self.next = now + pause;
        }
        if self.drawn == Some(ticket) {
            self.drawn = None;
            self.holder = Some(ticket);
            self.waiting.remove(place);
            return (Standing::Turn, None);
        }
        let drawn = self.waiting.iter().find(|w| Some(w.ticket) == self.drawn);
        let wake = drawn.map(|w| w.who);
        let over = self.waiting[place].since + WAIT_MAX;
        if over <= now {
            self.waiting.remove(place);
            return (Standing::Over, wake);
        }
        (Standing::Waits(self.next.min(over)), wake)
    }

    /// The same where turns may not be needed any more: then it goes on.
    pub(super) fn look_or_go(
        &mut self,
        ticket: Ticket,
        now: Duration,
        pause: Option<Duration>,
        lot: u64,
    ) -> (Standing, Option<W>) {
        if let Some(pause) = pause {
            return self.look(ticket, now, pause, lot);
        }
        self.leave(ticket, now);
        (Standing::Turn, None)
    }

    /// Whether that connection waits here, or has had its turn here last.
    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.holder == Some(ticket) || self.waiting.iter().any(|w| w.ticket == ticket)
    }

    /// It is over with that connection. Gives who should look, if its turn goes to another.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Duration) -> Option<W> {
        self.waiting.retain(|w| w.ticket != ticket);
        let unused = self.drawn == Some(ticket);
        if !unused && self.holder != Some(ticket) {
            return None;
        }
        self.drawn = self.drawn.filter(|drawn| *drawn != ticket);
        self.holder = self.holder.filter(|holder| *holder != ticket);
        self.next = self.next.min(now);
        self.waiting.first().map(|w| w.who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const PAUSE: Duration = Duration::from_secs(5);

    fn line(of: u64) -> Line<u64> {
        let mut line = Line::default();
        line.shut(NOW + PAUSE);
        for n in 0..of {
            assert!(line.join(Ticket(n), n, NOW));
        }
        line
    }

    #[test]
    fn one_of_those_in_line_has_the_turn_by_lot() {
        for lot in 0..3 {
            let mut line = line(3);
            let standing = line.look(Ticket(0), NOW, PAUSE, lot);
            assert_eq!(standing, (Standing::Waits(NOW + PAUSE), None));
            let due = NOW + PAUSE;
            let (first, wake) = line.look(Ticket(0), due, PAUSE, lot);
            match lot {
                0 => assert_eq!((first, wake), (Standing::Turn, None)),
                _ => assert_eq!(wake, Some(lot), "{first:?}"),
            }
            // Whatever lot the next ones bring: it is drawn once.
            let turns = (1..3).filter(|n| line.look(Ticket(*n), due, PAUSE, 9).0 == Standing::Turn);
            assert_eq!(turns.count(), usize::from(lot > 0));
        }
    }

    #[test]
    fn a_turn_that_ends_well_is_given_back() {
        let mut line = line(3);
        let due = NOW + PAUSE;
        assert_eq!(line.look(Ticket(0), due, PAUSE, 0).0, Standing::Turn);
        let waits = Standing::Waits(due + PAUSE - Duration::from_secs(2));
        assert_eq!(line.look(Ticket(1), due, PAUSE, 0).0, waits, "its patience");
        assert_eq!(line.leave(Ticket(0), due), Some(1));
        assert!(!line.has(Ticket(0)), "it has gone");
        assert_eq!(line.look(Ticket(1), due, PAUSE, 0).0, Standing::Turn);
        // One that is older than the newest turn gives nothing back: it has been paid for.
        let later = due + PAUSE;
        assert!(line.join(Ticket(3), 3, later));
        assert!(line.join(Ticket(4), 4, later));
        assert_eq!(line.look(Ticket(3), later, PAUSE, 1).0, Standing::Turn);
        assert_eq!(line.leave(Ticket(1), later), None);
    }

    #[test]
    fn a_guess_gives_nothing_back() {
        let mut line = line(2);
        let due = NOW + PAUSE;
        assert_eq!(line.look(Ticket(0), due, PAUSE, 0).0, Standing::Turn);
        line.shut(due + PAUSE);
        assert_eq!(line.leave(Ticket(0), due), None);
        let standing = line.look(Ticket(1), due, PAUSE, 0).0;
        assert!(matches!(standing, Standing::Waits(_)), "{standing:?}");
    }

    #[test]
    fn who_was_drawn_and_went_leaves_the_turn_to_another() {
        let mut line = line(2);
        let due = NOW + PAUSE;
        assert_eq!(line.look(Ticket(1), due, PAUSE, 0).1, Some(0));
        assert_eq!(line.leave(Ticket(0), due), Some(1));
        assert_eq!(line.look(Ticket(1), due, PAUSE, 0).0, Standing::Turn);
    }

    #[test]
    fn who_goes_takes_no_turn_with_it_but_its_own() {
        let pause = Duration::from_secs(1);
        let next = NOW + PAUSE + pause;
        // The first has had its turn, and the lot fell on the third.
        let turns = || {
            let mut line = line(3);
            let first = line.look(Ticket(0), NOW + PAUSE, pause, 0).0;
            assert_eq!(first, Standing::Turn);
            assert_eq!(line.look(Ticket(1), next, pause, 1).1, Some(2));
            line
        };
        let mut without_first = turns();
        without_first.leave(Ticket(0), next);
        let third = without_first.look(Ticket(2), next, pause, 0).0;
        assert_eq!(third, Standing::Turn, "it was drawn");
        let mut without_third = turns();
        without_third.leave(Ticket(2), next);
        assert!(without_third.has(Ticket(0)), "its turn may come back");
    }

    #[test]
    fn the_line_is_bounded_and_nobody_waits_for_ever() {
        let mut line = line(IN_LINE_MAX as u64);
        assert!(!line.join(Ticket(99), 99, NOW));
        let over = NOW + WAIT_MAX;
        line.shut(over + PAUSE);
        assert_eq!(line.look(Ticket(3), over, PAUSE, 0).0, Standing::Over);
        assert!(line.join(Ticket(99), 99, over), "its place is free");
    }
}
