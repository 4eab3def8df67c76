//! The connection that a carrier travels on: of the kernel's TCP, or of the adapter's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use weft_engine::carrier::{Carrier, Gather, Transfer};
use weft_os::dgram::{get_int, ready};
use weft_os::guarded::Guarded;
use weft_os::net::TcpStream;
use weft_os::stream::{least_round_trip, set_pacing_rate};
use weft_settings::transport::{Control, Policy};
use weft_uoe::gather::GATHERED_OCTETS;

use crate::frames::Frames;

/// Octets that the adapter's connection has and has not sent at most: more than the longest frame.
const UNSENT_MAX: usize = 64 * 1024;

/// A connection, or one that is being made.
#[derive(Debug)]
pub(crate) enum Wire {
    /// Of the kernel's.
    Kernel(Guarded<TcpStream>),
    /// Of the adapter's: the thread alone uses it, and runs the adapter.
    Adapter(Box<dyn Carrier>),
}

impl Wire {
    /// One of the kernel's.
    pub(crate) fn of_kernel(stream: TcpStream) -> Wire {
        Wire::Kernel(Guarded::new(stream))
    }

    /// Whether it is the adapter's.
    pub(crate) fn is_adapters(&self) -> bool {
        matches!(self, Wire::Adapter(_))
    }

    /// The number to wait for; none where something is there whenever the adapter was run.
    pub(crate) fn number(&self) -> RawFd {
        match self {
            Wire::Kernel(stream) => stream.number(),
            Wire::Adapter(_) => -1,
        }
    }

    /// The outcome of connecting, where that is over and the kernel's number ready.
    pub(crate) fn connect_result(&mut self) -> Option<io::Result<()>> {
        match self {
            Wire::Kernel(stream) => Some(match stream.get() {
                Some(stream) => stream.connect_result(),
                None => Err(io::ErrorKind::NotConnected.into()),
            }),
            Wire::Adapter(connection) if connection.is_connected() => Some(Ok(())),
            Wire::Adapter(connection) => connection.connect_result().err().map(Err),
        }
    }

    /// This end's address.
    pub(crate) fn local_addr(&mut self) -> Option<SocketAddr> {
        match self {
            Wire::Kernel(stream) => stream.get()?.local_addr().ok(),
            Wire::Adapter(connection) => connection.local_addr().ok(),
        }
    }

    /// The other end's address.
    pub(crate) fn peer_addr(&mut self) -> Option<SocketAddr> {
        match self {
            Wire::Kernel(stream) => stream.get()?.peer_addr().ok(),
            Wire::Adapter(connection) => connection.peer_addr().ok(),
        }
    }

    /// Whether something is there that no number shows.
    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Wire::Kernel(_) => false,
            Wire::Adapter(connection) => connection.is_readable(),
        }
    }

    /// Sends so many bits of packets a second from now on, no more.
    pub(crate) fn set_rate(&mut self, bits: u64) {
        let octets = (bits / 8).max(1);
        match self {
            Wire::Kernel(stream) => {
                if let Some(stream) = stream.get() {
                    set_pacing_rate(stream.as_fd().as_raw_fd(), octets);
                }
            }
            Wire::Adapter(connection) => {
                let policy = Policy {
                    control: Control::Rate(octets),
                    ..Policy::default()
                };
                // A connection that is over follows nothing.
                let _ = connection.set_policy(&policy);
            }
        }
    }

    /// Sends octets, as far as there is room.
    pub(crate) fn send(&mut self, octets: &[u8]) -> Option<Transfer> {
        match self {
            Wire::Kernel(stream) => stream.get().map(|stream| stream.send(octets)),
            Wire::Adapter(connection) => Some(connection.send(octets)),
        }
    }

    /// Sends frames, of the first of which a part may have left already: segments end where they do. How many octets
    /// were taken; nothing where none ever will be.
    pub(crate) fn send_frames(&mut self, octets: &[u8], frames: &Frames) -> Option<usize> {
        let Wire::Adapter(connection) = self else {
            return None;
        };
        // What waits in the connection is past all bounds: the queue before it has some, and drops. One that has sent
        // everything is given all that waits, for one call of the device.
        let room = match connection.unsent() {
            0 => GATHERED_OCTETS,
            unsent => UNSENT_MAX.saturating_sub(unsent),
        };
        let mut end = 0;
        for len in frames.lengths() {
            if end + len > room {
                break;
            }
            end += len;
        }
        let Some(octets) = octets.get(..end).filter(|_| end > 0) else {
            return Some(0);
        };
        let mut list = Gather::default();
        list.push(octets);
        let mut cut = 0;
        for len in frames.lengths() {
            cut += len;
            if cut > end {
                break;
            }
            list.cut(cut);
        }
        match connection.send_gather(&list) {
            Transfer::Octets(octets) => Some(octets),
            Transfer::WouldBlock => Some(0),
            Transfer::End | Transfer::Failed(_) => None,
        }
    }

    /// Receives octets in order.
    pub(crate) fn recv(&mut self, into: &mut [u8]) -> Option<Transfer> {
        match self {
            Wire::Kernel(stream) => stream.get().map(|stream| stream.recv(into)),
            Wire::Adapter(connection) => Some(connection.recv(into)),
        }
    }

    /// Whether the other end has ended its direction, or the whole connection, though what it said before may not have
    /// been read yet: a process that is killed has.
    pub(crate) fn is_ended_there(&mut self) -> bool {
        match self {
            Wire::Kernel(stream) => stream
                .get()
                .is_none_or(|stream| ready(stream.as_fd().as_raw_fd(), libc::POLLRDHUP, 0) != 0),
            Wire::Adapter(connection) => connection.is_broken(),
        }
    }

    /// Octets that a segment carries at most.
    pub(crate) fn emss(&mut self) -> Option<usize> {
        match self {
            Wire::Kernel(stream) => stream.get()?.emss().ok(),
            Wire::Adapter(connection) => connection.emss().ok(),
        }
    }

    /// Octets of the longest UDP datagram to there that fits one packet of the path.
    pub(crate) fn datagram_in_one_packet(&mut self, to: SocketAddr) -> usize {
        /// Octets of the headers of IP and UDP.
        const HEADERS: [usize; 2] = [20 + 8, 40 + 8];
        /// Octets by which TCP's header is longer than UDP's.
        const TCP_IS_LONGER_BY: usize = 12;
        let packet = match self {
            Wire::Kernel(stream) => stream
                .get()
                .and_then(|stream| mtu(stream.as_fd().as_raw_fd())),
            Wire::Adapter(_) => None,
        };
        let headers = HEADERS[usize::from(to.ip().to_canonical().is_ipv6())];
        match packet {
            Some(mtu) => mtu.saturating_sub(headers),
            None => self.emss().map_or(0, |segment| segment + TCP_IS_LONGER_BY),
        }
    }

    /// How long the way there and back takes at the least, as far as is known.
    pub(crate) fn round_trip(&mut self) -> Option<Duration> {
        match self {
            Wire::Kernel(stream) => least_round_trip(stream.get()?.as_fd().as_raw_fd()),
            Wire::Adapter(connection) => connection.round_trip(),
        }
    }

    /// How long what was sent is kept after closing, while the other end takes nothing.
    pub(crate) fn keep_after_close(&mut self, time: Duration) {
        match self {
            Wire::Kernel(stream) => {
                if let Some(stream) = stream.get() {
                    stream.keep_after_close(time);
                }
            }
            Wire::Adapter(connection) => connection.keep_after_close(time),
        }
    }

    /// What is missing before this place of the adapter's stream is waited for no more.
    pub(crate) fn forgive(&self, before: u64) {
        if let Wire::Adapter(connection) = self {
            if let Some(pieces) = connection.pieces() {
                pieces.forgive(before);
            }
        }
    }

    /// Its other end has proven itself: the adapter promises it a larger window than a stranger.
    pub(crate) fn attached(&self) {
        if let Wire::Adapter(connection) = self {
            connection.attached();
        }
    }

    /// Nothing more is sent: the other end sees the end of the stream behind what was.
    pub(crate) fn finish(&mut self) {
        match self {
            Wire::Kernel(stream) => {
                if let Some(stream) = stream.get() {
                    stream.shutdown_write();
                }
            }
            Wire::Adapter(connection) => connection.finish(),
        }
    }
}

/// The MTU of the path that the kernel has for a connection.
fn mtu(fd: RawFd) -> Option<usize> {
    // A socket of IPv6 may be connected over IPv4, and is asked as one of IPv6 all the same.
    let asked = [
        (libc::SOL_IP, libc::IP_MTU),
        (libc::SOL_IPV6, libc::IPV6_MTU),
    ];
    let mut answers = asked
        .into_iter()
        .filter_map(|(level, option)| get_int(fd, level, option).ok());
    answers.next().and_then(|mtu| usize::try_from(mtu).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The other end of `wire`, once it is connected.
    fn connected() -> (Wire, std::net::TcpStream) {
        weft_os::process::watch();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect_apart(None, listener.local_addr().unwrap()).unwrap();
        let (there, _) = listener.accept().unwrap();
        (Wire::of_kernel(stream), there)
    }

    /// Whether it is ended there, within a time that the kernel needs to say so.
    fn is_ended(wire: &mut Wire) -> bool {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            wire.is_ended_there()
        })
    }

    #[test]
    fn an_end_that_is_closed_is_seen_before_what_it_said() {
        let (mut wire, mut there) = connected();
        there.write_all(b"accepted").unwrap();
        assert!(!wire.is_ended_there());
        drop(there);
        assert!(is_ended(&mut wire));
        let mut said = [0; 16];
        assert!(matches!(wire.recv(&mut said), Some(Transfer::Octets(8))));
    }

    #[test]
    fn an_end_that_is_killed_with_something_unread_is_one() {
        let (mut wire, there) = connected();
        assert!(matches!(wire.send(b"open"), Some(Transfer::Octets(4))));
        // It resets the connection.
        drop(there);
        assert!(is_ended(&mut wire));
    }
}
