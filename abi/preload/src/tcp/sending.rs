//! Sends of a connection over DDP, and the end of its sending direction.

use std::cell::Cell;
use std::ffi::c_int;

use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_sockets::ddp::{Connection, Settled, State};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use super::attempts::{attempt_to_send, Attempt};
use super::holding::Hold;
use super::waits::{send_nothing, wait_for_room, wait_once};
use super::TcpSocket;
use crate::edge::{caught, test_cancel, List};
use crate::timeout::Timeout;

impl TcpSocket {
    /// Sends octets of the stream: all of them, if the descriptor waits. `before` octets of the program's call have
    /// been sent already.
    pub(super) fn send_octets(
        self,
        mut connection: Connection<'static>,
        data: &UserBuffers,
        before: usize,
        flags: c_int,
    ) -> Verdict {
        if flags & libc::MSG_OOB != 0 {
            return match self.framed() {
                Some(_) => Verdict::Done(Err(libc::EOPNOTSUPP)),
                None => Verdict::Kernel,
            };
        }
        test_cancel();
        let (mut sent, mut hold, mut timeout) = (0, Hold::new(self), Timeout::to_send());
        loop {
            let more = flags & libc::MSG_MORE;
            let attempt = caught(Err(libc::EIO), || {
                attempt_to_send(connection, || connection.send(data, sent, more))
            });
            // What was kept for a Request has left as it is, and the rest of the call follows it: a call that waits
            // gives less than it was given only where something ended it.
            let attempt = match attempt {
                Ok(Attempt::Plain) if before + sent > 0 => {
                    match connection.send_as_tcp(data, sent, more) {
                        Err(libc::EAGAIN) => Ok(Attempt::Waits),
                        result => result.map(Attempt::Done),
                    }
                }
                attempt => attempt,
            };
            let stopped_by = match attempt {
                Ok(Attempt::Plain) => return Verdict::Kernel,
                Ok(Attempt::Done(octets)) => {
                    sent += octets;
                    if sent == data.octets() {
                        return Verdict::Done(Ok(sent));
                    }
                    continue;
                }
                Ok(Attempt::Waits) => {
                    let (waits, has_sent) = (connection, before + sent > 0);
                    hold.across(&mut connection, |socket| {
                        let waits = waits.with_fd(socket.fd);
                        socket.wait_to_send(waits, flags, has_sent, &mut timeout)
                    })
                }
                // It is told by the next call.
                Err(_) if sent > 0 => return Verdict::Done(Ok(sent)),
                Err(errno) => Some(hold.socket().told_to_sender(connection, errno, flags)),
            };
            match stopped_by {
                None => {}
                Some(_) if sent > 0 => return Verdict::Done(Ok(sent)),
                Some(errno) => return Verdict::Done(Err(errno)),
            }
        }
    }

    /// What a sender is told of an error: of one that ended the connection once, later that it is closed.
    pub(super) fn told_to_sender(
        self,
        connection: Connection<'static>,
        errno: Errno,
        flags: c_int,
    ) -> Errno {
        let is_over = matches!(connection.slot().state(), State::Over(_));
        match connection.slot().tell_error() {
            Some(told) => told,
            None if is_over || errno == libc::EPIPE => {
                // The kernel does not send it for a direction that is shut down to the program and still carries what
                // a full socket left.
                if flags & libc::MSG_NOSIGNAL == 0 {
                    // SAFETY: no pointer; whatever the program's handler does, nothing is held here.
                    unsafe { libc::raise(libc::SIGPIPE) };
                }
                libc::EPIPE
            }
            None => errno,
        }
    }

    /// Waits until the connection may take more; the error that the wait ended with. A call that has sent something is
    /// not taken up again after a signal, whatever the handler was installed with (signal(7)).
    pub(super) fn wait_to_send(
        self,
        connection: Connection<'static>,
        flags: c_int,
        has_sent: bool,
        timeout: &mut Timeout,
    ) -> Option<Errno> {
        let slot = connection.slot();
        let (state, is_short) = (slot.state(), slot.is_short());
        let waits_for_socket = matches!(state, State::Connecting | State::Open) && !is_short;
        if waits_for_socket && !has_sent {
            let is_over = timeout.limit(self.fd).err();
            return is_over.or_else(|| send_nothing(self.fd, flags));
        }
        if flags & libc::MSG_DONTWAIT != 0 || weft_os::file::does_not_wait(self.fd) {
            return Some(libc::EAGAIN);
        }
        match state {
            // The answer to a question wakes nobody, nor does a Reply; a Request comes at once or not at all.
            State::Connecting | State::Open | State::Listening if is_short => {
                self.wait_for_room(connection, !has_sent, timeout)
            }
            State::Accepted | State::Answering | State::Asked => {
                self.wait_for_room(connection, !has_sent, timeout)
            }
            State::Connecting | State::Open | State::Plain | State::Late => {
                wait_once(self.fd, libc::POLLOUT, timeout)
            }
            // It has begun, or is over: the next attempt tells.
            _ => None,
        }
    }

    /// Waits for room that is not the socket's own.
    fn wait_for_room(
        self,
        connection: Connection<'static>,
        is_restarted: bool,
        timeout: &mut Timeout,
    ) -> Option<Errno> {
        let looks = Cell::new(0);
        wait_for_room(self.fd, is_restarted, timeout, || {
            let count = looks.replace(looks.get() + 1);
            if !connection.slot().is_open() {
                caught((), || self.sockets().answer_own(self.fd, count));
            }
            let known = match connection.is_held() {
                true => self.resolved(connection, libc::MSG_DONTWAIT),
                false => connection,
            };
            // An error is for the next attempt to meet.
            caught(true, || known.is_still_short() != Ok(true))
        })
    }

    /// Sends the octets of a list that is too long to be held as a whole, piece by piece.
    pub(super) fn send_pieces(
        self,
        connection: Connection<'static>,
        list: List,
        flags: c_int,
    ) -> Verdict {
        if let Err(verdict) = list.check() {
            return verdict;
        }
        let mut sent = 0;
        for piece in list.pieces() {
            let Some(piece) = piece else {
                return stopped(sent, libc::EFAULT);
            };
            match self.send_octets(connection, &piece, sent, flags) {
                Verdict::Done(Ok(octets)) => {
                    sent += octets;
                    if octets < piece.octets() {
                        break;
                    }
                }
                Verdict::Done(Err(errno)) => return stopped(sent, errno),
                // The first has been looked at: the whole call is the kernel's.
                Verdict::Kernel if sent == 0 => return Verdict::Kernel,
                Verdict::Kernel | Verdict::Begun => break,
            }
        }
        Verdict::Done(Ok(sent))
    }

    /// Ends the sending direction, or both.
    pub(super) fn shut_down(self, connection: Connection<'static>, how: c_int) -> Verdict {
        let is_known = how == libc::SHUT_WR || how == libc::SHUT_RDWR;
        if is_known && connection.slot().state() == State::Connecting {
            // A socket that is connected by now asks before its end leaves. What goes wrong is met below.
            let _ = caught(Err(libc::EIO), || connection.settle());
        }
        let is_open = match connection.slot().state() {
            State::Connecting => connection.is_asking(),
            State::Over(_) => false,
            _ => true,
        };
        if !is_known || !is_open {
            return Verdict::Kernel;
        }
        let ended = caught(Err(libc::EIO), || {
            // One whose own octets have left plain, and whose peer's are to be seen, is shut down by us as well: what
            // waits leaves first.
            if connection.settle()? == Settled::Plain {
                return Ok(Attempt::Plain);
            }
            connection
                .shut_down(how == libc::SHUT_RDWR)
                .map(Attempt::Done)
        });
        match ended {
            Ok(Attempt::Plain) => Verdict::Kernel,
            Ok(_) if how == libc::SHUT_WR => Verdict::Done(Ok(0)),
            Ok(_) => {
                connection.stop_receiving();
                // The kernel answers whatever comes from then on by a reset, and framing may come: what was sent before
                // would be lost with it.
                if connection.is_with_weft() {
                    stream::shut_receiving_down(self.fd);
                }
                Verdict::Done(Ok(0))
            }
            Err(_) => Verdict::Done(Err(libc::ENOTCONN)),
        }
    }
}

fn stopped(done: usize, errno: Errno) -> Verdict {
    Verdict::Done(match done {
        0 => Err(errno),
        done => Ok(done),
    })
}
