//! A process without descriptors, some of which silent connections hold, fewer than it would let wait: an honest client
//! gets in for the oldest of them.

#[path = "peers/end.rs"]
mod end;
#[path = "peers/no_descriptors.rs"]
mod none_left;
#[path = "peers/roles.rs"]
mod roles;

use std::io::ErrorKind::WouldBlock;
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use end::{connect, expect, listener};
use none_left::{descriptors, take_all};
use roles::{begin, start, told};
use weft_engine::cm::EventKind;

const STRANGERS: usize = 3;
/// Silent connections may wait for ten seconds. Who gets in before that gets in for one of them.
const SOON: Duration = Duration::from_secs(8);

/// Connects and is rejected.
#[test]
fn rejected() {
    let Some(to) = told() else {
        return;
    };
    let (channel, end) = connect(to);
    expect(&channel, EventKind::Rejected);
    end.close();
    println!("it was answered");
}

#[test]
fn silent_connections_make_room_for_a_client() {
    if roles::is_a_part() {
        return;
    }
    let (channel, _id, to, _) = listener(0);
    let mut client = start("rejected", to);
    let (began, before) = (Instant::now(), descriptors());
    let mut strangers: Vec<_> = (0..STRANGERS)
        .map(|_| TcpStream::connect(to).unwrap())
        .collect();
    while descriptors() < before + 2 * STRANGERS {
        assert!(began.elapsed() < SOON, "the strangers are not taken");
        std::thread::sleep(Duration::from_millis(1));
    }
    let files = take_all();
    std::thread::spawn(move || {
        let request = expect(&channel, EventKind::ConnectRequest);
        request.id.reject(&[]).unwrap();
    });
    let _said = begin(&mut client, "it was answered");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let held = strangers.iter_mut().map(|stream| {
        stream.set_nonblocking(true).unwrap();
        let error = stream.read(&mut [0]).err();
        usize::from(error.is_some_and(|error| error.kind() == WouldBlock))
    });
    // A connection takes more than one descriptor, and those of one that is closed are not all free at once.
    let held = held.sum::<usize>();
    assert!((1..STRANGERS).contains(&held), "{held} are left");
    drop(files);
    assert!(client.wait().unwrap().success());
}
