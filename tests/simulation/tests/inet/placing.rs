//! One stream over the offload engine's TCP, twice on the same seed: received in order out of a buffer, and placed as
//! its segments come.
//!
//! The link loses, reorders, doubles and damages; a box cuts segments anew; and with some seeds the peer sends segments
//! again with other octets. Both receivers come to the same completions and faults, and where there is no fault to the
//! same memory. What the peer says, false FPDU starts and all, is in `weft_verbs::fuzzing::placing`.
//!
//! `SEEDS=...` as in [`crate::seeds`]; `mutants.sh` shows that it looks.

use crate::seeds::{draw_config, draw_link, seeds};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use weft_inet::stack::{Cidr, Frame, FrameInfo, Payload, Sink, Stack, StackConfig};
use weft_inet::tcp::receive_buffer::ReceiveBuffer;
use weft_inet::tcp::send_buffer::SendBuffer;
use weft_inet::tcp::{Backlog, Config, ConnectionId, EndpointEvent, Event, Placement, Secret};
use weft_link::{Path, PathConfig, Random, VnetHeader};
use weft_verbs::fuzzing::placing::{check, octets_of_seed, Outcome, Receiver, Script};
use weft_verbs::placing::{PlacingCounters, Reassembler};

const PORT: u16 = 4420;

/// How the receiver takes its octets.
enum Taking {
    /// From a buffer, in order.
    Buffered {
        buffer: ReceiveBuffer,
        staged: Vec<u8>,
    },
    /// As they come.
    Placing(Box<Reassembler>),
}

/// The receiving program. It has one connection.
struct Reader {
    script: Arc<Script>,
    receiver: Receiver,
    taking: Taking,
    connection: Option<ConnectionId>,
    taken: u64,
}

impl Sink for Reader {
    fn place(&mut self, _: ConnectionId, placement: &Placement, payload: &[u8]) {
        match &mut self.taking {
            Taking::Buffered { buffer, .. } => buffer.place(placement, payload),
            Taking::Placing(reassembler) => {
                let mut octets = payload[placement.octets.clone()].to_vec();
                let at = placement.offset as usize;
                self.script
                    .arrive(&mut self.receiver, reassembler, at, &mut octets);
            }
        }
    }

    fn datagram(&mut self, _: SocketAddr, _: SocketAddr, _: &[u8]) {}
}

impl Reader {
    /// So many octets have come in order.
    fn advance(&mut self, delivered: u64) {
        if let Taking::Buffered { buffer, staged } = &mut self.taking {
            let mut octets = vec![0; buffer.readable(delivered) as usize];
            let read = buffer.read(delivered, &mut octets);
            staged.extend_from_slice(&octets[..read]);
            let (qp, device) = self.receiver.parts();
            let received = qp.receive(staged, device);
            staged.drain(..received.consumed);
        }
        self.taken = delivered;
    }
}

/// The sender takes no octets.
struct Nothing;

impl Sink for Nothing {
    fn place(&mut self, _: ConnectionId, _: &Placement, _: &[u8]) {}
    fn datagram(&mut self, _: SocketAddr, _: SocketAddr, _: &[u8]) {}
}

fn stack(last: u8, mtu: u32) -> Stack {
    let address = Cidr::new(Ipv4Addr::new(10, 0, 0, last), 24);
    Stack::new(StackConfig {
        mtu,
        ..StackConfig::new([2, 0, 0, 0, 0, last], vec![address], Secret([last; 16]))
    })
}

fn octets(mut frame: Frame, outgoing: &SendBuffer<Arc<[u8]>>) -> Vec<u8> {
    let payload: Vec<u8> = match &frame.payload {
        Payload::Empty => Vec::new(),
        Payload::Octets(octets) => octets.to_vec(),
        Payload::Stream { range, .. } => outgoing
            .pieces(range.clone())
            .flat_map(|(buffer, octets)| buffer[octets].to_vec())
            .collect(),
    };
    frame.finish_checksum([&payload[..]]);
    let mut octets = frame.head.to_vec();
    octets.extend_from_slice(&payload);
    octets
}

/// The same segment with other octets: two words of its payload change places, so that no checksum tells.
fn lie(frame: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    const TCP: usize = 14 + 20;
    let is_tcp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&6);
    let data = TCP + usize::from(frame.get(TCP + 12)? >> 4) * 4;
    let words = (frame.len().checked_sub(data)? / 2) as u64;
    if !is_tcp || words < 2 {
        return None;
    }
    let mut lie = frame.to_vec();
    let [one, other] = [(); 2].map(|()| data + 2 * random.below(words) as usize);
    for n in 0..2 {
        lie.swap(one + n, other + n);
    }
    Some(lie)
}

/// What a seed's network does, the same for both receivers.
struct Plan {
    path: PathConfig,
    config: Config,
    seed: u64,
    /// The peer sends segments again with other octets.
    lies: bool,
}

fn draw_plan(random: &mut Random) -> Plan {
    let link = draw_link(random);
    let config = Config {
        max_frame: 0,
        // The least holds most FPDUs, so that segments end at what looks like one, too.
        mtu: [1500, 1500, 576, 380][random.below(4) as usize],
        aligned: random.chance(0.8),
        mtu_probing: false,
        ..draw_config(random)
    };
    Plan {
        path: PathConfig {
            link,
            mtu: None,
            resegment: random.chance(0.3),
        },
        config,
        lies: random.chance(0.2),
        seed: random.bits(),
    }
}

/// Both ends and the paths between.
struct Run {
    now: Duration,
    sender: Stack,
    outgoing: SendBuffer<Arc<[u8]>>,
    reader: Reader,
    receiver: Stack,
    forth: Path,
    back: Path,
    random: Random,
    lies: bool,
}

impl Run {
    fn new(plan: &Plan, script: &Arc<Script>, taking: Taking) -> Run {
        let now = Duration::from_secs(1_000_000);
        let (mut sender, mut receiver) = (stack(1, plan.config.mtu), stack(2, plan.config.mtu));
        let local = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), PORT));
        let backlog = Backlog::new(8);
        let listens = receiver.listen(local, plan.config.clone(), backlog);
        assert_eq!(listens, Ok(()));
        sender
            .connect(local, plan.config.clone(), now)
            .expect("a connection");
        let mut outgoing = SendBuffer::default();
        let stream: Arc<[u8]> = script.stream.clone().into();
        outgoing.push(stream, 0..script.stream.len());
        Run {
            now,
            sender,
            outgoing,
            reader: Reader {
                script: script.clone(),
                receiver: script.receiver(),
                taking,
                connection: None,
                taken: 0,
            },
            receiver,
            forth: Path::new(&plan.path, plan.config.mtu, plan.seed),
            back: Path::new(&plan.path, plan.config.mtu, !plan.seed),
            random: Random::new(plan.seed),
            lies: plan.lies,
        }
    }

    /// The peer writes all that it has to say, and closes.
    fn write(&mut self, id: ConnectionId) {
        let mut from = 0;
        let cuts = &self.reader.script.cuts;
        self.sender.command(id, |connection| {
            for cut in cuts {
                assert!(connection.write((cut - from) as u64));
                connection.cut();
                from = *cut;
            }
            connection.close();
        });
    }

    fn transmit(&mut self) {
        let none = VnetHeader::default();
        while let Some(frame) = self.sender.poll_transmit(self.now) {
            let frame = octets(frame, &self.outgoing);
            let lie = match self.lies && self.random.chance(0.1) {
                true => lie(&frame, &mut self.random),
                false => None,
            };
            let lie_first = self.random.chance(0.1);
            let both = [Some(frame), lie];
            let order = if lie_first { [1, 0] } else { [0, 1] };
            for frame in order.into_iter().filter_map(|n| both[n].as_ref()) {
                self.forth.handle_frame(frame, &none, self.now, |_| {});
            }
        }
        while let Some(frame) = self.receiver.poll_transmit(self.now) {
            let frame = octets(frame, &SendBuffer::default());
            self.back.handle_frame(&frame, &none, self.now, |_| {});
        }
    }

    fn receive(&mut self) {
        while let Some((_, frame)) = self.back.poll_transmit(self.now) {
            let info = FrameInfo::default();
            self.sender
                .handle_frame(&frame, info, &mut Nothing, self.now);
            while let Some(event) = self.sender.poll_event() {
                if let EndpointEvent::Connection(id, Event::Established) = event {
                    self.write(id);
                }
            }
        }
        while let Some((_, frame)) = self.forth.poll_transmit(self.now) {
            let info = FrameInfo::default();
            self.receiver
                .handle_frame(&frame, info, &mut self.reader, self.now);
            self.work();
        }
    }

    fn work(&mut self) {
        while let Some(event) = self.receiver.poll_event() {
            if let EndpointEvent::Incoming(id) = event {
                self.receiver.accept(id);
                self.reader.connection = Some(id);
            }
        }
        let Some(id) = self.reader.connection else {
            return;
        };
        let Some(delivered) = self.receiver.tcp().get(id).map(|c| c.delivered()) else {
            return;
        };
        let news = delivered - self.reader.taken;
        if news > 0 {
            self.reader.advance(delivered);
            self.receiver
                .command(id, |connection| connection.consume(news));
        }
    }

    /// Goes on until all octets are there, or until nothing will happen any more: damage to ARP, which has no checksum,
    /// can end a connection before it begins.
    fn finish(mut self, total: u64) -> Reader {
        let limit = self.now + Duration::from_secs(20_000);
        while self.reader.taken < total {
            self.transmit();
            let deadlines = [
                self.forth.deadline(),
                self.back.deadline(),
                self.sender.deadline(),
                self.receiver.deadline(),
            ];
            let Some(next) = deadlines.into_iter().flatten().min() else {
                break;
            };
            self.now = self.now.max(next);
            assert!(self.now < limit, "the stream does not come through");
            self.forth.handle_timeout(self.now);
            self.back.handle_timeout(self.now);
            self.sender.handle_timeout(self.now);
            self.receiver.handle_timeout(self.now);
            self.receive();
        }
        self.reader
    }
}

/// What became of one seed.
#[derive(Default, Debug)]
struct Tally {
    counters: PlacingCounters,
    faults: u64,
    /// Seeds whose memory was compared, with something placed ahead.
    sound: u64,
}

fn run(seed: u64) -> (PlacingCounters, Outcome, bool) {
    let mut random = Random::new(seed);
    let plan = draw_plan(&mut random);
    let script = Arc::new(Script::new(&octets_of_seed(seed, 1500)));
    let total = script.stream.len() as u64;
    let buffered = Taking::Buffered {
        buffer: ReceiveBuffer::new(plan.config.receive_window as usize),
        staged: Vec::new(),
    };
    let placing = Taking::Placing(Box::new(Reassembler::new(script.policy())));
    let in_order = Run::new(&plan, &script, buffered).finish(total);
    let out_of_order = Run::new(&plan, &script, placing).finish(total);
    assert_eq!(out_of_order.taken, in_order.taken, "octets in order");
    let Taking::Placing(reassembler) = &out_of_order.taking else {
        unreachable!("it was made so");
    };
    let counters = *reassembler.counters();
    let all = reassembler.position() == total;
    let live = out_of_order.receiver.qp.ending().is_live();
    let expected = in_order.receiver.finish();
    let found = out_of_order.receiver.finish();
    check(&script, &found, &expected, all && live, &counters);
    let memory = all && live && counters.recalled_fpdus == 0;
    (counters, expected, memory)
}

#[test]
fn placed_as_it_comes_a_stream_comes_to_what_it_comes_to_in_order() {
    let seeds = seeds();
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        let (counters, outcome, memory) =
            std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| panic!("seed {seed} failed"));
        let sum = &mut tally.counters;
        sum.placed_fpdus += counters.placed_fpdus;
        sum.placed_octets += counters.placed_octets;
        sum.kept_octets += counters.kept_octets;
        sum.recalled_fpdus += counters.recalled_fpdus;
        sum.lost_fpdus += counters.lost_fpdus;
        (0..sum.waits.len()).for_each(|n| sum.waits[n] += counters.waits[n]);
        tally.faults += u64::from(outcome.has_fault());
        let is_sound = memory && !outcome.has_fault() && counters.placed_fpdus > 0;
        tally.sound += u64::from(is_sound);
    }
    println!("{} seeds, {tally:?}", seeds.end - seeds.start);
    // The runs are about something.
    let many = seeds.end - seeds.start;
    if many >= 1000 {
        assert!(tally.counters.placed_fpdus > 5 * many, "{tally:?}");
        assert!(
            tally.sound > many / 10 && tally.faults > many / 10,
            "{tally:?}"
        );
    }
    if many >= 10_000 {
        assert!(tally.counters.recalled_fpdus > 0, "{tally:?}");
    }
}

#[test]
fn a_seed_of_placing_is_one_run() {
    let (counters, outcome, _) = run(5);
    let (again, outcome_again, _) = run(5);
    assert!((counters, outcome) == (again, outcome_again));
}
