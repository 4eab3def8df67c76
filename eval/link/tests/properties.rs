//! What holds for every path, whatever frames come and whatever the seed: on virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use weft_link::{LinkConfig, Loss, Path, PathConfig, PathCounters, Reordering, VnetHeader};

/// Octets of a frame besides its payload: an Ethernet header with an EtherType for experiments, and a number.
const HEADER_LEN: usize = 14;
const LEAST_LEN: usize = HEADER_LEN + 4;

/// A frame that says which one it is.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; len.max(LEAST_LEN)];
    frame[12..HEADER_LEN].copy_from_slice(&[0x88, 0xb5]);
    frame[HEADER_LEN..LEAST_LEN].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[HEADER_LEN..LEAST_LEN].try_into().unwrap())
}

/// Frames with the times they come at: lengths, and pauses in microseconds.
fn traffic() -> impl Strategy<Value = Vec<(usize, u64)>> {
    proptest::collection::vec((LEAST_LEN..1514usize, 0..500u64), 1..120)
}

struct Arrival {
    at: Duration,
    frame: Vec<u8>,
}

/// Frames that came, with their times, and all that arrived of them.
struct Run {
    sent: Vec<(Duration, Vec<u8>)>,
    arrived: Vec<Arrival>,
    counters: PathCounters,
}

fn run(config: LinkConfig, seed: u64, traffic: &[(usize, u64)]) -> Run {
    let path = PathConfig {
        link: config,
        ..PathConfig::default()
    };
    let mut path = Path::new(&path, 1500, seed);
    let (mut sent, mut arrived) = (Vec::new(), Vec::new());
    let mut now = Duration::ZERO;
    for (at, (len, pause)) in traffic.iter().enumerate() {
        now += Duration::from_micros(*pause);
        drain(&mut path, now, &mut arrived);
        let frame = frame(at as u32, *len);
        path.handle_frame(&frame, &VnetHeader::default(), now, |_| ());
        sent.push((now, frame));
    }
    drain(&mut path, Duration::MAX, &mut arrived);
    Run {
        sent,
        arrived,
        counters: path.counters(),
    }
}

/// Takes what is due by `until`.
fn drain(path: &mut Path, until: Duration, arrived: &mut Vec<Arrival>) {
    while let Some((at, frame)) = path.poll_transmit(until) {
        arrived.push(Arrival { at, frame });
    }
}

/// Every fault but damage.
fn faults() -> impl Strategy<Value = LinkConfig> {
    let share = 0.0..0.3f64;
    (share.clone(), share.clone(), share, any::<bool>()).prop_map(
        |(loss, duplication, held_back, bursts)| LinkConfig {
            delay: Duration::from_millis(3),
            jitter: Duration::from_micros(700),
            loss: match bursts {
                false => Loss::Random(loss),
                true => Loss::GilbertElliott {
                    to_bad: loss,
                    to_good: 0.2,
                    good: 0.0,
                    bad: 1.0,
                },
            },
            duplication,
            reordering: Reordering {
                probability: held_back,
                extra: Duration::from_millis(1),
            },
            ..LinkConfig::default().rate(20_000_000, 20_000)
        },
    )
}

proptest! {
    #[test]
    fn nothing_is_damaged_unless_asked_and_every_frame_is_accounted_for(
        config in faults(),
        seed: u64,
        traffic in traffic(),
    ) {
        let Run { sent, arrived, counters } = run(config, seed, &traffic);
        let mut times = BTreeMap::new();
        for Arrival { frame, .. } in &arrived {
            prop_assert_eq!(&sent[number(frame) as usize].1, frame);
            *times.entry(number(frame)).or_insert(0) += 1;
        }
        let link = counters.link;
        let twice = times.values().filter(|count| **count == 2).count();
        prop_assert!(times.values().all(|count| *count <= 2));
        prop_assert_eq!(twice as u64, link.duplicated);
        prop_assert_eq!((sent.len() - times.len()) as u64, link.lost + link.dropped);
        prop_assert_eq!(link.sent, sent.len() as u64);
        prop_assert_eq!(link.delivered, arrived.len() as u64);
        prop_assert_eq!((link.corrupted, link.overflowed, counters.on_the_way), (0, 0, 0));
    }

    #[test]
    fn order_is_kept_without_reordering(config in faults(), seed: u64, traffic in traffic()) {
        let config = LinkConfig { reordering: Reordering::default(), ..config };
        let arrived = run(config, seed, &traffic).arrived;
        let numbers: Vec<_> = arrived.iter().map(|arrival| number(&arrival.frame)).collect();
        prop_assert!(numbers.is_sorted(), "{:?}", numbers);
    }

    #[test]
    fn the_delay_is_what_was_asked_for(
        delay in 0..50_000u64,
        jitter in 0..2_000u64,
        seed: u64,
        traffic in traffic(),
    ) {
        let [delay, jitter] = [delay, jitter].map(Duration::from_micros);
        let run = run(LinkConfig::default().delay(delay).jitter(jitter), seed, &traffic);
        prop_assert_eq!(run.arrived.len(), run.sent.len());
        for (Arrival { at, .. }, (sent_at, _)) in run.arrived.iter().zip(&run.sent) {
            prop_assert!(*at >= *sent_at + delay);
            // Order is kept, so a frame may have to wait for the jitter of one before it, which came no later.
            prop_assert!(*at <= *sent_at + delay + jitter);
        }
    }

    #[test]
    fn the_rate_is_never_exceeded_and_is_used_while_frames_wait(
        rate in 1_000_000..2_000_000_000u64,
        queue in 3_000..100_000usize,
        seed: u64,
        traffic in traffic(),
    ) {
        let Run { sent, arrived, counters } = run(LinkConfig::default().rate(rate, queue), seed, &traffic);
        prop_assert_eq!(counters.link.dropped, (sent.len() - arrived.len()) as u64);
        let time_of = |octets: usize| Duration::from_secs_f64(octets as f64 * 8.0 / rate as f64);
        // Each time of transmission is rounded to a nanosecond.
        let rounding = Duration::from_nanos(2);
        let longest_wait = time_of(queue + 2 * 1514) + 200 * rounding;
        let mut free_at = Duration::ZERO;
        for Arrival { at, frame } in &arrived {
            let sent_at = sent[number(frame) as usize].0;
            let earliest = free_at.max(sent_at) + time_of(frame.len());
            prop_assert!(*at + rounding >= earliest, "{:?} {:?}", at, earliest);
            prop_assert!(*at <= earliest + rounding, "{:?} {:?}", at, earliest);
            prop_assert!(*at <= sent_at + longest_wait);
            free_at = *at;
        }
    }

    #[test]
    fn a_seed_decides_everything(config in faults(), seed: u64, traffic in traffic()) {
        let config = LinkConfig { corruption: 0.1, ..config };
        let outcome = |seed| {
            let arrived = run(config, seed, &traffic).arrived;
            arrived.into_iter().map(|arrival| (arrival.at, arrival.frame)).collect::<Vec<_>>()
        };
        prop_assert_eq!(outcome(seed), outcome(seed));
    }
}
