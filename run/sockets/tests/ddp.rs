//! Streams over DDP on loopback sockets, driven as the hooks drive them, without hooks.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use weft_os::dgram::{get_int, ready, set_int};
use weft_os::user::{guard_copies, OwnBuffer};
use weft_sockets::ddp::{Connection, Received, Settled, Slot, State};

/// One end: a socket and what Weft knows of it.
struct End {
    socket: TcpStream,
    slot: &'static Slot,
}

impl End {
    fn new(socket: TcpStream, crc: bool) -> End {
        weft_os::process::watch();
        guard_copies();
        let slot = &Slot::make(1).unwrap()[0];
        slot.restart_clock();
        slot.set_wants_crc(crc);
        End { socket, slot }
    }

    fn connection(&self) -> Connection<'static> {
        Connection::new(self.slot, self.socket.as_raw_fd())
    }

    fn settle(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        while self.connection().settle().unwrap() != Settled::Open {
            assert!(Instant::now() < until, "{:?}", self.slot.state());
            ready(self.socket.as_raw_fd(), libc::POLLIN, 1000);
        }
    }

    fn try_send(&self, octets: &[u8]) -> Result<usize, i32> {
        let mut octets = octets.to_vec();
        let data = OwnBuffer::from(&mut octets[..]);
        self.connection().send(&data, 0, libc::MSG_NOSIGNAL)
    }

    fn try_receive(&self, room: &mut [u8]) -> Result<Received, i32> {
        self.connection().receive(&OwnBuffer::from(room), 0)
    }

    /// Receives until there are so many octets, or the end.
    fn receive(&self, count: usize) -> Vec<u8> {
        let mut octets = vec![0; count];
        let mut got = 0;
        let until = Instant::now() + Duration::from_secs(10);
        while got < count {
            match self.try_receive(&mut octets[got..]).unwrap() {
                Received::Octets(now) => got += now,
                Received::End => break,
                Received::Nothing => {
                    assert!(Instant::now() < until, "{got} of {count}");
                    ready(self.socket.as_raw_fd(), libc::POLLIN, 100);
                }
            }
        }
        octets.truncate(got);
        octets
    }

    fn next_now(&self) -> Received {
        self.try_receive(&mut [0; 64]).unwrap()
    }

    fn next(&self) -> Received {
        ready(self.socket.as_raw_fd(), libc::POLLIN, 1000);
        self.try_receive(&mut [0; 64]).unwrap()
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Two ends of a DDP stream.
fn pair(asks_for_crc: bool, answers_with_crc: bool) -> (End, End) {
    let (one, other) = sockets();
    let (one, other) = (
        End::new(one, asks_for_crc),
        End::new(other, answers_with_crc),
    );
    one.connection().ask().unwrap();
    other.connection().answer().unwrap();
    other.settle();
    one.settle();
    (one, other)
}

/// Octets whose value tells their place.
fn octets(count: usize) -> Vec<u8> {
    (0..count)
        .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
        .collect()
}

#[test]
fn octets_come_out_as_they_went_in() {
    for (asks, answers) in [(false, false), (true, false), (false, true)] {
        let (one, other) = pair(asks, answers);
        for count in [1, 3, 64, 1000, 40_000] {
            let sent = octets(count);
            assert_eq!(one.try_send(&sent), Ok(count));
            assert_eq!(other.receive(count), sent);
            assert_eq!(other.try_send(&sent), Ok(count));
            assert_eq!(one.receive(count), sent);
        }
        assert_eq!(other.try_receive(&mut [0; 9]), Ok(Received::Nothing));
    }
}

#[test]
fn nothing_but_the_stream_makes_a_socket_readable() {
    const READABLE: i16 = libc::POLLIN;
    let (one, other) = pair(false, false);
    let fd = other.socket.as_raw_fd();
    for count in [1, 2, 3, 4, 64, 1447] {
        one.try_send(&octets(count)).unwrap();
        assert_eq!(ready(fd, READABLE, 1000), READABLE, "{count} octets");
        if count > 1 {
            other.receive(count - 1);
            assert_eq!(ready(fd, READABLE, 0), READABLE, "one octet of {count}");
        }
        other.receive(1);
        // The end of payload may have three octets of padding, for which one more look is made.
        assert_eq!(other.next_now(), Received::Nothing);
        assert_eq!(ready(fd, READABLE, 0), 0, "behind {count} octets");
    }
    one.connection().shut_down(false).unwrap();
    assert_eq!(ready(fd, READABLE, 1000), READABLE);
    assert_eq!(other.next(), Received::End);
}

#[test]
fn a_program_may_write_before_the_other_accepts() {
    let (one, other) = sockets();
    let (one, other) = (End::new(one, false), End::new(other, true));
    one.connection().ask().unwrap();
    assert_eq!(one.connection().settle(), Ok(Settled::Waits));
    assert_eq!(one.try_receive(&mut [0; 9]), Ok(Received::Nothing));
    assert_eq!(one.try_send(b"first "), Ok(6));
    assert_eq!(one.try_send(b"words"), Ok(5));
    one.connection().shut_down(false).unwrap();
    assert_eq!(one.try_send(b"late"), Err(libc::EPIPE));
    other.connection().answer().unwrap();
    other.settle();
    assert_eq!(other.try_send(b"answer"), Ok(6));
    one.settle();
    assert_eq!(other.receive(20), b"first words");
    assert_eq!(one.receive(6), b"answer");
}

#[test]
fn what_is_kept_for_the_reply_is_bounded() {
    let (one, _other) = sockets();
    let one = End::new(one, false);
    one.connection().ask().unwrap();
    let taken = one.try_send(&octets(100_000)).unwrap();
    assert!(taken > 4000 && taken < 20_000, "{taken}");
    assert_eq!(one.try_send(b"more"), Err(libc::EAGAIN));
}

#[test]
fn each_direction_ends_for_itself() {
    let (one, other) = pair(false, false);
    one.try_send(b"the last").unwrap();
    one.connection().shut_down(false).unwrap();
    assert_eq!(one.try_send(b"x"), Err(libc::EPIPE));
    assert_eq!(other.receive(100), b"the last");
    assert_eq!((other.next(), other.next()), (Received::End, Received::End));
    assert_eq!(other.try_send(b"still there"), Ok(11));
    assert_eq!(one.receive(11), b"still there");
    drop(other.socket);
    assert_eq!(one.next(), Received::End);
}

#[test]
fn looking_leaves_the_stream_where_it_is() {
    let (one, other) = pair(false, false);
    for part in [&b"par"[..], b"ts of", b" a stream"] {
        one.try_send(part).unwrap();
    }
    let peek = |room: &mut [u8]| other.connection().peek(&OwnBuffer::from(room));
    let mut room = [0; 40];
    ready(other.socket.as_raw_fd(), libc::POLLIN, 1000);
    assert_eq!(peek(&mut room[..5]), Ok(Received::Octets(5)));
    assert_eq!(&room[..5], b"parts");
    assert_eq!(other.receive(2), b"pa");
    assert_eq!(peek(&mut room), Ok(Received::Octets(15)));
    assert_eq!(&room[..15], b"rts of a stream");
    assert_eq!(other.receive(15), b"rts of a stream");
    assert_eq!(peek(&mut room), Ok(Received::Nothing));
}

/// Small buffers, writes and reads of any size, both ways: everything stops everywhere.
#[test]
fn full_sockets_lose_nothing() {
    const OCTETS: usize = 1 << 20;
    for crc in [false, true] {
        let (one, other) = pair(crc, false);
        for end in [&one, &other] {
            let fd = end.socket.as_raw_fd();
            // Smaller than what is sent at a time; a window below a segment of loopback's would be TCP's to wait for.
            set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 20_000).unwrap();
            set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 200_000).unwrap();
        }
        let sent = octets(OCTETS);
        let run = |end: &End, seed: usize| {
            let mut random = seed;
            let mut next = |below: usize| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                1 + (random >> 33) % below
            };
            let (mut out, mut received) = (0, Vec::new());
            let mut room = vec![0; 70_000];
            while out < OCTETS || received.len() < OCTETS {
                let end_of = OCTETS.min(out + next(60_000));
                match end.try_send(&sent[out..end_of]) {
                    Ok(now) => out += now,
                    Err(errno) => assert_eq!(errno, libc::EAGAIN),
                }
                // As the flushing thread does for a program that writes no more.
                end.connection().finish().unwrap();
                let count = next(70_000);
                match end.try_receive(&mut room[..count]).unwrap() {
                    Received::Octets(now) => received.extend_from_slice(&room[..now]),
                    other => assert_eq!(other, Received::Nothing),
                }
            }
            while !end.connection().finish().unwrap() {
                ready(end.socket.as_raw_fd(), libc::POLLOUT, 10);
            }
            assert!(received == sent, "what came differs");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(&one, 1));
            scope.spawn(|| run(&other, 2));
        });
    }
}

/// Whatever the peer does wrong, its octets reach nobody and both ends know.
#[test]
fn foreign_octets_in_the_stream_end_it() {
    use std::io::{Read, Write};
    let (one, mut other) = pair(false, false);
    other.socket.write_all(&[7; 100]).unwrap();
    ready(one.socket.as_raw_fd(), libc::POLLIN, 1000);
    assert_eq!(one.try_receive(&mut [0; 64]), Err(libc::ECONNRESET));
    assert_eq!(one.slot.state(), State::Over(libc::ECONNRESET));
    assert_eq!(one.try_send(b"x"), Err(libc::ECONNRESET));
    ready(other.socket.as_raw_fd(), libc::POLLIN, 1000);
    let error = loop {
        // What came before the reset is read first.
        match other.socket.read(&mut [0; 64]) {
            Ok(0) => panic!("no reset"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
}

#[test]
fn a_stream_that_ends_in_the_middle_is_no_end() {
    use std::io::Write;
    let (one, mut other) = pair(false, false);
    other.socket.write_all(&[0, 30, 0xc1]).unwrap();
    other.socket.shutdown(std::net::Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(one.try_receive(&mut [0; 64]), Err(libc::ECONNRESET));
}

/// What `end` sends for `octets`, which goes nowhere.
fn framed(end: &mut End, octets: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let (socket, mut wire) = sockets();
    let own = std::mem::replace(&mut end.socket, socket);
    end.try_send(octets).unwrap();
    drop(std::mem::replace(&mut end.socket, own));
    let mut sent = Vec::new();
    wire.read_to_end(&mut sent).unwrap();
    sent
}

/// No octets would be the end, which has not come.
#[test]
fn nobody_is_told_of_an_end_amid_a_message() {
    use std::io::Write;
    let (one, mut other) = pair(false, false);
    let sent = octets(1000);
    let wire = framed(&mut other, &sent);
    assert!(wire.len() > 1000);
    let peek = |room: &mut [u8]| one.connection().peek(&OwnBuffer::from(room));
    other.socket.write_all(&wire[..300]).unwrap();
    ready(one.socket.as_raw_fd(), libc::POLLIN, 1000);
    let mut room = [0; 1000];
    let Ok(Received::Octets(first)) = one.try_receive(&mut room) else {
        panic!("octets were there");
    };
    assert_eq!(room[..first], sent[..first]);
    assert_eq!(one.next_now(), Received::Nothing);
    assert_eq!(peek(&mut [0; 10]), Ok(Received::Nothing));
    assert_eq!(peek(&mut []), Ok(Received::Nothing));
    assert_eq!(one.connection().discard(10), Ok(Received::Nothing));
    other.socket.write_all(&wire[300..]).unwrap();
    ready(one.socket.as_raw_fd(), libc::POLLIN, 1000);
    assert_eq!(peek(&mut [0; 10]), Ok(Received::Octets(10)));
    assert_eq!(one.receive(1000 - first), sent[first..]);
}

/// Whoever asks in whatever way learns that the stream was cut, and does not ask for ever.
#[test]
fn a_message_that_is_cut_short_is_an_error_in_every_way() {
    use std::io::Write;
    for way in 0..3 {
        let (one, mut other) = pair(false, false);
        let wire = framed(&mut other, &octets(1000));
        other.socket.write_all(&wire[..300]).unwrap();
        ready(one.socket.as_raw_fd(), libc::POLLIN, 1000);
        assert!(matches!(
            one.try_receive(&mut [0; 1000]),
            Ok(Received::Octets(1..))
        ));
        other.socket.shutdown(std::net::Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let connection = one.connection();
        let told = match way {
            0 => connection.receive(&OwnBuffer::from(&mut [0; 10][..]), 0),
            1 => connection.peek(&OwnBuffer::from(&mut [0; 10][..])),
            _ => connection.discard(10),
        };
        assert_eq!(told, Err(libc::ECONNRESET), "way {way}");
    }
}

#[test]
fn a_plain_client_is_plain() {
    use std::io::Write;
    let (mut one, other) = sockets();
    let other = End::new(other, false);
    other.connection().answer().unwrap();
    assert_eq!(other.connection().settle(), Ok(Settled::Waits));
    one.write_all(b"MPA ID Re").unwrap();
    ready(other.socket.as_raw_fd(), libc::POLLIN, 1000);
    assert_eq!(other.connection().settle(), Ok(Settled::Waits));
    one.write_all(b"ally not").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(other.connection().settle(), Ok(Settled::Plain));
    let mut octets = [0; 17];
    std::io::Read::read_exact(&mut &other.socket, &mut octets).unwrap();
    assert_eq!(&octets, b"MPA ID Really not");
    assert_eq!(
        get_int(other.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR),
        Ok(0)
    );
}

/// Octets that the program's memory does not have are no octets of the stream.
#[test]
fn memory_that_cannot_be_read_or_written_changes_nothing() {
    let (one, other) = pair(false, false);
    let bad = weft_os::user::OwnBuffer::unmapped(5000);
    assert_eq!(one.connection().send(&bad, 0, 0), Err(libc::EFAULT));
    one.try_send(b"good").unwrap();
    ready(other.socket.as_raw_fd(), libc::POLLIN, 1000);
    assert_eq!(other.connection().receive(&bad, 0), Err(libc::EFAULT));
    assert_eq!(other.receive(4), b"good");
}
