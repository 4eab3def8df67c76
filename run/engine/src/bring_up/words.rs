//! Which packet sequence number shows what, and to whom it may be said.
//!
//! Each end has two: the one it starts with (`sq_psn`), which its program gives at RTS, and the one it expects the
//! other to start with (`rq_psn`), given at RTR. Each is known to both programs and, with luck, to nobody else. The
//! end that dials says one of them, and the other end says nothing before it has seen that this one is right; then it
//! says the other one, if it has it. Which one the first says follows from what the second can know: at RTS what this
//! end starts with, which the other end has known since its RTR (as the first packet of an InfiniBand queue pair says
//! it); before that what it expects, which the other end knows at RTS.

use super::hello::Word;

/// What this end knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// What the other end starts with.
    pub(super) rq_psn: u32,
    /// What this end starts with, once its program has said.
    pub(super) sq_psn: Option<u32>,
}

/// What a word that is not wrong shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// That the speaker knows what only the peer knows.
    Peer,
    /// Nothing, as long as this end does not know more.
    NothingYet,
}

impl Words {
    /// What this end says first.
    pub(super) fn first(&self) -> Word {
        match self.sq_psn {
            Some(psn) => Word::Starts(psn),
            None => Word::Expects(self.rq_psn),
        }
    }

    /// What this end says to who has said `first` and been right.
    pub(super) fn answer(&self, first: Word) -> Word {
        match first {
            Word::Starts(_) => self.sq_psn.map_or(Word::Nothing, Word::Starts),
            Word::Expects(_) => Word::Expects(self.rq_psn),
            Word::Nothing => Word::Nothing,
        }
    }

    /// What the other end's word shows.
    ///
    /// # Errors
    /// It is wrong.
    pub(super) fn check(&self, word: Word) -> Result<Shown, &'static str> {
        match (word, self.sq_psn) {
            (Word::Starts(psn), _) if psn == self.rq_psn => Ok(Shown::Peer),
            (Word::Starts(_), _) => Err("it starts with another packet sequence number"),
            (Word::Expects(psn), Some(own)) if psn == own => Ok(Shown::Peer),
            (Word::Expects(_), Some(_)) => Err("it expects another packet sequence number"),
            (Word::Expects(_), None) | (Word::Nothing, _) => Ok(Shown::NothingYet),
        }
    }

    /// The same for the answer to what this end has said first. Who answers at RTR has no number left to say.
    ///
    /// # Errors
    /// It is wrong, or no answer to that.
    pub(super) fn check_answer(&self, first: Word, word: Word) -> Result<Shown, &'static str> {
        match (first, word) {
            (Word::Starts(_), Word::Starts(_) | Word::Nothing)
            | (Word::Expects(_), Word::Expects(_)) => self.check(word),
            _ => Err("it says nothing that shows who it is"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the end that dials and the other one start with.
    const DIALS: u32 = 0x11_1111;
    const OTHER: u32 = 0x22_2222;

    fn dials(at_rts: bool) -> Words {
        Words {
            rq_psn: OTHER,
            sq_psn: at_rts.then_some(DIALS),
        }
    }

    fn other(at_rts: bool) -> Words {
        Words {
            rq_psn: DIALS,
            sq_psn: at_rts.then_some(OTHER),
        }
    }

    fn psn(word: Word) -> Option<u32> {
        match word {
            Word::Starts(psn) | Word::Expects(psn) => Some(psn),
            Word::Nothing => None,
        }
    }

    #[test]
    fn both_ends_meet_as_soon_as_one_can_send() {
        for (one, two) in [(false, false), (false, true), (true, false), (true, true)] {
            let first = dials(one).first();
            let shown = other(two).check(first).unwrap();
            let met = shown == Shown::Peer;
            assert_eq!(met, one || two, "dials at RTS: {one}, other at RTS: {two}");
            if !met {
                continue;
            }
            let answer = other(two).answer(first);
            let shown = dials(one).check_answer(first, answer).unwrap();
            // Who answers says what it knows and was not told.
            assert_eq!(shown == Shown::Peer, one && two);
            assert_ne!(psn(answer), psn(first));
            // What the end that dials cannot tell yet it can at RTS.
            assert!(dials(true).check(answer).is_ok());
        }
    }

    #[test]
    fn no_wrong_number_is_taken_for_the_peers() {
        // What a stranger who knows nothing, or only the other number of the two, may say.
        for wrong in [0, 1, DIALS ^ 1, OTHER ^ 1, 0xFF_FFFF] {
            for word in [Word::Starts(wrong), Word::Expects(wrong), Word::Nothing] {
                for at_rts in [false, true] {
                    assert_ne!(other(at_rts).check(word), Ok(Shown::Peer), "{word:?}");
                    assert_ne!(dials(at_rts).check(word), Ok(Shown::Peer), "{word:?}");
                }
            }
        }
        assert!(other(true).check(Word::Starts(OTHER)).is_err());
        assert!(other(true).check(Word::Expects(DIALS)).is_err());
    }

    #[test]
    fn an_answer_fits_what_was_said_first() {
        let answers = [Word::Nothing, Word::Starts(OTHER), Word::Expects(DIALS)];
        let fits = |at_rts: bool| {
            let words = dials(at_rts);
            answers.map(|answer| words.check_answer(words.first(), answer).is_ok())
        };
        assert_eq!(fits(true), [true, true, false]);
        // Who was asked for what it expects knows it: it is at RTR at least.
        assert_eq!(fits(false), [false, false, true]);
        let mistaken = dials(true).check_answer(Word::Starts(DIALS), Word::Starts(OTHER ^ 1));
        assert!(mistaken.is_err());
        let repeated = dials(true).check_answer(Word::Starts(DIALS), Word::Starts(DIALS));
        assert!(repeated.is_err(), "an echo shows nothing");
    }
}
