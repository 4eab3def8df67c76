//! The process's count of what peers were refused, and what follows from it for their connections.
//!
//! The rules are in [`Throttle`]; here they meet the clock, the statistics and the log.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::progress::Token;
use crate::stats::{Refused, Stats, Total};
use crate::throttle::{Admission, Noted, PeerAddress, Standing, Throttle, Ticket, THIS_MACHINE};

/// Peers that reached for what they were not given.
#[derive(Debug)]
pub(crate) struct Refusals {
    throttle: Mutex<Throttle<Token>>,
    whom: Mutex<PeerAddress>,
    stats: Arc<Stats>,
    clock: Clock,
}

impl Refusals {
    /// `allowed` refusals of an address cost it nothing; with 0 no number does.
    pub(crate) fn new(allowed: u32, stats: Arc<Stats>, clock: Clock) -> Refusals {
        Refusals {
            throttle: Mutex::new(Throttle::new(allowed)),
            whom: Mutex::default(),
            stats,
            clock,
        }
    }

    /// The address that stands for all that a peer has: what bounds a peer by its address counts these.
    pub(crate) fn whom(&self, peer: IpAddr) -> IpAddr {
        self.whom.lock().of(peer, self.clock.now())
    }

    /// A peer reached for memory that it was not given, so many times.
    #[cold]
    pub(crate) fn note_accesses(&self, peer: IpAddr, count: u64) {
        self.stats.add(Total::RefusedAccesses, count);
        self.note(peer, count);
    }

    /// A peer tried to connect to a queue pair that waits for somebody else, or for nobody.
    #[cold]
    pub(crate) fn note_wrong_bring_up(&self, peer: IpAddr) {
        self.stats.add(Total::WrongBringUps, 1);
        self.note(peer, 1);
    }

    fn note(&self, peer: IpAddr, count: u64) {
        let peer = self.whom(peer);
        let noted = self.throttle.lock().note(peer, count, self.clock.now());
        self.publish(&noted);
        for warning in warnings(&noted) {
            crate::warn_of_peer!("{warning}");
        }
    }

    /// A connection from that address has sent its Request; `token` is its member's.
    pub(crate) fn ask_for_turn(&self, peer: IpAddr, token: Token) -> Admission {
        // Whose address it is takes longer to find out than that nobody is an offender.
        if self.throttle.lock().is_empty() {
            return Admission::Free;
        }
        let peer = self.whom(peer);
        let (admission, noted) = self.throttle.lock().ask(peer, token, self.clock.now());
        if admission != Admission::Free {
            self.stats.add(Total::Slowed, 1);
        }
        if let Some(noted) = noted {
            self.publish(&noted);
        }
        admission
    }

    /// How it stands with a connection that waits for its turn, and who else has one now and has to be woken.
    pub(crate) fn look_at_turn(&self, peer: IpAddr, ticket: Ticket) -> (Standing, Option<Token>) {
        let lot = weft_os::random_u64();
        let (peer, now) = (self.whom(peer), self.clock.now());
        self.throttle.lock().look(peer, ticket, now, lot)
    }

    /// A connection in line, or behind its turn, is over; who has a turn now and has to be woken.
    pub(crate) fn leave_turn(&self, peer: IpAddr, ticket: Ticket) -> Option<Token> {
        let peer = self.whom(peer);
        self.throttle.lock().leave(peer, ticket, self.clock.now())
    }

    fn publish(&self, noted: &Noted) {
        let refused = Refused {
            address: noted.offender.address,
            accesses: noted.offender.refusals,
            slowed: noted.offender.slowed,
        };
        self.stats.publish_refused(noted.place, &refused);
    }
}

/// What the log says of a refusal: that an address is slowed from now on, and that all addresses are.
fn warnings(noted: &Noted) -> Vec<String> {
    let mut warnings = Vec::new();
    if noted.slowed_now {
        let whose = match noted.offender.address {
            THIS_MACHINE => "a program on this machine".to_owned(),
            other => other.to_string(),
        };
        warnings.push(format!(
            "{whose} reached for memory or a queue pair that it was not given {} times: new connections from there \
             wait from now on (setting refused-access-limit)",
            noted.offender.refusals
        ));
    }
    if noted.all_slowed_now {
        warnings.push(
            "many addresses reach for memory they were not given: new connections take turns from now on, \
             by the network they come from (setting refused-access-limit)"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: std::time::Duration = std::time::Duration::from_secs(1000);

    fn noted(address: IpAddr) -> Noted {
        Throttle::<u32>::new(4).note(address, 1, NOW)
    }

    #[test]
    fn a_warning_is_said_when_connections_begin_to_wait_and_only_then() {
        let whose = "192.0.2.7".parse().unwrap();
        assert_eq!(warnings(&noted(whose)), Vec::<String>::new());
        let slowed = |address| Noted {
            slowed_now: true,
            ..noted(address)
        };
        let said = warnings(&slowed(whose));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("192.0.2.7 reached for"), "{said:?}");
        let said = warnings(&slowed(THIS_MACHINE));
        assert!(said[0].starts_with("a program on this machine"), "{said:?}");
        let both = warnings(&Noted {
            all_slowed_now: true,
            ..slowed(whose)
        });
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[1].starts_with("many addresses"), "{both:?}");
    }
}
