//! Octets into a ring and out of the other, and what the connection beside them still has.

use std::io;
use std::sync::atomic::Ordering;

use weft_os::rings::Area;

use super::protocol::{self, End, Lie, FINISHED, GONE, RESET};
use super::shared::Shared;
use super::SameHost;
use crate::carrier::{Carrier, Transfer};

/// Octets that are copied before they are counted: the other end works on one part while this one copies the next.
const CHUNK_OCTETS: usize = 32 * 1024;
/// Bells that one look at the connection takes.
const BELLS_MAX: usize = 64;

const EPIPE: i32 = 32;
const EPROTO: i32 = 71;
const ECONNRESET: i32 = 104;
const EFAULT: i32 = 14;

/// How far this end has come.
#[derive(Debug)]
pub(super) struct State {
    pub(super) end: End,
    /// Octets that went and came by the connection.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// This end sends by its ring.
    pub(super) sends_by_ring: bool,
    /// The other end's octets come by its ring, and nothing of the connection's is left. Both are known above.
    pub(super) reads_ring: bool,
    /// All of the other end's octets that went by the connection are here.
    pub(super) connection_read: bool,
    /// The connection may have bells, or its end.
    pub(super) look: bool,
    pub(super) over: Option<Over>,
    /// Octets were sent to an end that was closed.
    pub(super) unheard: bool,
    pub(super) aborts: bool,
    /// What was sent is to be announced by whoever takes the bell.
    pub(super) bell_due: bool,
}

/// How the connection came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Ended,
    Failed(i32),
}

impl Over {
    fn outcome(self) -> Transfer {
        match self {
            Over::Ended => Transfer::End,
            Over::Failed(errno) => failed(errno),
        }
    }
}

fn failed(errno: i32) -> Transfer {
    Transfer::Failed(io::Error::from_raw_os_error(errno))
}

impl State {
    /// Octets of the other end are still to come by the connection, where they show. Those in its ring are behind them
    /// and cannot be read yet.
    pub(super) fn awaits_connection(&self, shared: &Shared) -> bool {
        let is_behind = |end| self.received < end;
        !self.connection_read && shared.switched_at().is_some_and(is_behind)
    }
}

impl SameHost {
    // --- receiving

    /// Octets of the connection, of which those behind the other end's last one are bells.
    pub(super) fn take_of_connection(
        shared: Option<&Shared>,
        state: &mut State,
        outcome: Transfer,
    ) -> Result<Transfer, Lie> {
        let octets = match outcome {
            Transfer::Octets(octets) => octets,
            _ => 0,
        };
        state.received += octets as u64;
        // It says where its octets end before it sends a bell, so whoever has the bell sees that.
        let Some(end) = shared.and_then(Shared::switched_at) else {
            return Ok(outcome);
        };
        let bells = state.received.saturating_sub(end);
        if bells > octets as u64 {
            return Err(Lie);
        }
        state.received -= bells;
        if state.received < end {
            return Ok(outcome);
        }
        state.connection_read = true;
        state.look = true;
        match outcome {
            Transfer::Octets(octets) if octets as u64 > bells => {
                Ok(Transfer::Octets(octets - bells as usize))
            }
            Transfer::End => {
                state.over = Some(Over::Ended);
                Ok(Transfer::WouldBlock)
            }
            Transfer::Failed(error) => {
                state.over = Some(Over::Failed(error.raw_os_error().unwrap_or(ECONNRESET)));
                Ok(Transfer::WouldBlock)
            }
            _ => Ok(Transfer::WouldBlock),
        }
    }

    /// Takes bells out of the connection, or finds its end.
    pub(super) fn take_bells(&self, state: &mut State) {
        let mut bells = [0; BELLS_MAX];
        state.look = false;
        match self.connection.recv(&mut bells) {
            Transfer::Octets(octets) => state.look = octets == BELLS_MAX,
            Transfer::WouldBlock => {}
            Transfer::End => state.over = Some(Over::Ended),
            Transfer::Failed(error) => {
                let errno = error.raw_os_error().unwrap_or(ECONNRESET);
                state.over = Some(Over::Failed(errno));
            }
        }
    }

    /// What the ring has, at most `most`: `copy` is given where it is, how much was copied before, and how much to
    /// copy.
    #[inline]
    pub(super) fn take_of_ring(
        &self,
        shared: &Shared,
        state: &mut State,
        most: usize,
        mut copy: impl FnMut(Area, u64, (usize, usize)) -> bool,
    ) -> Transfer {
        if state.look && state.over.is_none() {
            self.take_bells(state);
        }
        let (own, other) = (shared.own(), shared.other());
        let area = shared.area(1 - shared.own);
        let mut taken = 0;
        while taken < most {
            let Ok(available) = state.end.available(other) else {
                return failed(EPROTO);
            };
            if available == 0 {
                break;
            }
            let octets = available.min(most - taken).min(CHUNK_OCTETS);
            if !copy(area, state.end.taken(), (taken, octets)) {
                return failed(EFAULT);
            }
            let rings = state.end.release(own, other, octets);
            self.ring(rings);
            taken += octets;
        }
        match taken {
            0 if most > 0 => Self::nothing_left(shared, state),
            _ => Transfer::Octets(taken),
        }
    }

    /// The ring is empty: whether more may come.
    #[cold]
    pub(super) fn nothing_left(shared: &Shared, state: &mut State) -> Transfer {
        let Ok(said) = protocol::said(shared.other()) else {
            return failed(EPROTO);
        };
        let over = state.over;
        if said == 0 && over.is_none() {
            return Transfer::WouldBlock;
        }
        // What it wrote before it said so, or ended, is seen now.
        match state.end.available(shared.other()) {
            Ok(0) => {}
            Ok(_) => {
                state.look = true;
                return Transfer::WouldBlock;
            }
            Err(Lie) => return failed(EPROTO),
        }
        match over {
            _ if said & RESET != 0 => failed(ECONNRESET),
            _ if said & (FINISHED | GONE) != 0 => Transfer::End,
            Some(over) => over.outcome(),
            None => Transfer::WouldBlock,
        }
    }

    pub(super) fn receive(
        &self,
        of_connection: impl FnOnce(&dyn Carrier) -> Transfer,
        of_ring: impl FnOnce(&Self, &Shared, &mut State) -> Transfer,
    ) -> Transfer {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let shared = self.shared.get().map(|shared| &**shared);
        if shared.is_some_and(Shared::is_foreign) {
            return failed(EPIPE);
        }
        if !state.connection_read {
            let outcome = of_connection(&*self.connection);
            match Self::take_of_connection(shared, state, outcome) {
                Ok(Transfer::WouldBlock) if state.connection_read => {}
                Ok(outcome) => return outcome,
                Err(Lie) => return failed(EPROTO),
            }
        }
        match shared.filter(|_| state.reads_ring) {
            Some(shared) => of_ring(self, shared, state),
            None => Transfer::WouldBlock,
        }
    }

    // --- sending

    #[inline]
    pub(super) fn put_in_ring(
        &self,
        shared: &Shared,
        state: &mut State,
        octets: usize,
        mut copy: impl FnMut(Area, u64, (usize, usize)) -> bool,
    ) -> Transfer {
        let (own, other) = (shared.own(), shared.other());
        if shared.is_foreign() || own.state.load(Ordering::Relaxed) & FINISHED != 0 {
            return failed(EPIPE);
        }
        if Self::is_cut(shared, state) {
            return Self::send_to_nobody(shared, state, octets);
        }
        let area = shared.area(shared.own);
        let mut put = 0;
        while put < octets {
            let wanted = (octets - put).min(CHUNK_OCTETS);
            let Ok(room) = state.end.room(other, wanted) else {
                return failed(EPROTO);
            };
            let now = room.min(wanted);
            if now == 0 {
                break;
            }
            if !copy(area, state.end.written(), (put, now)) {
                return failed(EFAULT);
            }
            let rings = state.end.publish(own, other, now);
            put += now;
            // Of what is long the other end copies one part while this one puts the next.
            match octets > CHUNK_OCTETS {
                true => self.ring(rings),
                false => state.bell_due |= rings,
            }
        }
        match put {
            0 if octets > 0 => Transfer::WouldBlock,
            _ => Transfer::Octets(put),
        }
    }

    /// The other end is closed. As with the kernel's TCP, what is sent first is taken all the same, and answered with a
    /// reset.
    #[cold]
    pub(super) fn send_to_nobody(shared: &Shared, state: &mut State, octets: usize) -> Transfer {
        let is_reset = shared.state_of_other() & RESET != 0;
        let has_failed = matches!(state.over, Some(Over::Failed(_)));
        match is_reset || has_failed || std::mem::replace(&mut state.unheard, true) {
            true => failed(ECONNRESET),
            false => Transfer::Octets(octets),
        }
    }

    /// Nobody reads what is written.
    #[inline]
    pub(super) fn is_cut(shared: &Shared, state: &State) -> bool {
        state.over.is_some() || shared.other().state.load(Ordering::Relaxed) & (GONE | RESET) != 0
    }

    /// Sends by the ring, or by the connection as long as there is none.
    #[inline]
    pub(super) fn transfer_out(
        &self,
        by_connection: impl FnOnce(&dyn Carrier) -> Transfer,
        by_ring: impl FnOnce(&Self, &Shared, &mut State) -> Transfer,
    ) -> Transfer {
        let mut state = self.state.borrow_mut();
        if let Some(shared) = self.shared.get().filter(|_| state.sends_by_ring) {
            shared.end_quiet();
            return by_ring(self, shared, &mut state);
        }
        let outcome = by_connection(&*self.connection);
        if let Transfer::Octets(octets) = outcome {
            state.sent += octets as u64;
        }
        outcome
    }
}
