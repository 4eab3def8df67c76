//! Two processes' worth of offload in one: datagrams between two sockets, by the kernel and by a carrier.

mod common;

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_discovery::answering::Owner;
use weft_discovery::{Connection, TakesCarriers};
use weft_os::dgram;
use weft_settings::datagrams::DatagramRules;
use weft_settings::{DiscoveryPort, Settings};
use weft_udp_offload::{Offload, Taken};

use common::{
    discovery_port, number_of, numbered, process, process_by, process_of, run, Socket, SOON,
};

#[test]
fn a_busy_sender_comes_to_have_a_carrier_and_nothing_is_lost_or_out_of_order() {
    for (own, other) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("[::]:0", "127.0.0.1:0"),
    ] {
        let discovery = discovery_port();
        let (one, two) = (process(discovery), process(discovery));
        let (sender, receiver) = (Socket::bind(one, own), Socket::bind(two, other));
        let came = run(&sender, &receiver, 5000, sender.at());
        assert!(came >= 5000, "{own} to {other}: {came}");
        let (counted, at_receiver) = (one.counted(), two.counted());
        assert_eq!((counted.carriers, counted.opened), (1, 1), "{counted:?}");
        assert_eq!(counted.sent, u64::from(came));
        assert_eq!((at_receiver.taken, at_receiver.dropped_received), (1, 0));
    }
}

/// Whether somebody has the discovery port.
fn is_heard(discovery: DiscoveryPort) -> bool {
    let DiscoveryPort::Agreed(number) = discovery else {
        return false;
    };
    let has_it = |table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.contains(&format!(":{number:04X} "))
    };
    has_it("/proc/net/udp") || has_it("/proc/net/udp6")
}

#[test]
fn all_of_a_sockets_busy_destinations_have_channels_soon() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receivers: Vec<Socket> = (0..10).map(|_| Socket::bind(two, "127.0.0.1:0")).collect();
    // Who is asked answers that it receives.
    for receiver in &receivers {
        receiver.kernel.set_nonblocking(true).unwrap();
        assert_eq!(receiver.receive_now(), None);
    }
    let begun = Instant::now();
    // What nobody hears is not asked again for ten seconds.
    while two.takes_carriers().is_none() || !is_heard(discovery) {
        assert!(begun.elapsed() < SOON, "it listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    while one.counted().opened < 10 {
        for receiver in &receivers {
            sender.send(receiver.at(), &[1; 100], true);
        }
        sender.flush();
        for receiver in &receivers {
            while receiver.receive_now().is_some() {}
        }
        // As many as may be asked for in a second, and no asking that is lost is said again for ten.
        let taken = begun.elapsed();
        assert!(taken < Duration::from_secs(8), "{:?}", one.counted());
    }
    assert_eq!(one.counted().asked, 10);
}

/// A process that listens for carriers only once it has been asked, as one whose adapter takes some time to open.
struct Late {
    offload: &'static Offload,
    was_asked: AtomicBool,
}

impl Owner for Late {
    fn promise(&self, _connection: &Connection, _now: Duration) -> bool {
        true
    }

    fn carriers(&self) -> Option<TakesCarriers> {
        let was_asked = self.was_asked.swap(true, Ordering::SeqCst);
        self.offload.takes_carriers().filter(|_| was_asked)
    }
}

#[test]
fn a_receiver_that_listens_a_moment_later_is_asked_once_more() {
    let discovery = discovery_port();
    let one = process(discovery);
    let settings = Settings {
        udp: DatagramRules::parse("uoe prefer").unwrap(),
        discovery_port: discovery,
        stat: false,
        ..Settings::default()
    };
    let late = |offload| {
        let was_asked = AtomicBool::new(false);
        &*Box::leak(Box::new(Late { offload, was_asked })) as &'static dyn Owner
    };
    let two = process_of(settings, late);
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    receiver.kernel.set_nonblocking(true).unwrap();
    assert_eq!(receiver.receive_now(), None);
    let begun = Instant::now();
    while two.takes_carriers().is_none() || !is_heard(discovery) {
        assert!(begun.elapsed() < SOON, "it listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    while one.counted().opened == 0 {
        sender.send(receiver.at(), &[1; 100], true);
        sender.flush();
        while receiver.receive_now().is_some() {}
        // Who has no answer is left alone for a minute.
        assert!(begun.elapsed() < SOON, "{:?}", one.counted());
    }
    assert_eq!(one.counted().asked, 1);
}

#[test]
fn a_receiver_that_begins_a_moment_later_is_asked_once_more() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    receiver.kernel.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    while one.counted().asked == 0 {
        sender.send(receiver.at(), &[1; 100], true);
        assert!(begun.elapsed() < SOON, "nobody has asked");
    }
    // Its first receive has the agreed port bound, which was closed until now.
    let begun = Instant::now();
    while one.counted().opened == 0 {
        while receiver.receive_now().is_some() {}
        sender.send(receiver.at(), &[1; 100], true);
        sender.flush();
        assert!(begun.elapsed() < SOON, "{:?}", one.counted());
    }
    assert_eq!(one.counted().asked, 1);
}

#[test]
fn plain_datagrams_that_wait_for_long_are_not_overtaken() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &receiver, 200, sender.at());
    let mut number = 1_000_000;
    // Until the idle program's datagrams are plain.
    let begun = Instant::now();
    while sender.send(receiver.at(), &numbered(number, 100), false) {
        sender.flush();
        receiver.receive().expect("it comes");
        number += 1;
        assert!(begun.elapsed() < SOON, "it stays on the carrier");
    }
    for at in 1..5 {
        assert!(!sender.send(receiver.at(), &numbered(number + at, 100), false));
    }
    for at in 5..10 {
        assert!(sender.send(receiver.at(), &numbered(number + at, 100), true));
    }
    sender.flush();
    // Many times what a mark may take that is on its way.
    std::thread::sleep(Duration::from_millis(150));
    for at in 0..10 {
        let (octets, _, is_by_carrier) = receiver.receive().expect("it comes");
        assert_eq!((number_of(&octets), is_by_carrier), (number + at, at >= 5));
    }
}

#[test]
fn an_option_that_is_set_while_datagrams_flow_loses_none_of_them() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let (sender, receiver) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    run(&sender, &receiver, 200, sender.at());
    for _ in 0..20 {
        one.begin_anew(sender.port);
        run(&sender, &receiver, 20, sender.at());
    }
    // The receiver's is seen anew, and its channel is another one.
    two.begin_anew(receiver.port);
    let begun = Instant::now();
    while two.counted().taken < 2 {
        run(&sender, &receiver, 8, sender.at());
        assert!(begun.elapsed() < SOON, "{:?}", two.counted());
    }
    assert_eq!((one.counted().carriers, one.counted().opened), (1, 2));
}

#[test]
fn a_socket_says_whether_it_takes_carriers() {
    let discovery = discovery_port();
    let offload = process_by("uoe prefer address=127.0.0.1", discovery);
    let (socket, any) = (
        Socket::bind(offload, "127.0.0.1:0"),
        Socket::bind(offload, "0.0.0.0:0"),
    );
    let from: std::net::SocketAddr = ([192, 0, 2, 1], 4000).into();
    assert!(
        !offload.takes_from(from, socket.at()),
        "nobody has received"
    );
    socket.receive();
    any.receive();
    assert!(offload.takes_from(from, socket.at()));
    assert!(offload.takes_from(from, any.at()));
    let elsewhere = |at: std::net::SocketAddr| ([127, 0, 0, 2], at.port()).into();
    assert!(!offload.takes_from(from, elsewhere(socket.at())));
    assert!(!offload.takes_from(from, elsewhere(any.at())), "no rule");
    let fd = any.kernel.as_raw_fd();
    dgram::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).unwrap();
    assert!(!offload.takes_from(from, any.at()), "others may hear there");
    socket.kernel.connect(any.at()).unwrap();
    assert!(!offload.takes_from(from, socket.at()), "it is connected");
}

/// A socket that is connected to one of another process, and receives, and that one.
fn connected() -> (Socket, Socket) {
    let discovery = discovery_port();
    let bind = || Socket::bind(process(discovery), "127.0.0.1:0");
    let (client, server) = (bind(), bind());
    client.kernel.connect(server.at()).unwrap();
    client.receive();
    (client, server)
}

#[test]
fn a_connected_socket_hears_its_peer_by_carrier() {
    let (client, server) = connected();
    let (one, two) = (client.offload, server.offload);
    run(&client, &server, 500, client.at());
    run(&server, &client, 500, server.at());
    let counted = [one.counted(), two.counted()];
    assert_eq!(
        counted.map(|counted| (counted.opened, counted.taken, counted.carriers)),
        [(1, 1, 1); 2],
        "{counted:?}"
    );
    // Each datagram that finds an empty queue wakes it.
    for number in 0..20 {
        server.send(client.at(), &numbered(number, 100), true);
        server.flush();
        let (octets, from, _) = client.receive().expect("it wakes");
        assert_eq!((number_of(&octets), from), (number, server.at()));
    }
    let other = Socket::bind(two, "127.0.0.1:0");
    assert!(one.takes_from(server.at(), client.at()));
    assert!(
        !one.takes_from(other.at(), client.at()),
        "it hears its peer alone"
    );
}

/// Nothing gathers with it.
#[test]
fn what_an_idle_program_sends_leaves_at_once() {
    let discovery = discovery_port();
    let bind = || Socket::bind(process(discovery), "127.0.0.1:0");
    let (sender, receiver) = (bind(), bind());
    run(&sender, &receiver, 200, sender.at());
    for number in 1..4 {
        let is_by_carrier = sender.send(receiver.at(), &numbered(number, 100), false);
        let (octets, _, came_by_carrier) = receiver.receive().expect("nobody has to flush");
        assert_eq!(
            (number_of(&octets), came_by_carrier),
            (number, is_by_carrier)
        );
        assert!(
            is_by_carrier || number > 1,
            "the way changes behind the first"
        );
    }
}

/// A receive that found nothing of a carrier may take the bell of what comes at that moment.
#[test]
fn a_bell_that_is_taken_while_something_waits_is_rung_again() {
    let discovery = discovery_port();
    let bind = || Socket::bind(process(discovery), "127.0.0.1:0");
    let (sender, receiver) = (bind(), bind());
    run(&sender, &receiver, 200, sender.at());
    let fd = receiver.kernel.as_raw_fd();
    for number in 0..3 {
        assert!(sender.send(receiver.at(), &numbered(number, 100), true));
    }
    sender.flush();
    assert_eq!(dgram::ready(fd, libc::POLLIN, 2000), libc::POLLIN);
    assert_eq!(receiver.take_head().0, Taken::Own);
    for number in 0..3 {
        assert_eq!(
            dgram::ready(fd, libc::POLLIN, 0),
            libc::POLLIN,
            "who waits for it is woken"
        );
        let (octets, _, is_by_carrier) = receiver.receive_now().unwrap();
        assert_eq!((number_of(&octets), is_by_carrier), (number, true));
    }
    assert_eq!(receiver.take_head().0, Taken::Nothing);
}

/// Of a peer that is gone nothing comes by UDP. What came from it before is received all the same, by a program that
/// sleeps in the kernel.
#[test]
fn a_connected_socket_is_woken_when_its_peer_is_gone() {
    let (client, server) = connected();
    run(&server, &client, 200, server.at());
    for number in 0..50 {
        assert!(server.send(client.at(), &numbered(number, 100), true));
    }
    server.flush();
    server.offload.ending();
    // Bells of its own that came while it was there.
    std::thread::sleep(Duration::from_millis(50));
    let fd = client.kernel.as_raw_fd();
    while dgram::discard(fd).is_ok() {}
    for number in 0..50 {
        assert_eq!(
            dgram::ready(fd, libc::POLLIN, 2000) & libc::POLLIN,
            libc::POLLIN
        );
        let (octets, from, is_by_carrier) = client.receive().expect("it wakes");
        assert_eq!(
            (number_of(&octets), from, is_by_carrier),
            (number, server.at(), true)
        );
    }
    assert_eq!(client.kernel.peer_addr().unwrap(), server.at());
}

#[test]
fn answers_take_the_same_carrier() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let (client, server) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    client.receive();
    run(&client, &server, 500, client.at());
    run(&server, &client, 500, server.at());
    let counted = [one.counted(), two.counted()];
    assert_eq!(
        counted.map(|counted| counted.carriers),
        [1, 1],
        "{counted:?}"
    );
    assert_eq!(counted.map(|counted| counted.opened), [1, 1], "{counted:?}");
}

#[test]
fn an_idle_sender_goes_back_to_the_kernel_in_order() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &receiver, 200, sender.at());
    let begun = Instant::now();
    let mut number = 1_000_000;
    while sender.send(receiver.at(), &numbered(number, 100), false) {
        sender.flush();
        let (octets, _, is_by_carrier) = receiver.receive().expect("it comes");
        assert_eq!((number_of(&octets), is_by_carrier), (number, true));
        number += 1;
        assert!(begun.elapsed() < SOON, "it stays on the carrier");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (octets, _, is_by_carrier) = receiver.receive().expect("it comes");
    assert_eq!((number_of(&octets), is_by_carrier), (number, false));
}

#[test]
fn a_plain_peer_sees_nothing_but_its_datagrams() {
    let discovery = discovery_port();
    let sender = Socket::bind(process(discovery), "127.0.0.1:0");
    let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
    plain
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let to = plain.local_addr().unwrap();
    for number in 0..500 {
        assert!(!sender.send(to, &numbered(number, 40), true));
        let mut room = [0; 100];
        let (len, from) = plain.recv_from(&mut room).unwrap();
        assert_eq!((number_of(&room[..len]), from), (number, sender.at()));
    }
    assert!(plain.recv_from(&mut [0; 100]).is_err(), "nothing more");
    assert_eq!(sender.offload.counted().asked, 1);
    assert_eq!(sender.offload.counted().found, 0);
}

#[test]
fn what_no_rule_names_stays_plain() {
    let discovery = discovery_port();
    let one = process_by("uoe prefer port=9", discovery);
    let two = process(discovery);
    let (sender, receiver) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    receiver.receive();
    for number in 0..200 {
        assert!(!sender.send(receiver.at(), &numbered(number, 40), true));
    }
    assert_eq!(one.counted().asked, 0);
}

#[test]
fn a_socket_that_is_bound_to_an_interface_stays_plain() {
    let loopback = 1;
    stays_plain_with(libc::SOL_SOCKET, dgram::SO_BINDTOIFINDEX, loopback);
}

#[test]
fn a_socket_whose_datagrams_do_not_get_far_stays_plain() {
    stays_plain_with(libc::IPPROTO_IP, libc::IP_TTL, 1);
}

fn stays_plain_with(level: i32, option: i32, value: i32) {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let (sender, receiver) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    receiver.receive();
    let fd = sender.kernel.as_raw_fd();
    if dgram::set_int(fd, level, option, value).is_err() {
        eprintln!("skipped: the kernel does not set this option here");
        return;
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        assert!(!sender.send(receiver.at(), &numbered(1, 40), true));
        receiver.receive();
    }
    assert_eq!(one.counted().asked, 0);
}

#[test]
fn a_receiver_that_closes_is_plain_again_and_its_carrier_lives() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &receiver, 200, sender.at());
    let (at, key) = (receiver.at(), receiver.kernel.as_raw_fd() as u32);
    two.closed(receiver.port, key);
    drop(receiver);
    let begun = Instant::now();
    while sender.send(at, &numbered(0, 40), true) {
        sender.flush();
        assert!(begun.elapsed() < SOON, "its channel is closed");
    }
    assert!(
        UdpSocket::bind(at).is_ok(),
        "nothing of ours holds the program's port"
    );
    let other = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &other, 200, sender.at());
    assert_eq!(one.counted().carriers, 1);
}

#[test]
fn what_is_sent_before_the_end_arrives() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &receiver, 200, sender.at());
    let mut last = 2_000_000;
    for _ in 0..100 {
        assert!(sender.send(receiver.at(), &numbered(last, 1000), true));
        last += 1;
    }
    one.ending();
    let mut next = 2_000_000;
    while next < last {
        let (octets, ..) = receiver.receive().expect("what was sent");
        assert_eq!(number_of(&octets), next);
        next += 1;
    }
}

#[test]
fn a_socket_that_asks_for_what_a_carrier_does_not_bring_stays_plain() {
    for (level, option) in [
        (libc::IPPROTO_IP, libc::IP_PKTINFO),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
        (dgram::SOL_UDP, dgram::UDP_GRO),
    ] {
        let discovery = discovery_port();
        let (one, two) = (process(discovery), process(discovery));
        let sender = Socket::bind(one, "127.0.0.1:0");
        let receiver = Socket::bind(two, "127.0.0.1:0");
        dgram::set_int(receiver.kernel.as_raw_fd(), level, option, 1).unwrap();
        receiver.receive();
        let begun = Instant::now();
        while two.counted().refused == 0 {
            assert!(!sender.send(receiver.at(), &numbered(1, 40), true));
            receiver.receive();
            assert!(begun.elapsed() < SOON, "{option}: {:?}", one.counted());
        }
        assert_eq!((two.counted().refused, two.counted().taken), (1, 0));
    }
}

#[test]
fn who_hears_many_as_one_opens_no_channel() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    let fd = sender.kernel.as_raw_fd();
    dgram::set_int(fd, dgram::SOL_UDP, dgram::UDP_GRO, 1).unwrap();
    receiver.receive();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        assert!(!sender.send(receiver.at(), &numbered(1, 40), true));
        receiver.receive();
    }
    assert_eq!(one.counted().asked, 1, "and does not ask again and again");
    assert_eq!(one.counted().opened, 0);
}

#[test]
fn datagrams_that_waited_too_long_hold_up_no_change_of_way() {
    let discovery = discovery_port();
    let one = process(discovery);
    let two = process_by("uoe prefer age=500ms", discovery);
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &receiver, 200, sender.at());
    for number in 0..50 {
        assert!(sender.send(receiver.at(), &numbered(number, 40), true));
    }
    sender.flush();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(receiver.receive(), None, "they are too old");
    let begun = Instant::now();
    while sender.send(receiver.at(), &numbered(1_000_000, 40), false) {
        sender.flush();
        receiver.receive();
        // The answer to a barrier takes a moment, and a datagram that is sent before it puts the change off.
        std::thread::sleep(Duration::from_millis(30));
        assert!(begun.elapsed() < SOON, "it stays on the carrier");
    }
}
