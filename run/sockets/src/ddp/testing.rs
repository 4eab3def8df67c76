//! Connections over DDP between two sockets of this process, for tests.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use weft_os::dgram::{ready, set_int};

use super::{Connection, Settled, Slot};

/// The sockets of a connection, the one that connected first.
pub(super) fn pair() -> [TcpStream; 2] {
    pair_of(None)
}

/// The same, where the other has a receive buffer of so many octets.
pub(super) fn pair_of(receive_buffer: Option<i32>) -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if let Some(octets) = receive_buffer {
        let fd = listener.as_raw_fd();
        set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, octets).unwrap();
    }
    [
        TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
        listener.accept().unwrap().0,
    ]
}

/// Both ends of an open connection over them.
pub(super) fn open(slots: &'static [Slot], sockets: &[TcpStream; 2]) -> [Connection<'static>; 2] {
    slots.iter().for_each(Slot::restart_clock);
    let [client, server] = [0, 1].map(|at| Connection::new(&slots[at], sockets[at].as_raw_fd()));
    client.ask().unwrap();
    server.answer().unwrap();
    for connection in [server, client, server] {
        while connection.settle().unwrap() != Settled::Open {
            ready(connection.fd(), libc::POLLIN, 1000);
        }
    }
    [client, server]
}
