//! Probes for a responder that overlooks the first FPDU (decision 0020).
//!
//! Linux siw sends its MPA Reply before it installs the callback that receives FPDUs. One that arrives in between
//! lies in the socket until the next octet comes, and a peer that waits for the answer sends none. So an initiator
//! that has sent and has heard nothing sends an empty RDMA Write now and then, a few times.

use core::time::Duration;

use super::timers::{Timer, Timers};

/// Pause before the first probe. siw's gap is well below a millisecond, unless its machine is busy.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// Each pause is so many times the one before.
const PAUSE_GROWTH: u32 = 4;
/// Probes of a stream: their pauses go from 5 ms to 5 s. A peer that is silent for longer has a reason of its own.
const PROBES_MAX: u32 = 6;

/// The probes of a stream's peer; none where the peer has been heard, or speaks first.
#[derive(Debug, Default)]
pub(super) struct Probes(Option<Pauses>);

/// The pauses before the probes that may still be sent.
#[derive(Debug)]
struct Pauses {
    left: u32,
    next: Duration,
}

impl Pauses {
    fn take(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let pause = self.next;
        self.next *= PAUSE_GROWTH;
        Some(pause)
    }
}

impl Probes {
    /// Of an initiator, which speaks first.
    pub(super) fn of_initiator() -> Probes {
        Probes(Some(Pauses {
            left: PROBES_MAX,
            next: PAUSE_FIRST,
        }))
    }

    /// Whether the peer has not been heard.
    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Octets came: the peer is not silent, and needs no probe.
    #[inline]
    pub(super) fn note_heard(&mut self, timers: &mut Timers) {
        if self.0.take().is_some() {
            timers.cancel(Timer::Probe);
        }
    }

    /// Octets left: a peer that keeps silent from now on is probed.
    #[inline]
    pub(super) fn note_spoken(&mut self, now: impl FnOnce() -> Duration, timers: &mut Timers) {
        if self.0.is_some() && !timers.is_set(Timer::Probe) {
            if let Some(pause) = self.0.as_mut().and_then(Pauses::take) {
                timers.set(Timer::Probe, now() + pause);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What leaves at each deadline; the pauses before them in milliseconds.
    fn probed(probes: &mut Probes, timers: &mut Timers) -> alloc::vec::Vec<u128> {
        let mut now = 7 * MS;
        let pause = || {
            probes.note_spoken(|| now, timers);
            let at = timers.next()?;
            let pause = at - now;
            now = at;
            timers.take_due(at).map(|_| pause.as_millis())
        };
        core::iter::from_fn(pause).collect()
    }

    #[test]
    fn pauses_grow_and_end() {
        let (mut probes, mut timers) = (Probes::of_initiator(), Timers::default());
        let pauses = probed(&mut probes, &mut timers);
        assert_eq!(pauses, [5, 20, 80, 320, 1280, 5120]);
        assert!(probes.are_wanted(), "the peer may still be heard");
    }

    #[test]
    fn more_octets_do_not_put_the_probe_off() {
        let (mut probes, mut timers) = (Probes::of_initiator(), Timers::default());
        probes.note_spoken(|| MS, &mut timers);
        probes.note_spoken(|| 3 * MS, &mut timers);
        assert_eq!(timers.next(), Some(6 * MS));
    }

    #[test]
    fn whoever_was_heard_or_speaks_first_is_not_probed() {
        let (mut probes, mut timers) = (Probes::of_initiator(), Timers::default());
        probes.note_spoken(|| MS, &mut timers);
        probes.note_heard(&mut timers);
        assert_eq!(timers.next(), None);
        assert!(!probes.are_wanted() && probed(&mut probes, &mut timers).is_empty());
        assert!(probed(&mut Probes::default(), &mut timers).is_empty());
    }
}
