//! Memory that the ends of a connection map for each other (`riomap`, `riounmap`, `riowrite`).

use std::ffi::c_int;

use weft_os::file::does_not_wait;
use weft_os::user::{UserBuffers, UserRange};
use weft_sockets::ddp::{Connection, Settled, State};
use weft_sockets::Errno;

use super::holding::Hold;
use super::timeout::Timeout;
use super::waits::{wait_a_while, wait_once};
use super::TcpSocket;
use crate::edge::{caught, test_cancel};

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
            let stopped_by = hold.across(&mut connection, |socket| {
                let is_over = timeout.limit(socket.fd).err();
                is_over.or_else(|| wait_a_while(socket.fd))
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
        let mut connection = self.to_map().map_err(|_| libc::ENOTCONN)?;
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
                    let is_open = connection.slot().state() == State::Open;
                    match flags & libc::MSG_DONTWAIT != 0 || does_not_wait(hold.socket().fd) {
                        true => Some(libc::EAGAIN),
                        false => hold.across(&mut connection, |socket| {
                            socket.wait_to_write(is_open, &mut timeout)
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

    /// Waits until the socket has room, or until the start may have gone on; the error that the wait ended with.
    fn wait_to_write(self, is_open: bool, timeout: &mut Timeout) -> Option<Errno> {
        if is_open {
            return wait_once(self.fd, libc::POLLOUT, timeout);
        }
        let is_over = timeout.limit(self.fd).err();
        is_over.or_else(|| wait_a_while(self.fd))
    }

    /// The connection; an error where there is none, nor one under way.
    fn to_map(self) -> Result<Connection<'static>, Errno> {
        let connection = self.connection().ok_or(libc::EINVAL)?;
        let is_under_way =
            || weft_os::stream::state(self.fd) != Some(weft_os::stream::State::Closed);
        match connection.slot().state() {
            State::Connecting if !is_under_way() => Err(libc::EINVAL),
            _ => Ok(connection),
        }
    }

    /// What the program is told of an error: of one that ended the connection once, later that it is closed.
    fn told(self, connection: Connection<'static>, errno: Errno) -> Errno {
        self.told_to_sender(connection, errno, libc::MSG_NOSIGNAL)
    }
}

/// Goes on with the start. A peer that is plain TCP maps nothing.
fn framed(connection: Connection<'static>) -> Result<(), Errno> {
    match connection.settle()? {
        Settled::Plain | Settled::Late => Err(libc::EOPNOTSUPP),
        Settled::Open | Settled::Waits => Ok(()),
    }
}
