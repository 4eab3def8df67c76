//! Sockets whose rule requires carriers: nothing goes plainly, and what finds none waits.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{discovery_port, number_of, numbered, process, process_by, Socket, SOON};
use weft_udp_offload::Offload;

/// An address that nobody has now.
fn nobody() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// Everything that comes within the time, as long as there is more; how it came, too.
fn receive_all(receiver: &Socket, count: usize) -> Vec<(u32, SocketAddr, bool)> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while all.len() < count && begun.elapsed() < SOON {
        if let Some((octets, from, is_by_carrier)) = receiver.receive() {
            all.push((number_of(&octets), from, is_by_carrier));
        }
    }
    all
}

fn is_in_order(all: &[(u32, SocketAddr, bool)], from: SocketAddr) -> bool {
    let mut numbered = all.iter().zip(0..);
    numbered
        .all(|((number, source, by_carrier), at)| *number == at && *source == from && *by_carrier)
}

fn await_port(offload: &Offload) -> u16 {
    let begun = Instant::now();
    loop {
        if let Some(takes) = offload.takes_carriers() {
            return takes.port;
        }
        assert!(begun.elapsed() < SOON, "it listens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_sent_before_there_is_a_receiver_comes_once_there_is() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let to = nobody();
    for number in 0..100 {
        assert!(sender.send(to, &numbered(number, 100), number % 2 == 0));
    }
    let receiver = Socket::bind(two, &to.to_string());
    let all = receive_all(&receiver, 100);
    assert_eq!(all.len(), 100, "{:?}", one.counted());
    assert!(is_in_order(&all, sender.at()), "{all:?}");
    // From now on they need not wait, however slowly they come.
    for number in 0..20 {
        assert!(sender.send(to, &numbered(number, 100), false));
        sender.flush();
        let (octets, _, is_by_carrier) = receiver.receive().expect("it comes");
        assert_eq!((number_of(&octets), is_by_carrier), (number, true));
    }
    assert_eq!((one.counted().sent, one.counted().dropped_full), (120, 0));
}

/// Its program takes the bell that shows whether it can be woken in the moment in which that is looked for.
#[test]
fn a_receiver_that_never_waits_refuses_nobody() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    let receiver = Socket::bind(two, "127.0.0.1:0");
    let begun = Instant::now();
    // No more at once than may be without a proof.
    for _ in 0..10 {
        let senders: [Socket; 100] = std::array::from_fn(|_| Socket::bind(one, "127.0.0.1:0"));
        let (mut came, before) = (0, one.counted().dropped_full);
        for sender in &senders {
            assert!(sender.send(receiver.at(), b"once", false));
        }
        // On a busy machine a send may find no queue in time.
        while came + (one.counted().dropped_full - before) < senders.len() as u64 {
            came += u64::from(receiver.receive_now().is_some());
            let (here, there) = (one.counted(), two.counted());
            assert_eq!(there.refused, 0, "{came} came");
            assert!(begun.elapsed() < SOON, "{came} came: {here:?}, {there:?}");
        }
    }
}

/// Who would have answered was not there when it was asked: it is asked again before the question is given up.
#[test]
fn a_receiver_that_begins_while_it_is_asked_for_is_found_at_once() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    // Another socket of its process answers, so that nobody says that none does.
    let other = Socket::bind(two, "127.0.0.1:0");
    assert!(other.receive_now().is_none());
    let (sender, receiver) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    assert!(sender.send(receiver.at(), b"once", false));
    std::thread::sleep(Duration::from_millis(40));
    let begun = Instant::now();
    while receiver.receive().is_none() {
        assert!(begun.elapsed() < SOON, "{:?}", one.counted());
    }
    // A question is given up after a second.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(800), "{took:?}");
}

#[test]
fn many_destinations_that_do_not_answer_make_room_for_the_next_one() {
    let discovery = discovery_port();
    let one = process_by("uoe require", discovery);
    let sender = Socket::bind(one, "127.0.0.1:0");
    // More than one socket may have.
    let dead = |number: u16| SocketAddr::from(([127, 1, (number >> 8) as u8, number as u8], 9));
    for number in 0..1100 {
        assert!(sender.send(dead(number), b"to nobody", false));
    }
    // Each that made room is counted, and those that found no queue in time on a busy machine.
    let dropped = one.counted().dropped_full;
    assert!((1100 - 1024..1100).contains(&dropped), "{dropped}");
    // One more has a queue, which costs the one that was sent to least lately its own.
    for _ in 0..50 {
        assert!(sender.send(dead(1100), b"one more", false));
    }
    let more = one.counted().dropped_full - dropped;
    assert!(more < 10, "{more} of 50");
}

#[test]
fn nothing_goes_plainly_to_who_is_not_weft() {
    let sender = Socket::bind(process_by("uoe require", discovery_port()), "127.0.0.1:0");
    let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
    let time = Some(Duration::from_millis(500));
    plain.set_read_timeout(time).unwrap();
    for number in 0..300 {
        assert!(sender.send(plain.local_addr().unwrap(), &numbered(number, 40), true));
    }
    assert!(plain.recv_from(&mut [0; 100]).is_err(), "nothing comes");
    let counted = sender.offload.counted();
    assert!(counted.asked > 0, "{counted:?}");
    assert_eq!((counted.sent, counted.dropped_full), (0, 0));
}

#[test]
fn what_a_queue_has_no_room_for_is_counted() {
    for (rule, keeps_first) in [("uoe require", true), ("uoe require drop=oldest", false)] {
        let discovery = discovery_port();
        let (one, two) = (process_by(rule, discovery), process(discovery));
        let sender = Socket::bind(one, "127.0.0.1:0");
        let to = nobody();
        for number in 0..3000 {
            assert!(sender.send(to, &numbered(number, 1000), true));
        }
        let dropped = one.counted().dropped_full;
        assert!((1..3000).contains(&dropped), "{dropped}");
        let receiver = Socket::bind(two, &to.to_string());
        let all = receive_all(&receiver, 3000 - dropped as usize);
        assert_eq!(all.len() as u64 + dropped, 3000);
        assert_eq!(all[0].0 == 0, keeps_first);
        assert_eq!(all[all.len() - 1].0 == 2999, !keeps_first);
    }
}

#[test]
fn what_is_sent_just_before_the_end_arrives() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    let (sender, receiver) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    receiver.receive();
    assert!(sender.send(receiver.at(), &numbered(0, 1000), true));
    assert_eq!(receive_all(&receiver, 1).len(), 1);
    // More than gathers at a time, and no more than the receiver has room for.
    let count = 180;
    for number in 0..count {
        assert!(sender.send(receiver.at(), &numbered(number, 1000), true));
    }
    one.ending();
    let all = receive_all(&receiver, count as usize);
    assert!(all.len() == count as usize && is_in_order(&all, sender.at()));
}

#[test]
fn who_waits_for_a_carrier_waits_so_long_and_leaves_it() {
    let sender = Socket::bind(
        process_by("uoe require wait=300ms", discovery_port()),
        "127.0.0.1:0",
    );
    let to = nobody();
    let begun = Instant::now();
    assert_eq!(
        sender.try_to_send(to, &numbered(0, 40), true, true),
        Ok(true)
    );
    assert!(
        begun.elapsed() < Duration::from_millis(300),
        "it may not wait"
    );
    let begun = Instant::now();
    assert_eq!(
        sender.try_to_send(to, &numbered(1, 40), true, false),
        Ok(true)
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[test]
fn who_waits_for_ever_is_woken_by_the_carrier() {
    let discovery = discovery_port();
    let one = process_by("uoe require wait=forever", discovery);
    let two = process(discovery);
    let to = nobody();
    let waiting = std::thread::spawn(move || {
        let sender = Socket::bind(one, "127.0.0.1:0");
        let begun = Instant::now();
        assert!(sender.send(to, &numbered(0, 40), true));
        sender.flush();
        (sender, begun.elapsed())
    });
    std::thread::sleep(Duration::from_millis(400));
    assert!(!waiting.is_finished());
    let receiver = Socket::bind(two, &to.to_string());
    let all = receive_all(&receiver, 1);
    let (sender, waited) = waiting.join().unwrap();
    assert!(is_in_order(&all, sender.at()) && waited >= Duration::from_millis(400));
}

#[test]
fn a_connected_socket_sends_by_the_carrier_that_is_required() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    let receiver = Socket::bind(two, "127.0.0.1:0");
    receiver.receive();
    let sender = Socket::bind(one, "0.0.0.0:0");
    sender.kernel.connect(receiver.at()).unwrap();
    assert!(sender.send(receiver.at(), &numbered(0, 40), true));
    sender.flush();
    let all = receive_all(&receiver, 1);
    assert!(is_in_order(&all, sender.at()), "{all:?}");
}

#[test]
fn where_udp_does_not_pass_nobody_asks_and_nothing_is_proven() {
    let discovery = discovery_port();
    let rule = "uoe require udp-path=none";
    let (one, two) = (process_by(rule, discovery), process_by(rule, discovery));
    let receiver = Socket::bind(two, "127.0.0.1:0");
    receiver.receive();
    let agreed = discovery.of(0);
    assert_eq!(await_port(two), agreed);
    let sender = Socket::bind(one, "127.0.0.1:0");
    for number in 0..500 {
        assert!(sender.send(receiver.at(), &numbered(number, 100), true));
    }
    sender.flush();
    let all = receive_all(&receiver, 500);
    assert_eq!(all.len(), 500, "{:?}", one.counted());
    assert!(is_in_order(&all, sender.at()));
    // The answers find the same carrier: a host behind a firewall cannot be connected to.
    sender.receive();
    for number in 0..500 {
        assert!(receiver.send(sender.at(), &numbered(number, 100), true));
    }
    receiver.flush();
    let all = receive_all(&sender, 500);
    assert!(all.len() == 500 && is_in_order(&all, receiver.at()));
    for counted in [one.counted(), two.counted()] {
        assert_eq!((counted.asked, counted.carriers), (0, 1), "{counted:?}");
    }
}

#[test]
fn what_one_end_alone_says_of_udp_is_proven() {
    let discovery = discovery_port();
    let one = process_by("uoe require udp-path=none", discovery);
    let two = process(discovery);
    let receiver = Socket::bind(two, "127.0.0.1:0");
    receiver.receive();
    await_port(two);
    let sender = Socket::bind(one, "127.0.0.1:0");
    for number in 0..50 {
        assert!(sender.send(receiver.at(), &numbered(number, 100), true));
    }
    let all = receive_all(&receiver, 50);
    assert!(all.len() == 50 && is_in_order(&all, sender.at()), "{all:?}");
}

/// The program closes the socket.
fn close(socket: Socket) -> SocketAddr {
    let at = socket.at();
    socket.offload.closed(socket.port, 7);
    at
}

#[test]
fn what_waits_as_its_socket_is_closed_is_sent() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    let to = nobody();
    for is_there in [false, true] {
        let receiver = is_there.then(|| Socket::bind(two, &to.to_string()));
        let sender = Socket::bind(one, "127.0.0.1:0");
        for number in 0..20 {
            assert!(sender.send(to, &numbered(number, 100), true));
        }
        let from = close(sender);
        let receiver = receiver.unwrap_or_else(|| Socket::bind(two, &to.to_string()));
        let all = receive_all(&receiver, 20);
        assert!(all.len() == 20 && is_in_order(&all, from), "{all:?}");
        // Its address is free once all is sent.
        let begun = Instant::now();
        while UdpSocket::bind(from).is_err() {
            assert!(begun.elapsed() < SOON);
        }
        close(receiver);
    }
    assert_eq!(one.counted().dropped_full, 0);
}

#[test]
fn what_a_closed_socket_sends_to_nobody_is_counted() {
    let one = process_by("uoe require", discovery_port());
    let sender = Socket::bind(one, "127.0.0.1:0");
    for number in 0..20 {
        assert!(sender.send(nobody(), &numbered(number, 100), true));
    }
    close(sender);
    let begun = Instant::now();
    while one.counted().dropped_full != 20 {
        assert!(begun.elapsed() < SOON, "{:?}", one.counted());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_wants_the_address_of_a_closed_socket_has_it() {
    let one = process_by("uoe require", discovery_port());
    let sender = Socket::bind(one, "127.0.0.1:0");
    assert!(sender.send(nobody(), &numbered(0, 100), true));
    let from = close(sender);
    assert!(
        UdpSocket::bind(from).is_err(),
        "it is to be sent from there"
    );
    assert!(one.give_addresses_back());
    assert!(UdpSocket::bind(from).is_ok());
    assert_eq!(one.counted().dropped_full, 1);
    assert!(!one.give_addresses_back());
}

#[test]
fn what_is_sent_first_of_all_before_the_end_arrives_or_is_counted() {
    let discovery = discovery_port();
    let (one, two) = (process_by("uoe require", discovery), process(discovery));
    let receiver = Socket::bind(two, "127.0.0.1:0");
    // It has had a channel before: no receive of the kernel's is in the way of another.
    let other = Socket::bind(process_by("uoe require", discovery), "127.0.0.1:0");
    assert!(other.send(receiver.at(), &numbered(0, 100), true));
    assert_eq!(receive_all(&receiver, 1).len(), 1);
    let (sender, to) = (Socket::bind(one, "127.0.0.1:0"), receiver.at());
    let receiving = std::thread::spawn(move || {
        // The channel has no proof before: it is being tried for as the sender ends.
        std::thread::sleep(Duration::from_millis(20));
        receive_all(&receiver, 5)
    });
    for number in 0..5 {
        assert!(sender.send(to, &numbered(number, 100), true));
    }
    let alone = process_by("uoe require", discovery_port());
    let to_nobody = Socket::bind(alone, "127.0.0.1:0");
    assert!(to_nobody.send(nobody(), &numbered(0, 100), true));
    one.ending();
    alone.ending();
    let all = receiving.join().unwrap();
    assert!(all.len() == 5 && is_in_order(&all, sender.at()), "{all:?}");
    assert_eq!([one, alone].map(|one| one.counted().dropped_full), [0, 1]);
}
