//! Strangers at the ports of queue pairs that come up by address and number: what they hear, and what they change.

#[path = "peers/by_number.rs"]
mod by_number;
#[path = "peers/raw.rs"]
mod raw;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

use by_number::{exchange, ordered, pair, End, HERE};
use weft_engine::bring_up::Destination;
use weft_engine::settings::Settings;
use weft_engine::stats::Snapshot;
use weft_engine::types::QpState;

/// What the words of a hello say.
const NOTHING: u32 = 0;
const STARTS: u32 = 1;
const EXPECTS: u32 = 2;
/// Octets of a Request or Reply of a bring-up.
const FRAME: usize = 20 + 4 + 24;

/// One at a time: they look at what the whole process counts.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        weft_engine::start_with(Settings {
            crc: false,
            // Guesses are counted and not slowed: there are many, all from here.
            refused_access_limit: 0,
            ..Settings::default()
        })
        .unwrap();
    });
    TURN.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn until(what: &str, is_so: impl Fn(&Snapshot) -> bool) {
    let deadline = Instant::now() + raw::TIMEOUT;
    while !is_so(&raw::counts()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", raw::counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn exchange_message(to: u32, from: u32, (kind, psn): (u32, u32)) -> Vec<u8> {
    let mut octets = b"WEFTQP\x00\x02".to_vec();
    for word in [to, from, kind, psn] {
        octets.extend(word.to_be_bytes());
    }
    octets
}

/// The words of a frame's hello.
fn words(frame: &[u8; FRAME]) -> [u32; 4] {
    assert_eq!(&frame[24..32], b"WEFTQP\x00\x02");
    [32, 36, 40, 44].map(|at| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap()))
}

/// Connects to a queue pair in the name of another one.
fn connect(to: u32, from: u32, word: (u32, u32)) -> TcpStream {
    let port = SocketAddr::new(HERE.parse().unwrap(), (to >> 8) as u16);
    let mut stream = raw::connect(port);
    let request = raw::request(&exchange_message(to, from, word));
    stream.write_all(&request).unwrap();
    stream
}

/// Nothing came, not even the end.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let outcome = stream.read(&mut [0; 1]);
    matches!(outcome, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// The Reply to a connect attempt that is taken.
fn reply(stream: &mut TcpStream) -> [u32; 4] {
    let mut frame = [0; FRAME];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(&frame[..16], b"MPA ID Rep Frame");
    assert_eq!(frame[16] & 0x20, 0, "refused");
    words(&frame)
}

#[test]
fn strangers_hear_nothing_whatever_they_name_and_change_nothing() {
    let _turn = turn();
    let ((low, high), (other, rts)) = (ordered(), pair());
    high.receive(high.to(&low, HERE));
    rts.receive(rts.to(&other, HERE));
    rts.send();
    let early = End::new(1);
    let failed = End::new(2);
    failed.receive(failed.to(&other, HERE));
    failed.qp.modify_state(QpState::Error).unwrap();
    let gone = End::new(3).qp;
    gone.destroy();
    let (one, connected) = pair();
    connected.receive(connected.to(&one, HERE));
    one.receive(one.to(&connected, HERE));
    one.send();
    connected.send();
    exchange(&one, &connected);

    let peer = low.qp.number();
    let wrong = (STARTS, low.psn ^ 1);
    // Nobody can tell yet, or it may be an honest end that is early or late.
    let waits = [
        (early.qp.number(), peer, wrong),
        (gone.number(), peer, wrong),
        (rts.qp.number(), other.qp.number(), (NOTHING, 0)),
    ];
    let at_rts = [(high.qp.number(), peer, (EXPECTS, high.psn ^ 1))];
    let guesses = [
        // Numbers are given in turn: this one is far from any.
        (high.qp.number() ^ 0x80, peer, (STARTS, low.psn)),
        (high.qp.number(), peer ^ 1, (STARTS, low.psn)),
        (high.qp.number(), peer, wrong),
        (rts.qp.number(), other.qp.number(), (STARTS, other.psn ^ 1)),
        (rts.qp.number(), other.qp.number(), (EXPECTS, rts.psn ^ 1)),
        (
            connected.qp.number(),
            one.qp.number(),
            (STARTS, one.psn ^ 1),
        ),
        (failed.qp.number(), peer, wrong),
    ];
    let before = raw::counts().totals.wrong_bring_ups;
    let mut strangers: Vec<_> = [&waits[..], &at_rts, &guesses]
        .concat()
        .into_iter()
        .map(|(to, from, word)| (to, connect(to, from, word)))
        .collect();
    let counted = |count| {
        until("every one was heard", |now| {
            now.totals.half_open == 0 && now.totals.wrong_bring_ups == before + count
        });
    };
    counted(guesses.len() as u64);
    low.receive(low.to(&high, HERE));
    low.send();
    high.send();
    counted(1 + guesses.len() as u64);
    exchange(&low, &high);
    exchange(&one, &connected);
    assert!(!rts.qp.is_connected());
    for (number, stranger) in &mut strangers {
        assert!(
            is_silent(stranger),
            "who connected to {number:#x} heard something"
        );
    }
}

/// What somebody sends behind his Request is not acted on, and the queue pair is free for its peer.
#[test]
fn nobody_is_served_before_he_has_shown_who_he_is() {
    let _turn = turn();
    for at_rts in [false, true] {
        let (low, high) = ordered();
        let memory = high.memory();
        high.post_recv(&memory);
        high.receive(high.to(&low, HERE));
        if at_rts {
            high.send();
        }
        for word in [(STARTS, low.psn ^ 1), (EXPECTS, high.psn ^ 1), (NOTHING, 0)] {
            let mut stranger = connect(high.qp.number(), low.qp.number(), word);
            // The ready-to-receive message, and a Send of four octets.
            let mut send = vec![0, 22, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
            send.extend([0, 0, 0, 1, 0, 0, 0, 0, b'f', b'o', b'u', b'r', 0, 0, 0, 0]);
            stranger
                .write_all(&[&raw::READY[..], &send].concat())
                .unwrap();
            assert_eq!(raw::drain(&mut stranger), [], "it breaks the protocol");
            assert!(!high.qp.is_connected());
        }
        let mut completions = 0;
        high.cq.poll(8, |_| completions += 1).unwrap();
        assert_eq!(completions, 0);
        low.receive(low.to(&high, HERE));
        low.send();
        high.send();
        low.post_send(1, b"honest").unwrap();
        assert_eq!(by_number::wait(&high.cq).byte_len, 6);
    }
}

/// The peer is told the word that it has not said, and only if this end knows it.
#[test]
fn the_peer_is_told_the_other_word() {
    let _turn = turn();
    for (at_rts, word, answer) in [
        (false, (STARTS, 11), (NOTHING, 0)),
        (true, (STARTS, 11), (STARTS, 22)),
        (true, (EXPECTS, 22), (EXPECTS, 11)),
    ] {
        let (mut low, mut high) = ordered();
        (low.psn, high.psn) = (11, 22);
        high.receive(high.to(&low, HERE));
        if at_rts {
            high.send();
        }
        let mut peer = connect(high.qp.number(), low.qp.number(), word);
        let told = [low.qp.number(), high.qp.number(), answer.0, answer.1];
        assert_eq!(reply(&mut peer), told);
        let mut late = connect(high.qp.number(), low.qp.number(), word);
        high.qp.modify_state(QpState::Reset).unwrap();
        raw::drain(&mut peer);
        assert!(is_silent(&mut late), "it has its peer");
    }
}

/// Each may be an honest end that is early. A peer makes no five of them.
#[test]
fn who_connects_too_often_is_counted() {
    let _turn = turn();
    let early = End::new(1);
    let before = raw::counts().totals.wrong_bring_ups;
    let attempt = |_| connect(early.qp.number(), 7, (NOTHING, 0));
    let mut attempts: Vec<_> = (0..5).map(attempt).collect();
    until("the fifth is one too many", |now| {
        now.totals.half_open == 0 && now.totals.wrong_bring_ups == before + 1
    });
    assert!(attempts.iter_mut().all(is_silent));
}

#[test]
fn a_gid_of_somebody_else_is_not_answered() {
    let _turn = turn();
    let (low, high) = ordered();
    let mut to = high.to(&low, HERE);
    // The program named a peer at another address; the attempt comes from 127.0.0.1.
    to.peer = "127.0.0.99".parse().unwrap();
    let before = raw::counts().totals.wrong_bring_ups;
    high.receive(to);
    high.send();
    let mut stranger = connect(high.qp.number(), low.qp.number(), (STARTS, low.psn));
    until("it is counted", |now| {
        now.totals.wrong_bring_ups == before + 1
    });
    assert!(!high.qp.is_connected());
    assert!(is_silent(&mut stranger));
    // The address that it connects to is this machine's too: its attempt would wait here, and take a place.
    high.qp.destroy();
}

#[test]
fn who_speaks_otherwise_is_refused() {
    let _turn = turn();
    let end = End::new(1);
    let number = end.qp.number();
    let port = SocketAddr::new(HERE.parse().unwrap(), (number >> 8) as u16);
    let good = exchange_message(number, 7, (NOTHING, 0));
    let mut earlier = good[..20].to_vec();
    earlier[7] = 1;
    let elsewhere = exchange_message(number ^ 0x100, 7, (NOTHING, 0));
    for private_data in [&b""[..], &good[..23], &earlier, &elsewhere] {
        let mut stranger = raw::connect(port);
        stranger.write_all(&raw::request(private_data)).unwrap();
        let answer = raw::drain(&mut stranger);
        assert_eq!(&answer[..16], b"MPA ID Rep Frame");
        assert_eq!(answer[16] & 0x20, 0x20, "{private_data:02x?}");
    }
    let mut garbage = raw::connect(port);
    garbage
        .write_all(b"GET / HTTP/1.1\r\nHost: weft\r\n\r\n")
        .unwrap();
    assert_eq!(raw::drain(&mut garbage), []);
}

/// A passive end at another address of this machine, which is a socket and octets.
struct Responder {
    listener: TcpListener,
    /// The active end: the lower address is its own.
    end: End,
    to: Destination,
}

impl Responder {
    fn new() -> Responder {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = u32::from(listener.local_addr().unwrap().port());
        let to = Destination {
            local: HERE.parse().unwrap(),
            peer: "127.0.0.2".parse().unwrap(),
            peer_qp: port << 8 | 5,
            rq_psn: 22,
        };
        let end = End::new(11);
        Responder { listener, end, to }
    }

    /// The next attempt, and what it says.
    fn accept(&self) -> (TcpStream, [u32; 4]) {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(raw::TIMEOUT)).unwrap();
        let mut frame = [0; FRAME];
        stream.read_exact(&mut frame).unwrap();
        assert_eq!(&frame[..16], b"MPA ID Req Frame");
        (stream, words(&frame))
    }

    fn answer(&self, stream: &mut TcpStream, private_data: &[u8]) {
        let mut frame = raw::request(private_data);
        frame[..16].copy_from_slice(b"MPA ID Rep Frame");
        stream.write_all(&frame).unwrap();
    }

    fn right(&self, word: (u32, u32)) -> Vec<u8> {
        exchange_message(self.end.qp.number(), self.to.peer_qp, word)
    }

    /// The attempt is over without a connection, whatever the other end does.
    fn is_turned_down(&self, mut stream: TcpStream, private_data: &[u8]) {
        self.answer(&mut stream, private_data);
        let heard = raw::drain(&mut stream);
        assert_eq!(heard, [], "it was told something: {private_data:02x?}");
        assert!(!self.end.qp.is_connected());
    }

    fn is_met(&self, stream: &mut TcpStream, private_data: &[u8]) {
        self.answer(stream, private_data);
        // The ready-to-receive message.
        stream.read_exact(&mut [0; 20]).unwrap();
        assert!(self.end.qp.is_connected());
    }
}

#[test]
fn who_is_attempted_and_answers_as_another_is_nobodys_peer() {
    let _turn = turn();
    let peer = Responder::new();
    peer.end.receive(peer.to);
    peer.end.send();
    let (own, named) = (peer.end.qp.number(), peer.to.peer_qp);
    let mut another_version = peer.right((STARTS, 22));
    another_version[7] = 1;
    for wrong in [
        exchange_message(own ^ 1, named, (STARTS, 22)),
        exchange_message(own, named ^ 1, (STARTS, 22)),
        peer.right((STARTS, 22 ^ 1)),
        // What it was told.
        peer.right((STARTS, 11)),
        peer.right((EXPECTS, 11)),
        another_version,
        Vec::new(),
    ] {
        let (stream, said) = peer.accept();
        assert_eq!(said, [named, own, STARTS, 11]);
        peer.is_turned_down(stream, &wrong);
    }
    for right in [(STARTS, 22), (NOTHING, 0)] {
        let (mut stream, _) = peer.accept();
        peer.is_met(&mut stream, &peer.right(right));
    }
}

#[test]
fn what_an_answer_claims_is_compared_at_rts() {
    let _turn = turn();
    let peer = Responder::new();
    peer.end.receive(peer.to);
    for wrong in [(NOTHING, 0), (STARTS, 22), (STARTS, 11)] {
        let (stream, said) = peer.accept();
        assert_eq!(said, [peer.to.peer_qp, peer.end.qp.number(), EXPECTS, 22]);
        peer.is_turned_down(stream, &peer.right(wrong));
    }
    let (mut stream, _) = peer.accept();
    peer.is_met(&mut stream, &peer.right((EXPECTS, 11 ^ 1)));
    peer.end.send();
    // Where the machine stood still it has said again that it is ready, and nothing else.
    let heard = raw::drain(&mut stream);
    assert!(heard
        .chunks(raw::READY.len())
        .all(|fpdu| fpdu == raw::READY));
    // It goes on to look for its peer.
    let (mut stream, said) = peer.accept();
    assert_eq!(said[2..], [STARTS, 11]);
    peer.is_met(&mut stream, &peer.right((STARTS, 22)));
}

/// Each of two attempts has said something else, and is answered to that.
#[test]
fn a_attempt_of_before_rts_may_be_answered_when_there_is_another() {
    let _turn = turn();
    let peer = Responder::new();
    peer.end.receive(peer.to);
    let (mut early, said) = peer.accept();
    assert_eq!(said[2..], [EXPECTS, 22]);
    peer.end.send();
    let (mut other, said) = peer.accept();
    assert_eq!(said[2..], [STARTS, 11]);
    peer.is_met(&mut early, &peer.right((EXPECTS, 11)));
    assert_eq!(raw::drain(&mut other), [], "it has its peer");
}

#[test]
fn who_met_its_peer_before_rts_connects_again_when_that_has_gone() {
    let _turn = turn();
    let peer = Responder::new();
    peer.end.receive(peer.to);
    let (mut stream, _) = peer.accept();
    peer.is_met(&mut stream, &peer.right((EXPECTS, 11)));
    peer.end.send();
    drop(stream);
    let (mut stream, said) = peer.accept();
    assert_eq!(said[2..], [STARTS, 11]);
    peer.is_met(&mut stream, &peer.right((STARTS, 22)));
}

/// More attempts than a port keeps: the oldest are closed, those of the peer are taken.
#[test]
fn a_flood_of_connect_attempts_is_bounded_and_keeps_no_peer_out() {
    const KEPT: usize = 768;
    const FLOOD: usize = KEPT + 100;
    let _turn = turn();
    let (low, high) = ordered();
    let one = |_| connect(high.qp.number(), low.qp.number(), (STARTS, 5));
    let mut flood: Vec<_> = (0..FLOOD).map(one).collect();
    let deadline = Instant::now() + raw::TIMEOUT;
    loop {
        let kept = flood.iter_mut().map(is_silent).filter(|silent| *silent);
        let kept = kept.count();
        assert!(kept >= KEPT, "{kept}");
        if kept == KEPT {
            break;
        }
        assert!(Instant::now() < deadline, "{kept} of {FLOOD} are kept");
        std::thread::sleep(Duration::from_millis(1));
    }
    low.receive(low.to(&high, HERE));
    low.send();
    high.receive(high.to(&low, HERE));
    high.send();
    exchange(&low, &high);
}

/// Queue pairs of one port, and one more.
const MORE_THAN_ONE_PORT: u32 = 193;

#[test]
fn who_names_a_number_of_another_port_is_refused() {
    let _turn = turn();
    let ends: Vec<End> = (0..MORE_THAN_ONE_PORT).map(End::new).collect();
    let port_of = |end: &End| end.qp.number() >> 8;
    let first = &ends[0];
    let other = ends.iter().find(|end| port_of(end) != port_of(first));
    let other = other.expect("a second port");
    let message = exchange_message(other.qp.number(), first.qp.number(), (STARTS, 0));
    let mut stream = raw::connect(SocketAddr::new(
        HERE.parse().unwrap(),
        port_of(first) as u16,
    ));
    stream.write_all(&raw::request(&message)).unwrap();
    let mut reply = [0; raw::REPLY];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[..16], b"MPA ID Rep Frame");
    assert_ne!(reply[16] & 0x20, 0, "it is a refusal: {reply:?}");
    assert_eq!(raw::drain(&mut stream), b"");
}
