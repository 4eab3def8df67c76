//! How far a connection is, and how that stands in shared memory.

use crate::Errno;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody's.
    Free,
    /// It has not been connected.
    Connecting,
    /// It was accepted, and nothing has been looked at.
    Accepted,
    /// This end asked, and waits for the Reply.
    Asked,
    /// The other end asks, or nothing comes of it.
    Answering,
    /// Open; but a peer that is not Weft sends the first FPDU (RFC 5044 section 7.1).
    Listening,
    /// Open, both ways.
    Open,
    /// The Request did not come: the octets are the program's, plain TCP.
    Plain,
    /// It did not come before the program's octets had to leave: those are plain, and what comes is looked at once.
    Late,
    /// Over, by an error.
    Over(Errno),
}

const STATES: [State; 9] = [
    State::Free,
    State::Connecting,
    State::Accepted,
    State::Asked,
    State::Answering,
    State::Listening,
    State::Open,
    State::Plain,
    State::Late,
];
/// The word of [`State::Open`].
pub(super) const OPEN: u32 = 6;
const _: () = assert!(matches!(STATES[OPEN as usize], State::Open));
/// Beside an errno in the word of the state.
pub(super) const OVER: u32 = 1 << 16;
/// Beside both: the program was told.
pub(super) const TOLD: u32 = 1 << 17;

impl State {
    /// As a word.
    pub(super) fn to_word(self) -> u32 {
        match self {
            State::Over(errno) => OVER | errno as u32,
            state => STATES.iter().position(|known| *known == state).unwrap_or(0) as u32,
        }
    }

    /// Reads what [`State::to_word`] made.
    #[inline]
    pub(super) fn from_word(word: u32) -> State {
        match STATES.get(word as usize) {
            Some(state) => *state,
            None => State::Over((word & (OVER - 1)) as Errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_were_made_of() {
        for state in STATES.into_iter().chain([State::Over(libc::EPIPE)]) {
            assert_eq!(State::from_word(state.to_word()), state);
        }
        assert_eq!(
            State::from_word(State::Over(9).to_word() | TOLD),
            State::Over(9)
        );
    }
}
