//! A stream with a peer that is not Weft: it gives windows and credit, and is told of the end before the socket goes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use weft_iwarp::mpa::fpdu::fpdu_len;
use weft_iwarp::Msn;
use weft_os::dgram::ready;
use weft_os::user::{guard_copies, OwnBuffer};
use weft_sockets::ddp::{Connection, Left, Received, Settled, Slot};
use weft_stream::connection_data::CONNECTION_DATA_LEN;
use weft_stream::frame;
use weft_stream::start::{self, START_LEN};
use weft_stream::{ConnectionData, Target, Word};

/// The octets that the peer takes before it gives another target.
const WINDOW: u32 = 100;

/// What the peer says of itself.
fn of_peer() -> ConnectionData {
    ConnectionData {
        big_endian: false,
        weft: false,
        maps: false,
        credits: 384,
        map_entries: 0,
        targets: Target {
            to: 0x9000,
            stag: 3,
            len: 2,
        },
        data: Target {
            to: 0x1000,
            stag: 2,
            len: WINDOW,
        },
    }
}

/// An end of ours that has asked, the peer's socket, and the peer's view of what we said.
fn connected() -> (TcpStream, &'static Slot, TcpStream, ConnectionData) {
    weft_os::process::watch();
    guard_copies();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut peer = listener.accept().unwrap().0;
    let slot = &Slot::make(1).unwrap()[0];
    slot.restart_clock();
    let connection = Connection::new(slot, socket.as_raw_fd());
    connection.ask().unwrap();
    let mut request = [0; START_LEN];
    peer.read_exact(&mut request).unwrap();
    let request = start::read_request(&request).unwrap().unwrap();
    let (reply, len, agreed) = request.accept(&of_peer(), false);
    assert!(len >= CONNECTION_DATA_LEN);
    peer.write_all(&reply[..len]).unwrap();
    while connection.settle().unwrap() != Settled::Open {
        ready(socket.as_raw_fd(), libc::POLLIN, 1000);
    }
    (socket, slot, peer, agreed.peer)
}

fn send(connection: Connection<'static>, octets: usize) -> Result<usize, i32> {
    let mut octets = vec![7; octets];
    connection.send(&OwnBuffer::from(&mut octets[..]), 0, libc::MSG_NOSIGNAL)
}

/// Reads so many FPDUs.
fn read(peer: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    for _ in 0..count {
        let mut length = [0; 2];
        peer.read_exact(&mut length).unwrap();
        let mut rest = vec![0; fpdu_len(u16::from_be_bytes(length).into()) - 2];
        peer.read_exact(&mut rest).unwrap();
        octets.extend(length.into_iter().chain(rest));
    }
    octets
}

/// The peer gives a target of so many octets, and credit.
fn give(peer: &mut TcpStream, of_us: &ConnectionData, msn: u32, target: Target) {
    // The first target was in the connection data, so this is the second.
    let entry = of_us.targets.to + 16 * u64::from(msn % 2);
    let octets = target.to_octets(of_us.big_endian);
    let write = frame::target_write(of_us.targets.stag, entry, octets, false);
    peer.write_all(&write).unwrap();
    let message = frame::message(Msn(msn), Word::Credit(1000), false);
    peer.write_all(&message).unwrap();
}

#[test]
fn a_program_that_only_sends_hears_of_its_window() {
    let (socket, slot, mut peer, of_us) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    assert_eq!(send(connection, 300), Ok(WINDOW as usize));
    assert_eq!(send(connection, 200), Err(libc::EAGAIN));
    assert_eq!(connection.hears_of_room(), Ok(false));
    let target = Target {
        to: 0x5000,
        stag: 2,
        len: 150,
    };
    give(&mut peer, &of_us, 1, target);
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLIN, 1000), 0);
    assert_eq!(connection.hears_of_room(), Ok(true), "no call has received");
    assert_eq!(send(connection, 200), Ok(150));
    assert_eq!(send(connection, 50), Err(libc::EAGAIN));
    assert_eq!(connection.is_still_short(), Ok(true));
}

/// siw overlooks what comes while it answers, until the next octet comes.
#[test]
fn a_peer_that_says_nothing_is_made_to_look() {
    let (socket, slot, mut peer, _) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    let nothing = frame::ready_to_receive(false);
    assert_eq!(read(&mut peer, 1), nothing);
    assert!(connection.needs_service());
    connection.probe().unwrap();
    assert_eq!(ready(peer.as_raw_fd(), libc::POLLIN, 0), 0, "not at once");
    let look = |peer: &TcpStream| {
        connection.probe().unwrap();
        ready(peer.as_raw_fd(), libc::POLLIN, 1) != 0
    };
    for _ in 0..2 {
        while !look(&peer) {}
        assert_eq!(read(&mut peer, 1), nothing);
    }
    // Whatever it says ends that.
    let message = frame::message(Msn(1), Word::Keepalive, false);
    peer.write_all(&message).unwrap();
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLIN, 1000), 0);
    assert_eq!(connection.look(), Ok(Received::Nothing));
    assert!(!connection.needs_service());
}

/// A peer may give room behind octets that the program does not receive before it has sent.
#[test]
fn room_is_heard_of_behind_octets_that_nobody_has_received() {
    let (socket, slot, mut peer, of_us) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    assert_eq!(send(connection, 300), Ok(WINDOW as usize));
    let header = frame::write_header(of_us.data.stag, of_us.data.to, 4);
    let (trailer, len) = frame::trailer(4, 0);
    peer.write_all(&[&header[..], b"four", &trailer[..len]].concat())
        .unwrap();
    let message = frame::message(Msn(1), Word::Data(4), false);
    peer.write_all(&message).unwrap();
    let target = Target {
        to: 0x5000,
        stag: 2,
        len: 150,
    };
    assert_eq!(send(connection, 200), Err(libc::EAGAIN));
    // The message before it has the first number.
    let entry = of_us.targets.to + 16;
    let octets = target.to_octets(of_us.big_endian);
    peer.write_all(&frame::target_write(
        of_us.targets.stag,
        entry,
        octets,
        false,
    ))
    .unwrap();
    peer.write_all(&frame::message(Msn(2), Word::Credit(1000), false))
        .unwrap();
    while !connection.hears_of_room().unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(send(connection, 100), Ok(100));
    // It is given once, though it comes to be received as well.
    let mut room = [0; 8];
    let got = connection.receive(&OwnBuffer::from(&mut room[..]), 0);
    assert_eq!((got, &room[..4]), (Ok(Received::Octets(4)), &b"four"[..]));
    assert_eq!(connection.look(), Ok(Received::Nothing));
    assert_eq!(send(connection, 200), Ok(50));
    assert_eq!(send(connection, 50), Err(libc::EAGAIN));
    assert_eq!(connection.hears_of_room(), Ok(false));
}

#[test]
fn the_peer_is_told_of_the_end_and_ends_before_the_socket_goes() {
    let (socket, slot, mut peer, of_us) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    assert_eq!(send(connection, 10), Ok(10));
    assert_eq!(connection.wind_up(), Left::Framing);
    assert!(read(&mut peer, 4).ends_with(&frame::message(Msn(2), Word::Disconnect, false)));
    // A FIN that comes with octets may cost siw those.
    assert_eq!(ready(peer.as_raw_fd(), libc::POLLIN, 50), 0);
    // What it says meanwhile is taken, or a close would answer it by a reset.
    give(&mut peer, &of_us, 1, of_peer().data);
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLIN, 1000), 0);
    assert_eq!(connection.wind_up(), Left::Framing);
    drop(peer);
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLRDHUP, 1000), 0);
    assert_eq!(connection.wind_up(), Left::Nothing);
    assert_eq!(
        connection.receive(&OwnBuffer::from(&mut [0; 8][..]), 0),
        Ok(Received::End)
    );
}

#[test]
fn one_direction_ends_by_a_word_and_the_connection_by_another() {
    let (socket, slot, mut peer, of_us) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    connection.shut_down(false).unwrap();
    assert!(read(&mut peer, 2).ends_with(&frame::message(Msn(1), Word::Shutdown, false)));
    assert_eq!(send(connection, 1), Err(libc::EPIPE));
    // An RNIC would take a FIN for the end of both directions.
    assert_eq!(ready(peer.as_raw_fd(), libc::POLLIN, 50), 0);
    let header = frame::write_header(of_us.data.stag, of_us.data.to, 4);
    let (trailer, len) = frame::trailer(4, 0);
    peer.write_all(&[&header[..], b"four", &trailer[..len]].concat())
        .unwrap();
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLIN, 1000), 0);
    let mut room = [0; 8];
    let got = connection.receive(&OwnBuffer::from(&mut room[..]), 0);
    assert_eq!((got, &room[..4]), (Ok(Received::Octets(4)), &b"four"[..]));
    connection.shut_down(true).unwrap();
    assert_eq!(
        read(&mut peer, 1),
        frame::message(Msn(2), Word::Disconnect, false)
    );
}

#[test]
fn octets_that_nobody_reads_are_not_waited_behind() {
    let (socket, slot, mut peer, of_us) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    let header = frame::write_header(of_us.data.stag, of_us.data.to, 4);
    let (trailer, len) = frame::trailer(4, 0);
    peer.write_all(&[&header[..], b"four", &trailer[..len]].concat())
        .unwrap();
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLIN, 1000), 0);
    assert_eq!(connection.wind_up(), Left::Nothing);
}

/// Its last word is shown by the socket to whoever waits, and what it says later may come in part.
#[test]
fn the_peers_end_is_shown_by_the_socket_and_is_not_its_last_word() {
    let (socket, slot, mut peer, _) = connected();
    let connection = Connection::new(slot, socket.as_raw_fd());
    let shutdown = frame::message(Msn(1), Word::Shutdown, false);
    let credit = frame::message(Msn(2), Word::Credit(1000), false);
    let (now, later) = credit.split_at(10);
    peer.write_all(&[&shutdown[..], now].concat()).unwrap();
    assert_ne!(ready(socket.as_raw_fd(), libc::POLLIN, 1000), 0);
    for _ in 0..3 {
        assert_eq!(connection.look(), Ok(Received::End));
        assert_ne!(ready(socket.as_raw_fd(), libc::POLLRDHUP, 1000), 0);
    }
    peer.write_all(later).unwrap();
    while weft_os::stream::unread(socket.as_raw_fd()) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(connection.look(), Ok(Received::End));
    assert_eq!(weft_os::stream::unread(socket.as_raw_fd()), 0);
    assert_eq!(send(connection, 10), Ok(10));
}
