//! One direction of a link.

use crate::config::{LinkConfig, Loss};
use crate::random::Random;
use core::cmp::Ordering;
use core::time::Duration;
use std::collections::BinaryHeap;

/// What the emulator has to know of an item.
pub trait Travels: Clone {
    /// Octets on the wire: what the rate and the queue count.
    fn wire_len(&self) -> usize;
    /// Damages it. The default leaves it whole, for items that cannot be damaged.
    fn corrupt(&mut self, random: &mut Random) {
        let _ = random;
    }
}

/// Octets are damaged by flipping one to eight of their bits.
impl Travels for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn corrupt(&mut self, random: &mut Random) {
        if self.is_empty() {
            return;
        }
        for _ in 0..1 + random.below(8) {
            let at = random.below(self.len() as u64) as usize;
            self[at] ^= 1 << random.below(8);
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Items given to the link.
    pub sent: u64,
    /// Items that arrived, duplicates included.
    pub delivered: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Dropped before the way, for want of room in the queue.
    pub dropped: u64,
    /// Dropped because the emulator would have held too much: a failure of its own, not a property of the link.
    pub overflowed: u64,
    /// Held back.
    pub reordered: u64,
    /// Sent on twice.
    pub duplicated: u64,
    /// Damaged.
    pub corrupted: u64,
}

/// One direction of a link, with what is on its way.
#[derive(Clone, Debug)]
pub struct Link<T> {
    config: LinkConfig,
    random: Random,
    in_bad_state: bool,
    /// When the transmitter is free again.
    free_at: Duration,
    /// The latest arrival of an item that was not held back: order is kept behind it.
    last_arrival: Duration,
    serial: u64,
    on_the_way: BinaryHeap<OnTheWay<T>>,
    /// Octets of what is on the way.
    held_octets: usize,
    counters: Counters,
}

impl<T: Travels> Link<T> {
    /// A link with nothing on it.
    pub fn new(config: LinkConfig, seed: u64) -> Link<T> {
        Link {
            config,
            random: Random::new(seed),
            in_bad_state: false,
            free_at: Duration::ZERO,
            last_arrival: Duration::ZERO,
            serial: 0,
            on_the_way: BinaryHeap::new(),
            held_octets: 0,
            counters: Counters::default(),
        }
    }

    /// What the link does.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes what the link does from now on; what is on its way keeps its fate.
    pub fn reconfigure(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Items that are on their way.
    pub fn on_the_way(&self) -> usize {
        self.on_the_way.len()
    }

    /// Sends an item at `now`.
    pub fn send(&mut self, mut item: T, now: Duration) {
        self.counters.sent += 1;
        if self.is_overfull(item.wire_len()) {
            self.counters.overflowed += 1;
            return;
        }
        let Some(departure) = self.transmit(item.wire_len(), now) else {
            self.counters.dropped += 1;
            return;
        };
        if self.is_lost() {
            self.counters.lost += 1;
            return;
        }
        if self.random.chance(self.config.corruption) {
            self.counters.corrupted += 1;
            item.corrupt(&mut self.random);
        }
        if self.random.chance(self.config.duplication) && !self.is_overfull(2 * item.wire_len()) {
            self.counters.duplicated += 1;
            let arrival = self.arrival(departure);
            self.put(item.clone(), arrival);
        }
        let arrival = self.arrival(departure);
        self.put(item, arrival);
    }

    /// The next item that has arrived by `now`.
    pub fn receive(&mut self, now: Duration) -> Option<T> {
        if self.deadline()? > now {
            return None;
        }
        let item = self.on_the_way.pop()?.item;
        self.counters.delivered += 1;
        self.held_octets -= item.wire_len();
        Some(item)
    }

    /// When the next item arrives.
    pub fn deadline(&self) -> Option<Duration> {
        self.on_the_way.peek().map(|next| next.arrival)
    }

    /// Whether so many octets more are too many to hold.
    fn is_overfull(&self, octets: usize) -> bool {
        self.config
            .held_octets_max
            .is_some_and(|most| self.held_octets + octets > most)
    }

    /// When an item that came at `now` has left the transmitter; none when the queue is full.
    fn transmit(&mut self, octets: usize, now: Duration) -> Option<Duration> {
        let Some(rate) = self.config.rate else {
            return Some(now);
        };
        let start = self.free_at.max(now);
        let waiting = (start - now).as_nanos() * u128::from(rate) / 8_000_000_000;
        if self.config.queue.is_some_and(|room| waiting > room as u128) {
            return None;
        }
        // Rounded up, so that the rate is never exceeded.
        let nanos = (octets as u64 * 8_000_000_000).div_ceil(rate.max(1));
        self.free_at = start + Duration::from_nanos(nanos);
        Some(self.free_at)
    }

    fn is_lost(&mut self) -> bool {
        match self.config.loss {
            Loss::None => false,
            Loss::Random(probability) => self.random.chance(probability),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                let turn = if self.in_bad_state { to_good } else { to_bad };
                self.in_bad_state ^= self.random.chance(turn);
                let probability = if self.in_bad_state { bad } else { good };
                self.random.chance(probability)
            }
        }
    }

    fn arrival(&mut self, departure: Duration) -> Duration {
        let jitter = self.config.jitter.as_nanos() as u64;
        let jitter = Duration::from_nanos(self.random.below(jitter));
        let arrival = (departure + self.config.delay + jitter).max(self.last_arrival);
        if self.random.chance(self.config.reordering.probability) {
            self.counters.reordered += 1;
            return arrival + self.config.reordering.extra;
        }
        self.last_arrival = arrival;
        arrival
    }

    fn put(&mut self, item: T, arrival: Duration) {
        self.held_octets += item.wire_len();
        self.serial += 1;
        self.on_the_way.push(OnTheWay {
            arrival,
            serial: self.serial,
            item,
        });
    }
}

/// Ordered so that the earliest arrival is the greatest, and of equal ones the one sent first.
#[derive(Clone, Debug)]
struct OnTheWay<T> {
    arrival: Duration,
    serial: u64,
    item: T,
}

impl<T> Ord for OnTheWay<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival, other.serial).cmp(&(self.arrival, self.serial))
    }
}

impl<T> PartialOrd for OnTheWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for OnTheWay<T> {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl<T> Eq for OnTheWay<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn item(tag: u32) -> Vec<u8> {
        let mut item = vec![0; 1000];
        item[..4].copy_from_slice(&tag.to_be_bytes());
        item
    }

    fn drain(link: &mut Link<Vec<u8>>) -> Vec<(Duration, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(at) = link.deadline() {
            all.push((at, link.receive(at).unwrap()));
        }
        all
    }

    #[test]
    fn delay_and_rate_add_up() {
        let mut link = Link::new(
            LinkConfig::default().delay(5 * MS).rate(8_000_000, 10_000),
            1,
        );
        link.send(item(1), Duration::ZERO);
        link.send(item(2), Duration::ZERO);
        let times: Vec<_> = drain(&mut link).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [6 * MS, 7 * MS]);
    }

    #[test]
    fn a_full_queue_drops_the_tail() {
        let mut link = Link::new(LinkConfig::default().rate(8_000_000, 2_500), 1);
        for tag in 0..10 {
            link.send(item(tag), Duration::ZERO);
        }
        assert_eq!(link.counters().dropped, 7);
        assert_eq!(drain(&mut link)[2].1, item(2));
    }

    #[test]
    fn what_would_be_too_much_to_hold_is_dropped_and_counted_apart() {
        let config = LinkConfig {
            held_octets_max: Some(2_500),
            ..LinkConfig::default().delay(MS).duplication(1.0)
        };
        let mut link = Link::new(config, 1);
        for tag in 0..3 {
            link.send(item(tag), Duration::ZERO);
        }
        let Counters {
            duplicated,
            overflowed,
            dropped,
            lost,
            ..
        } = link.counters();
        assert_eq!((duplicated, overflowed, dropped, lost), (1, 2, 0, 0));
        assert_eq!(drain(&mut link).len(), 2);
        link.send(item(3), 2 * MS);
        assert_eq!(link.on_the_way(), 2, "there is room again");
    }

    #[test]
    fn jitter_keeps_order_and_reordering_breaks_it() {
        let in_order = |config| {
            let mut link = Link::new(config, 9);
            for tag in 0..200 {
                link.send(item(tag), tag * MS / 10);
            }
            let arrived: Vec<_> = drain(&mut link).into_iter().map(|(_, item)| item).collect();
            assert_eq!(arrived.len(), 200);
            arrived.windows(2).all(|pair| pair[0] < pair[1])
        };
        let config = LinkConfig::default().delay(MS).jitter(5 * MS);
        assert!(in_order(config));
        assert!(!in_order(config.reordering(0.1, 10 * MS)));
    }

    #[test]
    fn loss_comes_at_its_rate_and_in_bursts() {
        let lost = |loss| {
            let mut link = Link::new(LinkConfig::default().loss(loss), 4);
            let mut runs = 0;
            let mut before = false;
            for tag in 0..20_000 {
                let lost = link.counters().lost;
                link.send(item(tag), Duration::ZERO);
                let now_lost = link.counters().lost > lost;
                runs += u64::from(now_lost && !before);
                before = now_lost;
            }
            (link.counters().lost, runs)
        };
        let (random, random_runs) = lost(Loss::Random(0.05));
        assert!((900..1100).contains(&random), "{random}");
        let (burst, burst_runs) = lost(Loss::GilbertElliott {
            to_bad: 0.01,
            to_good: 0.19,
            good: 0.0,
            bad: 1.0,
        });
        assert!((800..1200).contains(&burst), "{burst}");
        assert!(burst_runs * 3 < random_runs, "{burst_runs} {random_runs}");
    }

    #[test]
    fn duplicates_and_damage() {
        let mut link = Link::new(LinkConfig::default().duplication(1.0).corruption(1.0), 2);
        link.send(item(1), Duration::ZERO);
        let arrived = drain(&mut link);
        assert_eq!(arrived.len(), 2);
        assert_ne!(arrived[0].1, item(1));
        assert_eq!(arrived[0].1.len(), 1000);
    }

    #[test]
    fn one_seed_one_run() {
        let run = |seed| {
            let config = LinkConfig::default()
                .delay(MS)
                .jitter(MS)
                .loss(Loss::Random(0.2))
                .reordering(0.1, MS)
                .duplication(0.1)
                .corruption(0.1);
            let mut link = Link::new(config, seed);
            for tag in 0..200 {
                link.send(item(tag), tag * MS / 7);
            }
            drain(&mut link)
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
