//! The datagram service of the connection manager over the kernel's UDP, on loopback: who serves datagrams at a port is
//! asked, answered, refused, and not told to strangers.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use weft_engine::cm::{Event, EventChannel, EventKind, Id, UdPeer, QKEY};
use weft_engine::types::{QpCap, QpState};
use weft_engine::{Context, Error, QpInit, UdQp};
use weft_verbs::sidr::{Message, Verdict, REPLY_OCTETS_MAX, REQUEST_OCTETS_MAX};

const CAP: QpCap = QpCap {
    max_send_wr: 4,
    max_recv_wr: 4,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 64,
};
const REJECTED: i32 = 2;
const UNSUPPORTED: i32 = 1;
const ETIMEDOUT: i32 = 110;

fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    let event = channel.get_event().unwrap();
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

fn queue_pair() -> Arc<UdQp> {
    let context = Context::open().unwrap();
    let pd = context.alloc_pd();
    let cq = context.create_cq(16, None, 1).unwrap();
    let qp = pd
        .create_ud_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: None,
            cap: CAP,
            sq_sig_all: false,
            cookie: 9,
        })
        .unwrap();
    qp.set_qkey(QKEY);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.modify_state(state).unwrap();
    }
    qp
}

fn listener_on(addr: &str, backlog: i32) -> (Arc<EventChannel>, Arc<Id>) {
    let channel = EventChannel::new().unwrap();
    let id = Id::for_datagrams(Some(&channel), 0).unwrap();
    id.bind(addr.parse().unwrap()).unwrap();
    id.listen(backlog).unwrap();
    (channel, id)
}

fn listener() -> (Arc<EventChannel>, Arc<Id>, SocketAddr) {
    let (channel, id) = listener_on("127.0.0.1:0", 8);
    let at = id.local_addr().unwrap();
    (channel, id, at)
}

fn towards(peer: SocketAddr) -> (Arc<EventChannel>, Arc<Id>) {
    let channel = EventChannel::new().unwrap();
    let id = Id::for_datagrams(Some(&channel), 0).unwrap();
    id.resolve_addr(None, peer, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    (channel, id)
}

fn has(address: &str) -> bool {
    let found = UdpSocket::bind((address, 0)).is_ok();
    if !found {
        eprintln!("skipped: this machine has no {address}");
    }
    found
}

#[test]
fn a_lookup_tells_both_programs_what_the_other_said_and_the_client_where_to_send() {
    for host in ["127.0.0.1", "::1"].into_iter().filter(|host| has(host)) {
        let address: IpAddr = host.parse().unwrap();
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        for bound in [SocketAddr::new(address, 0).to_string(), any.into()] {
            let (listens, listener) = listener_on(&bound, 8);
            let at = SocketAddr::new(address, listener.local_addr().unwrap().port());
            let (channel, id) = towards(at);
            id.look_up(&[3; REQUEST_OCTETS_MAX]).unwrap();
            let request = expect(&listens, EventKind::ConnectRequest);
            assert_eq!(request.private_data, [3; REQUEST_OCTETS_MAX]);
            assert!(Arc::ptr_eq(request.listener.as_ref().unwrap(), &listener));
            assert_eq!(request.id.local_addr(), Some(at));
            let qp = queue_pair();
            request.id.attach_ud_qp(&qp).unwrap();
            request.id.accept_lookup(0, &[4; REPLY_OCTETS_MAX]).unwrap();
            let answer = expect(&channel, EventKind::Established);
            assert_eq!(
                (answer.status, answer.private_data),
                (0, vec![4; REPLY_OCTETS_MAX])
            );
            let peer = UdPeer {
                number: qp.number(),
                qkey: QKEY,
                local: address,
                peer: address,
                tos: 0,
            };
            assert_eq!(answer.datagrams, Some(peer));
            assert_eq!(request.id.peer_addr(), id.local_addr());
            // It is answered.
            assert!(request.id.accept_lookup(1, b"").is_err());
            assert!(request.id.reject(b"").is_err());
            for id in [&request.id, &listener, &id] {
                id.destroy();
            }
            qp.destroy();
        }
    }
}

#[test]
fn the_program_may_name_its_queue_pair_by_number() {
    let (listens, listener, at) = listener();
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    let request = expect(&listens, EventKind::ConnectRequest);
    for number in [0, 1 << 24] {
        assert!(request.id.accept_lookup(number, b"").is_err());
    }
    assert!(request
        .id
        .accept_lookup(7, &[0; REPLY_OCTETS_MAX + 1])
        .is_err());
    request.id.accept_lookup(0x12_3456, b"").unwrap();
    let answer = expect(&channel, EventKind::Established);
    assert_eq!(answer.datagrams.map(|peer| peer.number), Some(0x12_3456));
    listener.destroy();
}

#[test]
fn a_client_hears_that_it_is_not_served() {
    let (listens, listener, at) = listener();
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    let request = expect(&listens, EventKind::ConnectRequest);
    request.id.reject(b"not you").unwrap();
    let answer = expect(&channel, EventKind::Unreachable);
    assert_eq!(
        (answer.status, &answer.private_data[..]),
        (REJECTED, &b"not you"[..])
    );

    // An id that is ended without an answer answers so too.
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    expect(&listens, EventKind::ConnectRequest).id.destroy();
    assert_eq!(expect(&channel, EventKind::Unreachable).status, REJECTED);

    // And so does a listener that ends, for requests that its program has not seen.
    let stranger = Stranger::new();
    stranger.ask_well(at, 1, b"");
    stranger.cookie(at, 2);
    listener.destroy();
    let answer = stranger.hear().unwrap();
    assert!(is_rejection(&answer), "{answer:?}");

    // Its port is nobody's then.
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    assert_eq!(expect(&channel, EventKind::Unreachable).status, UNSUPPORTED);
}

#[test]
fn nobody_answers_in_time() {
    // It takes what it is sent, and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
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
fn calls_in_the_wrong_place_are_refused() {
    let qp = queue_pair();
    let connections = Id::new(None, 0).unwrap();
    assert!(connections.attach_ud_qp(&qp).is_err());
    let (_channel, id) = towards("127.0.0.1:9".parse().unwrap());
    id.attach_ud_qp(&qp).unwrap();
    assert!(id.attach_ud_qp(&qp).is_err());
    assert!(id.look_up(&[0; REQUEST_OCTETS_MAX + 1]).is_err());
    assert!(id.accept_lookup(1, b"").is_err());
    assert!(id.listen(1).is_err());
    let unresolved = Id::for_datagrams(None, 0).unwrap();
    assert!(unresolved.look_up(b"").is_err());
    assert!(unresolved.disconnect().is_err());
    // The end of a service is that of its queue pair.
    id.disconnect().unwrap();
    assert_eq!(qp.state(), QpState::Error);
    let (_, _listener, at) = listener();
    let second = Id::for_datagrams(None, 0).unwrap();
    const EADDRINUSE: i32 = 98;
    assert_eq!(second.bind(at), Err(Error::Os(EADDRINUSE)));
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let (listens, listener, at) = listener();
    let stranger = Stranger::new();
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
    let (listens, listener, at) = listener();
    let stranger = Stranger::new();
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
    let (listens, listener) = listener_on("0.0.0.0:0", 4);
    let port = listener.local_addr().unwrap().port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let stranger = Stranger::new();
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
    let (_listens, listener, at) = listener();
    let stranger = Stranger::new();
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
