//! Two hosts, the plain way between them, carriers, and what has to be true of every datagram.

use crate::host::{Call, Host, Lost, Plain};
use crate::pipe::Pipe;
use crate::side::Side;
use std::collections::BTreeMap;
use std::time::Duration;
use weft_inet::tcp::Config;
use weft_link::{Link, LinkConfig, Loss, Random, Travels};
use weft_uoe::admission::Policy;
use weft_uoe::greeting::Instance;
use weft_uoe::proof::Proof;
use weft_uoe::queue::{Drop, Limits};
use weft_uoe::{End, Greeting};

/// A datagram by UDP.
#[derive(Clone, Debug)]
struct Packet(Plain);

impl Travels for Packet {
    fn wire_len(&self) -> usize {
        28 + self.0 .2.len()
    }
}

/// What a run is drawn to be.
#[derive(Clone, Debug)]
pub struct Plan {
    pub any_order: bool,
    pub kills: u64,
    pub plain_loss: f64,
    pub carrier_loss: f64,
    pub sends: u64,
    /// What is missing for longer is waited for no more.
    pub forgives: Option<Duration>,
    room: usize,
    limits: Limits,
    policy: Policy,
}

impl Plan {
    pub fn draw(random: &mut Random) -> Plan {
        let rate = |random: &mut Random| {
            if random.chance(0.5) {
                random.unit() * 0.1
            } else {
                0.0
            }
        };
        let drop = if random.chance(0.5) {
            Drop::Oldest
        } else {
            Drop::Newest
        };
        let age = random
            .chance(0.3)
            .then(|| Duration::from_millis(1 + random.below(50)));
        let any_order = random.chance(0.5);
        Plan {
            any_order,
            forgives: (any_order && random.chance(0.5))
                .then(|| Duration::from_millis(1 + random.below(40))),
            kills: if random.chance(0.4) {
                1 + random.below(3)
            } else {
                0
            },
            plain_loss: rate(random),
            carrier_loss: rate(random),
            sends: 300 + random.below(1500),
            room: [70_000, 131_072][random.below(2) as usize],
            limits: Limits {
                octets: 5_000 + random.below(60_000) as usize,
                drop,
                age,
            },
            policy: if random.chance(0.3) {
                Policy::Buffer
            } else {
                Policy::Prefer
            },
        }
    }

    /// No datagram may overtake another one of its flow.
    fn keeps_order(&self) -> bool {
        // A mark that is lost is not waited for for ever, and neither order outlives a process.
        self.kills == 0 && self.plain_loss == 0.0 && !self.any_order
    }
}

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub sent: u64,
    pub delivered: u64,
    pub on_carriers: u64,
    pub carriers: u64,
    /// Octets that were waited for no more.
    pub forgiven: u64,
}

pub struct World {
    plan: Plan,
    now: Duration,
    random: Random,
    hosts: [Host; 2],
    /// By the host that it leads to.
    udp: [Link<Packet>; 2],
    pipe: Option<Pipe>,
    connects_at: Option<Duration>,
    instances: u64,
    /// Datagrams that the plain way lost.
    plain_lost: u64,
    carrier_lost: u64,
    /// By flow: what was sent (its length), and what arrived.
    sent: BTreeMap<(End, End), Vec<(usize, bool)>>,
    /// By flow: the highest number that arrived.
    last: BTreeMap<(End, End), u32>,
    summary: Summary,
}

fn end(host: usize, port: u16) -> End {
    End::new([10, 0, 0, host as u8 + 1].into(), port)
}

const PORTS: [u16; 3] = [5000, 5001, 5002];
/// What the program says of a datagram in it.
const HEADER: usize = 4;

fn octet(number: u32, at: usize) -> u8 {
    (number.wrapping_mul(31) as usize + at * 7) as u8
}

impl World {
    pub fn new(plan: Plan, mut random: Random) -> World {
        let now = Duration::from_secs(100);
        let link = LinkConfig::default()
            .delay(Duration::from_micros(random.below(5000)))
            .jitter(Duration::from_micros(random.below(3000)))
            .loss(Loss::Random(plan.plain_loss));
        let udp = [0, 1].map(|_| Link::new(link, random.bits()));
        let limits = plan.limits;
        let hosts = [0, 1].map(|host| {
            let ends = PORTS.map(|port| end(host, port));
            Host::new(&ends, limits, Random::new(random.bits()), now)
        });
        World {
            plan,
            now,
            random,
            hosts,
            udp,
            pipe: None,
            connects_at: None,
            instances: 0,
            plain_lost: 0,
            carrier_lost: 0,
            sent: BTreeMap::new(),
            last: BTreeMap::new(),
            summary: Summary::default(),
        }
    }

    pub fn run(mut self) -> Summary {
        let kills: Vec<u64> = (0..self.plan.kills)
            .map(|_| self.random.below(self.plan.sends))
            .collect();
        for number in 0..self.plan.sends {
            // Busy in bursts, idle between.
            let pause = match self.random.below(30) {
                0 => self.random.below(40_000),
                1..4 => self.random.below(2_000),
                _ => self.random.below(60),
            };
            self.pass(Duration::from_micros(pause));
            self.send();
            for _ in kills.iter().filter(|at| **at == number) {
                let victim = self.random.below(2) as usize;
                self.kill(victim);
            }
        }
        // Everything that is under way arrives, and is taken.
        for _ in 0..3000 {
            self.pass(Duration::from_millis(2));
        }
        self.finish()
    }

    fn send(&mut self) {
        let host = self.random.below(2) as usize;
        // Mostly the same flow, so that it is busy.
        let port = |random: &mut Random| {
            PORTS[if random.chance(0.9) {
                0
            } else {
                random.below(3) as usize
            }]
        };
        let (from, to) = (
            end(host, port(&mut self.random)),
            end(1 - host, port(&mut self.random)),
        );
        let len = HEADER
            + match self.random.below(20) {
                0 => self.random.below(20_000),
                1..4 => self.random.below(3_000),
                _ => self.random.below(200),
            } as usize;
        let sent = self.sent.entry((from, to)).or_default();
        let number = sent.len() as u32;
        let mut octets: Vec<u8> = (0..len).map(|at| octet(number, at)).collect();
        octets[..HEADER].copy_from_slice(&number.to_be_bytes());
        let segment = self.pipe.as_ref().and_then(|pipe| pipe.segment(host));
        let mut plain = Vec::new();
        let call = Call {
            ends: (from, to),
            octets: &octets,
            policy: self.plan.policy,
            segment,
        };
        if self.hosts[host].send(call, &mut plain, self.now) {
            sent.push((len, false));
            self.summary.sent += 1;
        }
        self.leave(host, plain);
    }

    fn leave(&mut self, host: usize, plain: Vec<Plain>) {
        for packet in plain {
            let is_data = Proof::parse(&packet.2).is_none();
            let link = &mut self.udp[1 - host];
            let before = link.counters().lost;
            link.send(Packet(packet), self.now);
            self.plain_lost += u64::from(is_data) * (link.counters().lost - before);
        }
    }

    /// Time passes, in steps.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = until.min(self.now + Duration::from_micros(200));
            self.step();
        }
    }

    fn step(&mut self) {
        self.connect();
        for host in 0..2 {
            while let Some(Packet((from, to, octets))) = self.udp[host].receive(self.now) {
                self.hosts[host].handle_plain(from, to, octets);
            }
            self.receive(host);
            if let (Some(pipe), Some(side)) = (&mut self.pipe, &mut self.hosts[host].side) {
                side.forgive(pipe, host, self.now);
                self.summary.forgiven += std::mem::take(&mut side.forgiven);
            }
            // Programs do not read all the time.
            for port in PORTS {
                if self.random.chance(0.4) {
                    let most = self.random.below(40) as usize;
                    let taken = self.hosts[host].read(end(host, port), most, self.now);
                    taken
                        .into_iter()
                        .for_each(|(source, octets)| self.check(source, end(host, port), &octets));
                }
            }
            let mut plain = Vec::new();
            self.hosts[host].handle_events(&mut plain, self.now);
            self.leave(host, plain);
        }
        if let Some(pipe) = &mut self.pipe {
            for (host, process) in self.hosts.iter_mut().enumerate() {
                process.transmit(pipe, host, self.now);
            }
            pipe.tick(self.now);
            // A handshake that lost too much leaves no time for the greeting.
            let is_over = |host: &Host| {
                host.side
                    .as_ref()
                    .is_some_and(|side| side.carrier.is_closed())
            };
            let is_cut = pipe.cut_at.is_some_and(|at| at <= self.now);
            if is_cut || self.hosts.iter().any(is_over) {
                self.lose_carrier();
            }
        }
    }

    fn receive(&mut self, host: usize) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        for (offset, octets) in pipe.read(host, self.now) {
            let Some(side) = &mut self.hosts[host].side else {
                continue;
            };
            let datagrams = side
                .receive(offset, octets, self.now)
                .expect("an honest peer");
            let mut plain = Vec::new();
            for (channel, octets) in datagrams {
                // What was said before it comes before it.
                self.hosts[host].handle_events(&mut plain, self.now);
                self.hosts[host].handle_datagram(channel, &octets, self.now);
            }
            self.leave(host, plain);
        }
    }

    /// Somebody wants a carrier: some time later there is one.
    fn connect(&mut self) {
        let wanted = self
            .hosts
            .iter_mut()
            .any(|host| std::mem::take(&mut host.wants_carrier));
        if self.pipe.is_some() {
            return;
        }
        if self.connects_at.is_none() && wanted {
            self.connects_at = Some(self.now + Duration::from_micros(self.random.below(5000)));
        }
        if self.connects_at.is_none_or(|at| self.now < at) {
            return;
        }
        self.connects_at = None;
        let link = LinkConfig::default().delay(Duration::from_micros(self.random.below(5000)));
        let seed = self.random.bits();
        let pipe = match self.plan.any_order {
            true => {
                let config = Config {
                    aligned: true,
                    ..Config::default()
                };
                Pipe::tcp(
                    link.loss(Loss::Random(self.plan.carrier_loss)),
                    &config,
                    seed,
                    self.now,
                )
            }
            false => Pipe::ordered(link, 100 + self.random.below(100_000) as usize, seed),
        };
        for host in 0..2 {
            self.instances += 1;
            let own = Greeting {
                instance: Instance(self.instances),
                nonce: self.hosts[host].nonce(),
                policy: 0,
                takes_any_order: pipe.takes_any_order(),
                wants_times: self.plan.forgives.is_some(),
                without_udp: false,
                wanted: None,
            };
            let side = Side::new(
                own,
                end(1 - host, 0).address(),
                self.plan.room,
                self.plan.forgives,
                self.now,
            );
            self.hosts[host].side = Some(side);
        }
        self.pipe = Some(pipe);
        self.summary.carriers += 1;
    }

    fn kill(&mut self, victim: usize) {
        // The victim's end is gone now; the other end notices a little later.
        if let Some(pipe) = &mut self.pipe {
            pipe.cut_at
                .get_or_insert(self.now + Duration::from_millis(self.random.below(5)));
        }
        let pause = Duration::from_micros(self.random.below(400));
        self.pass(pause);
        self.lose_carrier();
        self.hosts[victim].kill();
    }

    fn lose_carrier(&mut self) {
        if self.pipe.take().is_none() {
            return;
        }
        let mut plain = Vec::new();
        let [a, b] = [0, 1].map(|host| self.hosts[host].drop_side(&mut plain, self.now));
        self.carrier_lost += (a.0 - b.1) + (b.0 - a.1);
    }

    /// A program got a datagram: it is one that was sent, whole, and was not there before.
    fn check(&mut self, source: End, target: End, octets: &[u8]) {
        let flow = (source, target);
        let number = u32::from_be_bytes(*octets.first_chunk().expect("all are longer"));
        let sent = self
            .sent
            .get_mut(&flow)
            .unwrap_or_else(|| panic!("nobody sent on {flow:?}"));
        let (len, arrived) = &mut sent[number as usize];
        assert_eq!(octets.len(), *len, "datagram {number} of {flow:?}");
        assert!(
            (HEADER..*len).all(|at| octets[at] == octet(number, at)),
            "datagram {number} changed"
        );
        assert!(
            !std::mem::replace(arrived, true),
            "datagram {number} of {flow:?} twice"
        );
        let last = self.last.entry(flow).or_default();
        assert!(
            number >= *last || !self.plan.keeps_order(),
            "datagram {number} of {flow:?} after {last}"
        );
        *last = number;
        self.summary.delivered += 1;
    }

    fn finish(mut self) -> Summary {
        let waiting: usize = self.hosts.iter().map(Host::waiting).sum();
        assert_eq!(waiting, 0, "a program that reads gets everything");
        self.lose_carrier();
        self.hosts.iter_mut().for_each(Host::drop_flows);
        let lost = self.hosts.iter().map(|host| host.lost);
        let sum: u64 = lost.clone().map(|lost| lost.sum()).sum();
        let missing = self.summary.sent - self.summary.delivered;
        let counted = sum + self.plain_lost + self.carrier_lost;
        let lost: Vec<Lost> = lost.collect();
        assert_eq!(
            missing, counted,
            "plain {} carrier {} {lost:?}",
            self.plain_lost, self.carrier_lost
        );
        // What waited for long in the sender's buffers is too old when it comes.
        if self.plan.kills == 0 && self.plan.carrier_loss == 0.0 && self.plan.forgives.is_none() {
            assert_eq!(self.carrier_lost, 0, "a carrier that lives loses nothing");
        }
        self.summary.on_carriers = self.hosts.iter().map(|host| host.was_on_channel).sum();
        self.summary
    }
}
