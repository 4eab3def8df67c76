//! The experiment that the RDDP report of 2005 planned and could not run: iWARP over TCP with losses, once with octets
//! delivered in order to MPA and copied from there, once with every segment placed as it comes.
//!
//! FPDUs are cut so that none straddles segments, so each segment that arrives begins with an FPDU and can be placed by
//! itself (RFC 5044 section 5.1, RFC 5041 section 5). Completion always waits for order.
//!
//! The link and the protocol run on virtual time, so counts are the same each time. The work after a gap is filled is
//! done for real, and how long that takes by the machine's clock is measured beside; the virtual clock does not hear of
//! it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_inet::tcp::connection::Secrets;
use weft_inet::tcp::receive_buffer::ReceiveBuffer;
use weft_inet::tcp::{Algorithm, Config, Connection, Event, Header, Placement, Seq};
use weft_iwarp::ddp::Tagged;
use weft_iwarp::{
    Established, Header as DdpHeader, Inbound, Message, Opcode, Outbound, Parse, Role, Stag,
};
use weft_link::{Link, LinkConfig, Loss, Travels};

const STAG: Stag = Stag(0x0100);
/// Octets taken out of the reassembly buffer at a time: they stay in cache until they are placed.
const STAGE: usize = 256 * 1024;

#[derive(Clone)]
struct Packet {
    header: Header,
    octets: Vec<u8>,
}

impl Travels for Packet {
    fn wire_len(&self) -> usize {
        20 + self.header.encoded_len() + self.octets.len()
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    InOrder,
    OutOfOrder,
}

/// What one run showed.
#[derive(Default, Debug)]
pub struct Outcome {
    pub gaps: u64,
    /// Octets copied between a gap's filling and the completion of what was behind it, each copy counted: out of the
    /// reassembly buffer, and to the target. All gaps together.
    pub copied_after_fill: u64,
    pub worst_copy: u64,
    /// Octets that stood in the reassembly buffer at most.
    pub buffered: u64,
    /// Octets that went through the buffer in all.
    pub through_buffer: u64,
    pub messages: u64,
    /// Virtual time from the first octet to the last completion.
    pub seconds: f64,
    pub octets: u64,
    /// By the machine's clock, for each gap: from the arrival of the segment that fills it until all that it held up is
    /// placed and completed. TCP, CRC, copies and completions are in it.
    pub fills: Vec<Duration>,
}

fn established() -> Established {
    Established {
        role: Role::Initiator,
        crc: true,
        markers_tx: false,
        markers_rx: false,
        revision: 2,
        peer_to_peer: false,
        rtr: None,
        ird: 1,
        ord: 1,
        peer_ird: 1,
        peer_ord: 1,
        private_data: Vec::new(),
    }
}

/// The sending program: RDMA Writes of a message each, made as the connection has room.
struct Writer {
    outbound: Outbound,
    stream: Vec<u8>,
    message: usize,
    total: usize,
    sent: usize,
}

impl Writer {
    fn fill(&mut self, connection: &mut Connection, ahead: u64) {
        while self.sent < self.total && connection.outstanding() < ahead {
            let end = self.message.min(self.total - self.sent);
            let mut at = 0;
            while at < end {
                let len = self.outbound.max_payload(true).min(end - at);
                let header = DdpHeader::Tagged(Tagged {
                    last: at + len == end,
                    opcode: Opcode::WRITE,
                    stag: STAG,
                    to: (self.sent + at) as u64,
                });
                let before = self.stream.len();
                let start = self.outbound.begin(&mut self.stream, &header, &[], len);
                self.stream
                    .extend((0..len).map(|i| octet(self.sent + at + i)));
                self.outbound.seal(&mut self.stream, start);
                assert!(connection.write((self.stream.len() - before) as u64));
                connection.cut();
                at += len;
            }
            self.sent += end;
        }
    }
}

fn octet(at: usize) -> u8 {
    (at as u32).wrapping_mul(0x9e37_79b1).rotate_right(13) as u8
}

/// The receiving RNIC.
struct Reader {
    mode: Mode,
    inbound: Inbound,
    memory: Vec<u8>,
    buffer: ReceiveBuffer,
    stage: Vec<u8>,
    staged: usize,
    delivered: u64,
    /// Placed out of order and not completed: where the FPDU ends in the stream, and whether its message does.
    placed: BTreeMap<u64, (u64, bool)>,
    completed: u64,
    outcome: Outcome,
}

impl Reader {
    /// A segment: in order it goes into the buffer, out of order its FPDUs go to their targets.
    fn place(&mut self, placement: &Placement, payload: &mut [u8]) {
        match self.mode {
            Mode::InOrder => self.buffer.place(placement, payload),
            Mode::OutOfOrder => self.place_fpdus(placement, payload),
        }
    }

    fn place_fpdus(&mut self, placement: &Placement, payload: &mut [u8]) {
        // Cuts are kept on retransmission, so a placement begins with an FPDU and ends with one.
        let mut at = placement.offset;
        let mut rest = &mut payload[placement.octets.clone()];
        while !rest.is_empty() {
            // A reader of this FPDU alone: the continuity of messages is checked when they complete.
            let mut inbound = Inbound::new(&established());
            let Ok(Parse::Segment(segment)) = inbound.parse(rest) else {
                panic!("a segment that does not hold whole FPDUs at {at}");
            };
            let Message::Write { to, last, .. } = segment.message else {
                panic!("not a Write")
            };
            let to = to as usize;
            self.memory[to..to + segment.payload_len]
                .copy_from_slice(&rest[segment.payload.clone()]);
            let end = at + segment.consumed as u64;
            assert!(
                self.placed.insert(at, (end, last)).is_none(),
                "placed twice"
            );
            at = end;
            rest = &mut rest[segment.consumed..];
        }
    }

    /// Order has come as far as `delivered`: completes, copying first where that is still to be done.
    fn advance(&mut self, delivered: u64, filled_gap: bool) {
        let copied = match self.mode {
            Mode::InOrder => self.drain(delivered),
            Mode::OutOfOrder => self.step_over(delivered),
        };
        if filled_gap {
            self.outcome.gaps += 1;
            self.outcome.copied_after_fill += copied;
            self.outcome.worst_copy = self.outcome.worst_copy.max(copied);
        }
        self.delivered = delivered;
    }

    fn drain(&mut self, delivered: u64) -> u64 {
        let mut copied = 0;
        while self.buffer.readable(delivered) > 0 {
            let read = self.buffer.read(delivered, &mut self.stage[self.staged..]);
            copied += read as u64;
            self.staged += read;
            copied += self.place_staged();
        }
        self.outcome.through_buffer += copied;
        copied
    }

    /// Places the whole FPDUs that were taken out of the buffer; what is left of another moves to the front.
    fn place_staged(&mut self) -> u64 {
        let (mut at, mut copied) = (0, 0);
        while at < self.staged {
            let staged = &mut self.stage[at..self.staged];
            match self.inbound.parse(staged).expect("no fault") {
                Parse::Segment(segment) => {
                    let Message::Write { to, last, .. } = segment.message else {
                        panic!("not a Write")
                    };
                    let to = to as usize;
                    let payload = at + segment.payload.start..at + segment.payload.end;
                    copied += payload.len() as u64;
                    self.memory[to..to + payload.len()].copy_from_slice(&self.stage[payload]);
                    self.outcome.messages += u64::from(last);
                    at += segment.consumed;
                }
                Parse::Need { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        self.stage.copy_within(at..self.staged, 0);
        self.staged -= at;
        copied
    }

    fn step_over(&mut self, delivered: u64) -> u64 {
        while let Some((end, last)) = self.placed.get(&self.completed).copied() {
            if end > delivered {
                break;
            }
            self.placed.remove(&self.completed);
            self.completed = end;
            self.outcome.messages += u64::from(last);
        }
        0
    }
}

pub fn run(mode: Mode, rtt: Duration, loss: f64, seed: u64) -> Outcome {
    const TOTAL: usize = 24_000_000;
    const MESSAGE: usize = 64 * 1024;
    let config = Config {
        aligned: true,
        algorithm: Algorithm::FixedRate { rate: 125_000_000 },
        receive_window: 64 << 20,
        ..Config::default()
    };
    let secrets = |initial| Secrets {
        initial: Seq(initial),
        clock_offset: initial,
    };
    let mut now = Duration::ZERO;
    let mut sender = Connection::connect(config.clone(), secrets(1), now);
    let mut receiver = Connection::connect(config, secrets(2), now);
    let link = LinkConfig::default()
        .delay(rtt / 2)
        .rate(1_000_000_000, 4_000_000);
    let mut forth = Link::new(link.loss(Loss::Random(loss)), seed);
    let mut back = Link::new(link, seed + 1);
    let mut writer = Writer {
        outbound: Outbound::new(&established(), 1448),
        stream: Vec::new(),
        message: MESSAGE,
        total: TOTAL,
        sent: 0,
    };
    let mut reader = Reader {
        mode,
        inbound: Inbound::new(&established()),
        memory: vec![0; TOTAL],
        buffer: ReceiveBuffer::new(64 << 20),
        stage: vec![0; STAGE],
        staged: 0,
        delivered: 0,
        placed: BTreeMap::new(),
        completed: 0,
        outcome: Outcome::default(),
    };
    let mut began = None;
    let messages = TOTAL.div_ceil(MESSAGE) as u64;
    while reader.outcome.messages < messages {
        if began.is_some() {
            writer.fill(&mut sender, 32 << 20);
        }
        while let Some(transmit) = sender.poll_transmit(now) {
            let range = transmit.payload.start as usize..transmit.payload.end as usize;
            let octets = writer.stream[range].to_vec();
            forth.send(
                Packet {
                    header: transmit.header,
                    octets,
                },
                now,
            );
        }
        while let Some(transmit) = receiver.poll_transmit(now) {
            back.send(
                Packet {
                    header: transmit.header,
                    octets: Vec::new(),
                },
                now,
            );
        }
        let deadlines = [
            forth.deadline(),
            back.deadline(),
            sender.deadline(),
            receiver.deadline(),
        ];
        now = now.max(deadlines.into_iter().flatten().min().expect("it goes on"));
        sender.handle_timeout(now);
        receiver.handle_timeout(now);
        while let Some(mut packet) = forth.receive(now) {
            let behind = receiver.out_of_order();
            let arrived = Instant::now();
            receiver.handle_segment(&packet.header, packet.octets.len(), now);
            let placements: Vec<_> = receiver.placements().collect();
            placements
                .iter()
                .for_each(|placement| reader.place(placement, &mut packet.octets));
            reader.outcome.buffered = reader.outcome.buffered.max(match mode {
                Mode::InOrder => receiver.out_of_order(),
                Mode::OutOfOrder => 0,
            });
            let delivered = receiver.delivered();
            if delivered > reader.delivered {
                receiver.consume(delivered - reader.delivered);
                reader.advance(delivered, behind > 0);
                if behind > 0 {
                    reader.outcome.fills.push(arrived.elapsed());
                }
            }
        }
        while let Some(packet) = back.receive(now) {
            sender.handle_segment(&packet.header, 0, now);
        }
        while let Some(event) = sender.poll_event() {
            if event == Event::Established {
                began.get_or_insert(now);
            }
        }
        while receiver.poll_event().is_some() {}
    }
    assert!(
        reader
            .memory
            .iter()
            .enumerate()
            .all(|(at, got)| *got == octet(at)),
        "wrong octets"
    );
    let mut outcome = reader.outcome;
    outcome.seconds = (now - began.unwrap()).as_secs_f64();
    outcome.octets = TOTAL as u64;
    outcome
}
