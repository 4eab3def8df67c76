//! Names that one process of a network namespace has at a time.
//!
//! A claim is an abstract Unix socket (unix(7)): the kernel gives its name to one socket of a network namespace, and
//! takes it back when the process ends, however it ends. A forked child has no part in it.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{
    bind, connect, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::credentials;
use crate::descriptors;
use crate::private::Private;

/// How often a name's owner may be asked for; after that it is not told any more who it is.
const ASKED_MAX: i32 = 1024;

/// A name that this process has, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    _socket: Private,
}

/// Why a name is not to be had.
#[derive(Debug)]
pub enum Refused {
    /// Another process has it; its number, where the kernel tells it.
    Taken(Option<u32>),
    /// The kernel refuses for another reason.
    Error(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Error(error)
    }
}

impl From<rustix::io::Errno> for Refused {
    fn from(error: rustix::io::Errno) -> Refused {
        Refused::Error(error.into())
    }
}

impl Claim {
    /// Takes a name, of 100 octets at most.
    ///
    /// # Errors
    /// Somebody has it, or there is no descriptor left.
    pub fn take(name: &str) -> Result<Claim, Refused> {
        let socket = unix_socket()?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        match bind(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::ADDRINUSE) => return Err(Refused::Taken(owner(&address))),
            Err(error) => return Err(error.into()),
        }
        // Who asks for the owner connects; nobody accepts.
        listen(&socket, ASKED_MAX)?;
        Ok(Claim { _socket: socket })
    }
}

/// The process that has the name.
fn owner(address: &SocketAddrUnix) -> Option<u32> {
    let socket = unix_socket().ok()?;
    connect(&socket, address).ok()?;
    let process = credentials::of_other_end(socket.as_fd()).ok()?.pid;
    // One of another process namespace has no number here.
    u32::try_from(process).ok().filter(|process| *process > 0)
}

fn unix_socket() -> io::Result<Private> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    descriptors::open_apart(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner_until_it_is_dropped() {
        let name = format!("weft-test-claim-{}", std::process::id());
        let claim = Claim::take(&name).unwrap();
        let Err(Refused::Taken(owner)) = Claim::take(&name) else {
            panic!("it was given twice");
        };
        assert_eq!(owner, Some(std::process::id()));
        drop(claim);
        drop(Claim::take(&name).unwrap());
    }
}
