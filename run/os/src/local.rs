//! Sockets by which two processes of one machine find each other and hand on a descriptor.
//!
//! Their names are abstract: they are no files, are gone with the process, and are seen in the network namespace that
//! they were made in and nowhere else, as loopback is. Or they are files, for processes of two network namespaces that
//! share a folder.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::credentials::is_of_this_user;
use crate::descriptors;
use crate::private::Private;

/// Octets of a message at most.
pub const MESSAGE_OCTETS_MAX: usize = 64;

/// Listens under a name.
#[derive(Debug)]
pub struct LocalListener {
    fd: Private,
}

/// One end of a connection.
#[derive(Debug)]
pub struct LocalSocket {
    fd: Private,
}

fn socket() -> io::Result<Private> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::UNIX;
    let socket =
        descriptors::open(|| net::socket_with(family, SocketType::SEQPACKET, flags, None))?;
    Ok(socket.into())
}

/// What a listener had.
#[derive(Debug)]
pub enum Accepted {
    /// A connection of this user.
    Own(LocalSocket),
    /// One that is none of this user's, and closed again, or that went before it was taken: there may be others.
    Others,
    /// None now.
    Nobody,
}

impl LocalListener {
    /// Listens under an abstract name.
    ///
    /// # Errors
    /// The name is taken ([`io::ErrorKind::AddrInUse`]); descriptors are short.
    pub fn bind(name: &str, backlog: i32) -> io::Result<LocalListener> {
        LocalListener::at(SocketAddrUnix::new_abstract_name(name.as_bytes())?, backlog)
    }

    /// Listens at a file, which stays when the listener is gone.
    ///
    /// # Errors
    /// The file is there ([`io::ErrorKind::AddrInUse`]), or may not be made; descriptors are short.
    pub fn bind_file(path: &Path, backlog: i32) -> io::Result<LocalListener> {
        LocalListener::at(SocketAddrUnix::new(path)?, backlog)
    }

    fn at(name: SocketAddrUnix, backlog: i32) -> io::Result<LocalListener> {
        let fd = socket()?;
        net::bind(&fd, &name)?;
        net::listen(&fd, backlog)?;
        Ok(LocalListener { fd })
    }

    /// The next connection. One of another user is closed: anybody can see the name, and connect as often as they like,
    /// so the caller has to bound how many it takes in a row.
    ///
    /// # Errors
    /// Descriptors or memory are short.
    pub fn accept(&self) -> io::Result<Accepted> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match descriptors::open(|| net::accept_with(&self.fd, flags)) {
            Ok(fd) if is_of_this_user(&fd) => Ok(Accepted::Own(LocalSocket { fd: fd.into() })),
            Ok(_) => Ok(Accepted::Others),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(Accepted::Nobody),
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {
                    Ok(Accepted::Others)
                }
                _ => Err(error),
            },
        }
    }
}

impl AsFd for LocalListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LocalSocket {
    /// Connects to a listener of this user.
    ///
    /// # Errors
    /// Nobody listens under that name, another user does ([`io::ErrorKind::PermissionDenied`]), or too many wait there.
    pub fn connect(name: &str) -> io::Result<LocalSocket> {
        LocalSocket::to(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    /// Connects to a listener of this user at a file.
    ///
    /// # Errors
    /// As of [`LocalSocket::connect`]; [`io::ErrorKind::ConnectionRefused`] where the file is there and its listener
    /// gone.
    pub fn connect_file(path: &Path) -> io::Result<LocalSocket> {
        LocalSocket::to(SocketAddrUnix::new(path)?)
    }

    fn to(name: SocketAddrUnix) -> io::Result<LocalSocket> {
        let fd = socket()?;
        net::connect(&fd, &name)?;
        match is_of_this_user(&fd) {
            true => Ok(LocalSocket { fd }),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Sends a message with a descriptor. It is there for the other end even if this one is closed at once.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn send(&self, message: &[u8], descriptor: impl AsFd) -> io::Result<()> {
        let descriptors = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        net::sendmsg(&self.fd, &[IoSlice::new(message)], &mut control, flags)?;
        Ok(())
    }

    /// The next message, if one is there: its octets, at most as many as `message` has, and its first descriptor.
    ///
    /// # Errors
    /// None is there ([`io::ErrorKind::WouldBlock`]).
    pub fn receive(&self, message: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = net::recvmsg(
            &self.fd,
            &mut [IoSliceMut::new(message)],
            &mut control,
            flags,
        )?;
        let mut descriptor = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.last().or(descriptor);
            }
        }
        Ok((received.bytes, descriptor))
    }
}

impl AsFd for LocalSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{eventfd, EventfdFlags};

    use super::*;

    fn name(what: &str) -> String {
        format!("weft-test-{}-{what}", std::process::id())
    }

    fn own(listener: &LocalListener) -> LocalSocket {
        match listener.accept().unwrap() {
            Accepted::Own(socket) => socket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_descriptor_is_handed_on_though_the_sender_is_gone() {
        let listener = LocalListener::bind(&name("hand"), 4).unwrap();
        assert!(matches!(listener.accept().unwrap(), Accepted::Nobody));
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let socket = LocalSocket::connect(&name("hand")).unwrap();
        socket.send(b"number", &counter).unwrap();
        drop(socket);
        let accepted = own(&listener);
        let mut message = [0; MESSAGE_OCTETS_MAX];
        let (octets, descriptor) = accepted.receive(&mut message).unwrap();
        assert_eq!(&message[..octets], b"number");
        let count = 7u64.to_ne_bytes();
        rustix::io::write(descriptor.expect("a descriptor"), &count).unwrap();
        let mut counted = [0; 8];
        assert_eq!(rustix::io::read(&counter, &mut counted), Ok(8));
        assert_eq!(counted, count);
    }

    #[test]
    fn a_name_is_one_listeners() {
        let first = LocalListener::bind(&name("taken"), 4).unwrap();
        let second = LocalListener::bind(&name("taken"), 4).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let nobody = LocalSocket::connect(&name("taken")).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let listener = LocalListener::bind(&name("silent"), 4).unwrap();
        let _socket = LocalSocket::connect(&name("silent")).unwrap();
        let accepted = own(&listener);
        let silent = accepted.receive(&mut [0; 8]).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
    }

    /// Needs root, which alone may become another user.
    #[test]
    fn another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can become another user");
        }
        let listener = LocalListener::bind(&name("user"), 4).unwrap();
        let connects = name("user");
        let status = crate::fork::tests::in_a_child(move || {
            // SAFETY: the child alone changes its user, and leaves.
            unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            let refused = LocalSocket::connect(&connects).unwrap_err();
            refused.kind() == io::ErrorKind::PermissionDenied
        });
        assert_eq!(status, 0);
        assert!(
            matches!(listener.accept().unwrap(), Accepted::Others),
            "and not served"
        );
        assert!(matches!(listener.accept().unwrap(), Accepted::Nobody));
    }
}
