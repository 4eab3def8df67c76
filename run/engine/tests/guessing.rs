//! A peer that guesses STags: counted and slowed, whatever address of this machine it uses.

#[path = "peers/end.rs"]
mod end;
#[path = "peers/raw.rs"]
mod raw;
#[path = "peers/serving.rs"]
mod serving;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use end::{connect, expect, listener, End};
use serving::serve;
use weft_engine::cm::EventKind;
use weft_engine::settings::Settings;
use weft_engine::stats::Snapshot;

const ALLOWED: u32 = 3;
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn close_untouched(end: End) {
    let mut page = [1; 4096];
    end.memory.memory().read(0, &mut page).unwrap();
    assert!(page.iter().all(|o| *o == 0), "a guess placed something");
    end.close();
}

/// Takes a connection through its start-up; `None` when the other end ends it.
fn start(to: SocketAddr) -> Option<TcpStream> {
    let mut stream = raw::connect(to);
    let mut reply = [0; raw::REPLY];
    stream.write_all(&raw::request(b"")).ok()?;
    stream.read_exact(&mut reply).ok()?;
    assert_eq!(&reply[..16], b"MPA ID Rep Frame");
    stream.write_all(&raw::READY).ok()?;
    Some(stream)
}

/// One try: whether it got as far as being told that it was wrong.
fn guess(to: SocketAddr, stag: u32) -> bool {
    let Some(mut stream) = start(to) else {
        return false;
    };
    stream
        .write_all(&raw::write_of_four(stag, 0x7000_0000))
        .unwrap();
    let answer = raw::drain(&mut stream);
    // Behind the empty Write that says "Weft, or at least awake", a Terminate: queue 2, opcode 7.
    let told = answer.windows(2).any(|octets| octets == [0x41, 0x47]);
    assert!(told, "no Terminate in {answer:02x?}");
    true
}

/// The statistics once so many accesses were refused: that is counted behind the Terminate.
fn counts_of(refused: u64) -> Snapshot {
    let deadline = Instant::now() + raw::TIMEOUT;
    loop {
        let counts = raw::counts();
        assert!(counts.totals.refused_accesses <= refused, "{counts:?}");
        if counts.totals.refused_accesses == refused {
            return counts;
        }
        assert!(Instant::now() < deadline, "{counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn guesses_are_counted_and_slowed_over_all_addresses_of_this_machine() {
    weft_engine::start_with(Settings {
        crc: false,
        refused_access_limit: ALLOWED,
        ..Settings::default()
    })
    .unwrap();
    let (channel, _id, four, six) = listener(64);
    std::thread::spawn(move || serve(&channel, close_untouched));
    // A connection to an address of this machine comes from that address.
    let others = weft_engine::device::all()[0].gids().into_iter();
    let others = others.map(|gid| SocketAddr::new(gid.address, four.port()));
    let ways: Vec<SocketAddr> = [four, six].into_iter().chain(others).collect();
    let guess = |n: u32| guess(ways[n as usize % ways.len()], n << 8);
    let (channel, honest) = connect(four);
    expect(&channel, EventKind::Established);

    // As many as a bug may make: nothing happens to them.
    for stag in 1..=ALLOWED {
        assert!(guess(stag));
        assert_eq!(counts_of(stag.into()).totals.slowed, 0);
    }
    let begun = Instant::now();
    assert!(guess(4));
    counts_of(4);

    // From here on each waits, and the next one longer.
    for stag in 5..10 {
        assert!(guess(stag));
        counts_of(stag.into());
    }
    let waits = [50, 100, 200, 400, 800].map(Duration::from_millis);
    let least: Duration = waits.iter().sum();
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    let counts = counts_of(9);
    assert_eq!(
        (counts.totals.refused_accesses, counts.totals.slowed),
        (9, 5)
    );
    assert_eq!(counts.refused.len(), 1, "{counts:?}");
    let of = counts.refused[0];
    assert_eq!((of.address, of.accesses, of.slowed), (HERE, 9, 5));

    // Many at once get no more tries: one goes on, and what would wait for too long is refused.
    let begun = Instant::now();
    let tries = std::thread::scope(|threads| {
        let crowd: Vec<_> = (0..40)
            .map(|n| threads.spawn(move || guess(100 + n)))
            .collect();
        let told = crowd.into_iter().map(|guesser| guesser.join().unwrap());
        told.filter(|told| *told).count() as u128
    });
    let most = 1 + begun.elapsed().as_millis() / 1600;
    assert!(tries <= most, "{tries} of the crowd had their try");
    let counts = raw::counts();
    assert_eq!(counts.totals.slowed, 5 + 40);
    assert_eq!(counts.refused.len(), 1, "{counts:?}");
    assert_eq!(
        (counts.refused[0].address, counts.refused[0].slowed),
        (HERE, 5 + 40)
    );
    // What was connected before stays so, whosever address it has.
    let number = u64::from(honest.qp.number());
    assert!(counts.connections.iter().any(|of| of.qp == number));
    honest.close();
}
