//! Two connections and the link between them. Nothing but numbers travels, so a run at 10 Gb/s is cheap.

use std::ops::Range;
use std::time::Duration;
use weft_inet::tcp::connection::Secrets;
use weft_inet::tcp::{Config, Connection, Event, Header, Placement, Reason, Seq};
use weft_link::{Link, LinkConfig, Travels};

/// An IP packet, or a large frame of several.
#[derive(Clone, Debug)]
pub struct Packet {
    pub header: Header,
    pub payload: Range<u64>,
    pub segment_size: Option<u16>,
}

impl Travels for Packet {
    fn wire_len(&self) -> usize {
        let data = (self.payload.end - self.payload.start) as usize;
        let segments = data
            .div_ceil(self.segment_size.map_or(usize::MAX, usize::from))
            .max(1);
        data + segments * (20 + self.header.encoded_len())
    }
}

/// One end, with what its program has seen.
pub struct End {
    pub connection: Connection,
    pub events: Vec<Event>,
    /// Octets the program took.
    pub taken: u64,
    /// Take what is delivered at once.
    pub reads: bool,
    pub placed: Vec<Placement>,
    pub keep_placements: bool,
}

impl End {
    fn new(config: Config, initial: u32) -> End {
        let secrets = Secrets {
            initial: Seq(initial),
            clock_offset: initial.rotate_left(7),
        };
        End {
            connection: Connection::connect(config, secrets, Duration::ZERO),
            events: Vec::new(),
            taken: 0,
            reads: true,
            placed: Vec::new(),
            keep_placements: false,
        }
    }

    fn transmit(&mut self, link: &mut Link<Packet>, now: Duration) {
        while let Some(transmit) = self.connection.poll_transmit(now) {
            let packet = Packet {
                header: transmit.header,
                payload: transmit.payload,
                segment_size: transmit.segment_size,
            };
            link.send(packet, now);
        }
    }

    fn receive(&mut self, link: &mut Link<Packet>, now: Duration) {
        while let Some(packet) = link.receive(now) {
            let len = (packet.payload.end - packet.payload.start) as usize;
            self.connection.handle_segment(&packet.header, len, now);
            for placement in self.connection.placements() {
                // The octets of a segment belong where the sender took them from.
                assert_eq!(
                    placement.offset,
                    packet.payload.start + placement.octets.start as u64
                );
                if self.keep_placements {
                    self.placed.push(placement);
                }
            }
            self.read();
        }
    }

    fn read(&mut self) {
        if self.reads {
            let news = self.connection.delivered() - self.taken;
            self.connection.consume(news);
            self.taken += news;
        }
        while let Some(event) = self.connection.poll_event() {
            self.events.push(event);
        }
    }

    pub fn has(&self, event: Event) -> bool {
        self.events.contains(&event)
    }

    pub fn closed(&self) -> Option<Reason> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(*reason),
            _ => None,
        })
    }
}

/// Both ends.
pub struct Pair {
    pub now: Duration,
    pub a: End,
    pub b: End,
    pub to_b: Link<Packet>,
    pub to_a: Link<Packet>,
}

impl Pair {
    /// Both open at once; the link is the same both ways but for the seed.
    pub fn new(a: Config, b: Config, link: LinkConfig, seed: u64) -> Pair {
        Pair {
            now: Duration::ZERO,
            a: End::new(a, 0xffff_ff00),
            b: End::new(b, 77),
            to_b: Link::new(link, seed),
            to_a: Link::new(link, seed ^ 0x5eed),
        }
    }

    /// Sends what can be sent now, then goes on to the next moment something happens. False when nothing will.
    pub fn step(&mut self) -> bool {
        self.a.transmit(&mut self.to_b, self.now);
        self.b.transmit(&mut self.to_a, self.now);
        self.a.read();
        self.b.read();
        let next = [
            self.to_a.deadline(),
            self.to_b.deadline(),
            self.a.connection.deadline(),
            self.b.connection.deadline(),
        ];
        let Some(next) = next.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.a.connection.handle_timeout(self.now);
        self.b.connection.handle_timeout(self.now);
        self.a.receive(&mut self.to_a, self.now);
        self.b.receive(&mut self.to_b, self.now);
        true
    }

    /// Goes on until `done`, or `limit` of virtual time has passed. Says whether it was done.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Pair) -> bool) -> bool {
        let limit = self.now + limit;
        while self.now < limit {
            if done(self) {
                return true;
            }
            if !self.step() {
                return done(self);
            }
        }
        done(self)
    }
}
