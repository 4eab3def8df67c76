//! Tests of one socket.

use super::*;

fn port() -> &'static Port {
    weft_os::process::watch();
    let port: &'static Port = Box::leak(Box::default());
    port.begin(false, None);
    port
}

#[test]
fn receives_are_looked_at_once_no_plain_one_is_under_way() {
    let port = port();
    assert!(port.begin_plain());
    assert!(!port.look_at(), "it would meet what is not the program's");
    assert!(!port.begin_plain(), "others do not begin meanwhile");
    assert!(!port.look_at());
    port.end_plain();
    assert!(port.look_at() && port.look_at());
    assert!(!port.begin_plain());
    port.begin(false, None);
    assert!(port.begin_plain(), "the next socket is looked at anew");
}

#[test]
fn a_socket_that_is_gone_is_known_by_its_life() {
    let port = port();
    let held = port.held();
    assert!(held.is_alive());
    port.end();
    assert!(!held.is_alive() && port.is_off());
    port.begin(false, None);
    assert!(!held.is_alive() && port.held().is_alive());
    assert!(held != port.held());
    assert!(held.inlet().is_none() && held.paths().is_none());
    assert!(port.held().inlet().is_some() && port.held().paths().is_some());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(port.keep(std::os::fd::AsRawFd::as_raw_fd(&socket)));
    assert!(held.with_fd(|_| ()).is_none(), "it is another socket's");
    assert!(port.held().with_fd(|_| ()).is_some());
}

#[test]
fn a_descriptor_is_kept_until_the_socket_is_closed() {
    use std::os::fd::AsRawFd;
    let port = port();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    assert!(port.keep(socket.as_raw_fd()));
    let own = port.with_fd(|fd| fd).unwrap();
    assert!(own >= weft_os::descriptors::APART);
    drop(socket);
    assert!(std::net::UdpSocket::bind(at).is_err(), "it is kept");
    port.end();
    assert!(std::net::UdpSocket::bind(at).is_ok());
    assert_eq!(port.with_fd(|fd| fd), None);
}

#[test]
fn what_others_may_have_is_known_to_be_shared() {
    let port = port();
    assert!(!port.is_shared());
    port.share();
    assert!(port.is_shared() && !port.is_off());
    port.begin(false, None);
    assert!(!port.is_shared(), "the next socket is this process's");
    port.begin(true, None);
    assert!(port.is_shared());
}

#[test]
fn what_comes_is_left_to_a_receive_that_waits_for_it() {
    use std::os::fd::AsRawFd;
    let port = port();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = || socket.send_to(b"one", socket.local_addr().unwrap());
    let is_taken = || port.is_taken_by_another(socket.as_raw_fd());
    assert!(!is_taken(), "nobody waits");
    port.begin_take();
    assert!(is_taken(), "there is nothing that it has not taken");
    send().unwrap();
    std::thread::scope(|scope| {
        let looks = scope.spawn(is_taken);
        assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 3);
        assert!(looks.join().unwrap());
    });
    // Its thread was cancelled.
    send().unwrap();
    assert!(!is_taken() && !is_taken());
    socket.recv(&mut [0; 8]).unwrap();
    assert!(!is_taken(), "it is waited for no more");
    port.end_take();
    assert!(!is_taken());
}
