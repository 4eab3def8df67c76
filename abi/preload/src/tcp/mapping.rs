//! Memory that the ends of a connection map for each other (`riomap`, `riounmap`, `riowrite`).

use std::ffi::c_int;

use weft_os::dgram::get_int;
use weft_os::file::does_not_wait;
use weft_os::stream;
use weft_os::user::{UserBuffers, UserRange};
use weft_sockets::ddp::{Connection, Settled, State};
use weft_sockets::Errno;

use super::holding::Hold;
use super::waits::{wait_a_while, wait_for_the_peer, wait_once};
use super::TcpSocket;
use crate::edge::{caught, test_cancel};
use crate::timeout::Timeout;

impl TcpSocket {
    /// Maps memory for the peer, which calls its first octet `offset`; with no offset the peer is not told of it.
    ///
    /// How much may be mapped is the peer's word: where its Reply has not come this waits for it, whether or not the
    /// descriptor waits, as a program maps once it is connected.
    pub fn map(self, memory: UserRange, offset: Option<u64>) -> Result<(), Errno> {
        test_cancel();
        let mut connection = self.to_map()?;
        let (mut hold, mut timeout) = (Hold::new(self), Timeout::to_send());
        loop {
            // Asked before: it may open meanwhile.
            let is_open = connection.slot().state() == State::Open;
            let mapped = caught(Err(libc::EIO), || {
                framed(connection)?;
                let sockets = self.sockets();
                sockets.map(self.record, connection, memory, offset)
            });
            let errno = match mapped {
                Ok(()) => {
                    self.called(connection);
                    return Ok(());
                }
                Err(errno) => errno,
            };
            let waits = !is_open || !does_not_wait(hold.socket().fd);
            if errno != libc::EAGAIN || !waits {
                return Err(self.told(connection, errno));
            }
            let known = connection;
            let stopped_by = hold.across(&mut connection, |socket| {
                socket.wait_to_map(known, &mut timeout)
            });
            if let Some(errno) = stopped_by {
                return Err(errno);
            }
        }
    }

    /// Memory is mapped no longer.
    pub fn unmap(self, memory: &UserRange) -> Result<(), Errno> {
        let connection = self.connection().ok_or(libc::EINVAL)?;
        let unmapped = caught(Err(libc::EIO), || connection.unmap(memory));
        self.called(connection);
        unmapped
    }

    /// Writes octets to memory that the peer has mapped, where it calls the first of them `offset`; gives how many:
    /// none go beyond what is mapped there.
    pub fn write_mapped(
        self,
        data: &UserBuffers,
        offset: u64,
        flags: c_int,
    ) -> Result<usize, Errno> {
        test_cancel();
        let mut connection = self.to_map().map_err(not_connected)?;
        let (mut sent, mut hold, mut timeout) = (0, Hold::new(self), Timeout::to_send());
        while sent < data.octets() {
            let Some(at) = offset.checked_add(sent as u64) else {
                break;
            };
            let written = caught(Err(libc::EIO), || {
                framed(connection)?;
                connection.write_mapped(data, sent, at)
            });
            let errno = match written {
                Ok(0) => break,
                Ok(octets) => {
                    sent += octets;
                    continue;
                }
                Err(libc::EAGAIN) => {
                    let known = connection;
                    let is_open = connection.slot().state() == State::Open;
                    match flags & libc::MSG_DONTWAIT != 0 || does_not_wait(hold.socket().fd) {
                        true => Some(libc::EAGAIN),
                        false => hold.across(&mut connection, |socket| match is_open {
                            true => wait_once(socket.fd, libc::POLLOUT, &mut timeout),
                            false => socket.wait_for_start(known, &mut timeout),
                        }),
                    }
                }
                Err(errno) => Some(self.told(connection, errno)),
            };
            match errno {
                None => {}
                Some(_) if sent > 0 => break,
                Some(errno) => return Err(errno),
            }
        }
        self.called(connection);
        Ok(sent)
    }

    /// Waits until memory may be mapped: until the start may have gone on, the peer may have given credit, or the
    /// socket has room; the error that the wait ended with.
    fn wait_to_map(self, connection: Connection<'_>, timeout: &mut Timeout) -> Option<Errno> {
        if connection.slot().state() != State::Open {
            return self.wait_for_start(connection, timeout);
        }
        match connection.lacks_credit() {
            Ok(false) => wait_once(self.fd, libc::POLLOUT, timeout),
            // Room wakes nobody who waits for credit.
            _ => wait_for_the_peer(self.fd, true, timeout),
        }
    }

    /// Waits until the start may have gone on; the error that the wait ended with, or the attempt to connect.
    fn wait_for_start(self, connection: Connection<'_>, timeout: &mut Timeout) -> Option<Errno> {
        let is_over = timeout.limit(self.fd).err();
        is_over.or_else(|| {
            wait_a_while(self.fd);
            self.attempt_ended(connection)
        })
    }

    /// The connection; an error where there is none, nor one under way.
    fn to_map(self) -> Result<Connection<'static>, Errno> {
        let connection = self.connection().ok_or(libc::EINVAL)?;
        match self.attempt_ended(connection) {
            Some(errno) => Err(errno),
            None => Ok(connection),
        }
    }

    /// What the attempt to connect ended with, where nobody has connected the socket: what the kernel has to tell of it
    /// (`SO_ERROR`), or `EINVAL` of a socket of which it has nothing to tell.
    fn attempt_ended(self, connection: Connection<'_>) -> Option<Errno> {
        let is_closed = || stream::state(self.fd) == Some(stream::State::Closed);
        let is_over = connection.slot().state() == State::Connecting && is_closed();
        is_over.then(
            || match get_int(self.fd, libc::SOL_SOCKET, libc::SO_ERROR) {
                Ok(errno) if errno > 0 => errno,
                _ => libc::EINVAL,
            },
        )
    }

    /// What the program is told of an error: of one that ended the connection once, later that it is closed.
    fn told(self, connection: Connection<'static>, errno: Errno) -> Errno {
        self.told_to_sender(connection, errno, libc::MSG_NOSIGNAL)
    }
}

/// What `riowrite` fails with where there is no connection to map memory on.
fn not_connected(errno: Errno) -> Errno {
    match errno {
        libc::EINVAL => libc::ENOTCONN,
        errno => errno,
    }
}

/// Goes on with the start. A peer that is plain TCP maps nothing.
fn framed(connection: Connection<'static>) -> Result<(), Errno> {
    // As with octets that are sent, a client that says nothing is not waited for long.
    match connection.settle_to_send()? {
        Settled::Plain | Settled::Late => Err(libc::EOPNOTSUPP),
        Settled::Open | Settled::Waits => Ok(()),
    }
}
