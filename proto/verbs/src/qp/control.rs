//! Zero-length messages that are due: ready to receive, announcements, probes, and what asks for them.

use weft_iwarp::Rtr;

/// The messages; one of each kind at most.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// A ready-to-receive message, or one that asks the peer what it is: kind and tagged offset.
    rtr: Option<(Rtr, u64)>,
    /// A zero-length Write, with its tagged offset.
    announce: Option<u64>,
    /// A zero-length Write that tells where the two ends meet, with its tagged offset.
    meeting: Option<u64>,
}

impl Control {
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.rtr.is_some() || self.announce.is_some() || self.meeting.is_some()
    }

    pub(super) fn queue_rtr(&mut self, kind: Rtr, to: u64) {
        self.rtr = Some((kind, to));
    }

    /// A zero-length Write that says nothing. One that waits already serves as well.
    pub(super) fn queue_probe(&mut self) {
        self.announce.get_or_insert(0);
    }

    /// A zero-length Write that says `to`; a probe that waits need not leave beside it.
    pub(super) fn queue_announcement(&mut self, to: u64) {
        self.announce = Some(to);
    }

    /// A zero-length Write that says `to`, behind an announcement that waits.
    pub(super) fn queue_meeting(&mut self, to: u64) {
        self.meeting = Some(to);
    }

    /// Takes the message that goes before everything else.
    #[inline]
    pub(super) fn take_rtr(&mut self) -> Option<(Rtr, u64)> {
        self.rtr.take()
    }

    /// Takes the message that goes between others.
    #[inline]
    pub(super) fn take_announcement(&mut self) -> Option<u64> {
        self.announce.take().or_else(|| self.meeting.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_and_an_announcement_are_one_message() {
        let mut control = Control::default();
        control.queue_probe();
        control.queue_announcement(5);
        control.queue_probe();
        assert!(control.is_pending());
        assert_eq!(control.take_announcement(), Some(5));
        assert!(!control.is_pending());
        control.queue_probe();
        assert_eq!(control.take_announcement(), Some(0));
    }

    #[test]
    fn where_the_ends_meet_is_told_behind_the_announcement() {
        let mut control = Control::default();
        control.queue_meeting(7);
        control.queue_announcement(5);
        assert_eq!(control.take_announcement(), Some(5));
        assert!(control.is_pending());
        assert_eq!(control.take_announcement(), Some(7));
        assert!(!control.is_pending());
    }

    #[test]
    fn what_asks_the_peer_waits_beside_them() {
        let mut control = Control::default();
        control.queue_rtr(Rtr::Read, 9);
        assert!(control.is_pending() && control.take_announcement().is_none());
        assert_eq!(control.take_rtr(), Some((Rtr::Read, 9)));
        assert!(!control.is_pending());
    }
}
