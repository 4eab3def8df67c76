//! `sendfile` and `splice` of a connection over DDP.

use std::ffi::{c_int, c_uint};

use libc::pollfd;
use weft_os::file;
use weft_sockets::ddp::{Connection, Received};
use weft_sockets::Errno;

use super::attempts::{attempt_to_send, Attempt, MOST};
use super::holding::Hold;
use super::receiving::{at_the_end, for_octets, is_unconnected, Wait};
use super::TcpSocket;
use crate::calls;
use crate::edge::{caught, errno, fail, get, put};
use crate::socket::FileOctets;
use crate::timeout::Timeout;

const NONBLOCK: c_uint = libc::SPLICE_F_NONBLOCK;

/// Where the octets of a call come from.
#[derive(Clone, Copy)]
enum From {
    /// The file's own position.
    Here,
    /// This position.
    At(u64),
    /// A pipe, which may have to be waited for.
    Pipe { waits: bool },
}

impl From {
    /// Reads octets behind the first `done` of the call.
    fn read(self, fd: c_int, room: &mut [u8], done: usize) -> Result<usize, Errno> {
        match self {
            From::Here => file::read(fd, room, None),
            From::At(at) => file::read(fd, room, Some(at + done as u64)),
            From::Pipe { .. } => read_pipe(fd, room),
        }
    }
}

impl TcpSocket {
    /// Sends a file's octets, or a pipe's.
    pub(super) fn send_octets_of(
        self,
        mut connection: Connection<'static>,
        octets: FileOctets,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let from = match starts_at(&octets) {
            Ok(from) => from,
            Err(errno) => return fail(errno),
        };
        let (most, flags) = (octets.most.min(MOST), flags_of(octets.splice));
        let (mut sent, mut hold, mut timeout) = (0, Hold::new(self), Timeout::to_send());
        while sent < most {
            let mut is_empty = false;
            let attempt = caught(Err(libc::EIO), || {
                attempt_to_send(connection, || {
                    let read = |room: &mut [u8]| {
                        let read = from.read(octets.fd, room, sent);
                        read.inspect_err(|errno| is_empty = *errno == libc::EAGAIN)
                    };
                    connection.send_read(most - sent, read)
                })
            });
            let stopped_by = match attempt {
                Ok(Attempt::Plain) if sent == 0 => return real(),
                Ok(Attempt::Plain) | Ok(Attempt::Done(0)) => break,
                Ok(Attempt::Done(octets)) => {
                    sent += octets;
                    continue;
                }
                Ok(Attempt::Waits) if is_empty && sent > 0 => break,
                Ok(Attempt::Waits) if is_empty => match from {
                    From::Pipe { waits: true } => wait_for(octets.fd, libc::POLLIN),
                    _ => Some(libc::EAGAIN),
                },
                Ok(Attempt::Waits) => {
                    let waits = connection;
                    hold.across(&mut connection, |socket| {
                        let waits = waits.with_fd(socket.fd);
                        socket.wait_to_send(waits, flags, sent > 0, &mut timeout)
                    })
                }
                Err(_) if sent > 0 => break,
                Err(errno) => Some(hold.socket().told_to_sender(connection, errno, 0)),
            };
            match stopped_by {
                None => {}
                Some(_) if sent > 0 => break,
                Some(errno) => return fail(errno),
            }
        }
        if let From::At(at) = from {
            // Where it was read it can be written.
            let _ = put(octets.offset, at as i64 + sent as i64);
        }
        sent as isize
    }

    /// Moves octets of the stream to a pipe.
    pub(super) fn octets_to_pipe(
        self,
        mut connection: Connection<'static>,
        pipe: c_int,
        most: usize,
        flags: c_uint,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let waits = flags & NONBLOCK == 0;
        let waits_for_pipe = waits && !file::does_not_wait(pipe);
        if !file::is_pipe(pipe) {
            return fail(libc::EINVAL);
        }
        if most == 0 {
            return 0;
        }
        let (mut hold, mut timeout) = (Hold::new(self), Timeout::to_receive());
        loop {
            let mut is_full = false;
            let write = |octets: &[u8]| {
                let written = file::write_now(pipe, octets);
                written.inspect_err(|errno| is_full = *errno == libc::EAGAIN)
            };
            let moved = caught(Err(libc::EIO), || match connection.settle()? {
                weft_sockets::ddp::Settled::Plain => Ok(None),
                _ => connection.receive_written(most, write).map(Some),
            });
            let stopped_by = match moved {
                Ok(None) => return real(),
                Ok(Some(Received::Octets(octets))) => return octets as isize,
                Ok(Some(Received::End)) => return at_the_end(connection),
                Ok(Some(Received::Nothing)) if is_unconnected(connection) => return real(),
                Ok(Some(Received::Nothing)) if waits && !file::does_not_wait(self.fd) => {
                    let wait = for_octets(connection, false, &mut timeout);
                    match hold.across(&mut connection, wait) {
                        Wait::Over => None,
                        Wait::Failed(errno) => Some(errno),
                    }
                }
                Ok(Some(Received::Nothing)) => Some(libc::EAGAIN),
                Err(libc::EAGAIN) if is_full && waits_for_pipe => wait_for(pipe, libc::POLLOUT),
                Err(errno) => Some(connection.slot().tell_error().unwrap_or(errno)),
            };
            if let Some(errno) = stopped_by {
                return fail(errno);
            }
        }
    }
}

fn flags_of(splice: Option<c_uint>) -> c_int {
    match splice {
        Some(flags) if flags & NONBLOCK != 0 => libc::MSG_DONTWAIT,
        _ => 0,
    }
}

/// Where the octets of a call are, as the kernel has it.
fn starts_at(octets: &FileOctets) -> Result<From, Errno> {
    if let Some(flags) = octets.splice {
        let waits = flags & NONBLOCK == 0 && !file::does_not_wait(octets.fd);
        return match file::is_pipe(octets.fd) {
            true => Ok(From::Pipe { waits }),
            // Neither end is one.
            false => Err(libc::EINVAL),
        };
    }
    if !octets.offset.is_null() {
        let at = get(octets.offset).ok_or(libc::EFAULT)?;
        let at = u64::try_from(at).map_err(|_| libc::EINVAL)?;
        return Ok(From::At(at));
    }
    match file::has_position(octets.fd) {
        true => Ok(From::Here),
        false => Err(libc::EINVAL),
    }
}

/// Reads what a pipe has. Nobody waits in it here.
fn read_pipe(fd: c_int, room: &mut [u8]) -> Result<usize, Errno> {
    match file::read_now(fd, room) {
        // What cannot tell whether it would wait is no pipe.
        Err(libc::EOPNOTSUPP) => Err(libc::EINVAL),
        result => result,
    }
}

/// Waits for a pipe; the error that the wait ended with.
fn wait_for(fd: c_int, events: i16) -> Option<Errno> {
    let mut wait = pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one entry, which is ours.
    match unsafe { calls::poll(&mut wait, 1, -1) } {
        -1 => Some(errno()),
        _ => None,
    }
}
