//! Where a TCP socket stands between TCP and DDP: what was asked for, what was decided and why.

use weft_settings::streams::Mode;

/// What the program asked for by the socket option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing: the rules decide.
    Nothing,
    /// This, whatever the rules say.
    For(Mode),
}

/// How the octets of a connection go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing is decided: the socket has not been connected and does not listen.
    #[default]
    Undecided,
    /// As TCP. Of a listener: those of the connections that it accepts.
    Tcp,
    /// As DDP, likewise.
    Ddp,
}

/// Why it is so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// There is nothing to explain.
    #[default]
    None,
    /// The mode is off.
    Off,
    /// The program uses the socket in ways that no hook sees.
    Released,
    /// It was connected before anybody looked: inherited, or received from another process.
    Found,
    /// There is no room for another connection, or for what finds out what the other end is.
    NoRoom,
    /// The other end is not Weft, or nobody could tell.
    NotThere,
    /// Octets leave with the SYN, before anybody can know what the other end is.
    TooEarly,
}

/// What was decided of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The mode in force; nothing as long as nobody has asked and the rules have not decided.
    pub mode: Option<Mode>,
    /// What has come of it.
    pub state: State,
    /// Why.
    pub reason: Reason,
}

const MODES: [Mode; 3] = [Mode::Off, Mode::Prefer, Mode::Require];
const STATES: [State; 3] = [State::Undecided, State::Tcp, State::Ddp];
const REASONS: [Reason; 7] = [
    Reason::None,
    Reason::Off,
    Reason::Released,
    Reason::Found,
    Reason::NoRoom,
    Reason::NotThere,
    Reason::TooEarly,
];

/// A mode in a word: 0 for none.
fn mode_to_octet(mode: Option<Mode>) -> u8 {
    mode.map_or(0, |mode| mode as u8 + 1)
}

fn mode_from_octet(octet: u8) -> Option<Mode> {
    MODES.get(usize::from(octet.checked_sub(1)?)).copied()
}

impl Asked {
    pub(super) fn to_word(self) -> u32 {
        match self {
            Asked::Nothing => 0,
            Asked::For(mode) => mode_to_octet(Some(mode)).into(),
        }
    }

    pub(super) fn from_word(word: u32) -> Asked {
        mode_from_octet(word as u8).map_or(Asked::Nothing, Asked::For)
    }

    /// The mode, if one was asked for.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Asked::Nothing => None,
            Asked::For(mode) => Some(mode),
        }
    }
}

impl Standing {
    /// As a word, which a record or [`Origin::Accepted`](crate::kind::Origin::Accepted) holds; 0 is the default.
    pub(super) fn to_word(self) -> u32 {
        let octets = [
            mode_to_octet(self.mode),
            self.state as u8,
            self.reason as u8,
            0,
        ];
        u32::from_le_bytes(octets)
    }

    pub(super) fn from_word(word: u32) -> Standing {
        let [mode, state, reason, _] = word.to_le_bytes();
        Standing {
            mode: mode_from_octet(mode),
            state: *STATES.get(usize::from(state)).unwrap_or(&State::Undecided),
            reason: *REASONS.get(usize::from(reason)).unwrap_or(&Reason::None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_were_made_of() {
        let modes = MODES.into_iter().map(Some).chain([None]);
        for mode in modes {
            let asked = mode.map_or(Asked::Nothing, Asked::For);
            assert_eq!(Asked::from_word(asked.to_word()), asked);
            assert_eq!(asked.mode(), mode);
            for (state, reason) in STATES
                .iter()
                .flat_map(|state| REASONS.map(|reason| (*state, reason)))
            {
                let standing = Standing {
                    mode,
                    state,
                    reason,
                };
                assert_eq!(Standing::from_word(standing.to_word()), standing);
            }
        }
        assert_eq!(Standing::default().to_word(), 0);
        assert_eq!(Asked::from_word(0), Asked::Nothing);
    }
}
