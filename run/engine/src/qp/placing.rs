//! A stream whose octets come in any order: each goes to its memory as it comes, where its carrier hands it over so
//! (decision 0038).

use weft_os::net::Transfer;
use weft_verbs::placing::{PlacePolicy, Reassembler};
use weft_verbs::qp::Qp as QpMachine;

use super::stream::StreamEnd;
use crate::carrier::{Arrived, Carrier, Done};
use crate::host::EngineHost;
use crate::settings::Place;

/// Octets that one call takes at most before it lets others have their turn.
const RECEIVE_BUDGET_OCTETS: usize = 1024 * 1024;
/// So little came that there is no more for now, and the carrier need not hear at once that it was taken.
const LITTLE_OCTETS: usize = 16 * 1024;

/// Takes what a carrier hands over.
#[derive(Debug)]
pub(super) struct Placing {
    reassembler: Reassembler,
    /// What the carrier handed over and the queue pair has not seen.
    arrived: Arrived,
    /// Offset in the carrier's stream of the first octet of Full Operation.
    base: u64,
}

/// Which FPDUs are placed ahead of order; none: the carrier's octets are taken in order.
pub(super) fn policy(place: Place) -> Option<PlacePolicy> {
    match place {
        Place::InOrder => None,
        Place::Safe => Some(PlacePolicy::Safe),
        Place::Eager => Some(PlacePolicy::Eager),
    }
}

impl Placing {
    /// Takes pieces from now on, where the carrier has some. `leftover` is what of Full Operation was received before.
    pub(super) fn begin(
        carrier: &dyn Carrier,
        policy: PlacePolicy,
        leftover: &[u8],
    ) -> Option<Placing> {
        let next = carrier.pieces()?.begin().ok()?;
        let base = next.checked_sub(leftover.len() as u64)?;
        let mut arrived = Arrived::default();
        arrived.push(base, leftover);
        Some(Placing {
            reassembler: Reassembler::new(policy),
            arrived,
            base,
        })
    }

    /// Whether octets wait that the carrier does not know of any more.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Octets that were placed ahead of order so far, that had to be kept, and that are kept now.
    pub(super) fn placed_and_kept(&self) -> [u64; 3] {
        let counters = self.reassembler.counters();
        [
            counters.placed_octets,
            counters.kept_octets,
            self.reassembler.waiting_octets(),
        ]
    }

    /// Takes pieces until there are none, the queue pair takes no more, or the stream ends. Gives how many octets came.
    pub(super) fn receive(
        &mut self,
        carrier: &dyn Carrier,
        qp: &mut QpMachine,
        host: &mut EngineHost<'_>,
    ) -> (usize, Option<StreamEnd>) {
        let mut received = 0;
        self.reassembler.resume(qp, host);
        loop {
            self.place(qp, host);
            if qp.is_full() || received >= RECEIVE_BUDGET_OCTETS {
                return (received, None);
            }
            let done = self.done(qp);
            let Some(pieces) = carrier.pieces() else {
                return (received, Some(StreamEnd::Broken));
            };
            match pieces.take(done, &mut self.arrived) {
                Transfer::Octets(octets) => {
                    received += octets;
                    if octets < LITTLE_OCTETS {
                        self.place(qp, host);
                        return (received, None);
                    }
                }
                Transfer::WouldBlock => return (received, None),
                Transfer::End => return (received, Some(StreamEnd::Finished)),
                Transfer::Failed(_) => return (received, Some(StreamEnd::Broken)),
            }
        }
    }

    /// Gives the queue pair what arrived, as long as it takes it.
    fn place(&mut self, qp: &mut QpMachine, host: &mut EngineHost<'_>) {
        while !qp.is_full() {
            let frontier = self.base + self.reassembler.frontier();
            let Some((at, octets)) = self.arrived.next(frontier) else {
                return;
            };
            self.reassembler.arrive(at - self.base, octets, qp, host);
        }
    }

    /// How far it has come. A queue pair that has ended drops all that comes.
    fn done(&self, qp: &QpMachine) -> Done {
        match qp.ending().is_live() {
            true => Done {
                position: self.base + self.reassembler.frontier(),
                placed: self.reassembler.placed_octets(),
            },
            false => Done {
                position: u64::MAX,
                placed: 0,
            },
        }
    }
}
