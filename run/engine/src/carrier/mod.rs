//! What carries a queue pair's octets: the seam between the engine and a transport.
//!
//! A queue pair needs an ordered stream of octets and never learns which. [`Network`] makes connections, [`Listener`]
//! takes them, [`Carrier`] is one. The kernel's TCP is the first ([`tcp`]); [`memory`] is a network within one process,
//! which tests run over. The engine is given its network when it starts.
//!
//! All of them can be used by several threads: their callers hold a lock (the id's, the queue pair's), but readiness
//! comes from elsewhere.

pub mod memory;
pub mod tcp;

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use weft_os::lists::{Gather, Run, Scatter};
pub use weft_os::mem::Registered;
pub use weft_os::net::{SocketOptions, Transfer};
pub use weft_os::poll::Interest;

pub use crate::progress::{Readiness, Source};

/// A connection, or one that is being made.
pub trait Carrier: Source {
    /// Whether the connect is over, and well.
    fn is_connected(&self) -> bool;

    /// The outcome of a connect that is over.
    ///
    /// # Errors
    /// Why it failed.
    fn connect_result(&self) -> io::Result<()>;

    /// Sends octets, which are the caller's again at once.
    fn send(&self, octets: &[u8]) -> Transfer;

    /// Sends a list. Octets that it says to have *taken* are copied, or, of registered memory, referred to until the
    /// peer has them ([`Carrier::unreleased`]).
    fn send_gather(&self, list: &Gather<'_>) -> Transfer;

    /// How many octets at the end of those taken it does not have copies of: from the first of them on that it refers
    /// to. When that becomes less it says that it is ready.
    #[inline]
    fn unreleased(&self) -> usize {
        0
    }

    /// Copies what it refers to, so that the program may change its memory while the octets wait.
    fn keep_copies(&self) {}

    /// Receives octets.
    fn recv(&self, buffer: &mut [u8]) -> Transfer;

    /// Receives into a scatter list.
    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer;

    /// Finishes sending: the other end sees the end of the stream behind what was sent.
    fn finish(&self);

    /// Whether it was reset or both directions are closed, found without reading it.
    fn is_broken(&self) -> bool;

    /// Closing resets the connection from now on.
    fn abort_on_close(&self);

    /// Bounds how long what was sent is kept after closing, while the other end takes none of it.
    fn keep_after_close(&self, time: Duration);

    /// Octets of payload that a segment carries at most at the moment (the EMSS of RFC 5044).
    ///
    /// # Errors
    /// The connection is over.
    fn emss(&self) -> io::Result<usize>;

    /// The EMSS, where it is another than was said last. A carrier that says so once says that it is ready. The
    /// kernel's TCP does not tell: its EMSS is what it was when the connection was made.
    #[inline]
    fn take_new_emss(&self) -> Option<usize> {
        None
    }

    /// This end's address.
    ///
    /// # Errors
    /// The connection is over.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The other end's address.
    ///
    /// # Errors
    /// Not connected.
    fn peer_addr(&self) -> io::Result<SocketAddr>;
}

/// Takes connections.
pub trait Listener: Source {
    /// The next connection; `None` when there is none now.
    ///
    /// # Errors
    /// Descriptors or memory are short.
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>>;

    /// Whether a connection waits to be accepted.
    fn has_waiting(&self) -> bool;
}

/// A local address that is held.
pub trait Bound: Debug + Send {
    /// The address.
    fn local_addr(&self) -> SocketAddr;

    /// Begins to listen. Beyond `backlog` connections that nobody has accepted the network may refuse others.
    ///
    /// # Errors
    /// Somebody else listens there.
    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>>;

    /// Begins to connect.
    ///
    /// # Errors
    /// Refused at once, for instance without a route.
    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>>;
}

/// Makes connections.
pub trait Network: Debug + Send + Sync {
    /// Holds a local address; port 0 takes an ephemeral port.
    ///
    /// # Errors
    /// The address is taken, not this network's, or not allowed.
    fn bind(&self, addr: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Bound>>;

    /// Begins to connect from an address of the network's choice.
    ///
    /// # Errors
    /// Refused at once.
    fn connect(&self, peer: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Carrier>>;

    /// The local address that would be used towards `peer`.
    ///
    /// # Errors
    /// There is no route.
    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr>;

    /// Memory is deregistered. No carrier of this network refers to it when this returns: what waits in it is copied
    /// first, as the program may free it then.
    fn deregistered(&self, _memory: &Registered) {}
}
