//! Sockets for datagrams at an adapter: two hosts on a cable, and ports that the kernel has as well.

mod common;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use common::{hosts, lossy_hosts, pattern, Host, Hosts};
use weft_engine::carrier::{DatagramSocket, Gather, Network, Received, SocketOptions};

const EINPROGRESS: i32 = 115;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn open(host: &Host, at: &str) -> io::Result<Box<dyn DatagramSocket>> {
    host.network
        .datagrams(addr(at), &SocketOptions::default(), Some(1 << 20))
}

fn port(socket: &dyn DatagramSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

/// Sends octets as datagrams of so many each.
fn send(
    socket: &dyn DatagramSocket,
    [from, to]: [&str; 2],
    port: u16,
    octets: &[u8],
    segment: u16,
) -> io::Result<()> {
    let mut list = Gather::default();
    list.push(octets);
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let segment = (octets.len() > usize::from(segment)).then_some(segment);
    socket.send(&list, ip(from), SocketAddr::new(ip(to), port), segment)
}

fn is_in_progress(outcome: &io::Result<()>) -> bool {
    matches!(outcome, Err(error) if error.raw_os_error() == Some(EINPROGRESS))
}

/// What comes next, and its octets.
fn receive(hosts: &Hosts, socket: &dyn DatagramSocket) -> (Received, Vec<u8>) {
    let mut buffer = vec![0; 1 << 16];
    let mut got = None;
    hosts.until(|| {
        got = socket.receive(&mut buffer).ok();
        got.is_some()
    });
    let received = got.unwrap();
    (received, buffer[..received.octets].to_vec())
}

const VERSIONS: [[&str; 2]; 2] = [["10.7.0.1", "10.7.0.2"], ["fd07::1", "fd07::2"]];

/// More than waits for a neighbour whose hardware address nobody has asked for yet.
#[test]
fn a_burst_to_a_neighbour_that_is_not_known_yet_loses_nothing() {
    for ends in VERSIONS {
        let hosts = hosts();
        let (one, two) = (
            open(&hosts.one, "[::]:0").unwrap(),
            open(&hosts.two, "[::]:0").unwrap(),
        );
        let (octets, to) = (pattern(60 * 1000 + 7), port(&*two));
        let mut tries = 0;
        hosts.until(|| {
            let sent = send(&*one, ends, to, &octets, 1000);
            tries += 1;
            assert!(sent.is_ok() || is_in_progress(&sent), "{sent:?}");
            sent.is_ok()
        });
        assert!(tries > 1, "nobody had to be asked");
        let mut got = Vec::new();
        while got.len() < octets.len() {
            let (received, octets) = receive(&hosts, &*two);
            assert_eq!(
                received.from,
                SocketAddr::new(ends[0].parse().unwrap(), port(&*one))
            );
            assert_eq!(
                (received.to, received.segment),
                (ends[1].parse().unwrap(), 1000)
            );
            got.extend(octets);
        }
        assert!(got == octets);
    }
}

/// Datagrams to somebody who has gone are lost, and a sender is not held up for long.
#[test]
fn nobody_there_stops_a_sender_for_a_moment() {
    let hosts = hosts();
    let one = open(&hosts.one, "[::]:0").unwrap();
    let gone = ["10.7.0.1", "10.7.0.77"];
    let (began, octets) = (Instant::now(), pattern(5000));
    hosts.until(|| {
        let sent = send(&*one, gone, 7, &octets, 1000);
        assert!(sent.is_ok() || is_in_progress(&sent), "{sent:?}");
        sent.is_ok()
    });
    assert!(began.elapsed() >= Duration::from_millis(50));
    for _ in 0..100 {
        send(&*one, gone, 7, &octets, 1000).unwrap();
    }
    let to = port(&*open(&hosts.two, "[::]:0").unwrap());
    hosts.until(|| send(&*one, VERSIONS[0], to, b"x", 1).is_ok());
}

#[test]
fn datagrams_of_every_length_arrive_whole() {
    let hosts = hosts();
    let (one, two) = (
        open(&hosts.one, "[::]:0").unwrap(),
        open(&hosts.two, "[::]:0").unwrap(),
    );
    for ends in VERSIONS {
        for len in [0, 1, 1232, 8972, 8973, 9000, 40_000, 65_507] {
            let octets = pattern(len);
            hosts.until(|| send(&*one, ends, port(&*two), &octets, u16::MAX).is_ok());
            let (received, got) = receive(&hosts, &*two);
            let is_whole = received.octets == len && got == octets;
            assert!(is_whole, "{len} octets to {}", ends[1]);
        }
        let longer = send(&*one, ends, port(&*two), &pattern(65_508), u16::MAX);
        let errno = longer.unwrap_err().raw_os_error();
        assert_eq!(errno, Some(90), "EMSGSIZE");
    }
}

/// What a link loses is lost whole, and in order is what is left.
#[test]
fn a_lossy_link_loses_whole_datagrams() {
    let hosts = lossy_hosts(10);
    let (one, two) = (
        open(&hosts.one, "[::]:0").unwrap(),
        open(&hosts.two, "[::]:0").unwrap(),
    );
    let mut buffer = vec![0; 1 << 16];
    let mut got = Vec::new();
    for number in 0..500u32 {
        let mut octets = pattern(20_000);
        octets[..4].copy_from_slice(&number.to_be_bytes());
        let end = Instant::now() + Duration::from_secs(5);
        while is_in_progress(&send(&*one, VERSIONS[0], port(&*two), &octets, u16::MAX)) {
            assert!(Instant::now() < end);
            hosts.run();
        }
        hosts.run();
        while let Ok(received) = two.receive(&mut buffer) {
            for datagram in buffer[..received.octets].chunks(received.segment) {
                assert!(datagram[4..] == octets[4..], "another one than was sent");
                got.push(u32::from_be_bytes(datagram[..4].try_into().unwrap()));
            }
        }
    }
    assert!(hosts.lost() > 0 && got.is_sorted());
    assert!((200..500).contains(&got.len()), "{} of 500", got.len());
}

#[test]
fn a_port_at_all_addresses_is_the_kernels_and_the_adapters() {
    let hosts = hosts();
    let socket = open(&hosts.one, "0.0.0.0:0").unwrap();
    let port = port(&*socket);
    let at = |ip: &str| format!("{ip}:{port}");
    assert!(std::net::UdpSocket::bind(at("127.0.0.1")).is_err());
    for taken in ["0.0.0.0", "10.7.0.1", "127.0.0.1"] {
        let error = open(&hosts.one, &at(taken)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{taken}");
    }
    let foreign = open(&hosts.one, &at("10.7.0.2")).unwrap_err();
    assert_eq!(foreign.kind(), io::ErrorKind::AddrNotAvailable);
    // The kernel's datagrams come to it, too, and go by the kernel.
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"hello", at("127.0.0.1")).unwrap();
    let (received, octets) = receive(&hosts, &*socket);
    assert_eq!(
        (received.from, &octets[..]),
        (stranger.local_addr().unwrap(), &b"hello"[..])
    );
    send(
        &*socket,
        ["127.0.0.1"; 2],
        received.from.port(),
        b"back",
        u16::MAX,
    )
    .unwrap();
    let mut buffer = [0; 8];
    stranger
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(
        stranger.recv_from(&mut buffer).unwrap(),
        (4, SocketAddr::new(received.to, port))
    );
    drop(socket);
    open(&hosts.one, &at("10.7.0.1")).unwrap();
}

#[test]
fn a_connected_socket_hears_its_peer_only_and_that_nobody_is_there() {
    for [here, there] in VERSIONS {
        let hosts = hosts();
        let bracketed = |ip: &str| {
            if ip.contains(':') {
                format!("[{ip}]:0")
            } else {
                format!("{ip}:0")
            }
        };
        let asker = open(&hosts.one, "[::]:0").unwrap();
        let peer = open(&hosts.two, &bracketed(there)).unwrap();
        let stranger = open(&hosts.two, &bracketed(there)).unwrap();
        asker.connect(peer.local_addr().unwrap()).unwrap();
        let at = asker.local_addr().unwrap();
        assert_eq!(at.ip(), here.parse::<IpAddr>().unwrap());
        for (socket, octets) in [(&stranger, b"strange"), (&peer, b"ofapeer")] {
            hosts.until(|| send(&**socket, [there, here], at.port(), octets, u16::MAX).is_ok());
        }
        let (received, octets) = receive(&hosts, &*asker);
        assert_eq!(
            (received.from, &octets[..]),
            (peer.local_addr().unwrap(), &b"ofapeer"[..])
        );
        drop(peer);
        send(
            &*asker,
            [here, there],
            received.from.port(),
            b"anybody?",
            u16::MAX,
        )
        .unwrap();
        let mut refused = None;
        hosts.until(|| {
            refused = asker.receive(&mut [0; 8]).err().map(|error| error.kind());
            refused != Some(io::ErrorKind::WouldBlock)
        });
        assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused));
        let once = asker.receive(&mut [0; 8]).unwrap_err();
        assert_eq!(once.kind(), io::ErrorKind::WouldBlock, "it is told once");
    }
}
