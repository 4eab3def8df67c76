//! A connection that was accepted where there is no room for another one over DDP: a plain peer is served as TCP, and
//! one that asks for DDP is refused, as its Request would be octets of the stream to the program.

use weft_os::parts::Sends;
use weft_os::stream;
use weft_stream::start;

/// What a peer began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It has sent nothing.
    Nothing,
    /// It asked for DDP, and was refused: the socket is none any more.
    Refused,
    /// The program's octets, or the end.
    Plain,
}

/// Looks what the peer of the socket `fd` began with.
pub fn begins_with(fd: i32) -> Beginning {
    let mut seen = [0; start::KEY_LEN];
    match stream::peek(fd, &mut seen) {
        Err(libc::EAGAIN) => Beginning::Nothing,
        // A Request comes whole.
        Ok(octets) if start::is_request(&seen[..octets]) == Some(true) => {
            refuse(fd);
            Beginning::Refused
        }
        // The kernel tells the program of an error.
        _ => Beginning::Plain,
    }
}

fn refuse(fd: i32) {
    let (reply, len) = start::reject();
    let mut sends = Sends::new();
    if sends.own(&reply[..len]) {
        // What it does not take the peer is told by a reset.
        let _ = sends.send(fd, 0);
    }
    weft_settings::warn_of_peer!("a peer that asks for DDP is refused: there is no room for it");
    stream::reset(fd);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use weft_stream::Receiver;

    #[test]
    fn who_asks_is_refused_and_who_does_not_is_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let begins = |server: &TcpStream| {
            let waits = || begins_with(server.as_raw_fd());
            loop {
                match waits() {
                    Beginning::Nothing => std::thread::yield_now(),
                    other => return other,
                }
            }
        };
        let (mut client, server) = connected();
        assert_eq!(begins_with(server.as_raw_fd()), Beginning::Nothing);
        client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(begins(&server), Beginning::Plain);
        let (client, server) = connected();
        drop(client);
        assert_eq!(begins(&server), Beginning::Plain, "the end");
        let (mut client, mut server) = connected();
        let data = Receiver::connection_data(1, 0x1000, 2, 0x2000);
        client.write_all(&start::request(&data, false)).unwrap();
        assert_eq!(begins(&server), Beginning::Refused);
        assert!(server.read(&mut [0; 100]).is_err(), "no octet of it");
        let error = client.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
