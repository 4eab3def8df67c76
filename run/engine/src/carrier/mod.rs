//! What carries a queue pair's octets: the seam between the engine and a transport.
//!
//! A queue pair needs an ordered stream of octets and never learns which. [`Network`] makes connections, [`Listener`]
//! takes them, [`Carrier`] is one; datagrams go by a [`DatagramSocket`]. The kernel's TCP and UDP are the first
//! ([`tcp`], [`udp`]); [`memory`] is a network within one process, which tests run over. The engine is given its
//! network when it starts. Whatever network it is, two processes of one machine may have rings beside a connection of
//! theirs ([`same_host`]).
//!
//! All of them can be used by several threads: their callers hold a lock (the id's, the queue pair's), but readiness
//! comes from elsewhere.

mod carried;
pub mod memory;
mod pieces;
pub mod same_host;
pub mod tcp;
pub mod udp;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use carried::Carried;
pub use pieces::{Arrived, Done, Pieces};
pub use weft_os::lists::{Gather, Run, Scatter};
pub use weft_os::mem::Registered;
pub use weft_os::net::{Bell, SocketOptions, Transfer};
pub use weft_os::poll::Interest;
pub use weft_os::rings::{RingsToShare, SharedRings};
pub use weft_os::udp::Received;
use weft_settings::transport::Policy;
pub use weft_verbs::ud::flow::weight as datagram_weight;

pub use crate::progress::{Alarm, Drive, Quiet, Readiness, Source};
use crate::stats::PathRow;

const EOPNOTSUPP: i32 = 95;

/// A connection, or one that is being made.
pub trait Carrier: Source + Any {
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

    /// How many octets it has taken and not sent yet, as far as it knows: those may wait for a window or a rate. 0
    /// where nobody tells, as of the kernel's TCP.
    #[inline]
    fn unsent(&self) -> usize {
        0
    }

    /// Copies what it refers to, so that the program may change its memory while the octets wait.
    fn keep_copies(&self) {}

    /// Receives octets.
    fn recv(&self, buffer: &mut [u8]) -> Transfer;

    /// Receives into a scatter list.
    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer;

    /// Whether a receive would find octets or an end that are here already, for who runs the network by itself
    /// ([`Network::drives`]). A carrier with a descriptor leaves that to it.
    fn is_readable(&self) -> bool {
        false
    }

    /// How long the way there and back takes at the least, as far as that is known: without what the other end waits
    /// before it acknowledges.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

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

    /// Octets that came before what precedes them, and that a carrier which delivers in order has kept until that was
    /// there. 0 where nobody counts them, as the kernel's TCP does not.
    fn kept_octets(&self) -> u64 {
        0
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

    /// Its octets as they arrive, where it hands them over so. Its segments then end where lists are cut
    /// ([`Gather::cut`]), as the other end may want to do the same.
    #[inline]
    fn pieces(&self) -> Option<&dyn Pieces> {
        None
    }

    /// A queue pair has it from now on: its peer has shown that it speaks iWARP and was accepted. Until then it is some
    /// stranger's, to whom a carrier with windows of its own need not promise much.
    #[inline]
    fn attached(&self) {}

    /// The other end may acknowledge what it no longer waits for ([`Pieces::forgive`]), which is then a sign of
    /// congestion as a loss is.
    #[inline]
    fn peer_forgives(&self) {}

    /// Where it tells of its path from now on, if it knows more of that than the kernel tells; nowhere any more before
    /// the row is another connection's.
    #[inline]
    fn show(&self, _row: Option<PathRow>) {}

    /// Sends and acknowledges as `policy` says, from now on.
    ///
    /// # Errors
    /// The connection is over; or (`EOPNOTSUPP`) it is not this program that decides, as of the kernel's TCP.
    fn set_policy(&self, _policy: &Policy) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(EOPNOTSUPP))
    }

    /// A handle that sends single octets on it, and keeps it open meanwhile: for callers that have let go of the lock.
    fn bell(&self) -> Option<Bell> {
        None
    }

    /// What it may have beside, where the other end is on the same machine.
    #[inline]
    fn rings(&self) -> Option<&dyn Rings> {
        None
    }
}

/// Two rings in memory that both ends of a connection share (decision 0035). Once they do, octets go through the rings
/// and nothing shows at the carrier's descriptor unless it was asked for: its bell is *armed*.
pub trait Rings {
    /// Makes memory, for the other end to take.
    ///
    /// # Errors
    /// Descriptors or memory are short, or it has some.
    fn offer(&self, wants_crc: bool) -> io::Result<RingsToShare>;

    /// Takes memory that the other end offered. False where that does not offer it any more. `wants_crc` where either
    /// end does.
    ///
    /// # Errors
    /// It has some.
    fn accept(&self, rings: SharedRings, wants_crc: bool) -> io::Result<bool>;

    /// Whether both ends use the memory, and if so whether with CRCs. Only once this was asked octets are read out of
    /// the rings: what is above has to know it before.
    fn shared(&self) -> Option<bool>;

    /// The descriptor is ready, the epoll set says: a bell, or the end.
    fn note_ready(&self);

    /// Whether there is something that was waited for: octets, or room again. Costs no system call.
    fn has_arrived(&self, octets: bool, room: bool) -> bool;

    /// A look found nothing, and nothing is waited for but octets. [`Rings::quiet`] says so until there are some, or
    /// the end of them, or this end sends.
    fn note_quiet(&self);

    /// What says without a lock that a look would find nothing.
    fn quiet(&self) -> Option<Arc<dyn Quiet>>;

    /// Whether a send that found no room may be tried again.
    fn has_room(&self) -> bool;

    /// Whether everything that the other end sent by the connection itself was read: what shows at the descriptor from
    /// then on is a bell, or the end.
    fn has_read_connection(&self) -> bool;

    /// The bell of the other end, if it is still to be rung. What is short is not announced as it is sent: whoever
    /// sends takes the bell along, and rings it when it has let go of its lock (decision 0055). A connection without
    /// such a handle ([`Carrier::bell`]) is rung by in here.
    fn take_bell(&self) -> Option<Bell>;

    /// Whether the bell is armed for that.
    fn is_armed(&self, octets: bool, room: bool) -> bool;

    /// Disarms the bell: nobody waits for it.
    fn disarm(&self);

    /// Arms the bell: the descriptor shows from now on when octets come, or room. False when they are there already.
    fn arm(&self, octets: bool, room: bool) -> bool;
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

/// A port that datagrams are sent and received by, at one address or at all.
pub trait DatagramSocket: Source + Sync {
    /// The address it is bound to; once it is connected, the one that its datagrams come from.
    ///
    /// # Errors
    /// The kernel's.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// From now on it receives from `peer` only, and may hear of it when nobody has that port.
    ///
    /// # Errors
    /// There is no route, or the socket is of the other version.
    fn connect(&self, peer: SocketAddr) -> io::Result<()>;

    /// Sends a list from an address of this end: as one datagram, or as datagrams of `segment` octets and a last one of
    /// what is left.
    ///
    /// # Errors
    /// Nothing was sent then. `WouldBlock`: the buffer is full, and [`Source::wait_for`] tells when it is not;
    /// `EINPROGRESS`: the way to the destination is being found, and a millisecond later it may be; `EFAULT`: memory in
    /// the list is not mapped; `EINVAL`, `EMSGSIZE` or `EIO` with a `segment`: not in one call. With any other error
    /// the datagrams cannot be delivered.
    fn send(
        &self,
        list: &Gather<'_>,
        from: IpAddr,
        to: SocketAddr,
        segment: Option<u16>,
    ) -> io::Result<()>;

    /// Receives what came first: a datagram, or several of one length from one sender. What does not fit the buffer is
    /// cut off.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing; `ConnectionRefused` when nobody has the port that it is connected to.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Octets that may wait to be received at one of its addresses, as the kernel counts them
    /// ([`datagram_weight`]).
    fn room(&self, at: IpAddr) -> u32;
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

    /// Holds a port for datagrams at a local address, or where that is unspecified at all of its version; port 0 takes
    /// an ephemeral port. Where `many` are expected, it is the octets that its buffers are to have, and several
    /// datagrams may be received at a time.
    ///
    /// # Errors
    /// The address is taken, not this network's, or not allowed.
    fn datagrams(
        &self,
        addr: SocketAddr,
        options: &SocketOptions,
        many: Option<usize>,
    ) -> io::Result<Box<dyn DatagramSocket>> {
        udp::bind(addr, options, many)
    }

    /// The local address that would be used towards `peer`.
    ///
    /// # Errors
    /// There is no route.
    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr>;

    /// Addresses that are its own and not the kernel's, each with the name of its interface.
    fn addresses(&self) -> Vec<(IpAddr, String)> {
        Vec::new()
    }

    /// What of it has to be run, from the engine's start on.
    fn drives(&self) -> Vec<Arc<dyn Drive>> {
        Vec::new()
    }

    /// Whether any of its carriers takes a policy ([`Carrier::set_policy`]).
    fn takes_policies(&self) -> bool {
        false
    }

    /// The process exits: what was taken leaves, as far as that is to be had in a short time. Must not wait for a lock
    /// that a thread may hold for good.
    fn leave(&self) {}

    /// Memory is deregistered. No carrier of this network refers to it when this returns: what waits in it is copied
    /// first, as the program may free it then.
    fn deregistered(&self, _memory: &Registered) {}
}
