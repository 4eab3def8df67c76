//! Honest programs on the address of a peer that guesses STags: later than others, and each of them.

#[path = "peers/end.rs"]
mod end;
#[path = "peers/raw.rs"]
mod raw;
#[path = "peers/serving.rs"]
mod serving;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use end::{connect, expect, listener, End};
use serving::serve;
use weft_engine::cm::EventKind;
use weft_engine::settings::Settings;

const ALLOWED: u32 = 2;
/// Refusals beyond that: the pause is then 1.6 s.
const BEYOND: u32 = 6;
/// Silent connections that the guesser has at once.
const SILENT: usize = 200;

fn guess(to: SocketAddr, stag: u32) {
    let mut stream = raw::connect(to);
    let mut reply = [0; raw::REPLY];
    stream.write_all(&raw::request(b"")).unwrap();
    stream.read_exact(&mut reply).unwrap();
    stream.write_all(&raw::READY).unwrap();
    let guess = raw::write_of_four(stag, 0x7000_0000);
    stream.write_all(&guess).unwrap();
    raw::drain(&mut stream);
}

fn honest(to: SocketAddr) -> Duration {
    let begun = Instant::now();
    let (channel, end) = connect(to);
    expect(&channel, EventKind::Established);
    end.id.disconnect().unwrap();
    expect(&channel, EventKind::Disconnected);
    end.close();
    begun.elapsed()
}

#[test]
fn whoever_keeps_connecting_silently_takes_nobodys_turn() {
    weft_engine::start_with(Settings {
        crc: false,
        refused_access_limit: ALLOWED,
        ..Settings::default()
    })
    .unwrap();
    let (channel, _id, four, _) = listener(1000);
    std::thread::spawn(move || serve(&channel, End::close));
    for stag in 1..=ALLOWED + BEYOND {
        guess(four, stag << 8);
        let deadline = Instant::now() + raw::TIMEOUT;
        while raw::counts().totals.refused_accesses < u64::from(stag) {
            assert!(Instant::now() < deadline, "{:?}", raw::counts());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    let (stop, made) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let flood = std::thread::spawn({
        let (stop, made) = (stop.clone(), made.clone());
        move || {
            let mut held: Vec<TcpStream> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                held.push(raw::connect(four));
                made.fetch_add(1, Ordering::Relaxed);
                if held.len() > SILENT {
                    held.remove(0);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    while made.load(Ordering::Relaxed) < SILENT {
        std::thread::sleep(Duration::from_millis(1));
    }
    // One after another, and then many at once: those before it give their turns back.
    let took: Vec<_> = (0..5).map(|_| honest(four)).collect();
    let crowd: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || honest(four)))
        .collect();
    for one in crowd {
        one.join().unwrap();
    }
    assert!(!flood.is_finished());
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    println!("honest connections took {took:?}");
}
