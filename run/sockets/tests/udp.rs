//! UDP sockets of the kernel behind the descriptors of a process.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use weft_settings::datagrams::DatagramRules;
use weft_settings::Settings;
use weft_sockets::stack::{Kind, Stack};

/// A stack that is there as long as the process is, as the hooks' is.
fn stack(rules: &str) -> Option<&'static Stack> {
    let settings = Settings {
        udp: DatagramRules::parse(rules).unwrap(),
        ..Settings::default()
    };
    Stack::new(&settings, &["tests"]).map(|stack| &*Box::leak(Box::new(stack)))
}

fn udp() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

#[test]
fn without_a_rule_there_is_no_stack() {
    assert!(stack("off").is_none());
    assert!(stack("gso program=another").is_none());
    assert!(stack("gso program=tests").is_some());
}

#[test]
fn udp_sockets_are_ours_and_all_others_the_kernels() {
    let stack = stack("gso").unwrap();
    let (udp, unix) = (udp(), UnixDatagram::unbound().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let kind = |fd| stack.socket(fd).map(|socket| socket.kind);
    assert_eq!(kind(udp.as_raw_fd()), Some(Kind::Datagrams));
    for other in [tcp.as_raw_fd(), unix.as_raw_fd(), -1, 1_000_000] {
        assert_eq!(kind(other), None);
    }
}

#[test]
fn a_duplicate_that_no_hook_saw_has_the_same_record() {
    let stack = stack("gso").unwrap();
    let (socket, another) = (udp(), udp());
    let twin = socket.try_clone().unwrap();
    let found = stack.socket(socket.as_raw_fd()).unwrap();
    assert_eq!(stack.socket(twin.as_raw_fd()), Some(found));
    assert_ne!(stack.socket(another.as_raw_fd()), Some(found));
    // The record stays as long as either is open, and is the next socket's then.
    let close = |socket: UdpSocket| stack.closing(socket.as_raw_fd());
    let third = udp();
    close(socket);
    assert_ne!(stack.socket(third.as_raw_fd()), Some(found));
    let fourth = udp();
    close(twin);
    assert_eq!(stack.socket(fourth.as_raw_fd()), Some(found));
}
