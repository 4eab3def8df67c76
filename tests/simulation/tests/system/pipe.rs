//! One direction of a connection, as TCP gives it: octets in order, late, as many on their way as its buffers hold.

use std::collections::VecDeque;
use std::time::Duration;

use weft_link::{Link, LinkConfig, Random};

/// Octets on their way and octets that wait to be read.
pub struct Pipe {
    link: Link<Vec<u8>>,
    arrived: VecDeque<u8>,
    /// Octets written and not read yet.
    held: usize,
    room: usize,
    fin_sent: bool,
    ended: bool,
    /// Writes that were damaged before it was cut.
    corrupted: u64,
}

impl Pipe {
    pub fn new(config: LinkConfig, room: usize, seed: u64) -> Pipe {
        Pipe {
            link: Link::new(config, seed),
            arrived: VecDeque::new(),
            held: 0,
            room,
            fin_sent: false,
            ended: false,
            corrupted: 0,
        }
    }

    /// Writes as much as there is room for; gives how much that was.
    pub fn write(&mut self, octets: &[u8], now: Duration) -> usize {
        let taken = octets.len().min(self.room.saturating_sub(self.held));
        if taken > 0 && !self.fin_sent {
            self.held += taken;
            self.link.send(octets[..taken].to_vec(), now);
        }
        taken
    }

    /// Nothing more will be written.
    pub fn finish(&mut self, now: Duration) {
        if !std::mem::replace(&mut self.fin_sent, true) {
            self.link.send(Vec::new(), now);
        }
    }

    /// Cuts it: what is on its way is lost, and the reader finds the end.
    pub fn cut(&mut self) {
        let config = *self.link.config();
        // What has arrived of it may still be read out of a buffer.
        self.corrupted = self.corrupted();
        self.link = Link::new(config, 0);
        self.arrived.clear();
        self.fin_sent = true;
        self.ended = true;
    }

    /// Takes up to `most` of what has arrived by `now`.
    pub fn read(&mut self, most: usize, now: Duration) -> Vec<u8> {
        while let Some(octets) = self.link.receive(now) {
            self.ended |= octets.is_empty();
            self.arrived.extend(octets);
        }
        let octets: Vec<u8> = self.arrived.drain(..most.min(self.arrived.len())).collect();
        self.held -= octets.len().min(self.held);
        octets
    }

    /// Whether everything was read and nothing more will come.
    pub fn is_over(&self) -> bool {
        self.ended && self.arrived.is_empty()
    }

    pub fn unread(&self) -> usize {
        self.arrived.len()
    }

    /// When the next octets arrive.
    pub fn deadline(&self) -> Option<Duration> {
        self.link.deadline()
    }

    pub fn corrupted(&self) -> u64 {
        self.corrupted + self.link.counters().corrupted
    }
}

/// A link of one run's kind.
pub fn draw(random: &mut Random) -> LinkConfig {
    let mut config = LinkConfig::default().delay(Duration::from_micros(random.below(300)));
    if random.chance(0.3) {
        config = config.jitter(Duration::from_micros(random.below(2000)));
    }
    if random.chance(0.2) {
        config = config.rate(10_000_000 << random.below(6), usize::MAX >> 1);
    }
    if random.chance(0.15) {
        config = config.corruption(0.02);
    }
    config
}
