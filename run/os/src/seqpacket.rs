//! Messages between processes of one machine: Unix sockets that keep them whole (`SOCK_SEQPACKET`), by abstract names.
//!
//! An abstract name belongs to the network namespace and to no folder, and is free as soon as nobody has it open.
//! Nothing waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::guarded::Held;
use crate::private::Private;
use crate::{descriptors, sys};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

fn socket() -> io::Result<Private> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    descriptors::open_apart(|| {
        net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    })
}

/// Takes connections at a name.
#[derive(Debug)]
pub struct Listener {
    fd: Private,
}

impl Listener {
    /// Takes an abstract name.
    ///
    /// # Errors
    /// `AddrInUse`: another socket of this network namespace has it.
    pub fn bind(name: &[u8]) -> io::Result<Listener> {
        let fd = socket()?;
        net::bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        net::listen(&fd, BACKLOG)?;
        Ok(Listener { fd })
    }

    /// The next connection; nothing when there is none now.
    ///
    /// # Errors
    /// Descriptors or memory are short.
    pub fn accept(&self) -> io::Result<Option<Packets>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let error = match descriptors::open_apart(|| net::accept_with(&self.fd, flags)) {
            Ok(fd) => return Ok(Some(Packets { fd })),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            _ => Err(error),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Packets {
    fd: Private,
}

impl Packets {
    /// One that is not connected yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open() -> io::Result<Packets> {
        Ok(Packets { fd: socket()? })
    }

    /// Connects to an abstract name. Where nobody has it another one may be tried.
    ///
    /// # Errors
    /// `ConnectionRefused`: nobody has the name. `WouldBlock`: too many wait there.
    pub fn connect(&self, name: &[u8]) -> io::Result<()> {
        Ok(net::connect(
            &self.fd,
            &SocketAddrUnix::new_abstract_name(name)?,
        )?)
    }

    /// The user that the other end's process ran as when it took the name or connected; `None` where the kernel does
    /// not tell.
    pub fn peer_user(&self) -> Option<u32> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut len = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
        let args = [
            self.fd.as_raw_fd() as usize,
            libc::SOL_SOCKET as usize,
            libc::SO_PEERCRED as usize,
            std::ptr::from_mut(&mut credentials) as usize,
            std::ptr::from_mut(&mut len) as usize,
            0,
        ];
        // SAFETY: the kernel writes at most `len` octets to `credentials`, and the length.
        unsafe { sys::call(libc::SYS_getsockopt, args) }.ok()?;
        Some(credentials.uid)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end is gone, or takes nothing now.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(net::send(&self.fd, message, flags).map(drop)?)
    }

    /// Receives a message; gives its octets, of which `buffer` has as many as fit. 0: the other end is gone.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let (_, octets) = net::recv(&self.fd, buffer, flags)?;
        Ok(octets)
    }
}

/// The user that this process acts as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

macro_rules! held {
    ($($name:ty),*) => {
        $(
            impl AsFd for $name {
                fn as_fd(&self) -> BorrowedFd<'_> {
                    self.fd.as_fd()
                }
            }

            impl Held for $name {
                fn abandon(self) {
                    self.fd.abandon();
                }
            }
        )*
    };
}

held!(Listener, Packets);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(what: &str) -> Vec<u8> {
        format!("weft-test-{}-{what}", std::process::id()).into_bytes()
    }

    #[test]
    fn messages_keep_their_boundaries_and_their_sender_is_known() {
        let listener = Listener::bind(&name("pair")).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let client = Packets::open().unwrap();
        client.connect(&name("pair")).unwrap();
        client.send(b"one").unwrap();
        client.send(b"twenty").unwrap();
        let server = listener.accept().unwrap().unwrap();
        for end in [&client, &server] {
            assert_eq!(end.peer_user(), Some(own_user()));
        }
        let mut buffer = [0; 4];
        assert_eq!(server.receive(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"one");
        assert_eq!(
            server.receive(&mut buffer).unwrap(),
            6,
            "more than fits is told"
        );
        let none = server.receive(&mut buffer).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        drop(client);
        // A child that another test has forked meanwhile has the client, too, until it ends.
        let begun = std::time::Instant::now();
        let end = loop {
            match server.receive(&mut buffer) {
                Err(none) if none.kind() == io::ErrorKind::WouldBlock => {}
                end => break end.unwrap(),
            }
            assert!(begun.elapsed().as_secs() < 20, "the end does not come");
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(end, 0);
    }

    #[test]
    fn a_name_has_one_owner_until_it_lets_go() {
        let listener = Listener::bind(&name("name")).unwrap();
        let taken = Listener::bind(&name("name")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        // A child that another test has forked meanwhile has the listener, too, until it ends.
        let begun = std::time::Instant::now();
        let (client, nobody) = loop {
            let client = Packets::open().unwrap();
            match client.connect(&name("name")) {
                Err(nobody) => break (client, nobody),
                Ok(()) => assert!(begun.elapsed().as_secs() < 20, "it lets go of nothing"),
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(nobody.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = Listener::bind(&name("name")).unwrap();
        client.connect(&name("name")).unwrap();
    }

    #[test]
    fn numbers_are_apart_from_the_programs() {
        let listener = Listener::bind(&name("apart")).unwrap();
        let client = Packets::open().unwrap();
        client.connect(&name("apart")).unwrap();
        let server = listener.accept().unwrap().unwrap();
        for fd in [listener.as_fd(), client.as_fd(), server.as_fd()] {
            assert!(fd.as_raw_fd() >= descriptors::APART, "{}", fd.as_raw_fd());
        }
    }
}
