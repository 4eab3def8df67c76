//! Receives of a connection over DDP.

use std::ffi::c_int;

use weft_os::file::does_not_wait;
use weft_os::parts::Receives;
use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_sockets::ddp::{Connection, Received, State};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use super::attempts::{attempt, Attempt};
use super::holding::Hold;
use super::waits::{
    wait_a_while, wait_for_more, wait_for_the_peer, wait_for_the_rest, wait_once, wait_to_receive,
};
use super::TcpSocket;
use crate::edge::{caught, errno, fail, put, test_cancel, List};
use crate::socket::Beside;
use crate::timeout::Timeout;

/// A look that waits for as much as there is room for.
const ALL_PEEKED: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

/// Whether a look for all octets may wait for more of them. Where the descriptor does not wait the kernel's wait would
/// not either: it looks at what is there, and says that it looked.
fn may_wait(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !does_not_wait(fd)
}

impl TcpSocket {
    /// Receives octets of the stream.
    pub(super) fn receive_octets(
        self,
        mut connection: Connection<'static>,
        room: &UserBuffers,
        flags: c_int,
        real: impl FnOnce() -> isize,
    ) -> isize {
        match flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) {
            0 => {}
            libc::MSG_OOB if self.framed().is_some() => return fail(libc::EINVAL),
            _ => return real(),
        }
        test_cancel();
        let wanted = room.octets();
        let enough = enough(connection, wanted, flags);
        let (mut got, mut hold, mut timeout) = (0, Hold::new(self), Timeout::to_receive());
        loop {
            let attempt = caught(Err(libc::EIO), || {
                attempt(connection, || receive_once(connection, room, got, flags))
            });
            let stopped_by = match attempt {
                Ok(Attempt::Plain) => return self.receive_plain(&hold, room, flags, real),
                Ok(Attempt::Done(Some(octets))) if flags & ALL_PEEKED == ALL_PEEKED => {
                    let waits = octets < wanted && may_wait(hold.socket().fd, flags);
                    if !waits || hold.across(&mut connection, no_more_comes) {
                        return octets as isize;
                    }
                    continue;
                }
                Ok(Attempt::Done(Some(octets))) => {
                    got += octets;
                    if got >= enough || flags & libc::MSG_PEEK != 0 {
                        return got as isize;
                    }
                    continue;
                }
                // An error is told by the next call.
                Ok(Attempt::Done(None)) | Err(_) if got > 0 => return got as isize,
                Ok(Attempt::Done(None)) => return at_the_end(connection),
                Ok(Attempt::Waits) if is_unconnected(connection) => return real(),
                Ok(Attempt::Waits) if flags & libc::MSG_DONTWAIT != 0 => Some(libc::EAGAIN),
                Ok(Attempt::Waits) => {
                    let wait = for_octets(connection, got > 0, &mut timeout);
                    match hold.across(&mut connection, wait) {
                        Wait::Over => None,
                        Wait::Failed(errno) => Some(errno),
                    }
                }
                Err(errno) => match told_to_receiver(connection, errno) {
                    Some(errno) => Some(errno),
                    None => return 0,
                },
            };
            match stopped_by {
                None => {}
                Some(_) if got > 0 => return got as isize,
                Some(errno) => return fail(errno),
            }
        }
    }

    /// Receives what turned out to be no framed octets: the call is the kernel's after all.
    fn receive_plain(
        self,
        hold: &Hold,
        room: &UserBuffers,
        flags: c_int,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let (fd, waits) = (hold.socket().fd, flags & libc::MSG_DONTWAIT == 0);
        let low_water = self.connection().map_or(1, |it| it.slot().low_water());
        if low_water > 1 && waits && flags & libc::MSG_WAITALL == 0 {
            // The kernel's own wait would count what it has copied by now as if nobody had read it.
            if wait_to_receive(fd, low_water.min(room.octets())).is_err() {
                return -1;
            }
        }
        if fd == self.fd {
            return real();
        }
        // The number was closed while the call waited.
        loop {
            let mut receives = Receives::new();
            let has_place = receives.user(room, 0..room.octets());
            debug_assert!(has_place);
            match receives.receive(fd) {
                Ok(octets) => return octets as isize,
                Err(libc::EAGAIN) if waits => match wait_to_receive(fd, 1) {
                    Ok(()) => {}
                    Err(errno) => return fail(errno),
                },
                Err(errno) => return fail(errno),
            }
        }
    }

    /// A receive found nothing, and perhaps there was something that nobody knows how to read yet: whoever waits for an
    /// edge is given one then.
    pub(super) fn note_refused(self, connection: Connection<'static>, octets: isize) {
        if octets < 0 && connection.is_held() {
            let saved = errno();
            if saved == libc::EAGAIN {
                self.sockets().hide_octets(self.record, connection);
            }
            fail(saved);
        }
    }

    /// A receive on a connection that is none of DDP, before it is the kernel's: where there is no room for another
    /// over DDP, the peer's first octets are looked at before the program gets any, as they may be a Request.
    pub(super) fn await_beginning(self, flags: c_int) -> Result<(), Errno> {
        while self.record.lacks_room() {
            if !may_wait(self.fd, flags) {
                return Err(libc::EAGAIN);
            }
            wait_to_receive(self.fd, 1)?;
            self.connection();
        }
        Ok(())
    }

    fn wait_for_octets(
        self,
        connection: Connection<'static>,
        has_got: bool,
        timeout: &mut Timeout,
    ) -> Wait {
        let is_connecting = connection.slot().state() == State::Connecting;
        // The kernel's own wait would not say so: octets that are no whole FPDU, or no whole start, are octets to it.
        if does_not_wait(self.fd) {
            return Wait::Failed(libc::EAGAIN);
        }
        if connection.waits_for_another_process() {
            // What is there is not this process's to take, and would end every other wait at once.
            return match wait_for_the_peer(self.fd, !has_got, timeout) {
                None => Wait::Over,
                Some(errno) => Wait::Failed(errno),
            };
        }
        // What the program asked to be woken for may be more than is missing.
        let polls = connection.slot().low_water() == 1;
        // The kernel's own timeout is right for one wait alone.
        let has_timeout = timeout.has_begun() && !matches!(timeout.limit(self.fd), Ok(None));
        if polls && (has_got || has_timeout) {
            return match wait_once(self.fd, libc::POLLIN, timeout) {
                None => Wait::Over,
                Some(errno) => Wait::Failed(errno),
            };
        }
        if let Err(errno) = timeout.limit(self.fd) {
            return Wait::Failed(errno);
        }
        if has_timeout {
            let _ = wait_a_while(self.fd);
            return Wait::Over;
        }
        // What is there would end the kernel's own wait at once.
        if connection.awaits_whole() && !is_connecting {
            return match wait_for_the_rest(self.fd, !has_got, timeout) {
                None => Wait::Over,
                Some(errno) => Wait::Failed(errno),
            };
        }
        if has_got && !polls {
            connection.wait_for_any();
        }
        // Any octet is news. The kernel reads the number that a wait is for once, as it begins: for more it would not
        // see fewer, which are the last of a message that another thread has begun to take.
        match wait_to_receive(self.fd, 1) {
            Ok(()) => Wait::Over,
            Err(errno) => Wait::Failed(errno),
        }
    }

    /// Receives into the buffers of such a list.
    pub(super) fn receive_pieces(
        self,
        connection: Connection<'static>,
        list: List,
        flags: c_int,
        real: impl FnOnce() -> isize,
    ) -> isize {
        match list.check() {
            Ok(()) => {}
            Err(Verdict::Done(Err(errno))) => return fail(errno),
            Err(_) => return real(),
        }
        let (mut got, mut real) = (0, Some(real));
        for piece in list.pieces() {
            let Some(piece) = piece else {
                return if got > 0 { got } else { fail(libc::EFAULT) };
            };
            // Who has received something waits no longer, unless for all.
            let waits = got == 0 || flags & libc::MSG_WAITALL != 0;
            let flags = if waits {
                flags
            } else {
                flags | libc::MSG_DONTWAIT
            };
            let mut is_plain = false;
            let now = self.receive_octets(connection, &piece, flags, || {
                is_plain = true;
                0
            });
            if is_plain {
                return match real.take() {
                    Some(real) if got == 0 => real(),
                    _ => got,
                };
            }
            if now < 0 {
                return if got > 0 { got } else { now };
            }
            got += now;
            if (now as usize) < piece.octets() || flags & libc::MSG_PEEK != 0 {
                break;
            }
        }
        got
    }
}

/// Whether the socket is not connected, or was reset before anything was said: the kernel's own answer is right.
pub(super) fn is_unconnected(connection: Connection<'static>) -> bool {
    connection.slot().state() == State::Connecting
        && stream::state(connection.fd()) != Some(stream::State::Connected)
}

/// The wait until octets of the stream may have come.
pub(super) fn for_octets<'a>(
    connection: Connection<'static>,
    has_got: bool,
    timeout: &'a mut Timeout,
) -> impl FnOnce(TcpSocket) -> Wait + 'a {
    move |socket| socket.wait_for_octets(connection, has_got, timeout)
}

/// How a wait ended.
pub(super) enum Wait {
    Over,
    Failed(Errno),
}

/// One attempt to receive; `None` at the end of the stream.
fn receive_once(
    connection: Connection<'static>,
    room: &UserBuffers,
    got: usize,
    flags: c_int,
) -> Result<Attempt<Option<usize>>, Errno> {
    const THROWN: c_int = libc::MSG_TRUNC;
    const PEEKED: c_int = libc::MSG_PEEK;
    let wanted = room.octets() - got;
    let received = match flags & (THROWN | PEEKED) {
        // Whether there is anything.
        _ if wanted == 0 => connection.look()?,
        0 => connection.receive(room, got)?,
        THROWN => connection.discard(wanted)?,
        PEEKED => connection.peek(room)?,
        // As long as it is, and nothing is copied.
        _ => match connection.peek(&UserBuffers::none())? {
            Received::Octets(_) => match connection.available()? {
                0 => Received::Nothing,
                available => Received::Octets(available.min(wanted)),
            },
            other => other,
        },
    };
    Ok(match received {
        Received::Octets(octets) => Attempt::Done(Some(octets)),
        Received::End => Attempt::Done(None),
        Received::Nothing => Attempt::Waits,
    })
}

/// Ends a receive that gave `octets`: TCP tells no address and no control messages.
pub(super) fn tell(octets: isize, beside: Beside) -> isize {
    if octets < 0 {
        return octets;
    }
    let told = match beside {
        Beside::Nothing => Ok(()),
        Beside::Name(name, len) if name.is_null() || len.is_null() => Ok(()),
        Beside::Name(_, len) => put(len, 0),
        Beside::Message(at, mut message) => {
            message.msg_namelen = 0;
            message.msg_controllen = 0;
            message.msg_flags = 0;
            put(at, message)
        }
    };
    match told {
        Ok(()) => octets,
        Err(errno) => fail(errno),
    }
}

/// Waits until more than what is there has come; whether that will not be.
fn no_more_comes(socket: TcpSocket) -> bool {
    stream::has_ended(socket.fd) || wait_for_more(socket.fd).is_err()
}

/// What a receiver is told of an error: of one that ended the connection once, and later that nothing comes.
fn told_to_receiver(connection: Connection<'static>, errno: Errno) -> Option<Errno> {
    match connection.slot().state() {
        State::Over(_) => connection.slot().tell_error(),
        _ => Some(errno),
    }
}

/// What a call gives at the end of the stream: the error of a send that nobody was told of, as the kernel does behind
/// the last octets, or none.
pub(super) fn at_the_end(connection: Connection<'static>) -> isize {
    connection.slot().tell_error().map_or(0, fail)
}

/// How many of the octets that a call has room for it waits for, whatever else there is.
fn enough(connection: Connection<'static>, wanted: usize, flags: c_int) -> usize {
    match flags & (libc::MSG_WAITALL | libc::MSG_PEEK) {
        libc::MSG_WAITALL => wanted,
        _ => wanted.min(connection.slot().low_water()),
    }
}
