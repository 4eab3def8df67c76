//! Two hosts on a cable in memory: connections, their ends, memory by reference, losses, and interfaces that go away.

mod common;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{host, hosts, lossy_hosts, pattern, Host, Pair};
use weft_engine::carrier::{
    Carrier, Drive, Gather, Network, Registered, Scatter, SocketOptions, Transfer,
};

/// More than windows and buffers of both ends hold.
const MANY: usize = 160 << 20;

fn error_of(transfer: Transfer) -> Option<i32> {
    match transfer {
        Transfer::Failed(error) => error.raw_os_error(),
        _ => None,
    }
}

/// What is known of the way there and back has nothing in it of what the other end waits before it acknowledges: there
/// are sockets which datagrams are carried to if that way is short.
#[test]
fn the_way_there_and_back_is_as_short_as_it_was_once() {
    let hosts = hosts();
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    for _ in 0..3 {
        assert!(matches!(active.send(&[7]), Transfer::Octets(1)));
        hosts.one.driver.run();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(hosts.receive(&*passive, 1), [7]);
        assert!(matches!(passive.send(&[8]), Transfer::Octets(1)));
        assert_eq!(hosts.receive(&*active, 1), [8]);
    }
    let least = active.round_trip().unwrap();
    assert!(least < Duration::from_millis(20), "{least:?}");
}

#[test]
fn octets_cross_in_both_directions_and_over_both_versions_of_ip() {
    let hosts = hosts();
    for at in ["10.7.0.2:7471", "[fd07::2]:7471"] {
        let at: SocketAddr = at.parse().unwrap();
        let Pair { active, passive } = hosts.connect(at);
        assert_eq!(active.peer_addr().unwrap(), at);
        assert_eq!(passive.peer_addr().unwrap(), active.local_addr().unwrap());
        assert_eq!(passive.local_addr().unwrap(), at);
        // Of 9,000: IP and TCP headers with the timestamp option.
        let headers = if at.is_ipv4() { 20 + 32 } else { 40 + 32 };
        assert_eq!(active.emss().unwrap(), 9000 - headers);
        for (from, to) in [(&active, &passive), (&passive, &active)] {
            let octets = pattern(300_000);
            assert!(hosts.transfer(&**from, &**to, &octets) == octets);
        }
    }
}

#[test]
fn all_addresses_of_each_version_may_have_a_listener_of_their_own() {
    let hosts = hosts();
    let options = SocketOptions {
        v6_only: Some(true),
        ..SocketOptions::default()
    };
    let network = &hosts.two.network;
    let six = network.bind("[::]:0".parse().unwrap(), &options).unwrap();
    let port = six.local_addr().port();
    let four = hosts.two.bind(SocketAddr::from(([0, 0, 0, 0], port)));
    let [six, four] = [six, four].map(|bound| bound.listen(8).unwrap());
    for (to, listener, other) in [("10.7.0.2", &four, &six), ("fd07::2", &six, &four)] {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let active = hosts
            .one
            .network
            .connect(to, &SocketOptions::default())
            .unwrap();
        hosts.until(|| active.is_connected() && listener.has_waiting());
        assert!(!other.has_waiting() && listener.accept().unwrap().is_some());
    }
}

#[test]
fn the_end_of_a_stream_comes_behind_its_octets() {
    let hosts = hosts();
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    assert!(matches!(active.send(b"last words"), Transfer::Octets(10)));
    active.finish();
    assert!(matches!(active.send(b"more"), Transfer::Failed(_)));
    let mut buffer = [0; 64];
    hosts.until(|| match passive.recv(&mut buffer) {
        Transfer::Octets(10) => true,
        Transfer::WouldBlock => false,
        other => panic!("{other:?}"),
    });
    assert_eq!(&buffer[..10], b"last words");
    hosts.until(|| matches!(passive.recv(&mut buffer), Transfer::End));
    assert!(!passive.is_broken(), "it may still send");
    assert!(matches!(passive.send(b"answer"), Transfer::Octets(6)));
    drop(passive);
    hosts.until(|| matches!(active.recv(&mut buffer), Transfer::Octets(6)));
    hosts.until(|| matches!(active.recv(&mut buffer), Transfer::End));
    hosts.until(|| active.is_broken());
}

#[test]
fn a_carrier_that_aborts_resets_its_peer() {
    let hosts = hosts();
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    assert!(matches!(active.send(b"before"), Transfer::Octets(6)));
    active.abort_on_close();
    drop(active);
    let mut buffer = [0; 64];
    hosts.until(|| passive.is_broken());
    // What had arrived is received first.
    assert!(matches!(passive.recv(&mut buffer), Transfer::Octets(6)));
    assert_eq!(error_of(passive.recv(&mut buffer)), Some(libc::ECONNRESET));
    assert_eq!(error_of(passive.send(b"x")), Some(libc::ECONNRESET));
}

#[test]
fn nobody_who_listens_is_a_refusal() {
    let hosts = hosts();
    let to = "10.7.0.2:7471".parse().unwrap();
    let network = &hosts.one.network;
    let carrier = network.connect(to, &SocketOptions::default()).unwrap();
    hosts.until(|| carrier.is_broken());
    let refused = carrier.connect_result().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(!carrier.is_connected());
}

#[test]
fn a_listener_that_is_gone_refuses_and_one_that_is_opened_again_is_found() {
    let hosts = hosts();
    let at = "10.7.0.2:7471".parse().unwrap();
    drop(hosts.connect(at));
    let network = &hosts.one.network;
    let carrier = network.connect(at, &SocketOptions::default()).unwrap();
    hosts.until(|| carrier.is_broken());
    assert!(carrier.connect_result().is_err());
    hosts.connect(at);
}

#[test]
fn connections_beyond_the_backlog_wait_and_are_taken_in_turn() {
    let hosts = hosts();
    let at: SocketAddr = "10.7.0.2:7471".parse().unwrap();
    let listener = hosts.two.bind(at).listen(2).unwrap();
    let connect = || {
        let network = &hosts.one.network;
        network.connect(at, &SocketOptions::default()).unwrap()
    };
    let first: Vec<_> = (0..2).map(|_| connect()).collect();
    hosts.until(|| first.iter().all(|carrier| carrier.is_connected()));
    let third = connect();
    hosts.run();
    assert!(!third.is_connected());
    assert!(listener.has_waiting());
    let taken = listener.accept().unwrap().unwrap();
    assert_eq!(taken.1, first[0].local_addr().unwrap());
    // Its SYN is repeated after a second.
    hosts.until(|| third.is_connected());
}

#[test]
fn a_port_is_held_by_one_at_a_time() {
    let Host { network, .. } = hosts().one;
    let options = SocketOptions::default();
    let bind = |at: &str| network.bind(at.parse().unwrap(), &options);
    let held = bind("10.7.0.1:0").unwrap();
    let again = bind(&held.local_addr().to_string()).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::EADDRINUSE));
    let at = held.local_addr().to_string();
    drop(held);
    bind(&at).unwrap();
}

#[test]
fn more_than_buffers_hold_waits_for_its_reader_and_arrives() {
    let hosts = hosts();
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    let octets = pattern(MANY);
    let mut sent = 0;
    let end = Instant::now() + Duration::from_secs(10);
    while let Transfer::Octets(more) = active.send(&octets[sent..]) {
        sent += more;
        hosts.run();
        assert!(Instant::now() < end && sent < MANY, "nobody stops it");
    }
    assert!(hosts.finish_transfer(&*active, &*passive, &octets, sent) == octets);
}

#[test]
fn memory_is_referred_to_until_the_peer_has_it() {
    let hosts = hosts();
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    let memory = Registered::allocate(1 << 20).unwrap();
    memory.write(0, &pattern(1 << 20)).unwrap();
    let mut list = Gather::default();
    list.push(b"head");
    list.push_registered(&memory, 0, 1 << 20);
    let Transfer::Octets(taken) = active.send_gather(&list) else {
        panic!("it takes nothing");
    };
    assert_eq!(taken, (1 << 20) + 4);
    assert_eq!(active.unreleased(), 1 << 20, "all behind the head");
    let mut got = vec![0; taken];
    let mut at = 0;
    hosts.until(|| {
        let mut to = Scatter::default();
        to.push(&mut got[at..]);
        if let Transfer::Octets(octets) = passive.recv_scatter(&to) {
            at += octets;
        }
        at == taken
    });
    assert!(got[4..] == pattern(1 << 20));
    hosts.until(|| active.unreleased() == 0);
}

/// Deregistered, or asked to keep copies: what the program writes afterwards nobody sees.
#[test]
fn memory_that_is_given_up_is_copied_first() {
    let hosts = hosts();
    let gives: [fn(&Host, &dyn Carrier, &Registered); 2] = [
        |host, _, memory| host.network.deregistered(memory),
        |_, carrier, _| carrier.keep_copies(),
    ];
    for (at, give_up) in ["10.7.0.2:1", "10.7.0.2:2"].into_iter().zip(gives) {
        let Pair { active, passive } = hosts.connect(at.parse().unwrap());
        let memory = Registered::allocate(4 << 20).unwrap();
        memory.write(0, &pattern(4 << 20)).unwrap();
        let mut list = Gather::default();
        list.push_registered(&memory, 0, 4 << 20);
        assert!(matches!(active.send_gather(&list), Transfer::Octets(_)));
        assert!(active.unreleased() > 0);
        give_up(&hosts.one, &*active, &memory);
        assert_eq!(active.unreleased(), 0);
        memory.write(0, &vec![0; 4 << 20]).unwrap();
        let got = hosts.receive(&*passive, 4 << 20);
        assert!(got == pattern(4 << 20), "{at}");
    }
}

/// Its carrier gone, the program may use the memory for something else: what was taken leaves as it was.
#[test]
fn memory_of_a_connection_that_is_closed_is_copied_first() {
    let hosts = hosts();
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    let memory = Registered::allocate(4 << 20).unwrap();
    memory.write(0, &pattern(4 << 20)).unwrap();
    let mut list = Gather::default();
    list.push_registered(&memory, 0, 4 << 20);
    assert!(matches!(active.send_gather(&list), Transfer::Octets(_)));
    assert!(active.unreleased() > 0);
    drop(active);
    memory.write(0, &vec![0; 4 << 20]).unwrap();
    assert!(hosts.receive(&*passive, 4 << 20) == pattern(4 << 20));
}

#[test]
fn what_is_lost_is_sent_again() {
    let hosts = lossy_hosts(23);
    let Pair { active, passive } = hosts.connect("10.7.0.2:7471".parse().unwrap());
    let octets = pattern(3 << 20);
    assert!(hosts.transfer(&*active, &*passive, &octets) == octets);
    assert!(hosts.lost() > 0, "nothing was lost");
}

#[test]
fn an_interface_that_is_gone_ends_its_connections() {
    let hosts = hosts();
    let at: SocketAddr = "10.7.0.2:7471".parse().unwrap();
    let Pair { active, passive } = hosts.connect(at);
    hosts.cutter.cut();
    hosts.until(|| active.is_broken() && passive.is_broken());
    let mut buffer = [0; 8];
    for carrier in [&active, &passive] {
        assert_eq!(error_of(carrier.send(b"x")), Some(libc::ENETDOWN));
        assert_eq!(error_of(carrier.recv(&mut buffer)), Some(libc::ENETDOWN));
    }
    let network = &hosts.one.network;
    let again = network.connect(at, &SocketOptions::default()).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::ENETDOWN));
}

#[test]
fn a_program_may_connect_to_its_own_address() {
    let hosts = hosts();
    let at: SocketAddr = "10.7.0.1:7471".parse().unwrap();
    let listener = hosts.one.bind(at).listen(8).unwrap();
    let network = &hosts.one.network;
    let active = network.connect(at, &SocketOptions::default()).unwrap();
    let (passive, _) = listener.accept().unwrap().expect("it is looped");
    let octets = pattern(100_000);
    assert!(hosts.transfer(&*active, &*passive, &octets) == octets);
    // And to the very port that it connects from.
    let bound = hosts.one.bind("10.7.0.1:0".parse().unwrap());
    let own = bound.local_addr();
    let both = bound.connect(own).unwrap();
    assert!(both.is_connected());
    assert!(hosts.transfer(&*both, &*both, &octets) == octets);
    assert_eq!(hosts.two.driver.counters().frames_in, 0, "none left");
}

#[test]
fn who_listens_at_all_addresses_is_found_at_the_adapters_and_at_the_kernels() {
    let hosts = hosts();
    let listener = hosts.two.bind("[::]:0".parse().unwrap());
    let port = listener.local_addr().port();
    let listener = listener.listen(8).unwrap();
    let _kernel = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (_, peer) = listener.accept().unwrap().expect("of the kernel's");
    assert!(peer.ip().to_canonical().is_loopback());
    let network = &hosts.one.network;
    for to in ["10.7.0.2", "fd07::2"] {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let active = network.connect(to, &SocketOptions::default()).unwrap();
        hosts.until(|| listener.has_waiting());
        let (_, peer) = listener.accept().unwrap().expect("of the adapter's");
        assert_eq!(peer, active.local_addr().unwrap());
    }
}

#[test]
fn addresses_that_no_interface_leads_to_are_the_kernels() {
    let Host { network, .. } = hosts().one;
    let towards = |peer: &str| {
        let source = network.source_towards(peer.parse().unwrap());
        source.map(|source| source.ip().to_string()).ok()
    };
    assert_eq!(towards("10.7.0.9:1").as_deref(), Some("10.7.0.1"));
    assert_eq!(towards("[fd07::9]:1").as_deref(), Some("fd07::1"));
    assert_eq!(towards("[::ffff:10.7.0.9]:1").as_deref(), Some("10.7.0.1"));
    assert_eq!(towards("127.0.0.1:1").as_deref(), Some("127.0.0.1"));
    let kernel = network.bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default());
    let listener = kernel.unwrap().listen(1).unwrap();
    assert!(listener.descriptor().is_some());
}

/// Each address is its own interface's, and a gateway leads everywhere but to this machine.
#[test]
fn of_several_interfaces_the_nearest_one_leads() {
    let (near, far) = (
        host(3, "10.7.3.1/24", None),
        host(4, "10.7.4.1/24", Some("10.7.4.254")),
    );
    let network = weft_adapter::Inline::new(vec![near.clone(), far.clone()], Vec::new());
    let towards = |peer: &str| {
        let peer = SocketAddr::new(peer.parse().unwrap(), 1);
        network.source_towards(peer).unwrap().ip().to_string()
    };
    for (peer, source) in [
        ("10.7.3.9", "10.7.3.1"),
        ("10.7.4.9", "10.7.4.1"),
        ("192.0.2.1", "10.7.4.1"),
        ("127.0.0.1", "127.0.0.1"),
    ] {
        assert_eq!(towards(peer), source, "{peer}");
    }
    assert_eq!(network.drives().len(), 2);
}
