//! What a send or a receive came to.

use std::io;

/// The kernel's answer to a send or receive on a non-blocking socket.
#[derive(Debug)]
pub enum Transfer {
    /// That many octets.
    Octets(usize),
    /// Not now.
    WouldBlock,
    /// The peer has finished sending.
    End,
    /// The connection failed.
    Failed(io::Error),
}

impl Transfer {
    pub(super) fn of_send(result: io::Result<usize>) -> Transfer {
        match result {
            Ok(octets) => Transfer::Octets(octets),
            Err(error) => Transfer::of_error(error),
        }
    }

    pub(super) fn of_recv(result: io::Result<usize>) -> Transfer {
        match result {
            Ok(0) => Transfer::End,
            Ok(octets) => Transfer::Octets(octets),
            Err(error) => Transfer::of_error(error),
        }
    }

    fn of_error(error: io::Error) -> Transfer {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Transfer::WouldBlock,
            _ => Transfer::Failed(error),
        }
    }
}

/// Whether a send failed because the connection is over, and not for what was to be sent.
pub fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    let over = [BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut];
    over.contains(&error.kind())
}
