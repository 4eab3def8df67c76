//! One attempt of a call on a connection over DDP: where it cannot go on, the thread waits in the C library's own call
//! with nothing held ([`super::waits`]) and makes another.

use weft_sockets::ddp::{Connection, Settled};
use weft_sockets::Errno;

/// Octets that a call moves at most, as the kernel has it.
pub(super) const MOST: usize = 0x7fff_f000;

/// What became of one attempt.
pub(super) enum Attempt<T> {
    Done(T),
    /// The connection cannot go on yet.
    Waits,
    /// It is none of DDP.
    Plain,
}

/// Goes on with the start, and then does what is to be done.
pub(super) fn attempt<T>(
    connection: Connection<'static>,
    work: impl FnOnce() -> Result<Attempt<T>, Errno>,
) -> Result<Attempt<T>, Errno> {
    match connection.settle()? {
        Settled::Plain => Ok(Attempt::Plain),
        Settled::Open | Settled::Waits => work(),
        Settled::Late => Ok(Attempt::Waits),
    }
}

/// The same for a send, which says EAGAIN where it cannot go on.
pub(super) fn attempt_to_send<T>(
    connection: Connection<'static>,
    mut work: impl FnMut() -> Result<T, Errno>,
) -> Result<Attempt<T>, Errno> {
    loop {
        match connection.settle_to_send()? {
            Settled::Plain | Settled::Late => return Ok(Attempt::Plain),
            Settled::Open | Settled::Waits => {}
        }
        let state = connection.slot().state();
        match work() {
            // The service thread went on with the start meanwhile, and nobody would tell of that again.
            Err(libc::EAGAIN) if connection.slot().state() != state => {}
            Err(libc::EAGAIN) if connection.hears_of_room()? => {}
            Err(libc::EAGAIN) => return Ok(Attempt::Waits),
            result => {
                if connection.slot().is_short() {
                    connection.slot().set_short(false);
                }
                return result.map(Attempt::Done);
            }
        }
    }
}
