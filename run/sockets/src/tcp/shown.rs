//! What others see of TCP sockets: how the octets of each go, and why.

use std::io;

use crate::ddp;
use crate::ddp::shown::{Connection, Shown};
use crate::Errno;

use super::standing::{Reason, Standing, State};
use super::{Record, Streams};

/// How the octets of a socket go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing is decided, as the socket has not been connected and does not listen. One that is connected all the same
    /// came to be so where nobody looked, and is TCP.
    Undecided,
    /// As TCP.
    Tcp(Reason),
    /// As DDP where it is to be: of a listener, those of connections whose peers ask for it; of a connection, those
    /// that wait for the other end's word.
    Wanted,
    /// As DDP.
    Ddp {
        /// The other end is rsockets of another make.
        is_foreign: bool,
        /// FPDUs carry a CRC.
        has_crc: bool,
    },
    /// No more: the connection over DDP has ended by this error.
    Over(Errno),
}

/// How the octets of the socket with this inode go; nothing where it is none that is looked after.
///
/// # Errors
/// What is shown cannot be read.
pub fn way(shown: &Shown, inode: u64) -> io::Result<Option<Way>> {
    let Some(word) = shown.word(inode)? else {
        return Ok(None);
    };
    let connection = shown.connection(inode)?;
    Ok(Some(way_of(Standing::from_word(word), connection)))
}

fn way_of(standing: Standing, connection: Option<Connection>) -> Way {
    let decided = match standing.state {
        State::Undecided => Way::Undecided,
        State::Tcp => Way::Tcp(standing.reason),
        State::Ddp => Way::Wanted,
    };
    let Some(connection) = connection else {
        return decided;
    };
    match connection.state {
        ddp::State::Free => decided,
        ddp::State::Open => Way::Ddp {
            is_foreign: connection.is_foreign,
            has_crc: connection.has_crc,
        },
        ddp::State::Plain | ddp::State::Late => Way::Tcp(Reason::NotThere),
        ddp::State::Over(errno) => Way::Over(errno),
        ddp::State::Connecting
        | ddp::State::Accepted
        | ddp::State::Asked
        | ddp::State::Answering
        | ddp::State::Listening => Way::Wanted,
    }
}

impl Streams {
    /// Decides how the socket's octets go, for others to see as well.
    pub(super) fn stand(&self, record: &Record, standing: Standing) {
        record.set_standing(standing);
        self.show(record.references.inode(), standing, true);
    }

    /// Shows how the octets of the socket with this inode go. `again`: where something is shown already, too.
    pub(super) fn show(&self, inode: u64, standing: Standing, again: bool) {
        if let Some(slots) = self.slots.filter(|_| self.is_shown) {
            slots.show(inode, standing.to_word(), again);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(state: State, reason: Reason) -> Standing {
        Standing {
            mode: None,
            state,
            reason,
        }
    }

    #[test]
    fn a_connection_says_more_than_what_was_decided() {
        let wanted = standing(State::Ddp, Reason::None);
        let off = standing(State::Tcp, Reason::Off);
        let at = |state| {
            Some(Connection {
                state,
                is_foreign: true,
                has_crc: false,
            })
        };
        let open = Way::Ddp {
            is_foreign: true,
            has_crc: false,
        };
        for (standing, connection, expected) in [
            (Standing::default(), None, Way::Undecided),
            (off, None, Way::Tcp(Reason::Off)),
            (wanted, None, Way::Wanted),
            (wanted, at(ddp::State::Free), Way::Wanted),
            (wanted, at(ddp::State::Asked), Way::Wanted),
            (wanted, at(ddp::State::Open), open),
            (wanted, at(ddp::State::Plain), Way::Tcp(Reason::NotThere)),
            (wanted, at(ddp::State::Over(104)), Way::Over(104)),
        ] {
            assert_eq!(way_of(standing, connection), expected);
        }
    }
}
