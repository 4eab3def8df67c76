//! How nobody sleeps over a stream that goes through shared memory: its bell is armed, or whoever polls looks at it.
//! The other end's bell is rung behind the pass (decision 0055).

use std::sync::Weak;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::following::wants_octets;
use super::stream::Stream;
use super::{Inner, Qp};
use crate::carrier::{Bell, Rings};
use crate::engine::Engine;
use crate::progress::{Looked, Member, Served};

/// How often a full ring is looked at whose bell would not show.
const ROOM_LOOKS_EVERY: Duration = Duration::from_millis(1);

impl Stream {
    /// Room in its ring is waited for, and octets of the connection, which are not to be read now, stand before any
    /// bell: the descriptor would show them all the time.
    pub(super) fn waits_beside_octets(&self, reads: bool) -> bool {
        let bells_show = |rings: &dyn Rings| rings.has_read_connection();
        self.shares && self.blocked && !reads && !self.carrier.rings().is_some_and(bells_show)
    }

    /// A thread that polls has a lease of it, and nothing of the other end comes by the connection any more but bells.
    pub(super) fn rings_alone(&self, leased: bool) -> bool {
        let bells_alone = |rings: &dyn Rings| rings.has_read_connection();
        leased && self.carrier.rings().is_some_and(bells_alone)
    }

    /// Octets that were sent before this pass: what came after them the other end may not know of yet.
    #[inline]
    pub(super) fn announced(&self) -> u64 {
        self.counted.octets_out
    }

    /// A timer shows room in a ring, where nothing else does.
    pub(super) fn look_for_room_later(&mut self, engine: &Engine) {
        if self.room_looked_for_at.is_none() {
            let at = engine.now() + ROOM_LOOKS_EVERY;
            self.room_looked_for_at = Some(at);
            engine.progress.add_timer(at, self.token);
        }
    }
}

impl Qp {
    /// A pass is over: the next octets, or room, are looked for by whoever polls, or ring the bell.
    pub(super) fn follow_bell(
        &self,
        stream: &mut Stream,
        octets: bool,
        leased: bool,
        engine: &Engine,
    ) {
        let Some(rings) = stream.carrier.rings() else {
            return;
        };
        if leased && !stream.blocked {
            // The thread that has the lease looks. Who rang would wake another one, which would wait for the lock.
            rings.disarm();
            return;
        }
        if stream.listed || rings.is_armed(octets, stream.blocked) {
            return;
        }
        let me: Weak<dyn Member> = self.me.clone();
        stream.listed = engine.progress.look_at(&me, rings.quiet());
        if !stream.listed && !rings.arm(octets, stream.blocked) {
            engine.progress.serve_soon(stream.token);
        }
    }

    /// Somebody is about to sleep. Whether there is something already.
    pub(super) fn arm_bell(&self) -> bool {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(stream) = inner.stream.as_mut().filter(|stream| stream.shares) else {
            return false;
        };
        stream.listed = false;
        let octets = wants_octets(&inner.machine, &inner.leased, stream);
        let blocked = stream.blocked;
        let rings = stream.carrier.rings();
        rings.is_some_and(|rings| !rings.arm(octets, blocked))
    }

    /// Serves what has come without ringing.
    pub(super) fn look_at_ring(&self) -> Looked {
        let Some(guard) = self.inner.try_lock() else {
            // Whoever has the lock serves it.
            return Looked::Nothing;
        };
        let Some(stream) = guard.stream.as_ref().filter(|stream| stream.listed) else {
            return Looked::Elsewhere;
        };
        let octets = wants_octets(&guard.machine, &guard.leased, stream);
        let rings = stream.carrier.rings();
        let has_arrived = |rings: &dyn Rings| rings.has_arrived(octets, stream.blocked);
        if !rings.is_some_and(has_arrived) && !self.is_answer_late(&guard) {
            let waits_for_octets_alone = !stream.blocked && !guard.answers.are_bounded();
            if let Some(rings) = rings.filter(|_| waits_for_octets_alone) {
                rings.note_quiet();
            }
            return Looked::Nothing;
        }
        Looked::Served(match self.serve_locked(guard, false) {
            true => Served::Active,
            false => Served::Quiet,
        })
    }
}

/// Lets go of the queue pair, and rings the other end's bell if it is armed (decision 0055).
pub(super) fn ring_without_lock(guard: MutexGuard<'_, Inner>) {
    let bell = bell_of_other(&guard);
    drop(guard);
    if let Some(bell) = bell {
        bell.ring();
    }
}

/// Rings the other end's bell if it is armed, under the lock.
pub(super) fn ring(inner: &Inner) {
    if let Some(bell) = bell_of_other(inner) {
        bell.ring();
    }
}

fn bell_of_other(inner: &Inner) -> Option<Bell> {
    let stream = inner.stream.as_ref().filter(|stream| stream.shares)?;
    stream.carrier.rings()?.take_bell()
}
