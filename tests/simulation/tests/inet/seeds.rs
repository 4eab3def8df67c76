//! Two stacks over a link that does everything a link can do, drawn from a seed. Every octet is checked, and both ends
//! have to finish.
//!
//! `SEEDS=1000` tries so many, `SEEDS=5000..6000` these, `SEEDS=77..78` one again.

use crate::hosts::{Host, Hosts, Plan};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;
use weft_inet::tcp::{AckPolicy, Algorithm, Backlog, Config, Reason};
use weft_link::{LinkConfig, Loss, Random};

const PORT: u16 = 4420;

pub fn draw_link(random: &mut Random) -> LinkConfig {
    let micros = |random: &mut Random, most| Duration::from_micros(random.below(most));
    let mut link = LinkConfig::default().delay(micros(random, 50_000));
    // Swarm: each fault is there or not, so that each is met alone too.
    if random.chance(0.5) {
        link = link.jitter(micros(random, 20_000));
    }
    if random.chance(0.5) {
        let rate = 1_000_000 << random.below(11);
        link = link.rate(rate, 20_000 + random.below(200_000) as usize);
    }
    let severity = random.unit() * 0.1;
    link = match random.below(4) {
        0 => link.loss(Loss::Random(severity)),
        1 => link.loss(Loss::GilbertElliott {
            to_bad: severity / 5.0,
            to_good: 0.5,
            good: 0.0,
            bad: 0.5,
        }),
        _ => link,
    };
    if random.chance(0.4) {
        let extra = micros(random, 30_000);
        link = link.reordering(random.unit() * 0.2, extra);
    }
    if random.chance(0.3) {
        link = link.duplication(random.unit() * 0.1);
    }
    if random.chance(0.3) {
        link = link.corruption(random.unit() * 0.05);
    }
    link
}

pub fn draw_config(random: &mut Random) -> Config {
    let algorithm = match random.below(5) {
        0 => Algorithm::Reno,
        1 => Algorithm::FixedRate {
            rate: 100_000 << random.below(8),
        },
        2 => Algorithm::Unlimited,
        _ => Algorithm::Cubic,
    };
    Config {
        receive_window: 2_000 << random.below(9),
        max_frame: if random.chance(0.3) { 64_000 } else { 0 },
        aligned: random.chance(0.3),
        algorithm,
        pacing: random.chance(0.3),
        ack: if random.chance(0.3) {
            AckPolicy::thinned(1 << random.below(8))
        } else {
            AckPolicy::default()
        },
        no_delay: random.chance(0.7),
        sack: random.chance(0.8),
        timestamps: random.chance(0.8),
        window_scaling: random.chance(0.8),
        mtu_probing: random.chance(0.2),
        user_timeout: Some(Duration::from_secs(3600)),
        syn_retries: 12,
        ..Config::default()
    }
}

fn draw_plan(random: &mut Random, seed: u64, peer_seed: u64, window: u64) -> Plan {
    let to_send = match random.below(4) {
        0 => random.below(3),
        1 => random.below(2_000),
        _ => random.below(120_000),
    };
    Plan {
        seed,
        peer_seed,
        to_send,
        window,
        send_buffer: 1_000 + random.below(200_000),
        piece: if random.chance(0.5) {
            1 + random.below(3_000)
        } else {
            0
        },
        retunes: false,
    }
}

/// Runs one seed to its end; says how many steps it took.
fn run(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let link = draw_link(&mut random);
    let (of_a, of_b) = (draw_config(&mut random), draw_config(&mut random));
    let mtu = [1500, 1500, 9000, 1280][random.below(4) as usize];
    let ipv6 = random.chance(0.4);
    let plan_a = draw_plan(&mut random, seed, !seed, of_a.receive_window);
    let plan_b = draw_plan(&mut random, !seed, seed, of_b.receive_window);
    let retunes = random.chance(0.3);
    let (plan_a, plan_b) = (Plan { retunes, ..plan_a }, Plan { retunes, ..plan_b });
    let (a, b) = (Host::new(1, mtu, plan_a), Host::new(2, mtu, plan_b));
    let remote = SocketAddr::new(b.address(ipv6), PORT);
    // The link draws numbers of its own, unrelated to those that drew its settings.
    let mut hosts = Hosts::new(a, b, link, random.bits());
    // A backlog of nothing: every handshake by cookie.
    let backlog = Backlog::new(if random.chance(0.2) { 0 } else { 8 });
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    let listens = hosts.b.stack.listen(everywhere, of_b.clone(), backlog);
    assert_eq!(listens, Ok(()));
    let id = hosts
        .a
        .stack
        .connect(remote, of_a.clone(), hosts.now)
        .unwrap();
    hosts.a.adopt(id);
    let mut steps = 0;
    let limit = hosts.now + Duration::from_secs(20_000);
    while steps < 2_000_000 && hosts.now < limit && hosts.step() {
        steps += 1;
    }
    let tell = || format!("seed {seed}: {link:?}\na {of_a:?} {plan_a:?}\nb {of_b:?} {plan_b:?}");
    let a = &hosts.a.programs.all[&id];
    assert_eq!(a.closed, Some(Reason::Finished), "a, {}", tell());
    assert_eq!(a.checked, plan_b.to_send, "a, {}", tell());
    let (_, b) = hosts
        .b
        .programs
        .all
        .iter()
        .next_back()
        .unwrap_or_else(|| panic!("{}", tell()));
    assert_eq!(b.closed, Some(Reason::Finished), "b, {}", tell());
    assert_eq!(b.checked, plan_a.to_send, "b, {}", tell());
    assert!(
        hosts.a.stack.tcp().is_empty() && hosts.b.stack.tcp().is_empty(),
        "{}",
        tell()
    );
    steps
}

pub fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else {
        return 0..1000;
    };
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..text.parse().expect("SEEDS is a number or a range"),
    }
}

#[test]
fn every_octet_arrives_and_both_ends_finish() {
    let seeds = seeds();
    let mut steps = 0;
    for seed in seeds.clone() {
        steps +=
            std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| panic!("seed {seed} failed"));
    }
    println!("{} seeds, {steps} steps", seeds.end - seeds.start);
}

#[test]
fn a_seed_is_one_run() {
    assert_eq!(run(3), run(3));
}
