//! Several processes: those that share the port, those of a family, those of other users.
//!
//! The processes are this test program again, in a role (`common::role`).

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use common::role::{call, Role};
use common::{
    answer_to, ask_until_yes, at, connection, free_port, question, soon, Server, SILENCE, SOON,
};
use weft_discovery::{now, About, Connection, Owner, Standing};
use weft_os::testing::{await_child, fork};
use weft_settings::DiscoveryPort;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Who has nothing.
const NOBODY: &str = "65534";

/// Not a test by itself: what the other processes do.
#[test]
fn role() {
    common::role::play();
}

fn server(udp: u16, tcp: u16) -> (Role, SocketAddr) {
    server_by(&[], udp, tcp)
}

fn server_by(before: &[&str], udp: u16, tcp: u16) -> (Role, SocketAddr) {
    let mut role = Role::start(before, &format!("server {udp} {HERE}:{tcp}"));
    let at = role.hear("at:").parse().unwrap();
    (role, at)
}

fn asker(udp: u16) -> weft_discovery::Asker {
    weft_os::process::watch();
    weft_discovery::Asker::new(DiscoveryPort::Agreed(udp)).unwrap()
}

/// A connection that there is not: its promise tells a child, which shares promises, that it may go.
fn told() -> Connection {
    Connection {
        about: About::Datagrams,
        client: SocketAddr::new(HERE, 1).into(),
        server: SocketAddr::new(HERE, 2).into(),
    }
}

fn tell(server: &Server) {
    assert!(server.promises.promise(&told(), now()));
}

/// Does something again and again until it is told, or its parent has failed.
fn until_told(server: &Server, mut work: impl FnMut()) -> bool {
    let begun = std::time::Instant::now();
    while begun.elapsed() < 2 * SOON {
        work();
        if server.promises.take(&told(), now()).is_some() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    false
}

fn await_octet(mut pipe: &std::io::PipeReader) -> bool {
    pipe.read_exact(&mut [0]).is_ok()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_nobody() -> Vec<&'static str> {
    vec![
        "setpriv",
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
    ]
}

#[test]
fn processes_that_share_the_port_answer_for_each_other() {
    let udp = free_port();
    let (mut one, at_one) = server(udp, 0);
    let (mut two, at_two) = server(udp, 0);
    let asker = asker(udp);
    for _ in 0..100 {
        for (role, to) in [(&mut one, at_one), (&mut two, at_two)] {
            let stream = ask_until_yes(&asker, to);
            let client = stream.local_addr().unwrap();
            assert_eq!(role.ask(&format!("take {client}")), "true");
        }
    }
    let mut count = |what: &str| -> u64 {
        let counts = [one.ask(what), two.ask(what)].map(|text| text.parse::<u64>().unwrap());
        counts.iter().sum()
    };
    assert!(count("answered") >= 200);
    assert!(
        count("colleagues") > 20,
        "each got about half of the other's"
    );
}

#[test]
fn a_process_that_is_killed_leaves_the_others_their_answers() {
    let udp = free_port();
    let (one, at_one) = server(udp, 0);
    let (_two, at_two) = server(udp, 0);
    let asker = asker(udp);
    ask_until_yes(&asker, at_one);
    ask_until_yes(&asker, at_two);
    one.kill();
    assert!(TcpStream::connect(at_one).is_err());
    for _ in 0..100 {
        ask_until_yes(&asker, at_two);
    }
}

#[test]
fn all_that_listen_at_one_port_know_what_one_of_them_said() {
    let udp = free_port();
    let (mut one, to) = server(udp, 0);
    let (mut two, _) = server(udp, to.port());
    let asker = asker(udp);
    for _ in 0..20 {
        let stream = ask_until_yes(&asker, to);
        let take = format!("take {}", stream.local_addr().unwrap());
        assert_eq!(
            (one.ask(&take), two.ask(&take)),
            ("true".into(), "true".into())
        );
    }
    // The one that accepted it has begun to send, whichever gets the question.
    for role in [&mut one, &mut two] {
        for _ in 0..10 {
            let stream = TcpStream::connect(to).unwrap();
            let settle = format!("settle {}", stream.local_addr().unwrap());
            assert_eq!(role.ask(&settle), "true");
            let asked = question(connection(&stream));
            let udp = SocketAddr::new(HERE, udp);
            assert_eq!(answer_to(&asked, HERE, udp, SILENCE / 2), None);
        }
    }
    one.ask("leave");
    ask_until_yes(&asker, to);
}

#[test]
fn a_child_of_fork_answers_when_its_parent_is_gone() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &listener);
    let asker = server.asker();
    // The children share promises with this process.
    let take = |stream: &TcpStream| server.promises.take(&connection(stream), now());
    // A promise stands for a second, and a machine may stand still for longer.
    soon("a child accepts what its parent promised", || {
        let stream = ask_until_yes(&asker, to);
        let child = fork(|| take(&stream).is_some());
        await_child(child) && take(&stream).is_none()
    });

    // A worker that accepts, and answers as well; then the parent answers no more, as if it had died.
    let ready = std::io::pipe().unwrap();
    let child = fork(|| {
        server
            .answering
            .serve(1, About::Stream, listener.as_raw_fd());
        let begun = std::time::Instant::now();
        while server.answering.standing() != Standing::Answers && begun.elapsed() < SOON {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let is_told = (&ready.1).write_all(b"x").is_ok() && until_told(&server, || ());
        is_told && server.answering.counted().answered > 0
    });
    assert!(await_octet(&ready.0));
    server.answering.leave(1);
    soon("the parent gives its share back", || {
        server.answering.standing() == Standing::Idle
    });
    for _ in 0..50 {
        let stream = ask_until_yes(&asker, to);
        assert!(
            take(&stream).is_some(),
            "what the child promised the parent may take"
        );
    }
    tell(&server);
    assert!(await_child(child));
}

#[test]
fn a_question_about_a_siblings_listener_is_passed_on() {
    let server = Server::alone();
    let own = server.listen(1, "127.0.0.1:0").unwrap();
    let (mut from, mut to) = std::io::pipe().unwrap();
    let child = fork(|| {
        let other = server.listen(2, "127.0.0.1:0").unwrap();
        soon("the child answers", || {
            server.answering.standing() == Standing::Answers
        });
        let port = at("127.0.0.1", &other).port();
        to.write_all(&port.to_be_bytes()).is_ok() && until_told(&server, || ())
    });
    let mut port = [0; 2];
    from.read_exact(&mut port).unwrap();
    let other = SocketAddr::new(HERE, u16::from_be_bytes(port));
    let udp = SocketAddr::new(HERE, server.port.of(0));
    // Both have the UDP port, and each of them gets some of the questions.
    let ask = |listener: SocketAddr| {
        let stream = TcpStream::connect(listener).unwrap();
        answer_to(&question(connection(&stream)), HERE, udp, SILENCE).is_some()
    };
    // Nobody accepts, so there is room for so many connections; a busy machine may be late with an answer.
    let is_found = (0..3).any(|_| (0..20).all(|_| ask(at("127.0.0.1", &own)) && ask(other)));
    assert!(is_found, "whoever gets a question finds the listener");
    tell(&server);
    assert!(await_child(child));
}

#[test]
fn a_child_takes_its_parents_name_over() {
    let server = Server::alone();
    let listener = server.listen(1, "127.0.0.1:0").unwrap();
    let to = at("127.0.0.1", &listener);
    // Gets some of the questions, and asks by the name.
    let (mut other, _) = self::server(server.port.of(0), 0);
    let ready = std::io::pipe().unwrap();
    let child = fork(|| {
        let serve = || {
            server
                .answering
                .serve(1, About::Stream, listener.as_raw_fd())
        };
        serve();
        soon("the child answers", || {
            server.answering.standing() == Standing::Answers
        });
        assert!((&ready.1).write_all(b"x").is_ok());
        // As a worker does that accepts now and then.
        until_told(&server, serve)
    });
    assert!(await_octet(&ready.0));
    server.answering.leave(1);
    let udp = SocketAddr::new(HERE, server.port.of(0));
    let ask = || {
        let stream = TcpStream::connect(to).unwrap();
        answer_to(&question(connection(&stream)), HERE, udp, SILENCE).is_some()
    };
    soon("whoever gets a question finds the child", || {
        (0..30).all(|_| ask())
    });
    assert_ne!(other.ask("answered"), "0", "the other process got some");
    tell(&server);
    assert!(await_child(child));
}

#[test]
fn a_child_that_serves_nothing_holds_no_port() {
    let server = Server::alone();
    let _listener = server.listen(1, "127.0.0.1:0").unwrap();
    let udp = server.port.of(0);
    let child = fork(|| until_told(&server, || ()));
    server.answering.leave(1);
    soon("the port is free", || {
        std::net::UdpSocket::bind(("0.0.0.0", udp)).is_ok()
    });
    tell(&server);
    assert!(await_child(child));
}

#[test]
fn anybody_may_ask() {
    if !is_root() {
        eprintln!("skipped: it takes root to be another user");
        return;
    }
    let udp = free_port();
    let (_server, to) = server(udp, 0);
    let mut asker = Role::start(&as_nobody(), &format!("patient {udp} {to}"));
    assert_eq!(asker.hear("said:"), "true");
}

#[test]
fn another_users_listeners_are_not_answered_for() {
    if !is_root() {
        eprintln!("skipped: it takes root to be another user");
        return;
    }
    let udp = free_port();
    let (mut ours, at_ours) = server(udp, 0);
    let (mut theirs, at_theirs) = server_by(&as_nobody(), udp, 0);
    assert_eq!(theirs.ask("standing"), "PortTaken");
    let asker = asker(udp);
    ask_until_yes(&asker, at_ours);
    let stream = TcpStream::connect(at_theirs).unwrap();
    let asked = question(connection(&stream));
    assert_eq!(
        answer_to(&asked, HERE, SocketAddr::new(HERE, udp), SILENCE),
        None
    );
    // Once the port is free the other user's next call takes it.
    ours.ask("leave");
    soon("the port changes hands", || {
        theirs.ask("again");
        theirs.ask("standing") == "Answers"
    });
    ask_until_yes(&asker, at_theirs);
}

#[test]
fn another_user_at_our_name_has_no_say_and_hears_nothing() {
    if !is_root() {
        eprintln!("skipped: it takes root to be another user");
        return;
    }
    let (udp, tcp) = (free_port(), free_port());
    let user = rustix::process::geteuid().as_raw();
    let name = |index| format!("weft-discovery/1/{user}/stream/{tcp}/{index}");
    let mut squatter = Role::start(&as_nobody(), &format!("squat {}", name(0)));
    assert_eq!(squatter.hear("said:"), "here");
    let (_one, to) = server(udp, tcp);
    let asker = asker(udp);
    // Who holds our name does not hold us up.
    for _ in 0..20 {
        ask_until_yes(&asker, to);
    }
    let stream = TcpStream::connect(to).unwrap();
    let client = stream.local_addr().unwrap();
    let says = call(&name(1), connection(&stream));
    assert_eq!(
        says,
        Some(b"y".to_vec()),
        "a process of the same user is told"
    );
    let mut caller = Role::start(&as_nobody(), &format!("call {} {client} {to}", name(1)));
    assert_eq!(caller.hear("said:"), "None");
}
