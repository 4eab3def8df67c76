//! Plain transfers: both ends finish, every octet arrives, and the faults of the link do not show.

use crate::pair::Pair;
use std::time::Duration;
use weft_inet::tcp::{AckPolicy, Algorithm, Config, Event, Reason, State};
use weft_link::{LinkConfig, Loss};

const SECOND: Duration = Duration::from_secs(1);

fn link() -> LinkConfig {
    LinkConfig::default()
        .delay(Duration::from_millis(5))
        .rate(100_000_000, 200_000)
}

/// Sends so much from a to b and closes both; says how long it took.
fn transfer(config: Config, link: LinkConfig, octets: u64, seed: u64) -> (Pair, Duration) {
    let mut pair = Pair::new(config.clone(), config, link, seed);
    assert!(pair.a.connection.write(octets));
    assert!(pair.run(60 * SECOND, |pair| pair.a.has(Event::Established)));
    pair.a.connection.close();
    let finished = pair.run(600 * SECOND, |pair| {
        if pair.b.has(Event::PeerFinished) {
            pair.b.connection.close();
        }
        pair.a.closed().is_some() && pair.b.closed().is_some()
    });
    assert!(
        finished,
        "seed {seed}: {:?} {:?}",
        pair.a.connection, pair.b.connection
    );
    assert_eq!(pair.b.taken, octets, "seed {seed}");
    assert_eq!(pair.b.closed(), Some(Reason::Finished));
    let took = pair.now;
    (pair, took)
}

#[test]
fn a_clean_link_is_filled() {
    let link = link().rate(100_000_000, 6_000_000);
    let (pair, took) = transfer(Config::default(), link, 10_000_000, 1);
    let counters = pair.a.connection.counters();
    assert_eq!(
        (counters.retransmissions, counters.timeouts),
        (0, 0),
        "{counters:?}"
    );
    assert!(took < Duration::from_millis(1000), "{took:?}");
    assert_eq!(pair.a.connection.state(), State::TimeWait);
}

#[test]
fn one_percent_of_loss_is_repaired_without_timeouts() {
    let (pair, took) = transfer(
        Config::default(),
        link().loss(Loss::Random(0.01)),
        10_000_000,
        2,
    );
    let counters = pair.a.connection.counters();
    assert!(counters.retransmissions > 50, "{counters:?}");
    assert!(counters.timeouts <= 2, "{counters:?}");
    assert!(took < 6 * SECOND, "{took:?} {counters:?}");
}

#[test]
fn reordering_is_not_taken_for_loss() {
    let link = link().reordering(0.02, Duration::from_millis(2));
    let (pair, _) = transfer(Config::default(), link, 10_000_000, 3);
    let counters = pair.a.connection.counters();
    assert!(counters.retransmissions < 20, "{counters:?}");
}

#[test]
fn every_option_may_be_missing() {
    for bits in 0..8 {
        let config = Config {
            sack: bits & 1 != 0,
            timestamps: bits & 2 != 0,
            window_scaling: bits & 4 != 0,
            ..Config::default()
        };
        let (_, took) = transfer(
            config.clone(),
            link().loss(Loss::Random(0.005)),
            1_000_000,
            bits,
        );
        assert!(took < 20 * SECOND, "{config:?}: {took:?}");
    }
}

#[test]
fn large_frames_and_thinned_acks() {
    let config = Config {
        max_frame: 64_000,
        ack: AckPolicy::thinned(64),
        algorithm: Algorithm::FixedRate { rate: 11_000_000 },
        ..Config::default()
    };
    let (pair, took) = transfer(config, link().loss(Loss::Random(0.01)), 10_000_000, 5);
    let acks = pair.b.connection.counters().segments_sent;
    assert!(acks < 400, "{acks}");
    assert!(
        took < 2 * SECOND,
        "{took:?} {:?}",
        pair.a.connection.counters()
    );
}

/// HyStart++ (RFC 9406): slow start grows more slowly once the queue fills, where Reno's ends by losing a window. The
/// queue here is a round trip long, and both still overflow it.
#[test]
fn slow_start_takes_care_when_the_queue_fills() {
    let link = LinkConfig::default()
        .delay(Duration::from_millis(25))
        .rate(100_000_000, 625_000);
    let again = |algorithm| {
        let config = Config {
            algorithm,
            ..Config::default()
        };
        let (pair, took) = transfer(config, link, 20_000_000, 1);
        (pair.a.connection.counters().retransmissions, took)
    };
    let (reno, _) = again(Algorithm::Reno);
    let (cubic, took) = again(Algorithm::Cubic);
    assert!(reno > 200, "the link is too kind: {reno}");
    assert!(cubic < reno / 2, "{cubic} of {reno}");
    assert!(took < Duration::from_millis(2500), "{took:?}");
}
