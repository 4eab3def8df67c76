//! The datagram service of the connection manager over the kernel's UDP, and plain sockets that ask it: what they are
//! told, and what they cost.

#[path = "peers/lookups.rs"]
mod lookups;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use lookups::{expect, listener, listener_on, towards};
use weft_engine::cm::{EventChannel, EventKind, Id};
use weft_verbs::sidr::{Message, Verdict};

const ETIMEDOUT: i32 = 110;

#[test]
fn nobody_answers_in_time() {
    // It takes what it is sent, and says nothing.
    let Stranger(silent) = Stranger::new();
    let (channel, id) = towards(silent.local_addr().unwrap());
    id.look_up(b"").unwrap();
    let mut tries = 0;
    silent
        .set_read_timeout(Some(Duration::from_secs(15)))
        .unwrap();
    let mut octets = [0; 64];
    while tries < 2 {
        let length = silent.recv(&mut octets).unwrap();
        let request = Message::parse(&octets[..length]);
        assert!(matches!(request, Some(Message::Request { cookie: 0, .. })));
        tries += 1;
    }
    assert_eq!(expect(&channel, EventKind::Unreachable).status, -ETIMEDOUT);
    // One that is ended while it asks says nothing any more.
    let (_channel, id) = towards(silent.local_addr().unwrap());
    id.look_up(b"").unwrap();
    id.destroy();
}

#[test]
fn a_listener_that_ends_rejects_requests_that_its_program_has_not_seen() {
    let (_listens, listener, at) = listener();
    let stranger = Stranger::new();
    stranger.ask_well(at, 1, b"");
    stranger.cookie(at, 2);
    listener.destroy();
    let answer = stranger.hear().unwrap();
    assert!(is_rejection(&answer), "{answer:?}");
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let stranger = Stranger::new();
    let (listens, listener, at) = listener();
    let request = stranger.ask_well(at, 1, b"once");
    // It waits for the program: asking again changes nothing.
    stranger.send(at, &request);
    let told = expect(&listens, EventKind::ConnectRequest);
    assert_eq!(told.private_data, b"once");
    told.id.accept_lookup(5, b"here").unwrap();
    let answer = stranger.hear().unwrap();
    told.id.destroy();
    for _ in 0..3 {
        stranger.send(at, &request);
        assert_eq!(stranger.hear().unwrap(), answer);
    }
    // Nobody was told of those: what comes next is another's.
    let (_channel, id) = towards(at);
    id.look_up(b"another").unwrap();
    let next = expect(&listens, EventKind::ConnectRequest);
    assert_eq!(next.private_data, b"another");
    listener.destroy();
}

#[test]
fn who_only_writes_an_address_is_told_to_nobody_and_gets_no_more_than_he_sent() {
    let stranger = Stranger::new();
    let (listens, listener, at) = listener();
    for lookup in 0..2000 {
        let cookie = stranger.cookie(at, lookup);
        // A cookie of another request, and one that was guessed.
        for wrong in [cookie ^ 1, 1] {
            let octets = request(lookup + 1, wrong, b"let me in");
            stranger.send(at, &octets);
            let challenge = stranger.hear().unwrap();
            assert!(challenge.len() <= 32, "{challenge:?}");
        }
    }
    let (_channel, id) = towards(at);
    id.look_up(b"honest").unwrap();
    assert_eq!(
        expect(&listens, EventKind::ConnectRequest).private_data,
        b"honest"
    );
    listener.destroy();
}

/// The listener has eight places, twice its backlog; those of one address fill half of them, and another address gets
/// in.
#[test]
fn one_address_does_not_fill_a_listener() {
    let stranger = Stranger::new();
    let (listens, listener) = listener_on("0.0.0.0:0", 4);
    let port = listener.local_addr().unwrap().port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    for lookup in 0..100 {
        stranger.ask_well(at, lookup, b"crowd");
    }
    let (channel, honest) = (
        EventChannel::new().unwrap(),
        Id::for_datagrams(None, 0).unwrap(),
    );
    honest.migrate(Some(&channel));
    let from = "127.0.0.2:0".parse().unwrap();
    honest.resolve_addr(Some(from), at, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    honest.look_up(b"honest").unwrap();
    let mut crowd = Vec::new();
    let honest_request = loop {
        let event = expect(&listens, EventKind::ConnectRequest);
        match &event.private_data[..] {
            b"crowd" => crowd.push(event),
            _ => break event,
        }
    };
    assert_eq!(crowd.len(), 4);
    honest_request.id.accept_lookup(9, b"").unwrap();
    expect(&channel, EventKind::Established);
    listener.destroy();
}

#[test]
fn what_is_no_message_gets_nothing() {
    let stranger = Stranger::new();
    let (_listens, listener, at) = listener();
    let first = request(1, 0, b"");
    let mut longest = vec![0; 65_000];
    longest[..first.len()].copy_from_slice(&first);
    for octets in [
        &b""[..],
        b"x",
        &first[..31],
        &longest[..33],
        &longest,
        &[0xFF; 212],
    ] {
        stranger.send(at, octets);
    }
    // What comes first is the answer to this.
    let cookie = stranger.cookie(at, 77);
    assert_ne!(cookie, 0);
    listener.destroy();
}

// --- a client that says what it likes

struct Stranger(UdpSocket);

fn request(lookup: u64, cookie: u64, private_data: &[u8]) -> Vec<u8> {
    Message::Request {
        lookup,
        cookie,
        private_data,
    }
    .encode()
}

fn is_rejection(octets: &[u8]) -> bool {
    matches!(
        Message::parse(octets),
        Some(Message::Reply {
            verdict: Verdict::Rejected,
            ..
        })
    )
}

impl Stranger {
    fn new() -> Stranger {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(15)))
            .unwrap();
        Stranger(socket)
    }

    fn send(&self, to: SocketAddr, octets: &[u8]) {
        self.0.send_to(octets, to).unwrap();
    }

    fn hear(&self) -> std::io::Result<Vec<u8>> {
        let mut octets = [0; 512];
        let length = self.0.recv(&mut octets)?;
        Ok(octets[..length].to_vec())
    }

    /// The cookie for a request.
    fn cookie(&self, to: SocketAddr, lookup: u64) -> u64 {
        self.send(to, &request(lookup, 0, b""));
        let challenge = self.hear().unwrap();
        match Message::parse(&challenge) {
            Some(Message::Challenge { lookup: of, cookie }) if of == lookup => cookie,
            other => panic!("{other:?}"),
        }
    }

    /// A request with its cookie, as an honest client has it; gives its octets.
    fn ask_well(&self, to: SocketAddr, lookup: u64, private_data: &[u8]) -> Vec<u8> {
        let octets = request(lookup, self.cookie(to, lookup), private_data);
        self.send(to, &octets);
        octets
    }
}
