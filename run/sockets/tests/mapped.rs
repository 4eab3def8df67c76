//! Memory that one end of a stream maps, and Writes of a peer that may say anything.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use weft_iwarp::mpa::fpdu::fpdu_len;
use weft_os::dgram::ready;
use weft_os::testing::{await_child, fork};
use weft_os::user::{guard_copies, OwnBuffer, UserRange};
use weft_sockets::ddp::own_maps::{Mapped, MAPS_MAX};
use weft_sockets::ddp::{Connection, Received, Settled, Slot, State};
use weft_stream::frame::{self, write_header, MESSAGE_LEN};
use weft_stream::map::ENTRY_LEN;
use weft_stream::start::{self, START_LEN};
use weft_stream::{ConnectionData, Map, Receiver, Target};

const ENTRIES: u16 = 4;

/// One end of ours: a socket, what Weft knows of it, and what this process has mapped.
struct End {
    socket: TcpStream,
    slot: &'static Slot,
    mapped: Mapped,
}

impl End {
    fn new(socket: TcpStream, crc: bool, entries: u16) -> End {
        weft_os::process::watch();
        guard_copies();
        let slot = &Slot::make(1).unwrap()[0];
        slot.restart_clock();
        slot.set_wants_crc(crc);
        slot.set_map_entries(entries);
        let mapped = Mapped::new().unwrap();
        End {
            socket,
            slot,
            mapped,
        }
    }

    fn connection(&self) -> Connection<'static> {
        Connection::new(self.slot, self.socket.as_raw_fd()).with_maps(self.mapped.make(0))
    }

    fn settle(&self) {
        self.wait_until(|| self.connection().settle().unwrap() == Settled::Open);
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < until, "{:?}", self.slot.state());
            ready(self.socket.as_raw_fd(), libc::POLLIN, 20);
        }
    }

    /// Writes octets as one call does.
    fn write(&self, octets: &[u8], offset: u64) -> Result<usize, i32> {
        let mut octets = octets.to_vec();
        let data = OwnBuffer::from(&mut octets[..]);
        self.connection().write_mapped(&data, 0, offset)
    }

    fn send(&self, octets: &[u8]) {
        let mut octets = octets.to_vec();
        let data = OwnBuffer::from(&mut octets[..]);
        let sent = self.connection().send(&data, 0, libc::MSG_NOSIGNAL);
        assert_eq!(sent, Ok(octets.len()));
    }

    fn receive(&self, room: &mut [u8]) -> Result<Received, i32> {
        self.connection().receive(&OwnBuffer::from(room), 0)
    }

    /// Octets of the socket make it readable, however few.
    fn is_readable(&self) -> bool {
        ready(self.socket.as_raw_fd(), libc::POLLIN, 1000) != 0
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Two ends of ours, of which each lets the other map.
fn pair(crc: bool) -> (End, End) {
    let (one, other) = sockets();
    let (one, other) = (End::new(one, crc, ENTRIES), End::new(other, crc, ENTRIES));
    one.connection().ask().unwrap();
    other.connection().answer().unwrap();
    other.settle();
    one.settle();
    (one, other)
}

fn memory(octets: usize) -> UserRange {
    UserRange::from(Box::leak(vec![0; octets].into_boxed_slice()))
}

fn content(memory: &UserRange) -> Vec<u8> {
    let mut octets = vec![0; memory.len()];
    memory.buffers().read(&mut octets).unwrap();
    octets
}

#[test]
fn what_is_written_is_there_and_nobody_receives_it() {
    for crc in [false, true] {
        let (one, other) = pair(crc);
        let range = memory(100);
        other.connection().map(range, 50).unwrap();
        assert!(one.is_readable());
        assert_eq!(one.write(b"first", 145), Ok(5));
        assert_eq!(one.write(b"too long", 146), Ok(4));
        assert_eq!(one.write(b"nowhere", 150), Ok(0));
        one.send(b"done");
        let mut room = [0; 9];
        other.wait_until(|| other.connection().look() == Ok(Received::Octets(0)));
        assert_eq!(content(&range)[94..], *b"\0ftoo ");
        assert_eq!(other.receive(&mut room), Ok(Received::Octets(4)));
        assert_eq!(room[..4], *b"done");
    }
}

/// Four octets are fewer than any framing: a mark for framing would hide them.
#[test]
fn a_few_octets_make_the_socket_readable_for_who_places_them() {
    let (one, other) = pair(false);
    other.connection().map(memory(4), 0).unwrap();
    assert_eq!(other.connection().look(), Ok(Received::Nothing));
    one.wait_until(|| one.write(b"four", 0) == Ok(4));
    assert!(other.is_readable());
    assert!(other.connection().is_doubtful(), "it is nothing to receive");
    assert_eq!(other.connection().look(), Ok(Received::Nothing));
    assert_eq!(ready(other.socket.as_raw_fd(), libc::POLLIN, 0), 0);
}

#[test]
fn memory_is_the_programs_again_once_it_is_unmapped() {
    let (one, other) = pair(false);
    let range = memory(10);
    other.connection().map(range, 0).unwrap();
    one.wait_until(|| one.write(b"x", 0) == Ok(1));
    other.wait_until(|| other.connection().look().is_ok() && content(&range)[0] == b'x');
    assert_eq!(
        other.connection().unmap(&range.part(0, 9)),
        Err(libc::EINVAL)
    );
    assert_eq!(other.connection().unmap(&range), Ok(()));
    assert_eq!(other.connection().unmap(&range), Err(libc::EINVAL));
    one.wait_until(|| one.connection().look().is_ok() && one.write(b"y", 0) == Ok(0));
    assert_eq!(content(&range)[0], b'x');
    assert_eq!(other.slot.state(), State::Open);
}

#[test]
fn as_many_ranges_are_mapped_as_the_peer_lets_be() {
    let (_one, other) = pair(false);
    let range = memory(64);
    for number in 0..usize::from(ENTRIES) {
        let mapped = other.connection().map(range.part(number, 1), 0);
        assert_eq!(mapped, Ok(()));
    }
    let one_more = other.connection().map(range.part(9, 1), 0);
    assert_eq!(one_more, Err(libc::ENOMEM));
    for number in 0..MAPS_MAX - usize::from(ENTRIES) {
        let untold = other.connection().map_untold(range.part(number % 64, 1));
        assert_eq!(untold, Ok(()));
    }
    assert_eq!(other.connection().map_untold(range), Err(libc::ENOMEM));
}

#[test]
fn a_process_leaves_what_comes_for_anothers_memory_in_the_socket() {
    let (one, other) = pair(false);
    let range = memory(8);
    other.connection().map(range, 0).unwrap();
    one.wait_until(|| one.write(b"x", 0) == Ok(1));
    assert!(other.is_readable());
    let child = fork(|| {
        let refused = other.connection().map(range, 8) == Err(libc::EBUSY);
        refused && other.connection().look() == Ok(Received::Nothing)
    });
    assert!(await_child(child));
    assert_eq!(other.slot.state(), State::Open);
    assert!(other.is_readable());
    assert_eq!(other.connection().look(), Ok(Received::Nothing));
    assert_eq!(content(&range)[0], b'x');
}

/// What is written behind octets of the stream shows before those are received, and once: what the program makes of it
/// since is not written over when they are.
#[test]
fn octets_of_the_stream_do_not_hide_what_is_written_behind_them() {
    for crc in [false, true] {
        let (one, other) = pair(crc);
        let range = memory(8);
        other.connection().map(range, 0).unwrap();
        one.send(b"unread");
        one.wait_until(|| one.write(b"half", 0) == Ok(4));
        let shows = |octets: &[u8]| {
            let looked = other.connection().look_past();
            looked.is_ok() && content(&range).starts_with(octets)
        };
        other.wait_until(|| shows(b"half"));
        assert_eq!(one.write(b"next", 2), Ok(4));
        other.wait_until(|| shows(b"hanext"));
        range.buffers().write(b"program").unwrap();
        one.send(b"more");
        let mut room = [0; 10];
        let mut got = 0;
        while got < 10 {
            match other.receive(&mut room[got..]).unwrap() {
                Received::Octets(octets) => got += octets,
                other_than => assert_eq!(other_than, Received::Nothing),
            }
        }
        assert_eq!(room, *b"unreadmore");
        assert_eq!(content(&range), *b"program\0");
        assert_eq!(one.write(b"again", 0), Ok(5));
        other.wait_until(|| other.connection().look().is_ok() && shows(b"againam"));
    }
}

/// A process that ends takes its memory with it: what comes for that is a fault, and nobody waits for it.
#[test]
fn what_comes_for_the_memory_of_a_process_that_ended_ends_the_connection() {
    let (one, other) = pair(false);
    let child = fork(|| other.connection().map(memory(8), 0).is_ok());
    assert!(await_child(child));
    one.wait_until(|| one.write(b"x", 0) == Ok(1));
    assert!(other.is_readable());
    assert_eq!(other.connection().look(), Err(libc::ECONNRESET));
}

/// A peer that is not Weft, of which we see every octet.
struct Peer {
    socket: TcpStream,
    of_us: ConnectionData,
    told: Map,
}

/// What such a peer says of itself.
fn of_peer() -> ConnectionData {
    ConnectionData {
        weft: false,
        credits: 384,
        data: Target {
            to: 0x1000,
            stag: 2,
            len: 65_536,
        },
        ..Receiver::connection_data(2, 0x1000, 3, 0x9000).with_map_entries(2)
    }
}

/// An end of ours that has mapped memory for a peer that is not Weft.
fn with_peer() -> (End, Peer, UserRange) {
    let (socket, mut peer) = sockets();
    let end = End::new(socket, false, ENTRIES);
    end.connection().ask().unwrap();
    let mut request = [0; START_LEN];
    peer.read_exact(&mut request).unwrap();
    let request = start::read_request(&request).unwrap().unwrap();
    let (reply, len, agreed) = request.accept(&of_peer(), false);
    peer.write_all(&reply[..len]).unwrap();
    end.settle();
    let range = memory(64);
    end.connection().map(range, 7).unwrap();
    // Behind what says that this end is ready.
    read_fpdu(&mut peer);
    let write = read_fpdu(&mut peer);
    assert_eq!(write[4..16], write_header(3, 0x9000 + 32, ENTRY_LEN)[4..16]);
    let entry = *write[16..].first_chunk().unwrap();
    let told = Map::from_octets(entry, cfg!(target_endian = "big"));
    assert_eq!(read_fpdu(&mut peer).len(), MESSAGE_LEN);
    assert_eq!((told.offset, told.target.len), (7, 64));
    let peer = Peer {
        socket: peer,
        of_us: agreed.peer,
        told,
    };
    (end, peer, range)
}

fn read_fpdu(peer: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    peer.read_exact(&mut length).unwrap();
    let mut rest = vec![0; fpdu_len(u16::from_be_bytes(length).into()) - 2];
    peer.read_exact(&mut rest).unwrap();
    length.into_iter().chain(rest).collect()
}

impl Peer {
    fn write(&mut self, stag: u32, to: u64, payload: &[u8]) {
        let (trailer, len) = frame::trailer(payload.len(), 0);
        let header = write_header(stag, to, payload.len());
        let octets = [&header[..], payload, &trailer[..len]].concat();
        self.socket.write_all(&octets).unwrap();
    }
}

#[test]
fn a_peer_writes_to_what_it_was_told_of() {
    let (end, mut peer, range) = with_peer();
    let Target { stag, to, .. } = peer.told.target;
    peer.write(stag, to + 60, b"four");
    end.wait_until(|| end.connection().look().is_ok() && content(&range)[63] == b'r');
    assert_eq!(content(&range)[60..], *b"four");
    assert_eq!(end.slot.state(), State::Open);
}

/// One octet beside, before, beyond, elsewhere: the connection is over and no octet is written.
#[test]
fn a_peer_that_writes_beside_mapped_memory_is_cut_off() {
    type Change = fn(&mut Target, &ConnectionData);
    let changes: [Change; 6] = [
        |target, _| target.to += 61,
        |target, _| target.to -= 1,
        |target, _| target.to = u64::MAX - 1,
        |target, _| target.stag ^= 1,
        |target, _| target.stag ^= 1 << 31,
        |target, of_us| target.to = of_us.data.to,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (end, mut peer, range) = with_peer();
        let mut target = peer.told.target;
        change(&mut target, &peer.of_us);
        peer.write(target.stag, target.to, b"four");
        assert!(end.is_readable());
        let looked = end.connection().look();
        assert_eq!(looked, Err(libc::ECONNRESET), "change {number}");
        assert_eq!(content(&range), [0; 64], "change {number}");
    }
}

/// A Write that begins while its memory is mapped and goes on when that is not: the rest is written nowhere.
#[test]
fn a_write_ends_where_its_memory_is_unmapped() {
    let (end, mut peer, range) = with_peer();
    let Target { stag, to, .. } = peer.told.target;
    let header = write_header(stag, to, 8);
    peer.socket
        .write_all(&[&header[..], b"half"].concat())
        .unwrap();
    end.wait_until(|| end.connection().look().is_ok() && content(&range)[3] == b'f');
    end.connection().unmap(&range).unwrap();
    peer.socket.write_all(b"rest").unwrap();
    assert!(end.is_readable());
    assert_eq!(end.connection().look(), Err(libc::ECONNRESET));
    assert_eq!(content(&range)[..8], *b"half\0\0\0\0");
}

/// What a peer maps it has to write as a whole entry of the table.
#[test]
fn a_peer_that_maps_beside_the_table_is_cut_off() {
    let table = |of_us: &ConnectionData| of_us.targets.to + 32;
    for (offset, len) in [(24 * u64::from(ENTRIES), 24), (12, 24), (0, 23), (0, 48)] {
        let (end, mut peer, _) = with_peer();
        let (stag, to) = (peer.of_us.targets.stag, table(&peer.of_us) + offset);
        peer.write(stag, to, &[1; 48][..len]);
        assert!(end.is_readable());
        let looked = end.connection().look();
        assert_eq!(looked, Err(libc::ECONNRESET), "{len} octets at {offset}");
    }
}
