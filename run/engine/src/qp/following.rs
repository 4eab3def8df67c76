//! What follows a stream at the end of each pass: the epoll set, the bell, the timers and the statistics.

use std::time::Duration;

use weft_os::poll::Interest;
use weft_verbs::qp::Qp as QpMachine;

use super::lease::Leased;
use super::stream::Stream;
use super::{Inner, Qp};
use crate::engine::Engine;
use crate::stats::Published;

/// How often a full ring is looked at whose bell would not show.
const ROOM_LOOKS_EVERY: Duration = Duration::from_millis(1);

/// Whether octets are waited for.
pub(super) fn wants_octets(machine: &QpMachine, leased: &Leased, stream: &Stream) -> bool {
    !machine.is_full() && !leased.is_leased && stream.over.is_none()
}

impl Qp {
    /// Keeps the epoll set, the timers and the statistics in step with the stream.
    pub(super) fn follow_stream(&self, inner: &mut Inner, engine: &Engine) {
        let Some(stream) = &mut inner.stream else {
            return;
        };
        inner.leased.is_leased &= inner.machine.awaits_acknowledgement();
        let reads = wants_octets(&inner.machine, &inner.leased, stream);
        let interest = match stream.shares {
            false => Interest::of(reads, stream.blocked),
            true if stream.waits_beside_octets(reads) => {
                Self::look_for_room_later(stream, engine);
                Interest::End
            }
            // Room shows as octets do, by the bell.
            true => Interest::of(reads || stream.blocked, false),
        };
        if interest != stream.interest {
            stream.interest = interest;
            let _ = engine
                .progress
                .change_source(&*stream.carrier, stream.token, interest);
        }
        if stream.shares {
            self.follow_bell(stream, reads, engine);
        }
        let counters = inner.machine.counters();
        let now = Published {
            octets_in: stream.octets_in,
            octets_out: stream.octets_out,
            sends: counters.sends_completed,
            recvs: counters.recvs_completed,
            segments_in: counters.segments_in,
            segments_out: counters.segments_out,
            errors: counters.errors,
            mulpdu: inner.machine.mulpdu().unwrap_or(0) as u64,
            refused_accesses: counters.refused_accesses,
            rings: u64::from(stream.shares),
        };
        engine.stats.publish(stream.slot, &stream.published, &now);
        stream.published = now;
        Self::follow_deadline(inner, engine);
    }

    /// A timer shows room in a ring, where nothing else does.
    fn look_for_room_later(stream: &mut Stream, engine: &Engine) {
        if stream.room_looked_for_at.is_none() {
            let at = engine.now() + ROOM_LOOKS_EVERY;
            stream.room_looked_for_at = Some(at);
            engine.progress.add_timer(at, stream.token);
        }
    }

    /// Sees to it that a timer is set for the machine's next deadline.
    #[inline]
    pub(super) fn follow_deadline(inner: &mut Inner, engine: &Engine) {
        let (Some(stream), Some(at)) = (&inner.stream, inner.machine.deadline()) else {
            return;
        };
        if inner.armed.is_none_or(|armed| at < armed) {
            inner.armed = Some(at);
            engine.progress.add_timer(at, stream.token);
        }
    }
}
