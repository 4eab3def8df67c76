//! What the machine does, in numbers, on virtual time: goodput, retransmissions and ACKs over buffer, loss, round trip
//! and congestion control, beside what the formulas of the field expect.

use crate::pair::Pair;
use crate::snapshot;
use std::time::Duration;
use weft_inet::tcp::{AckPolicy, Algorithm, Config, Event};
use weft_link::{LinkConfig, Loss};

const MSS: f64 = 1448.0;

/// What came of one cell.
struct Outcome {
    /// Octets of data per second.
    goodput: f64,
    segments: u64,
    retransmissions: u64,
    timeouts: u64,
    acks: u64,
}

/// Sends without end; measures from `warm_up` on for `measured`.
fn steady(
    config: &Config,
    link: LinkConfig,
    seed: u64,
    warm_up: Duration,
    measured: Duration,
) -> Outcome {
    let mut pair = Pair::new(config.clone(), config.clone(), link, seed);
    assert!(pair.run(Duration::from_secs(30), |pair| pair
        .a
        .has(Event::Established)));
    pair.a.connection.write(1 << 50);
    pair.run(warm_up, |_| false);
    let before = (
        pair.now,
        pair.b.taken,
        pair.a.connection.counters(),
        pair.b.connection.counters(),
    );
    pair.run(measured, |_| false);
    let (sender, receiver) = (pair.a.connection.counters(), pair.b.connection.counters());
    let seconds = (pair.now - before.0).as_secs_f64();
    Outcome {
        goodput: (pair.b.taken - before.1) as f64 / seconds,
        segments: sender.segments_sent - before.2.segments_sent,
        retransmissions: sender.retransmissions - before.2.retransmissions,
        timeouts: sender.timeouts - before.2.timeouts,
        acks: receiver.segments_sent - before.3.segments_sent,
    }
}

/// Octets per second that the loss allows: Mathis et al. for Reno, RFC 9438 section 5.1 (figure 5 of RFC 8312) for
/// CUBIC where it is faster than Reno.
fn by_loss(algorithm: Algorithm, loss: f64, rtt: f64) -> f64 {
    if loss == 0.0 {
        return f64::INFINITY;
    }
    let reno = MSS / rtt * (1.5 / loss).sqrt();
    match algorithm {
        Algorithm::Reno => reno,
        Algorithm::Cubic => (1.054 * (rtt / loss).powf(0.75) * MSS / rtt).max(reno),
        _ => f64::INFINITY,
    }
}

#[test]
fn buffer_loss_rtt_and_control() {
    const RATE: u64 = 100_000_000;
    let link_rate = RATE as f64 / 8.0 * MSS / 1500.0;
    let mut table = format!(
        "100 Mb/s, queue of one round trip (15 kB at least), MTU 1500; 6 s after 3 s; Mb/s of data\n\
         {:>7} {:>6} {:>6} {:>6} | {:>8} {:>8} | {:>7} {:>6} {:>7}\n",
        "control", "buffer", "rtt ms", "loss", "goodput", "expected", "again", "timers", "ACKs"
    );
    for (name, algorithm) in [
        ("reno", Algorithm::Reno),
        ("cubic", Algorithm::Cubic),
        ("fixed", Algorithm::FixedRate { rate: RATE / 8 }),
        ("none", Algorithm::Unlimited),
    ] {
        for buffer in [64_000u64, 4_000_000] {
            if algorithm == Algorithm::Unlimited && buffer > 64_000 {
                // A window far above the path's floods its queue: nothing to learn from.
                continue;
            }
            for rtt in [1u32, 10, 100] {
                for loss in [0.0, 0.0001, 0.001, 0.01, 0.05] {
                    let config = Config {
                        algorithm,
                        receive_window: buffer,
                        ..Config::default()
                    };
                    let delay = Duration::from_micros(u64::from(rtt) * 500);
                    let queue = (RATE as usize / 8 * rtt as usize / 1000).max(15_000);
                    let link = LinkConfig::default().delay(delay).rate(RATE, queue);
                    let link = link.loss(Loss::Random(loss));
                    let outcome = steady(
                        &config,
                        link,
                        42,
                        Duration::from_secs(3),
                        Duration::from_secs(6),
                    );
                    let rtt_s = f64::from(rtt) / 1000.0;
                    let expected = by_loss(algorithm, loss, rtt_s)
                        .min(buffer as f64 / rtt_s)
                        .min(link_rate * (1.0 - loss));
                    table += &format!(
                        "{name:>7} {:>4} k {rtt:>6} {:>5}% | {:>8.2} {:>8.2} | {:>7} {:>6} {:>7}\n",
                        buffer / 1000,
                        loss * 100.0,
                        outcome.goodput * 8e-6,
                        expected * 8e-6,
                        outcome.retransmissions,
                        outcome.timeouts,
                        outcome.acks
                    );
                }
            }
        }
    }
    snapshot::check("control.txt", &table);
}

/// The papers' long fat pipe: a loss in 10,000 is nothing to a connection with a fixed rate.
#[test]
fn ten_gigabits_over_100_ms_with_losses() {
    const RATE: u64 = 10_000_000_000;
    let mut table = format!(
        "10 Gb/s, RTT 100 ms, loss 0.01%, 1 s after 0.5 s (MTU 9000: 2.5 s after 0.5 s; reno and cubic: 2 s after 4 s)\n\
         {:>7} {:>5} {:>5} | {:>8} {:>7} | {:>9} {:>7} {:>7}\n",
        "control", "MTU", "1 ACK", "Gb/s", "of rate", "segments", "again", "ACKs"
    );
    let fixed = Algorithm::FixedRate { rate: RATE / 8 };
    for (name, algorithm, mtu, every) in [
        ("fixed", fixed, 1500u32, 2),
        ("fixed", fixed, 1500, 256),
        ("fixed", fixed, 9000, 64),
        ("cubic", Algorithm::Cubic, 9000, 2),
        ("reno", Algorithm::Reno, 9000, 2),
    ] {
        let config = Config {
            mtu,
            algorithm,
            receive_window: 1 << 29,
            ack: if every == 2 {
                AckPolicy::default()
            } else {
                AckPolicy::thinned(every)
            },
            ..Config::default()
        };
        let link = LinkConfig::default()
            .delay(Duration::from_millis(50))
            .rate(RATE, 10_000_000)
            .loss(Loss::Random(0.0001));
        let (warm_up, measured) = match algorithm {
            Algorithm::FixedRate { .. } if mtu == 1500 => (500, 1000),
            Algorithm::FixedRate { .. } => (500, 2500),
            _ => (4000, 2000),
        };
        let millis = Duration::from_millis;
        let outcome = steady(&config, link, 1, millis(warm_up), millis(measured));
        let share = outcome.goodput * 8.0 / RATE as f64;
        if algorithm == fixed {
            assert!(share >= 0.95, "{share}");
        }
        table += &format!(
            "{name:>7} {mtu:>5} {:>5} | {:>8.3} {:>6.1}% | {:>9} {:>7} {:>7}\n",
            format!("in {every}"),
            outcome.goodput * 8e-9,
            share * 100.0,
            outcome.segments,
            outcome.retransmissions,
            outcome.acks
        );
    }
    snapshot::check("long-fat-pipe.txt", &table);
}

/// TCP's need for ACKs: one in N, goodput against N.
#[test]
fn one_ack_in_n() {
    const RATE: u64 = 1_000_000_000;
    let mut table = format!(
        "1 Gb/s, RTT 10 ms, queue of one round trip, 2 s after 1 s; Mb/s of data\n{:>6} | {:>30} | {:>30} | {:>30}\n{:>6}",
        "", "fixed, no loss", "fixed, 0.1%", "cubic, no loss", "N"
    );
    for _ in 0..3 {
        table += &format!(
            " | {:>8} {:>7} {:>6} {:>6}",
            "goodput", "ACKs", "again", "timers"
        );
    }
    table += "\n";
    let fixed = Algorithm::FixedRate { rate: RATE / 8 };
    for every in [1u32, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096] {
        table += &format!("{every:>6}");
        for (algorithm, loss) in [(fixed, 0.0), (fixed, 0.001), (Algorithm::Cubic, 0.0)] {
            let config = Config {
                algorithm,
                receive_window: 64 << 20,
                ack: AckPolicy {
                    every,
                    delay: Duration::from_millis(25),
                },
                ..Config::default()
            };
            let link = LinkConfig::default()
                .delay(Duration::from_millis(5))
                .rate(RATE, 1_250_000)
                .loss(Loss::Random(loss));
            let second = Duration::from_secs(1);
            let outcome = steady(&config, link, 9, second, 2 * second);
            table += &format!(
                " | {:>8.1} {:>7} {:>6} {:>6}",
                outcome.goodput * 8e-6,
                outcome.acks,
                outcome.retransmissions,
                outcome.timeouts
            );
        }
        table += "\n";
    }
    snapshot::check("one-ack-in-n.txt", &table);
}
