//! What a call that waits holds.

use weft_sockets::ddp::Connection;
use weft_sockets::stack::Kind;

use super::TcpSocket;
use crate::edge::{caught, errno, fail};

/// The socket of a call, once that has waited. Gives it back when dropped, where the thread is cancelled too.
pub struct Hold {
    socket: TcpSocket,
    is_held: bool,
}

impl Hold {
    /// Nothing yet.
    pub fn new(socket: TcpSocket) -> Hold {
        Hold {
            socket,
            is_held: false,
        }
    }

    /// The call waits; then gives the socket by a descriptor that is still its own, and the connection.
    pub fn across<T>(
        &mut self,
        connection: &mut Connection<'static>,
        wait: impl FnOnce(TcpSocket) -> T,
    ) -> T {
        // What only the service thread may do has to be known to it while this one waits.
        self.socket.called(*connection);
        if !self.is_held {
            let socket = self.socket;
            self.is_held = caught(false, || socket.sockets().hold(socket.record));
        }
        let waited = wait(self.socket);
        let saved = errno();
        caught((), || self.look_where(connection));
        if connection.is_held() {
            *connection = self.socket.resolved(*connection, libc::MSG_DONTWAIT);
        }
        fail(saved);
        waited
    }

    /// The socket, by a descriptor that is its own.
    pub fn socket(&self) -> TcpSocket {
        self.socket
    }

    fn look_where(&mut self, connection: &mut Connection<'static>) {
        let socket = &mut self.socket;
        let number = socket.record.number();
        if socket.stack.is_known_as(socket.fd, Kind::Streams, number) {
            return;
        }
        // Without one the number is somebody else's by now, or nobody's: what the call does next is EBADF.
        let fd = socket.sockets().stand_in(socket.record).unwrap_or(-1);
        socket.fd = fd;
        *connection = connection.with_fd(fd);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_held {
            let saved = errno();
            caught((), || {
                self.socket.stack.let_go_of_stream(self.socket.record)
            });
            fail(saved);
        }
    }
}
