//! What a sender is told of room, and what a receiver is given where its buffer wraps round.

use std::time::Instant;

use weft_engine::carrier::{Arrived, Done, Scatter};
use weft_inet::stack::{Stack, StackConfig};
use weft_inet::tcp::Secret;
use weft_os::testing::unmapped;

use super::*;
use crate::cable;
use crate::driver::table::SEND_OCTETS_MAX;

/// How long a test waits for what has to come.
const LIMIT: Duration = Duration::from_secs(20);

/// Two hosts on a cable, 10.7.0.1 and 10.7.0.2.
fn hosts() -> [State; 2] {
    let (one, two) = cable::pair().unwrap();
    [(1, one), (2, two)].map(|(last, link)| {
        let addresses = vec![format!("10.7.0.{last}/24").parse().unwrap()];
        let config = StackConfig::new([2, 0, 0, 0, 0, last], addresses, Secret([last; 16]));
        State::new(Box::new(link), Stack::new(config), 1)
    })
}

/// A connection from the first to the second.
fn connect(hosts: &mut [State; 2]) -> (Key, Key) {
    connect_with(hosts, &SocketOptions::default())
}

fn connect_with([one, two]: &mut [State; 2], options: &SocketOptions) -> (Key, Key) {
    let at = "10.7.0.2:7471".parse().unwrap();
    let (holder, _) = two.bind(at, false).unwrap();
    two.listen(holder, at, false, 8).unwrap();
    let (key, _) = one
        .connect("10.7.0.1:0".parse().unwrap(), at, options)
        .unwrap();
    for _ in 0..10 {
        one.run();
        two.run();
    }
    let (accepted, _) = two.accept(holder).expect("it has come");
    assert!(one.is_connected(key));
    (key, accepted)
}

/// What fills a packet of UDP, and eight octets before it, fits the segment of a connection without timestamps.
#[test]
fn a_connection_without_timestamps_has_segments_of_twelve_octets_more_at_both_ends() {
    for (without_timestamps, octets) in [(false, 1448), (true, 1460)] {
        let mut hosts = hosts();
        let options = SocketOptions {
            without_timestamps,
            ..SocketOptions::default()
        };
        let (key, accepted) = connect_with(&mut hosts, &options);
        let [one, two] = &mut hosts;
        assert_eq!((one.emss(key), two.emss(accepted)), (octets, octets));
    }
}

/// Of a list whose second run is unmapped the first is taken. The sender waits, as less was taken than offered, and has
/// to be told of room, or it never learns that the rest is gone.
#[test]
fn a_sender_of_which_a_part_was_taken_is_told_of_room() {
    let mut hosts = hosts();
    let (key, accepted) = connect(&mut hosts);
    let [one, two] = &mut hosts;
    // So much that nobody is told of the room that is left.
    let most = SEND_OCTETS_MAX as usize - (64 << 10);
    let mut buffer = vec![7; most];
    assert!(matches!(one.send(key, &buffer), Transfer::Octets(taken) if taken == most));
    assert!(!one.table.get(key).unwrap().full);
    let gone = unmapped(4096);
    let mut list = Gather::default();
    list.push(&[7; 1000]);
    list.push_registered(&gone, 0, 4096);
    assert!(matches!(one.send_list(key, &list), Transfer::Octets(1000)));
    assert!(one.table.get(key).unwrap().full, "it waits for room");
    // What tells the sender takes the mark away.
    let mut left = most + 1000;
    let end = Instant::now() + LIMIT;
    while left > 0 || one.table.get(key).unwrap().full {
        assert!(Instant::now() < end, "nobody tells it");
        one.run();
        two.run();
        match two.recv(accepted, &mut buffer) {
            Transfer::Octets(octets) => left -= octets,
            Transfer::WouldBlock => {}
            other => panic!("{other:?}"),
        }
    }
    let rest = one.send_list(key, &{
        let mut rest = Gather::default();
        rest.push_registered(&gone, 0, 4096);
        rest
    });
    assert!(matches!(rest, Transfer::Failed(error) if error.raw_os_error() == Some(libc::EFAULT)));
}

/// Peers that read nothing hold what was taken for them: many together no more than a few.
#[test]
fn what_is_taken_to_send_is_shared_by_many_connections() {
    let mut hosts = hosts();
    let (first, _) = connect(&mut hosts);
    let [one, _] = &mut hosts;
    let octets = vec![7; SEND_OCTETS_MAX as usize + 1];
    let most = |state: &mut State, key| match state.send(key, &octets) {
        Transfer::Octets(taken) => taken as u64,
        other => panic!("{other:?}"),
    };
    one.attach(first);
    assert_eq!(most(one, first), SEND_OCTETS_MAX);
    let mut more = || {
        let [local, peer] = ["10.7.0.1:0", "10.7.0.2:7471"].map(|text| text.parse().unwrap());
        let (key, _) = one.connect(local, peer, &SocketOptions::default()).unwrap();
        one.attach(key);
        key
    };
    let keys: Vec<Key> = (0..2047).map(|_| more()).collect();
    assert_eq!(most(one, keys[0]), 512 << 10, "the least");
    assert!(matches!(one.send(first, &octets), Transfer::WouldBlock));
    // Shares are of a power of two: 64 of 256 MiB.
    keys[63..].iter().for_each(|key| one.disown(*key, true));
    assert_eq!(most(one, keys[1]), 4 << 20);
}

/// A buffer of 4096 octets of which messages of 3000 take the end and then the front.
#[test]
fn what_lies_at_both_ends_of_the_buffer_comes_by_one_call() {
    let mut hosts = hosts();
    let (key, accepted) = connect(&mut hosts);
    let [one, two] = &mut hosts;
    let octets: Vec<u8> = (0..3000u32).map(|at| (at * 7 / 3) as u8).collect();
    let mut pass = |two: &mut State| {
        assert!(matches!(one.send(key, &octets), Transfer::Octets(3000)));
        let end = Instant::now() + LIMIT;
        let has_all = |two: &State| {
            let conn = two.table.get(accepted);
            conn.is_some_and(|conn| conn.is_readable() && conn.delivered % 3000 == 0)
        };
        while !has_all(two) {
            assert!(Instant::now() < end, "it never comes");
            one.run();
            two.run();
        }
    };
    for round in 0..4 {
        pass(two);
        let mut got = vec![0; 3000];
        let taken = match round % 2 {
            0 => two.recv(accepted, &mut got),
            _ => {
                let (first, second) = got.split_at_mut(1000);
                let mut list = Scatter::default();
                list.push(first);
                list.push(second);
                two.recv_list(accepted, &list)
            }
        };
        assert!(
            matches!(taken, Transfer::Octets(3000)),
            "{round}: {taken:?}"
        );
        assert_eq!(got, octets, "{round}");
    }
    pass(two);
    assert_eq!(two.begin_pieces(accepted).unwrap(), 12_000);
    let mut arrived = Arrived::default();
    let taken = two.take_pieces(accepted, Done::default(), &mut arrived);
    assert!(matches!(taken, Transfer::Octets(3000)));
    assert_eq!(
        arrived.next(12_000).unwrap(),
        (12_000, &mut octets.clone()[..])
    );
    assert!(arrived.is_empty());
}
