//! Probes for a responder that overlooks the first FPDU (decision 0020).
//!
//! Linux siw sends its MPA Reply before it installs the callback that receives FPDUs. One that arrives in between
//! lies in the socket until the next octet comes, and a peer that waits for the answer sends none. So an initiator
//! that has sent and has heard nothing sends an empty RDMA Write now and then, a few times.

use core::time::Duration;

use super::timers::Timer;
use super::Qp;
use crate::host::Host;

/// Pause before the first probe. siw's gap is well below a millisecond, unless its machine is busy.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// Each pause is so many times the one before.
const PAUSE_GROWTH: u32 = 4;
/// Probes of a stream: their pauses go from 5 ms to 5 s. A peer that is silent for longer has a reason of its own.
const PROBES_MAX: u32 = 6;

/// The probes that a stream may still send.
#[derive(Debug)]
pub(super) struct Probes {
    left: u32,
    pause: Duration,
}

impl Probes {
    pub(super) fn new() -> Probes {
        Probes {
            left: PROBES_MAX,
            pause: PAUSE_FIRST,
        }
    }

    /// The pause before the next one, if there is one.
    fn take(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let pause = self.pause;
        self.pause *= PAUSE_GROWTH;
        Some(pause)
    }
}

impl Qp {
    /// Octets came: the peer is not silent, and needs no probe.
    #[inline]
    pub(super) fn note_heard(&mut self) {
        if self.probes.take().is_some() {
            self.timers.cancel(Timer::Probe);
        }
    }

    /// Octets left: a peer that keeps silent from now on is probed.
    #[inline]
    pub(super) fn note_spoken(&mut self, host: &impl Host) {
        if self.probes.is_some() && !self.timers.is_set(Timer::Probe) {
            if let Some(pause) = self.probes.as_mut().and_then(Probes::take) {
                self.timers.set(Timer::Probe, host.now() + pause);
            }
        }
    }

    /// An empty RDMA Write between messages. It places nothing: STag and TO of an empty tagged message are not checked
    /// (RFC 5041 section 5.2). The next pause begins when it has left.
    pub(super) fn probe_if_silent(&mut self) {
        if self.probes.is_some() && self.ending.is_live() {
            self.requester.queue_probe();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut probes = Probes::new();
        let pauses = core::iter::from_fn(|| probes.take());
        let ms: alloc::vec::Vec<u128> = pauses.map(|pause| pause.as_millis()).collect();
        assert_eq!(ms, [5, 20, 80, 320, 1280, 5120]);
    }
}
