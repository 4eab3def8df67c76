//! The states of a queue pair, and how far the end of its stream has come.
//!
//! A queue pair goes RESET, INIT and, with its stream, RTS; or the program walks it through RTR and RTS itself, and the
//! stream comes and goes underneath (decision 0007). SQD, as `ibv_modify_qp(3)` has it, is the send queue at rest: what
//! is begun ends, what is posted waits, receives and the peer's requests go on. On iWARP the state of that name is a
//! step of closing (`Closing` in the RDMA verbs), so only devices that show InfiniBand's states drain.

use super::ending::Ending;
use crate::types::{PostError, QpState};

/// State and ending.
#[derive(Debug)]
pub(super) struct Lifecycle {
    state: QpState,
    ending: Ending,
    /// The program walks it through its states itself.
    out_of_band: bool,
    /// In SQD: the program is to be told when the send queue is at rest.
    notify_drained: bool,
}

impl Default for Lifecycle {
    /// RESET.
    fn default() -> Lifecycle {
        Lifecycle {
            state: QpState::Reset,
            ending: Ending::Open,
            out_of_band: false,
            notify_drained: false,
        }
    }
}

/// What a change of state that the program asks for takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Nothing but the state.
    Made,
    /// The stream ends.
    Disconnect,
    /// The stream ends, and everything posted is flushed.
    Fail,
    /// It becomes as new.
    Reset,
}

impl Lifecycle {
    #[inline]
    pub(super) fn state(&self) -> QpState {
        self.state
    }

    #[inline]
    pub(super) fn ending(&self) -> Ending {
        self.ending
    }

    /// Neither a fault nor this side has ended the stream.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.ending.is_live()
    }

    #[inline]
    pub(super) fn is_out_of_band(&self) -> bool {
        self.out_of_band
    }

    /// Everything posted is flushed at once.
    #[inline]
    pub(super) fn flushes(&self) -> bool {
        matches!(self.state, QpState::Error | QpState::Sqe)
    }

    /// The program asks for RTR or RTS itself.
    pub(super) fn bring_to(&mut self, to: QpState) -> Result<(), PostError> {
        match (self.state, to) {
            (QpState::Init, QpState::Rtr) => self.out_of_band = true,
            (QpState::Rtr | QpState::Rts, QpState::Rts) if self.out_of_band => {}
            _ => return Err(PostError::InvalidState),
        }
        self.state = to;
        Ok(())
    }

    /// Another change that the program asks for. The state of [`Change::Made`] is entered here, the others with what
    /// they take.
    pub(super) fn change(&mut self, to: QpState, has_stream: bool) -> Result<Change, PostError> {
        let gone = self.ending == Ending::Closed || !has_stream;
        match (self.state, to) {
            (from, to) if from == to && to != QpState::Reset => Ok(Change::Made),
            (QpState::Reset, QpState::Init) => {
                self.state = QpState::Init;
                Ok(Change::Made)
            }
            (_, QpState::Error) => Ok(Change::Fail),
            // iWARP's Closing; InfiniBand's state of that name is entered by draining.
            (QpState::Rts, QpState::Sqd) => Ok(Change::Disconnect),
            (_, QpState::Reset) if self.out_of_band || gone => Ok(Change::Reset),
            _ => Err(PostError::InvalidState),
        }
    }

    /// Whether the state is one in which a stream may come.
    pub(super) fn awaits_stream(&self) -> bool {
        match self.state {
            QpState::Reset | QpState::Init => !self.out_of_band,
            QpState::Rtr | QpState::Rts | QpState::Sqd => self.out_of_band,
            QpState::Sqe | QpState::Error => false,
        }
    }

    /// A stream is there.
    pub(super) fn attach(&mut self) {
        if !self.out_of_band {
            self.state = QpState::Rts;
        }
        self.ending = Ending::Open;
    }

    /// The stream is gone, and the queue pair waits for another one.
    pub(super) fn detach(&mut self) {
        self.ending = Ending::Open;
    }

    /// Nothing more arrives, and messages that arrived wait for receives.
    pub(super) fn half_close(&mut self) {
        debug_assert!(self.is_live(), "an end is not taken back");
        self.ending = Ending::HalfClosed;
    }

    /// What is framed goes out, and nothing else.
    pub(super) fn begin_draining(&mut self) {
        debug_assert!(self.is_live(), "a stream ends once");
        self.ending = Ending::Draining;
    }

    /// The transport can be closed, or is.
    pub(super) fn close(&mut self) {
        self.ending = Ending::Closed;
    }

    /// The error state.
    pub(super) fn fail(&mut self) {
        self.state = QpState::Error;
    }

    /// From RTS to SQD; with `notify` the program is told when the send queue is at rest.
    pub(super) fn drain(&mut self, notify: bool) -> Result<(), PostError> {
        if self.state != QpState::Rts || !self.is_live() {
            return Err(PostError::InvalidState);
        }
        self.state = QpState::Sqd;
        self.notify_drained = notify;
        Ok(())
    }

    /// From SQD to RTS.
    pub(super) fn resume(&mut self) -> Result<(), PostError> {
        if self.state != QpState::Sqd {
            return Err(PostError::InvalidState);
        }
        self.state = QpState::Rts;
        self.notify_drained = false;
        Ok(())
    }

    /// Whether messages may be framed.
    #[inline]
    pub(super) fn may_frame_messages(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
    }

    /// Whether the next request of the send queue may be framed, where one may be framed in part.
    #[inline]
    pub(super) fn may_begin(&self, in_message: bool) -> bool {
        self.state != QpState::Sqd || in_message
    }

    /// Whether the program is to be told now that its send queue is at rest; once.
    #[inline]
    pub(super) fn take_rest(&mut self, is_at_rest: impl FnOnce() -> bool) -> bool {
        let tells = self.notify_drained && self.state == QpState::Sqd && is_at_rest();
        self.notify_drained &= !tells;
        tells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Error,
    ];

    fn in_state(state: QpState, out_of_band: bool) -> Lifecycle {
        Lifecycle {
            state,
            out_of_band,
            ..Lifecycle::default()
        }
    }

    #[test]
    fn only_the_program_that_went_to_rtr_goes_on_to_rts() {
        for state in STATES {
            let mut to_rtr = in_state(state, false);
            assert_eq!(
                to_rtr.bring_to(QpState::Rtr).is_ok(),
                state == QpState::Init
            );
            assert_eq!(to_rtr.is_out_of_band(), state == QpState::Init);
            assert!(in_state(state, false).bring_to(QpState::Rts).is_err());
            let may = matches!(state, QpState::Rtr | QpState::Rts);
            assert_eq!(in_state(state, true).bring_to(QpState::Rts).is_ok(), may);
        }
    }

    #[test]
    fn a_stream_comes_before_rts_or_underneath() {
        let waiting = |out_of_band| STATES.map(|s| in_state(s, out_of_band).awaits_stream());
        let (yes, no) = (true, false);
        assert_eq!(waiting(false), [yes, yes, no, no, no, no, no]);
        assert_eq!(waiting(true), [no, no, yes, yes, yes, no, no]);
        let mut brought_up = in_state(QpState::Rtr, true);
        brought_up.attach();
        assert_eq!(brought_up.state(), QpState::Rtr);
        let mut connected = in_state(QpState::Init, false);
        connected.attach();
        assert_eq!(connected.state(), QpState::Rts);
    }

    #[test]
    fn what_has_a_stream_is_not_reset_before_its_end() {
        let mut connected = in_state(QpState::Rts, false);
        let reset = |l: &mut Lifecycle, has_stream| l.change(QpState::Reset, has_stream);
        assert_eq!(reset(&mut connected, true), Err(PostError::InvalidState));
        assert_eq!(reset(&mut connected, false), Ok(Change::Reset));
        connected.begin_draining();
        assert_eq!(reset(&mut connected, true), Err(PostError::InvalidState));
        connected.close();
        assert_eq!(reset(&mut connected, true), Ok(Change::Reset));
        assert_eq!(
            reset(&mut in_state(QpState::Rts, true), true),
            Ok(Change::Reset)
        );
    }

    #[test]
    fn other_changes_have_their_states() {
        let change = |from, to| in_state(from, false).change(to, false);
        assert_eq!(change(QpState::Rts, QpState::Sqd), Ok(Change::Disconnect));
        assert_eq!(
            change(QpState::Init, QpState::Sqd),
            Err(PostError::InvalidState)
        );
        assert_eq!(
            change(QpState::Rts, QpState::Init),
            Err(PostError::InvalidState)
        );
        for from in STATES.into_iter().filter(|from| *from != QpState::Error) {
            assert_eq!(change(from, QpState::Error), Ok(Change::Fail), "{from:?}");
        }
        assert_eq!(change(QpState::Error, QpState::Error), Ok(Change::Made));
        let mut new = Lifecycle::default();
        assert_eq!(new.change(QpState::Init, false), Ok(Change::Made));
        assert_eq!(new.state(), QpState::Init);
    }

    #[test]
    fn rest_is_told_once_and_only_where_it_was_asked_for() {
        let mut rts = in_state(QpState::Rts, false);
        assert!(!rts.take_rest(|| true), "not drained");
        rts.drain(true).expect("from RTS");
        assert!(rts.may_begin(true) && !rts.may_begin(false));
        assert!(!rts.take_rest(|| false), "something is under way");
        assert!(rts.take_rest(|| true));
        assert!(!rts.take_rest(|| true), "told");
        rts.resume().expect("from SQD");
        assert!(rts.may_begin(false) && rts.resume().is_err());
        rts.drain(false).expect("from RTS");
        assert!(!rts.take_rest(|| true), "not asked for");
        let mut failed = in_state(QpState::Rts, false);
        failed.drain(true).expect("from RTS");
        failed.fail();
        assert!(!failed.take_rest(|| true), "it failed before");
    }

    #[test]
    fn a_stream_that_ends_does_not_drain() {
        let mut ending = in_state(QpState::Rts, false);
        ending.begin_draining();
        assert_eq!(ending.drain(true), Err(PostError::InvalidState));
    }
}
