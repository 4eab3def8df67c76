//! Many questions, and those that come to nothing.

use super::*;

#[test]
fn a_flood_is_bounded_and_leaves_others_their_answers() {
    let server = Server::alone();
    let listener = server.listen(1, "0.0.0.0:0").unwrap();
    let to = discovery_port(&server);
    let flooder = UdpSocket::bind("127.0.0.66:0").unwrap();
    let forged = weft_discovery::Connection {
        about: About::Stream,
        client: End::new("127.0.0.66".parse().unwrap(), 1),
        server: End::new(HERE, at("127.0.0.1", &listener).port()),
    };
    let octets = question(forged);
    let begun = Instant::now();
    let mut sent = 0u64;
    while begun.elapsed() < Duration::from_millis(500) {
        sent += u64::from(flooder.send_to(&octets, to).is_ok());
    }
    let elapsed = begun.elapsed();
    let counted = server.answering.counted();
    let looked_into = counted.datagrams - counted.limited;
    assert!(sent > 2000, "{sent} is no flood");
    // What is ignored costs little, and not for long.
    let windows = elapsed.as_millis() as u64 / 10 + 2;
    assert!(
        counted.limited <= windows * (256 + 64),
        "{counted:?} of {sent}"
    );
    assert!(
        looked_into <= 1024 + elapsed.as_millis() as u64 + 2,
        "{looked_into} of {sent} in {elapsed:?}"
    );
    assert_eq!(counted.answered, 0);
    // What was sent while the kernel's buffer was full of the flood is lost.
    soon("others are answered", || {
        let stream = TcpStream::connect(at("127.0.0.1", &listener)).unwrap();
        let asked = question(connection(&stream));
        answer_to(&asked, HERE, to, SILENCE).is_some()
    });
}

#[test]
fn a_thousand_questions_in_a_row_are_all_answered() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &listener);
    let asker = server.asker();
    for number in 0..1000 {
        let stream = TcpStream::connect(to).unwrap();
        assert!(
            ask_beside(&asker, &stream, to),
            "{number}: {:?}",
            server.answering.counted()
        );
        assert!(server.promises.take(&connection(&stream), now()).is_some());
        drop((stream, listener.accept().unwrap()));
    }
    assert_eq!(server.answering.counted().answered, 1000);
}

#[test]
fn hundreds_that_ask_at_once_are_all_answered() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &listener);
    let streams: Vec<_> = (0..300)
        .map(|_| (TcpStream::connect(to).unwrap(), listener.accept().unwrap()))
        .collect();
    let asker = server.asker();
    let ask = |stream: &TcpStream| asker.ask(About::Stream, stream.as_raw_fd(), to).unwrap();
    let tickets: Vec<_> = streams.iter().map(|(stream, _)| ask(stream)).collect();
    assert_eq!(asker.under_way(), 300);
    for ticket in tickets {
        soon("a yes", || asker.poll(ticket) == Outcome::Yes);
    }
    assert_eq!(asker.under_way(), 0);
}

#[test]
fn a_question_that_overtakes_its_syn_is_answered() {
    use rustix::net::{bind, connect, getsockname, socket, AddressFamily, SocketType};
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &listener);
    // How late the SYN may be is up to the machine: of several one is in time.
    soon("a yes", || {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&fd, &SocketAddr::new(HERE, 0)).unwrap();
        let client: SocketAddr = getsockname(&fd).unwrap().try_into().unwrap();
        let asked = question(weft_discovery::Connection {
            about: About::Stream,
            client: client.into(),
            server: to.into(),
        });
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        socket.send_to(&asked, discovery_port(&server)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        let looks = server.answering.counted();
        connect(&fd, &to).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        looks.datagrams > 0 && looks.answered == 0 && socket.recv(&mut [0; 64]).is_ok()
    });
}

#[test]
fn a_connect_that_fails_teaches_nothing() {
    let server = Server::alone();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let asker = server.asker();
    let to = at("127.0.0.1", &plain);
    let stream = TcpStream::connect(to).unwrap();
    let ticket = asker.ask(About::Stream, stream.as_raw_fd(), to).unwrap();
    asker.give_up(ticket);
    assert_eq!(asker.under_way(), 0);
    assert_eq!(asker.known(About::Stream, to), Known::Nothing);
    assert_eq!(asker.poll(ticket), Outcome::No, "it is none any more");
}

#[test]
fn questions_of_a_parent_are_not_its_childs() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let asker = server.asker();
    let to = at("127.0.0.1", &listener);
    let stream = TcpStream::connect(to).unwrap();
    let ticket = asker.ask(About::Stream, stream.as_raw_fd(), to).unwrap();
    let child = weft_os::testing::fork(|| {
        let is_none = asker.poll(ticket) == Outcome::No && asker.under_way() == 1;
        is_none && ask_beside(&asker, &stream, to)
    });
    assert!(weft_os::testing::await_child(child));
    assert_eq!(
        asker.known(About::Stream, to),
        Known::Yes,
        "what the child learnt all know"
    );
    soon("the parent's own", || asker.poll(ticket) == Outcome::Yes);
}

#[test]
fn a_lie_is_remembered() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let asker = server.asker();
    let to = at("127.0.0.1", &listener);
    assert!(ask(&asker, to).1);
    asker.learn_that_it_lied(About::Stream, to);
    assert_eq!(asker.known(About::Stream, to), Known::No);
    assert_eq!(
        asker.known(About::Stream, at("127.0.0.2", &listener)),
        Known::Nothing
    );
}
