//! Who connects to queue pairs that do not wait for him is counted and slowed, whether they exist or not.

#[path = "peers/by_number.rs"]
mod by_number;
#[path = "peers/raw.rs"]
mod raw;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use by_number::{exchange, ordered, HERE};
use weft_engine::settings::Settings;

const ALLOWED: u64 = 4;

/// Connects to a queue pair and says what it starts with.
fn connect(to: u32, from: u32, psn: u32) -> TcpStream {
    let port = SocketAddr::new(HERE.parse().unwrap(), (to >> 8) as u16);
    let mut message = b"WEFTQP\x00\x02".to_vec();
    for word in [to, from, 1, psn] {
        message.extend(word.to_be_bytes());
    }
    let mut stream = raw::connect(port);
    stream.write_all(&raw::request(&message)).unwrap();
    stream
}

fn wait_until_wrong(attempts: u64) {
    let deadline = Instant::now() + raw::TIMEOUT;
    while raw::counts().totals.wrong_bring_ups < attempts {
        assert!(Instant::now() < deadline, "{:?}", raw::counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn guesses_are_counted_and_slowed_alike_for_numbers_that_exist_and_others() {
    weft_engine::start_with(Settings {
        refused_access_limit: ALLOWED as u32,
        ..Settings::default()
    })
    .unwrap();
    let (low, high) = ordered();
    high.receive(high.to(&low, HERE));
    let (peer, number) = (low.qp.number(), high.qp.number());
    let mut guesses = Vec::new();
    for guess in 0..ALLOWED {
        // Numbers are given in turn: the other one is far from any.
        let to = if guess % 2 == 0 {
            number
        } else {
            number ^ 0x80
        };
        guesses.push(connect(to, peer, low.psn + 1 + guess as u32));
        wait_until_wrong(guess + 1);
        assert_eq!(raw::counts().totals.slowed, 0);
    }
    // One more, and from there on every one waits.
    guesses.push(connect(number, peer, low.psn + 100));
    wait_until_wrong(ALLOWED + 1);
    let begun = Instant::now();
    for more in 0..3 {
        guesses.push(connect(number ^ 0x80, peer, more));
        wait_until_wrong(ALLOWED + 2 + more as u64);
    }
    let least = Duration::from_millis(50 + 100 + 200);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    let counts = raw::counts();
    assert_eq!(counts.totals.slowed, 3);
    assert_eq!(counts.refused[0].accesses, ALLOWED + 4, "{counts:?}");
    // The peer is at the same address, and gets through, if later.
    high.send();
    low.receive(low.to(&high, HERE));
    low.send();
    exchange(&low, &high);
}
