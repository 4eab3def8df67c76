//! TCP sockets of the kernel behind the descriptors of a process.

mod deciding;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use weft_settings::streams::{Mode, StreamRules};
use weft_settings::{DatagramRules, Settings};
use weft_sockets::stack::{Kind, Stack};
use weft_sockets::tcp::{Reason, Record, Standing, State, Streams};
use weft_sockets::verdict::Verdict;

/// A stack that is there as long as the process is, as the hooks' is.
fn stack_of(ddp: &str, udp: &str) -> Option<&'static Stack> {
    let ddp = match ddp {
        "" => StreamRules::default(),
        text => StreamRules::parse(text).unwrap(),
    };
    let settings = Settings {
        udp: DatagramRules::parse(udp).unwrap(),
        ddp,
        ..Settings::default()
    };
    Stack::new(&settings, &["tests"]).map(|stack| &*Box::leak(Box::new(stack)))
}

fn stack(ddp: &str) -> &'static Stack {
    stack_of(ddp, "off").unwrap()
}

fn streams(stack: &'static Stack) -> &'static Streams {
    &stack.kinds().streams
}

/// What is known of the TCP socket behind `fd`, which is looked at.
fn record(stack: &'static Stack, fd: &impl AsRawFd) -> &'static Record {
    let socket = stack.socket(fd.as_raw_fd()).unwrap();
    assert_eq!(socket.kind, Kind::Streams);
    streams(stack).record(socket.number).unwrap()
}

fn standing(stack: &'static Stack, fd: &impl AsRawFd) -> Standing {
    streams(stack).standing(record(stack, fd), fd.as_raw_fd())
}

/// A fresh TCP socket, as `socket` makes it.
fn fresh() -> OwnedFd {
    let (family, kind) = (
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
    );
    rustix::net::socket(family, kind, None).unwrap()
}

/// The octets of an address, as a program hands them to `connect`.
fn name(at: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(at) = at else {
        panic!("{at}")
    };
    let family = (libc::AF_INET as u16).to_ne_bytes();
    [
        &family[..],
        &at.port().to_be_bytes(),
        &at.ip().octets(),
        &[0; 8],
    ]
    .concat()
}

/// Closes a descriptor as a program does under the hooks.
fn close(stack: &'static Stack, fd: &impl AsRawFd) {
    stack.closing(fd.as_raw_fd());
}

/// A listener and both ends of a connection, made and accepted under the hooks.
struct Three {
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Three {
    fn new(stack: &'static Stack) -> Three {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let known = stack.listener(listener.as_raw_fd());
        let (server, _) = listener.accept().unwrap();
        stack.accepted(known, server.as_raw_fd());
        Three {
            listener,
            client,
            server,
        }
    }
}

#[test]
fn any_rule_makes_a_stack_and_looks_for_tcp() {
    assert!(stack_of("", "off").is_none());
    assert!(stack_of("prefer program=another", "off").is_none());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = fresh();
    let kind = |stack: &'static Stack, fd: i32| stack.socket(fd).map(|socket| socket.kind);
    for ddp in ["off", "prefer port=1", "require program=tests"] {
        let stack = stack(ddp);
        assert_eq!(kind(stack, tcp.as_raw_fd()), Some(Kind::Streams), "{ddp}");
        assert_eq!(kind(stack, udp.as_raw_fd()), None, "no rule for UDP");
    }
    let stack = stack_of("", "gso").unwrap();
    assert_eq!(kind(stack, tcp.as_raw_fd()), None, "no rule for TCP");
    assert_eq!(kind(stack, udp.as_raw_fd()), Some(Kind::Datagrams));
    let claimed = stack.claim(tcp.as_raw_fd(), Kind::Streams);
    assert_eq!(claimed.map(|socket| socket.kind), Some(Kind::Streams));
    assert_eq!(stack.claim(udp.as_raw_fd(), Kind::Streams), None);
}

#[test]
fn sockets_are_found_however_they_came_and_none_stays_when_all_are_closed() {
    let stack = stack("off");
    let made = fresh();
    stack.made_socket(made.as_raw_fd(), libc::AF_INET, libc::SOCK_STREAM, 0);
    assert!(stack.known(made.as_raw_fd()).is_some());
    let three = Three::new(stack);
    let accepted = stack.known(three.server.as_raw_fd()).unwrap();
    assert_eq!(accepted.kind, Kind::Streams);
    // Doubled where a hook sees it, and where none does.
    let seen = three.client.try_clone().unwrap();
    let client = stack.socket(three.client.as_raw_fd());
    stack.duplicated(three.client.as_raw_fd(), seen.as_raw_fd());
    let unseen = three.client.try_clone().unwrap();
    assert_eq!(stack.known(seen.as_raw_fd()), client);
    assert_eq!(stack.met_by_read(unseen.as_raw_fd()), client);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(stack.met_by_read(file.as_raw_fd()), None);
    assert_eq!(streams(stack).open(), 4);
    assert_eq!(streams(stack).begun(), 4);
    for fd in [
        made.as_raw_fd(),
        three.listener.as_raw_fd(),
        three.server.as_raw_fd(),
        three.client.as_raw_fd(),
        seen.as_raw_fd(),
    ] {
        stack.closing(fd);
    }
    assert_eq!(streams(stack).open(), 1, "one duplicate is open");
    stack.closing_range(0, u32::MAX);
    assert_eq!(streams(stack).open(), 0);
}

#[test]
fn a_hundred_thousand_connections_leave_nothing_behind() {
    let stack = stack("off");
    let socket = fresh();
    let fd = socket.as_raw_fd();
    for _ in 0..100_000 {
        stack.made_socket(fd, libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);
        assert_eq!(stack.known(fd).map(|socket| socket.number), Some(0));
        stack.closing(fd);
    }
    assert_eq!(streams(stack).open(), 0);
}

#[test]
fn sockets_of_other_protocols_are_not_looked_after() {
    let stack = stack("prefer");
    let (mine, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    stack.made_socket(mine.as_raw_fd(), libc::AF_UNIX, libc::SOCK_STREAM, 0);
    assert_eq!(stack.socket(mine.as_raw_fd()), None);
    let multipath = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        Some(rustix::net::ipproto::MPTCP),
    );
    if let Ok(socket) = multipath {
        let protocol = 262;
        stack.made_socket(
            socket.as_raw_fd(),
            libc::AF_INET,
            libc::SOCK_STREAM,
            protocol,
        );
        assert_eq!(stack.socket(socket.as_raw_fd()), None);
    }
}

/// In the program that the next test starts: its standard input is a TCP socket.
#[test]
fn of_a_program_whose_standard_input_is_a_socket() {
    if std::env::var_os("WEFT_TEST_INHERITS").is_none() {
        return;
    }
    let stack = stack("prefer");
    assert_eq!(stack.known(0), None, "nobody has looked");
    let found = stack.met_by_read(0).unwrap();
    assert_eq!(found.kind, Kind::Streams);
    let record = streams(stack).record(found.number).unwrap();
    let standing = streams(stack).standing(record, 0);
    assert_eq!(
        (standing.state, standing.reason),
        (State::Tcp, Reason::Found)
    );
    std::io::stdout().write_all(b"it is one").unwrap();
}

#[test]
fn a_socket_that_came_through_fork_and_exec_is_found() {
    let stack = stack("off");
    let three = Three::new(stack);
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "of_a_program_whose_standard_input_is_a_socket",
            "--nocapture",
        ])
        .env("WEFT_TEST_INHERITS", "1")
        .stdin(Stdio::from(OwnedFd::from(three.client)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("it is one"),
        "{output:?}"
    );
}

#[test]
fn a_socket_that_came_over_a_unix_socket_is_found() {
    use rustix::net::{
        recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    };
    use std::io::{IoSlice, IoSliceMut};
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;

    let stack = stack("off");
    let three = Three::new(stack);
    let (mine, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [three.client.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(
        &mine,
        &[IoSlice::new(b"x")],
        &mut control,
        SendFlags::empty(),
    )
    .unwrap();
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let room = &mut [IoSliceMut::new(&mut octet)];
    recvmsg(&peer, room, &mut control, RecvFlags::empty()).unwrap();
    let mut came = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            came.extend(fds);
        }
    }
    let came = came.pop().unwrap();
    stack.arrived(came.as_raw_fd());
    let client = stack.socket(three.client.as_raw_fd());
    assert!(client.is_some());
    assert_eq!(stack.known(came.as_raw_fd()), client);
}
