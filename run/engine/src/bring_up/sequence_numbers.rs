//! Which packet sequence number shows what, and to whom it may be said.
//!
//! Each end has two: the one it starts with (`sq_psn`), which its program gives at RTS, and the one it expects the
//! other to start with (`rq_psn`), given at RTR. Each is known to both programs and, with luck, to nobody else. The end
//! that connects says one of them, and the other end says nothing before it has seen that this one is right; then it
//! says the other one, if it has it. Which one the first says follows from what the second can know: at RTS what this
//! end starts with, which the other end has known since its RTR (as the first packet of an InfiniBand queue pair says
//! it); before that what it expects, which the other end knows at RTS.

use super::message::Proof;

/// What this end knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceNumbers {
    /// What the other end starts with.
    pub(super) rq_psn: u32,
    /// What this end starts with, once its program has said.
    pub(super) sq_psn: Option<u32>,
}

/// What a proof that is not wrong shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// That the speaker knows what only the peer knows.
    Peer,
    /// Nothing, as long as this end does not know more.
    NothingYet,
}

impl SequenceNumbers {
    /// What this end says first.
    pub(super) fn first(&self) -> Proof {
        match self.sq_psn {
            Some(psn) => Proof::Starts(psn),
            None => Proof::Expects(self.rq_psn),
        }
    }

    /// What this end says to who has said `first` and been right.
    pub(super) fn answer(&self, first: Proof) -> Proof {
        match first {
            Proof::Starts(_) => self.sq_psn.map_or(Proof::Nothing, Proof::Starts),
            Proof::Expects(_) => Proof::Expects(self.rq_psn),
            Proof::Nothing => Proof::Nothing,
        }
    }

    /// What the other end's proof shows.
    ///
    /// # Errors
    /// It is wrong.
    pub(super) fn check(&self, proof: Proof) -> Result<Shown, &'static str> {
        match (proof, self.sq_psn) {
            (Proof::Starts(psn), _) if psn == self.rq_psn => Ok(Shown::Peer),
            (Proof::Starts(_), _) => Err("it starts with another packet sequence number"),
            (Proof::Expects(psn), Some(own)) if psn == own => Ok(Shown::Peer),
            (Proof::Expects(_), Some(_)) => Err("it expects another packet sequence number"),
            (Proof::Expects(_), None) | (Proof::Nothing, _) => Ok(Shown::NothingYet),
        }
    }

    /// The same for the answer to what this end has said first. Who answers at RTR has no number left to say.
    ///
    /// # Errors
    /// It is wrong, or no answer to that.
    pub(super) fn check_answer(&self, first: Proof, proof: Proof) -> Result<Shown, &'static str> {
        match (first, proof) {
            (Proof::Starts(_), Proof::Starts(_) | Proof::Nothing)
            | (Proof::Expects(_), Proof::Expects(_)) => self.check(proof),
            _ => Err("it says nothing that shows who it is"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the active and the passive side start with.
    const ACTIVE: u32 = 0x11_1111;
    const PASSIVE: u32 = 0x22_2222;

    fn active(at_rts: bool) -> SequenceNumbers {
        SequenceNumbers {
            rq_psn: PASSIVE,
            sq_psn: at_rts.then_some(ACTIVE),
        }
    }

    fn passive(at_rts: bool) -> SequenceNumbers {
        SequenceNumbers {
            rq_psn: ACTIVE,
            sq_psn: at_rts.then_some(PASSIVE),
        }
    }

    fn psn(proof: Proof) -> Option<u32> {
        match proof {
            Proof::Starts(psn) | Proof::Expects(psn) => Some(psn),
            Proof::Nothing => None,
        }
    }

    #[test]
    fn both_ends_meet_as_soon_as_one_can_send() {
        for (one, two) in [(false, false), (false, true), (true, false), (true, true)] {
            let first = active(one).first();
            let shown = passive(two).check(first).unwrap();
            let met = shown == Shown::Peer;
            assert_eq!(met, one || two, "active at RTS: {one}, other at RTS: {two}");
            if !met {
                continue;
            }
            let answer = passive(two).answer(first);
            let shown = active(one).check_answer(first, answer).unwrap();
            // Who answers says what it knows and was not told.
            assert_eq!(shown == Shown::Peer, one && two);
            assert_ne!(psn(answer), psn(first));
            // What the active side cannot tell yet it can at RTS.
            assert!(active(true).check(answer).is_ok());
        }
    }

    #[test]
    fn no_wrong_number_is_taken_for_the_peers() {
        // What a stranger who knows nothing, or only the other number of the two, may say.
        for wrong in [0, 1, ACTIVE ^ 1, PASSIVE ^ 1, 0xFF_FFFF] {
            for proof in [Proof::Starts(wrong), Proof::Expects(wrong), Proof::Nothing] {
                for at_rts in [false, true] {
                    assert_ne!(passive(at_rts).check(proof), Ok(Shown::Peer), "{proof:?}");
                    assert_ne!(active(at_rts).check(proof), Ok(Shown::Peer), "{proof:?}");
                }
            }
        }
        assert!(passive(true).check(Proof::Starts(PASSIVE)).is_err());
        assert!(passive(true).check(Proof::Expects(ACTIVE)).is_err());
    }

    #[test]
    fn an_answer_fits_what_was_said_first() {
        let answers = [
            Proof::Nothing,
            Proof::Starts(PASSIVE),
            Proof::Expects(ACTIVE),
        ];
        let fits = |at_rts: bool| {
            let psns = active(at_rts);
            answers.map(|answer| psns.check_answer(psns.first(), answer).is_ok())
        };
        assert_eq!(fits(true), [true, true, false]);
        // Who was asked for what it expects knows it: it is at RTR at least.
        assert_eq!(fits(false), [false, false, true]);
        let mistaken = active(true).check_answer(Proof::Starts(ACTIVE), Proof::Starts(PASSIVE ^ 1));
        assert!(mistaken.is_err());
        let repeated = active(true).check_answer(Proof::Starts(ACTIVE), Proof::Starts(ACTIVE));
        assert!(repeated.is_err(), "an echo shows nothing");
    }
}
