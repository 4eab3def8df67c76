//! A process without descriptors, some of which attempts hold at the port of a queue pair that waits for nobody yet: an
//! honest client of the connection manager gets in for one of them.

#[path = "peers/by_number.rs"]
mod by_number;
#[path = "peers/end.rs"]
mod end;
#[path = "peers/no_descriptors.rs"]
mod no_descriptors;
#[path = "peers/raw.rs"]
mod raw;
#[path = "peers/roles.rs"]
mod roles;

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use by_number::HERE;
use end::{connect, expect, listener};
use no_descriptors::{descriptors, take_all};
use roles::{begin, start, told};
use weft_engine::cm::EventKind;

const ATTEMPTS: u32 = 3;
/// Attempts wait for ten seconds. Who gets in before that gets in for one of them.
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
fn attempts_that_wait_make_room_for_a_client() {
    if roles::is_a_part() {
        return;
    }
    let queue_pair = by_number::End::new(7);
    let (channel, _id, to, _) = listener(0);
    let mut client = start("rejected", to);
    let (number, began, before) = (queue_pair.qp.number(), Instant::now(), descriptors());
    let port = SocketAddr::new(HERE.parse().unwrap(), (number >> 8) as u16);
    let attempts: Vec<_> = (0..ATTEMPTS)
        .map(|attempt| {
            let mut message = b"WEFTQP\x00\x02".to_vec();
            for word in [number, number ^ 1, 1, attempt] {
                message.extend(word.to_be_bytes());
            }
            let mut stream = raw::connect(port);
            stream.write_all(&raw::request(&message)).unwrap();
            stream
        })
        .collect();
    while descriptors() < before + 2 * ATTEMPTS as usize {
        assert!(began.elapsed() < SOON, "the attempts are not taken");
        std::thread::sleep(Duration::from_millis(1));
    }
    let files = take_all();
    std::thread::spawn(move || {
        let request = expect(&channel, EventKind::ConnectRequest);
        request.id.reject(&[]).unwrap();
    });
    let _said = begin(&mut client, "it was answered");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop((files, attempts));
    assert!(client.wait().unwrap().success());
}
