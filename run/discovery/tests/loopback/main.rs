//! Questions and answers between an asker and a server of one process.

#[path = "../common/mod.rs"]
mod common;
mod many;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use common::{answer_to, ask, ask_beside, at, connection, question, soon, Server, SILENCE, SOON};
use weft_discovery::{now, About, Asker, End, First, Known, Outcome, Standing};
use weft_settings::DiscoveryPort;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn discovery_port(server: &Server) -> SocketAddr {
    SocketAddr::new(HERE, server.port.of(0))
}

#[test]
fn a_listener_that_may_be_asked_for_is_found_by_either_family() {
    for (listens, clients) in [
        ("127.0.0.1:0", &["127.0.0.1", "::ffff:127.0.0.1"][..]),
        ("0.0.0.0:0", &["127.0.0.1", "127.0.0.9", "::ffff:127.0.0.1"]),
        ("[::1]:0", &["::1"]),
        ("[::]:0", &["::1", "127.0.0.1", "::ffff:127.0.0.1"]),
    ] {
        let server = Server::alone();
        let Some(listener) = server.listen(1, listens) else {
            continue;
        };
        for client in clients {
            let (stream, is_weft) = ask(&server.asker(), at(client, &listener));
            assert!(
                is_weft,
                "{client} to {listens}: {:?}",
                server.answering.counted()
            );
            let promised = server.promises.take(&connection(&stream), now());
            assert!(promised.is_some(), "a yes is written down");
        }
        assert_eq!(server.answering.counted().answered, clients.len() as u64);
    }
}

#[test]
fn a_question_that_leaves_with_the_syn_is_answered() {
    use rustix::net::{connect, socket_with, AddressFamily, SocketFlags, SocketType};
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let asker = server.asker();
    for _ in 0..50 {
        let to = at("127.0.0.1", &listener);
        let flags = SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        // On loopback the handshake may be over within the call.
        let _ = connect(&fd, &to);
        let ticket = asker.ask(About::Stream, fd.as_raw_fd(), to).unwrap();
        soon("a yes", || asker.poll(ticket) == Outcome::Yes);
    }
    assert_eq!(server.answering.counted().answered, 50);
}

#[test]
fn a_plain_host_says_no_at_once() {
    let server = Server::alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let asker = server.asker();
    let begun = Instant::now();
    let (_stream, is_weft) = ask(&asker, at("127.0.0.1", &listener));
    assert!(!is_weft);
    assert!(begun.elapsed() < SOON / 2, "ICMP is not waited for");
    assert_eq!(
        asker.known(About::Stream, at("127.0.0.1", &listener)),
        Known::No
    );
}

/// What is said of questions that get no answer, in the order of the asserts below.
#[test]
fn nobody_answers_for_a_listener_that_may_not_be_asked_for() {
    let server = Server::alone();
    let _served = server.listen(1, "127.0.0.1:0").unwrap();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(at("127.0.0.1", &plain)).unwrap();
    let asked = question(connection(&stream));
    assert_eq!(
        answer_to(&asked, HERE, discovery_port(&server), SILENCE),
        None
    );
    assert_eq!(server.answering.counted().unknown, 1);
}

#[test]
fn a_question_is_answered_where_its_connection_is_and_as_it_is_named() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(at("127.0.0.1", &listener)).unwrap();
    let real = connection(&stream);
    let asked = question(real);
    let ask = |octets: &[u8], from: &str| {
        answer_to(
            octets,
            from.parse().unwrap(),
            discovery_port(&server),
            SILENCE,
        )
    };
    let yes = answer_to(&asked, HERE, discovery_port(&server), SOON).unwrap();
    assert_eq!(yes.len(), 24);
    assert_eq!(
        (&yes[..8], &yes[8..]),
        (&b"Weft\x01\x02\x01\0"[..], &asked[8..24])
    );

    // Ends of which this machine has no connection, though it has a listener there.
    let other = |client: SocketAddr, server: SocketAddr| {
        question(weft_discovery::Connection {
            client: client.into(),
            server: server.into(),
            ..real
        })
    };
    let (client, to) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let nearly = SocketAddr::new(HERE, client.port() ^ 1);
    assert_eq!(ask(&other(nearly, to), "127.0.0.1"), None);
    soon("it is looked for and given up", || {
        server.answering.counted().unconnected == 1
    });

    // From another address than it names: a translator, or a forger.
    assert_eq!(ask(&asked, "127.0.0.7"), None);
    // To another address than it names.
    let elsewhere = SocketAddr::new("127.0.0.7".parse().unwrap(), to.port());
    assert_eq!(ask(&other(client, elsewhere), "127.0.0.1"), None);
    assert_eq!(server.answering.counted().translated, 2);

    // The same again while the connection lives: whoever replays it is told what the client was told.
    assert!(answer_to(&asked, HERE, discovery_port(&server), SOON).is_some());
    drop((stream, listener.accept().unwrap()));
    assert_eq!(ask(&asked, "127.0.0.1"), None, "the connection is over");
    assert_eq!(server.answering.counted().answered, 2);
}

#[test]
fn what_is_no_question_is_not_answered() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(at("127.0.0.1", &listener)).unwrap();
    let asked = question(connection(&stream));
    let with = |at: usize, octet: u8| {
        let mut octets = asked;
        octets[at] = octet;
        octets.to_vec()
    };
    let long = |len: usize| {
        let mut octets = asked.to_vec();
        octets.resize(len, 0);
        octets
    };
    let wrong = [
        Vec::new(),
        asked[..127].to_vec(),
        asked[..60].to_vec(),
        long(513),
        long(60_000),
        with(0, b'w'),
        with(4, 2),
        with(5, 2),
        with(6, 3),
        vec![0xFF; 128],
    ];
    for octets in &wrong {
        let answer = answer_to(octets, HERE, discovery_port(&server), SILENCE / 4);
        assert_eq!(answer, None, "{octets:?}");
    }
    let counted = server.answering.counted();
    assert_eq!(counted.no_questions, wrong.len() as u64, "{counted:?}");
    // Later fields are no obstacle.
    assert!(answer_to(&long(512), HERE, discovery_port(&server), SOON).is_some());
}

#[test]
fn only_the_answer_to_the_question_is_believed() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &plain);
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = forger.local_addr().unwrap().port();
    let asker = Asker::new(DiscoveryPort::Agreed(port)).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(to).unwrap();
    for (is_right, by_forger, wanted) in [
        (true, false, false),
        (false, true, false),
        (true, true, true),
    ] {
        let ticket = asker.ask(About::Stream, stream.as_raw_fd(), to).unwrap();
        let mut asked = [0; 600];
        let (len, from) = forger.recv_from(&mut asked).unwrap();
        assert_eq!((len, from.ip()), (128, HERE));
        let mut yes = asked[..24].to_vec();
        yes[5] = 2;
        yes[23] ^= u8::from(!is_right);
        match by_forger {
            true => forger.send_to(&yes, from).unwrap(),
            false => stranger.send_to(&yes, from).unwrap(),
        };
        asker.connected(ticket);
        assert_eq!(
            asker.wait(ticket) == Outcome::Yes,
            wanted,
            "{is_right} {by_forger}"
        );
    }
}

#[test]
fn who_began_to_send_is_promised_to_nobody_and_who_was_promised_waits() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &listener);
    let asker = server.asker();
    let early = TcpStream::connect(to).unwrap();
    assert_eq!(
        server.promises.settle(&connection(&early), now()),
        First::Leave
    );
    let asked = question(connection(&early));
    assert_eq!(
        answer_to(&asked, HERE, discovery_port(&server), SILENCE),
        None
    );
    assert_eq!(server.answering.counted().refused, 1);
    let (stream, is_weft) = ask(&asker, to);
    assert!(is_weft);
    let first = server.promises.settle(&connection(&stream), now());
    assert!(
        matches!(first, First::Held(since) if now() - since < SOON),
        "{first:?}"
    );
}

#[test]
fn several_listeners_come_and_go() {
    let server = Server::alone();
    let listeners: Vec<_> = (0..5)
        .map(|key| server.listen(key, "127.0.0.1:0").unwrap())
        .collect();
    let ask = |listener: &TcpListener| {
        let stream = TcpStream::connect(at("127.0.0.1", listener)).unwrap();
        let asked = question(connection(&stream));
        answer_to(&asked, HERE, discovery_port(&server), SILENCE).is_some()
    };
    soon("all are found", || listeners.iter().all(ask));
    server.answering.leave(3);
    soon("one is gone", || !ask(&listeners[3]));
    soon("the others are not", || {
        [0, 1, 2, 4].iter().all(|at| ask(&listeners[*at]))
    });
    for key in 0..5 {
        server.answering.leave(key);
    }
    let port = server.port.of(0);
    soon("the port is given back", || {
        UdpSocket::bind(("0.0.0.0", port)).is_ok()
    });
    soon("the thread sees it", || {
        server.answering.standing() == Standing::Idle
    });
    server.serve(9, &listeners[0]);
    soon("and begins anew", || ask(&listeners[0]));
}

#[test]
fn the_thread_ends_with_the_last_listener_and_with_confinement() {
    let threads = |of: &Server| {
        // Other tests have such threads too: what is looked for is the port.
        UdpSocket::bind(("0.0.0.0", of.port.of(0))).is_err()
    };
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    assert!(threads(&server));
    server.answering.confine();
    assert!(!threads(&server), "nothing is left when confine returns");
    server
        .answering
        .serve(2, About::Stream, listener.as_raw_fd());
    std::thread::sleep(SILENCE);
    assert!(!threads(&server));
}

#[test]
fn the_programs_own_socket_goes_before() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let port = server.port.of(0);
    assert!(UdpSocket::bind(("127.0.0.1", port)).is_err());
    server.answering.give_way(port);
    let _own = UdpSocket::bind(("127.0.0.1", port)).expect("it is free when the call returns");
    server.answering.give_way(port);
    // Other listeners do not take it back.
    server
        .answering
        .serve(2, About::Stream, listener.as_raw_fd());
    std::thread::sleep(SILENCE);
    assert!(UdpSocket::bind(("127.0.0.2", port)).is_ok());
}

#[test]
fn at_the_same_port_each_listener_has_its_own() {
    let server = Server::new(DiscoveryPort::Same);
    let one = server.listen(1, "127.0.0.1:0").unwrap();
    let two = server.listen(2, "127.0.0.1:0").unwrap();
    let asker = server.asker();
    for listener in [&one, &two] {
        soon("a yes", || {
            let (stream, is_weft) = ask(&asker, at("127.0.0.1", listener));
            is_weft && server.promises.take(&connection(&stream), now()).is_some()
        });
    }
    // Who asks at the port of the one about the other is not answered.
    let stream = TcpStream::connect(at("127.0.0.1", &two)).unwrap();
    let asked = question(connection(&stream));
    assert_eq!(
        answer_to(&asked, HERE, at("127.0.0.1", &one), SILENCE),
        None
    );
    assert!(answer_to(&asked, HERE, at("127.0.0.1", &two), SOON).is_some());
}

#[test]
fn a_program_that_takes_all_numbers_is_answered_for_again() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let port = server.port.of(0);
    let null = std::fs::File::open("/dev/null").unwrap();
    let is_answered = || {
        let stream = TcpStream::connect(at("127.0.0.1", &listener)).unwrap();
        let asked = question(connection(&stream));
        answer_to(&asked, HERE, discovery_port(&server), SILENCE).is_some()
    };
    assert!(is_answered());
    let local = |number: &i32| weft_os::beside::local_end(*number).map(|end| end.port());
    let ours: Vec<i32> = (256..2000)
        .filter(|number| local(number) == Some(port))
        .collect();
    assert_eq!(ours.len(), 1);
    assert!(weft_os::descriptors::is_ours(ours[0]));
    weft_os::testing::take_number(ours[0], &null);
    soon("it is answered for again", is_answered);
    assert_eq!(
        local(&ours[0]),
        None,
        "what the program has there is left alone"
    );
    assert!(!weft_os::descriptors::is_ours(ours[0]));
    server.answering.leave(1);
    soon("the port is given back", || {
        UdpSocket::bind(("0.0.0.0", port)).is_ok()
    });
}
