//! Numbers of Linux: levels and types of control messages, errno values, lengths.

/// Level of options and control messages of UDP.
pub const SOL_UDP: i32 = 17;
/// Control message with the segment size of a coalesced receive.
pub const UDP_GRO: i32 = 104;
/// Level of control messages of sockets as such.
pub const SOL_SOCKET: i32 = 1;
/// Control message with descriptors.
pub const SCM_RIGHTS: i32 = 1;
/// Octets of the longest address of UDP (`struct sockaddr_in6`).
pub const NAME_LEN: usize = 28;

/// A signal came first.
pub const EINTR: i32 = 4;
/// Input or output error: here, an interface that does not segment.
pub const EIO: i32 = 5;
/// Not now.
pub const EAGAIN: i32 = 11;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// Longer than the path or the socket takes.
pub const EMSGSIZE: i32 = 90;
/// Not supported by the protocol.
pub const EOPNOTSUPP: i32 = 95;
