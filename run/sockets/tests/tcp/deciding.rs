//! What becomes of a connection, and when that is decided.

use super::*;

#[test]
fn rules_decide_when_a_socket_connects() {
    let stack = stack("require port=7; prefer address=127.0.0.0/8; off");
    let streams = streams(stack);
    let decided = |to: &str| {
        let socket = fresh();
        let record = record(stack, &socket);
        assert_eq!(
            streams.standing(record, socket.as_raw_fd()),
            Standing::default()
        );
        let to = name(to.parse().unwrap());
        let verdict = streams.connecting(record, socket.as_raw_fd(), &to);
        let standing = streams.standing(record, socket.as_raw_fd());
        close(stack, &socket);
        (
            verdict,
            standing.mode.unwrap(),
            standing.state,
            standing.reason,
        )
    };
    let wanted = [
        (
            "192.0.2.1:7",
            (Verdict::Kernel, Mode::Require, State::Ddp, Reason::None),
        ),
        (
            "127.0.0.9:8",
            (Verdict::Begun, Mode::Prefer, State::Ddp, Reason::None),
        ),
        (
            "192.0.2.1:8",
            (Verdict::Kernel, Mode::Off, State::Tcp, Reason::Off),
        ),
    ];
    for (to, wanted) in wanted {
        assert_eq!(decided(to), wanted, "{to}");
    }
}

/// The three numbers of `struct weft_ddp`.
fn status(streams: &Streams, record: &Record, fd: i32) -> [i32; 3] {
    let octets = streams.option(record, fd, 1).unwrap();
    let number = |at: usize| i32::from_ne_bytes(octets[at..at + 4].try_into().unwrap());
    [number(0), number(4), number(8)]
}

#[test]
fn what_the_program_asks_for_goes_before_the_rules() {
    const OPTION: i32 = 1;
    let stack = stack("require");
    let streams = streams(stack);
    let socket = fresh();
    let (fd, record) = (socket.as_raw_fd(), record(stack, &socket));
    let ask = |option, value: &[u8]| streams.set_option(record, fd, option, value);
    assert_eq!(status(streams, record, fd), [-1, 0, 0]);
    let prefer = 1i32.to_ne_bytes();
    assert_eq!(ask(OPTION, &prefer), Ok(()));
    assert_eq!(status(streams, record, fd), [1, 0, 0]);
    for wrong in [
        &3i32.to_ne_bytes()[..],
        &(-1i32).to_ne_bytes(),
        &prefer[..3],
        &[0; 8],
    ] {
        assert_eq!(ask(OPTION, wrong), Err(libc::EINVAL), "{wrong:?}");
    }
    assert_eq!(ask(2, &prefer), Err(libc::ENOPROTOOPT));
    assert_eq!(streams.option(record, fd, 0), Err(libc::ENOPROTOOPT));
    assert_eq!(streams.listening(record, fd), Verdict::Kernel);
    rustix::net::listen(&socket, 1).unwrap();
    assert_eq!(status(streams, record, fd), [1, 2, 0]);
    assert_eq!(ask(OPTION, &prefer), Err(libc::EINVAL), "it listens");
    let three = Three::new(stack);
    let connected = self::record(stack, &three.server);
    let set = streams.set_option(connected, three.server.as_raw_fd(), OPTION, &prefer);
    assert_eq!(set, Err(libc::EISCONN));
}

#[test]
fn a_connection_is_decided_on_once_and_anew_when_it_is_dissolved() {
    let stack = stack("prefer");
    let streams = streams(stack);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = fresh();
    let (fd, record) = (socket.as_raw_fd(), record(stack, &socket));
    let to = listener.local_addr().unwrap();
    assert_eq!(streams.connecting(record, fd, &name(to)), Verdict::Begun);
    rustix::net::connect(&socket, &to).unwrap();
    assert_eq!(streams.standing(record, fd).state, State::Ddp);
    // The listener is nobody's, so the question is answered by nobody.
    let held = streams.connection(record, fd).unwrap();
    assert!(held.is_held());
    streams.resolved(record, held, true);
    let decided = streams.standing(record, fd);
    assert_eq!(
        (decided.state, decided.reason),
        (State::Tcp, Reason::NotThere)
    );
    // As a program does that asks whether it is connected: the kernel's to refuse, and nothing changes.
    assert_eq!(streams.connecting(record, fd, &name(to)), Verdict::Kernel);
    assert_eq!(streams.standing(record, fd), decided);
    rustix::net::connect_unspec(&socket).unwrap();
    let unspecified = [0; 16];
    assert_eq!(
        streams.connecting(record, fd, &unspecified),
        Verdict::Kernel
    );
    assert_eq!(streams.standing(record, fd), Standing::default());
}

/// A child that is made amid its parent's connect has the question, and nobody answers it there.
#[test]
fn a_child_leaves_its_parents_question_open() {
    let stack = stack("prefer");
    let streams = streams(stack);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = fresh();
    let (fd, record) = (socket.as_raw_fd(), record(stack, &socket));
    let to = listener.local_addr().unwrap();
    assert_eq!(streams.connecting(record, fd, &name(to)), Verdict::Begun);
    rustix::net::connect(&socket, &to).unwrap();
    let is_held = || streams.connection(record, fd).unwrap().is_held();
    let child = weft_os::testing::fork(|| {
        let held = streams.connection(record, fd).unwrap();
        streams.resolved(record, held, false).is_held()
    });
    assert!(weft_os::testing::await_child(child));
    assert!(is_held(), "the child has said nothing");
    streams.resolved(record, streams.connection(record, fd).unwrap(), true);
    assert!(!is_held());
}

#[test]
fn what_a_listener_accepts_has_its_mode() {
    for (rule, mode, state) in [
        ("prefer direction=listen", Mode::Prefer, State::Ddp),
        ("off", Mode::Off, State::Tcp),
    ] {
        let stack = stack(rule);
        let three = Three::new(stack);
        let server = standing(stack, &three.server);
        assert_eq!((server.mode, server.state), (Some(mode), state));
        assert_eq!(standing(stack, &three.listener), server);
        // The client connected before anybody looked.
        assert_eq!(standing(stack, &three.client).reason, Reason::Found);
    }
}

#[test]
fn a_listener_that_another_process_made_is_decided_on_when_it_accepts() {
    let stack = stack("require direction=listen");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (fd, known) = (listener.as_raw_fd(), record(stack, &listener));
    for _ in 0..2 {
        assert_eq!(streams(stack).accepting(known, fd), Verdict::Kernel);
        assert_eq!(streams(stack).standing(known, fd).state, State::Ddp);
    }
    assert_eq!(
        streams(stack).listening(known, fd),
        Verdict::Kernel,
        "it listens already"
    );
    let fresh = fresh();
    let (fd, fresh) = (fresh.as_raw_fd(), record(stack, &fresh));
    assert_eq!(streams(stack).listening(fresh, fd), Verdict::Kernel);
    assert_eq!(streams(stack).standing(fresh, fd).state, State::Ddp);
}

#[test]
fn a_socket_that_is_out_of_our_hands_goes_as_tcp() {
    let stack = stack("prefer");
    let socket = fresh();
    let (fd, record) = (socket.as_raw_fd(), record(stack, &socket));
    stack.release(fd);
    assert_eq!(streams(stack).listening(record, fd), Verdict::Kernel);
    let standing = streams(stack).standing(record, fd);
    assert_eq!(
        (standing.state, standing.reason),
        (State::Tcp, Reason::Released)
    );
    // The record is the next socket's, and that is in our hands.
    close(stack, &socket);
    stack.made_socket(fd, libc::AF_INET, libc::SOCK_STREAM, 0);
    assert_eq!(streams(stack).listening(record, fd), Verdict::Kernel);
    assert_eq!(streams(stack).standing(record, fd).state, State::Ddp);
}

#[test]
fn whoever_confines_itself_has_tcp() {
    let stack = stack("require");
    let socket = fresh();
    let record = record(stack, &socket);
    stack.confine();
    let verdict = streams(stack).connecting(record, socket.as_raw_fd(), &[]);
    assert_eq!(verdict, Verdict::Kernel);
}

/// Octets go through a connection whose descriptors are known, as they do through any.
#[test]
fn sockets_that_are_known_are_sockets() {
    let stack = stack("prefer");
    let mut three = Three::new(stack);
    three.client.write_all(b"hello").unwrap();
    let mut got = [0; 5];
    three.server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
}
