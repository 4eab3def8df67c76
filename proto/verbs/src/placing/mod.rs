//! Octets of a stream that arrive in any order, as a TCP of our own hands them over.
//!
//! A queue pair takes its stream in order ([`Qp::receive`]). What arrives behind a hole would have to be kept until the
//! hole is filled, and copied then. A [`Reassembler`] stands before the queue pair: it places the payload of whole
//! FPDUs where it belongs as they come, keeps the rest, and has all of it delivered in order. Completions, faults and
//! their places are those of arrival in order, as nothing is decided ahead of it: what any check does not let pass
//! waits.
//!
//! | part | what it owns |
//! | --- | --- |
//! | `targets` | memory that holds octets of FPDUs whose turn has not come |
//! | `sparing` | nothing; keeps what is placed in order from writing over those |
//! | `waiting` | octets that wait for order |
//! | `counters` | what is counted |
//!
//! Decision 0033 says why.

mod counters;
mod sparing;
mod targets;
mod waiting;

pub use crate::qp::Waits;
pub use counters::PlacingCounters;
pub use weft_iwarp::PlacePolicy;

use alloc::vec::Vec;

use weft_iwarp::ledger::Placed;
use weft_iwarp::{FpduAhead, Ledger};

use crate::host::{Host, Span};
use crate::qp::Qp;
use sparing::Sparing;
use targets::Targets;
use waiting::Waiting;

/// Takes the octets of one stream as they arrive and gives them to a queue pair in order.
///
/// Its memory is bounded by the window that its driver offers: octets that wait take no more than those between
/// [`Reassembler::position`] and the last that arrived, in blocks of 16 kB; what is placed takes an entry of a ledger,
/// with that of its target no more than 4 MB in all ([`weft_iwarp::ledger::LEDGER_FPDUS_MAX`]).
#[derive(Debug)]
pub struct Reassembler {
    policy: PlacePolicy,
    /// Octets that the queue pair is done with.
    position: u64,
    /// Octets behind them that it has seen and needs more for.
    front: Vec<u8>,
    /// How many it needs.
    need: usize,
    waiting: Waiting,
    ledger: Ledger<Span>,
    /// Octets of the stream that the ledger's FPDUs take.
    placed: u64,
    targets: Targets,
    counters: PlacingCounters,
}

impl Reassembler {
    /// For a stream that has come to its first octet of Full Operation.
    pub fn new(policy: PlacePolicy) -> Reassembler {
        Reassembler {
            policy,
            position: 0,
            front: Vec::new(),
            need: 1,
            waiting: Waiting::default(),
            ledger: Ledger::default(),
            placed: 0,
            targets: Targets::default(),
            counters: PlacingCounters::default(),
        }
    }

    /// Octets that the queue pair is done with, counted from the first octet of Full Operation.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Octets that wait here. What was placed is not among them: it takes no buffer.
    pub fn waiting_octets(&self) -> u64 {
        self.front.len() as u64 + self.waiting.octets()
    }

    /// Octets of the stream whose FPDUs are placed and wait for their turn. They take no buffer, so a driver may offer
    /// its peer so much more.
    pub fn placed_octets(&self) -> u64 {
        self.placed
    }

    /// Up to where octets have arrived without a hole and were taken in order, counted from the first octet of Full
    /// Operation.
    pub fn frontier(&self) -> u64 {
        self.position + self.front.len() as u64
    }

    /// Counts since the stream began.
    pub fn counters(&self) -> &PlacingCounters {
        &self.counters
    }

    /// Takes octets that belong at the offset `at` of the stream, counted from the first octet of Full Operation. Each
    /// octet of the stream is given once; the buffer is changed only where markers are taken out.
    ///
    /// After that the driver goes on as after [`Qp::receive`]. When the queue pair has ended, what it is given here is
    /// dropped. While the queue pair is full ([`Qp::is_full`]) what waits here goes on waiting: a driver gives it no
    /// more then, and calls [`Reassembler::resume`] when that is over.
    pub fn arrive(&mut self, at: u64, octets: &mut [u8], qp: &mut Qp, host: &mut impl Host) {
        if at == self.frontier() {
            self.take(octets, qp, host);
            self.go_on(qp, host);
        } else if at > self.frontier() && qp.ending().is_live() {
            self.look_ahead(at, octets, qp, host);
        }
        if !qp.ending().is_live() {
            self.drop_all();
        }
    }

    /// The queue pair takes octets again: goes on with those in order that wait.
    pub fn resume(&mut self, qp: &mut Qp, host: &mut impl Host) {
        self.go_on(qp, host);
        if !qp.ending().is_live() {
            self.drop_all();
        }
    }

    /// Octets in order.
    fn take(&mut self, mut octets: &mut [u8], qp: &mut Qp, host: &mut impl Host) {
        let mut host = Sparing::new(host, &self.targets);
        while !octets.is_empty() {
            let is_staged = !self.front.is_empty();
            if is_staged {
                // No more than it needs, so that most of the octets are read where they are.
                let missing = self.need.saturating_sub(self.front.len()).max(1);
                let (now, later) = octets.split_at_mut(missing.min(octets.len()));
                self.front.extend_from_slice(now);
                octets = later;
                if self.front.len() < self.need {
                    return;
                }
            }
            let given = match is_staged {
                true => &mut self.front[..],
                false => &mut *octets,
            };
            let received = qp.receive(given, &mut host);
            self.position += received.consumed as u64;
            self.need = received.need;
            if is_staged {
                self.front.drain(..received.consumed);
            } else {
                // The rest is less than it needs.
                self.front.extend_from_slice(&octets[received.consumed..]);
                return;
            }
        }
    }

    /// A hole may be filled: goes on with what waits or was placed behind it.
    fn go_on(&mut self, qp: &mut Qp, host: &mut impl Host) {
        while qp.ending().is_live() && !qp.is_full() {
            let frontier = self.frontier();
            if let Some(mut octets) = self.waiting.take(frontier) {
                self.take(&mut octets, qp, host);
            } else if let Some(placed) = self.ledger.take(frontier) {
                self.placed -= placed.envelope.wire_len() as u64;
                self.targets.remove(placed.target);
                self.deliver(&placed, qp, host);
            } else {
                return;
            }
        }
    }

    /// Order has come to an FPDU that was placed.
    fn deliver(&mut self, placed: &Placed<Span>, qp: &mut Qp, host: &mut impl Host) {
        if self.front.is_empty() && qp.is_between_fpdus() {
            self.position += placed.envelope.wire_len() as u64;
            let mut host = Sparing::new(host, &self.targets);
            qp.deliver_ahead(&placed.envelope, placed.target, &mut host);
            return;
        }
        // The FPDU before it reaches into this one, which so was none although it looked like one: its octets are had
        // back from where they were placed.
        self.counters.recalled_fpdus += 1;
        let mut payload = Vec::new();
        if host.read(placed.target, &mut payload).is_err() {
            self.counters.lost_fpdus += 1;
            return qp.lose_placed(host);
        }
        let mut octets = placed
            .envelope
            .around(&payload, self.frontier(), qp.has_markers());
        self.take(&mut octets, qp, host);
    }

    /// Octets behind a hole: places the FPDUs in them that may be, and keeps the rest.
    fn look_ahead(&mut self, at: u64, octets: &[u8], qp: &Qp, host: &mut impl Host) {
        let mut kept = 0;
        let fpdus = qp.fpdus_ahead(at, octets);
        match fpdus.filter(|_| self.policy != PlacePolicy::InOrder) {
            None if self.policy == PlacePolicy::InOrder => self.counters.note(Waits::Policy),
            None => self.counters.note(Waits::Unproven),
            Some(mut fpdus) => {
                while let Some(found) = fpdus.next_fpdu() {
                    let placed = found.map_err(Waits::from).and_then(|fpdu| {
                        self.place(at, &fpdu, fpdus.payload(), qp, host)?;
                        Ok(fpdu.octets)
                    });
                    match placed {
                        Ok(taken) => {
                            self.keep(at + kept as u64, &octets[kept..taken.start]);
                            kept = taken.end;
                        }
                        Err(waits) => self.counters.note(waits),
                    }
                }
            }
        }
        self.keep(at + kept as u64, &octets[kept..]);
    }

    /// Places an FPDU that was found in octets at the offset `at`.
    fn place(
        &mut self,
        at: u64,
        fpdu: &FpduAhead,
        payload: &[u8],
        qp: &Qp,
        host: &mut impl Host,
    ) -> Result<(), Waits> {
        if let Some(unplaced) = fpdu.unplaced(self.policy) {
            return Err(unplaced.into());
        }
        if self.ledger.is_full() {
            return Err(Waits::LedgerFull);
        }
        let target = qp.target_ahead(&fpdu.header, payload.len() as u32, host)?;
        if !self.targets.is_free(target) {
            return Err(Waits::Overlap);
        }
        host.write(target, payload).map_err(|_| Waits::Refused)?;
        self.targets.insert(target);
        let envelope = fpdu.envelope;
        self.placed += envelope.wire_len() as u64;
        self.ledger
            .insert(at + fpdu.octets.start as u64, Placed { envelope, target });
        self.counters.placed_fpdus += 1;
        self.counters.placed_octets += payload.len() as u64;
        Ok(())
    }

    fn keep(&mut self, at: u64, octets: &[u8]) {
        self.counters.kept_octets += octets.len() as u64;
        self.waiting.insert(at, octets);
    }

    /// The queue pair has ended: nothing is delivered any more.
    fn drop_all(&mut self) {
        self.front = Vec::new();
        self.waiting = Waiting::default();
        self.ledger.clear();
        self.placed = 0;
        self.targets = Targets::default();
    }
}
