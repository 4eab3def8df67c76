//! What follows a stream at the end of each pass: the epoll set, the bell, the timers and the statistics.

use weft_os::poll::Interest;
use weft_verbs::qp::Qp as QpMachine;

use super::lease::{follow_network, Leased};
use super::stream::Stream;
use super::{Inner, Qp};
use crate::engine::Engine;
use crate::stats::{Counted, Published};

/// Whether octets are waited for.
pub(super) fn wants_octets(machine: &QpMachine, leased: &Leased, stream: &Stream) -> bool {
    !machine.is_full() && !machine.pauses() && !leased.is_leased && stream.over.is_none()
}

impl Qp {
    /// Keeps the epoll set, the timers and the statistics in step with the stream.
    pub(super) fn follow_stream(&self, inner: &mut Inner, engine: &Engine) {
        let Some(stream) = &mut inner.stream else {
            return;
        };
        if !inner.machine.awaits_acknowledgement() {
            inner.leased.note_acknowledged();
        }
        follow_network(&mut inner.leased, &*stream.carrier, engine);
        let reads = wants_octets(&inner.machine, &inner.leased, stream);
        let leased = inner.leased.is_leased;
        let interest = match stream.shares {
            false => Interest::of(reads, stream.blocked),
            true if stream.waits_beside_octets(reads) => {
                stream.look_for_room_later(engine);
                Interest::End
            }
            // Room shows as octets do, by the bell. What is leased rings none, so that nothing needs to be changed.
            true => Interest::of(reads || stream.blocked || stream.rings_alone(leased), false),
        };
        if interest != stream.interest {
            stream.interest = interest;
            let _ = engine
                .progress
                .change_source(&*stream.carrier, stream.token, interest);
        }
        if stream.shares {
            self.follow_bell(stream, reads, leased, engine);
        }
        let counters = inner.machine.counters();
        let counted = Counted {
            octets_in: stream.octets_in,
            octets_out: stream.octets_out,
            sends: counters.sends_completed,
            recvs: counters.recvs_completed,
            errors: counters.errors,
            refused_accesses: counters.refused_accesses,
            mulpdu: inner.machine.mulpdu().unwrap_or(0) as u32,
            rings: stream.shares,
        };
        if stream.counted != counted || stream.places_ahead() {
            let [placed_ahead, copied, buffered] = stream.placed_and_kept();
            let now = Published {
                counted,
                segments_in: counters.segments_in,
                segments_out: counters.segments_out,
                placed_ahead,
                copied,
                buffered,
            };
            engine.stats.publish(stream.slot, &stream.counted, &now);
            stream.counted = counted;
        }
        Self::follow_deadline(inner, engine);
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
