//! The devices, the connections between them and the time.

use std::time::Duration;

use weft_link::Random;
use weft_verbs::cq::CompletionQueue;
use weft_verbs::host::Host as _;
use weft_verbs::iwarp::{
    Established, Initiator, InitiatorEvent, Responder, ResponderEvent, RtrSet, StartConfig,
};
use weft_verbs::outgoing::Piece;
use weft_verbs::qp::{Close, Ending, FpduPolicy, Qp, QpConfig, QpEvent};
use weft_verbs::simulated::{Device, PD};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{PdId, QpCap, QpNumber, QpState, WcOpcode, WcStatus};

use crate::memory::{Grants, Port};
use crate::pipe::{draw, Pipe};
use crate::program::{Inbox, Ledger};

pub const CAP: QpCap = QpCap {
    max_send_wr: 24,
    max_recv_wr: 16,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 64,
};
/// Steps in which nothing happens before a run counts as at rest.
const QUIET: u32 = 3;
/// Steps that a run may take to come to rest.
const STEPS_MAX: u32 = 100_000;

/// What happened over one run or many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Work requests posted, and how they completed.
    pub posted: u64,
    pub succeeded: u64,
    pub flushed: u64,
    pub failed: u64,
    /// Connections that came up, that were still up when everything was at rest, and that faults or hands ended.
    pub connected: u64,
    pub at_rest: u64,
    pub faults: u64,
    pub cut: u64,
    pub corrupted: u64,
    /// Messages and Reads whose octets were compared.
    pub compared: u64,
    /// Ends that went on receiving when their stream was over.
    pub outlived: u64,
    /// Deadlines that were met, and streams that were closed because of one.
    pub timeouts: u64,
    pub closed_in_time: u64,
    /// Connections whose program had lost its interest in messages, and that came to rest.
    pub deaf: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.posted += other.posted;
        self.succeeded += other.succeeded;
        self.flushed += other.flushed;
        self.failed += other.failed;
        self.connected += other.connected;
        self.at_rest += other.at_rest;
        self.faults += other.faults;
        self.cut += other.cut;
        self.corrupted += other.corrupted;
        self.compared += other.compared;
        self.outlived += other.outlived;
        self.timeouts += other.timeouts;
        self.closed_in_time += other.closed_in_time;
        self.deaf += other.deaf;
    }
}

/// A device with its completion queue.
pub struct Node {
    pub device: Device,
    pub cq: CompletionQueue,
    /// Of the shared receive queue.
    pub shared: Grants,
    pub inbox: Inbox,
}

pub enum Phase {
    Asking(Initiator),
    Asked(Responder),
    Up,
    Over,
}

/// One end of a connection: a queue pair and the program that uses it.
pub struct End {
    pub node: usize,
    pub qp: Qp,
    pub phase: Phase,
    pub grants: Grants,
    pub ledger: Ledger,
    /// Its program posts receives seldom.
    pub lazy: bool,
    /// Its program brings the queue pair up itself, as programs for InfiniBand do.
    by_number: bool,
    /// Of a peer that does not bound its retries messages wait without end.
    waits_for_ever: bool,
    /// Its program posts no receives any more, for as long as this connection lasts.
    pub deaf: bool,
    /// Its process stands still, for as long as this connection lasts.
    pub hung: bool,
    start: StartConfig,
    buffer: Vec<u8>,
    policy: FpduPolicy,
    emss: usize,
}

/// A connection: two pipes, from end 2c to end 2c + 1 and back.
pub struct Connection {
    pub pipes: [Pipe; 2],
    /// How it came up; `None` before.
    pub established: Option<Established>,
    /// Something that no CRC covers may have been damaged.
    pub dirty: bool,
    /// The end that disconnected.
    parted: Option<usize>,
    /// Something else ended it, or took something of it away.
    trouble: bool,
    again: u32,
}

impl Connection {
    pub fn corrupted(&self) -> u64 {
        self.pipes.iter().map(Pipe::corrupted).sum()
    }

    /// Whether what arrives has to be what was sent.
    pub fn is_faithful(&self) -> bool {
        let crc = self.established.as_ref().is_some_and(|e| e.crc);
        !self.dirty && (crc || self.corrupted() == 0)
    }
}

pub struct World {
    pub random: Random,
    pub now: Duration,
    pub nodes: Vec<Node>,
    pub ends: Vec<End>,
    pub connections: Vec<Connection>,
    pub next_wr: u64,
    pub tally: Tally,
    /// Programs ask for nothing that has to be refused.
    pub peaceful: bool,
    /// Counts whatever moves.
    pub moved: u64,
}

/// The pieces that one end's queue pair needs.
pub struct Parts<'a> {
    pub end: &'a mut End,
    pub device: &'a mut Device,
    pub cq: &'a mut CompletionQueue,
    pub shared: &'a mut Grants,
    now: Duration,
}

impl Parts<'_> {
    /// The queue pair with its host.
    pub fn split(&mut self) -> (&mut Qp, Port<'_>) {
        let port = Port {
            device: self.device,
            cq: self.cq,
            grants: &mut self.end.grants,
            shared: self.shared,
            polled: self.end.ledger.polled,
            now: self.now,
        };
        (&mut self.end.qp, port)
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let nodes = (0..2 + random.below(4))
            .map(|_| Node::draw(&mut random))
            .collect();
        let peaceful = random.chance(0.5);
        let mut world = World {
            random,
            peaceful,
            now: Duration::ZERO,
            nodes,
            ends: Vec::new(),
            connections: Vec::new(),
            next_wr: 1,
            tally: Tally::default(),
            moved: 0,
        };
        for _ in 0..1 + world.random.below(5) {
            world.add_connection();
        }
        world
    }

    fn add_connection(&mut self) {
        let nodes = self.nodes.len() as u64;
        let first = self.random.below(nodes) as usize;
        // Sometimes to itself, as programs on one machine do.
        let second = self.random.below(nodes) as usize;
        let emss = [536, 1448, 8948][self.random.below(3) as usize];
        let revision = if self.random.chance(0.2) { 1 } else { 2 };
        let start = StartConfig {
            revision,
            crc: self.random.chance(0.6),
            markers: self.random.chance(0.2),
            peer_to_peer: revision == 2 && self.random.chance(0.7),
            rtr: RtrSet::WRITE_AND_READ,
            ird: 4,
            ord: 4,
            max_ird: 16,
            max_ord: 16,
            timeout: Duration::from_secs(1),
            private_data: Vec::new(),
        };
        let by_number = self.random.chance(0.3);
        for node in [first, second] {
            let number = QpNumber(self.ends.len() as u32);
            let shared_receive = self.nodes[node].device.srq.is_some();
            let policies = [FpduPolicy::Auto, FpduPolicy::Auto, FpduPolicy::Emss];
            self.ends.push(End {
                node,
                qp: Qp::new(QpConfig {
                    number,
                    // A shared receive queue and its users are of one domain.
                    pd: if shared_receive {
                        PD
                    } else {
                        PdId(10 + number.0)
                    },
                    cap: CAP,
                    sq_sig_all: false,
                    shared_receive,
                }),
                phase: Phase::Over,
                grants: Grants::default(),
                ledger: Ledger::none(),
                lazy: self.random.chance(0.3),
                by_number,
                waits_for_ever: false,
                deaf: false,
                hung: false,
                start: start.clone(),
                buffer: Vec::new(),
                policy: policies[self.random.below(3) as usize],
                emss,
            });
        }
        let again = self.random.below(3) as u32;
        let pipes = self.pipes();
        self.connections.push(Connection {
            pipes,
            established: None,
            dirty: false,
            parted: None,
            trouble: false,
            again,
        });
        self.connect(self.connections.len() - 1);
    }

    fn pipes(&mut self) -> [Pipe; 2] {
        let random = &mut self.random;
        [(); 2].map(|()| {
            let room = 1 << (10 + random.below(8));
            Pipe::new(draw(random), room, random.bits())
        })
    }

    /// Starts a connection, or starts it again, with memory of its own.
    fn connect(&mut self, connection: usize) {
        let pipes = self.pipes();
        let this = &mut self.connections[connection];
        this.pipes = pipes;
        this.established = None;
        this.dirty = false;
        this.parted = None;
        this.trouble = false;
        for side in 0..2 {
            let at = 2 * connection + side;
            let node = self.ends[at].node;
            let device = &mut self.nodes[node].device;
            let shares = device.srq.is_some();
            let ledger = Ledger::new(device, self.ends[at].qp.pd(), shares, &mut self.random);
            let end = &mut self.ends[at];
            end.grants.list = ledger.granted_to_the_peer();
            end.grants.opened = end.grants.list.iter().map(|grant| grant.stag).collect();
            end.grants.given_up.clear();
            end.ledger = ledger;
            end.deaf = false;
            end.hung = false;
            end.buffer.clear();
            let mut parts = self.parts(at);
            let (qp, mut port) = parts.split();
            qp.modify(QpState::Reset, &mut port)
                .expect("no stream is left");
            qp.modify(QpState::Init, &mut port).expect("INIT");
            self.bring_up(at);
            let start = self.ends[at].start.clone();
            self.ends[at].phase = match side {
                0 => Phase::Asking(Initiator::new(start, self.now)),
                _ => Phase::Asked(Responder::new(start, self.now)),
            };
        }
    }

    /// What the program says of its queue pair before it is connected.
    fn bring_up(&mut self, at: usize) {
        let waits = [500, 5_000, 1_000_000, 1_000_000].map(Duration::from_micros);
        let wait = waits[self.random.below(4) as usize];
        let retries = self.random.below(10).min(7) as u8;
        let end = &mut self.ends[at];
        end.waits_for_ever = end.by_number && retries == 7;
        end.qp.set_receive_wait(wait);
        if end.by_number {
            end.qp.bring_to(QpState::Rtr).expect("RTR");
            end.qp.bring_to(QpState::Rts).expect("RTS");
            end.qp.set_rnr_retry(retries);
        }
    }

    pub fn parts(&mut self, at: usize) -> Parts<'_> {
        let end = &mut self.ends[at];
        let node = &mut self.nodes[end.node];
        Parts {
            end,
            device: &mut node.device,
            cq: &mut node.cq,
            shared: &mut node.shared,
            now: self.now,
        }
    }

    /// The whole run; what happened in it.
    pub fn run(mut self) -> Tally {
        for _ in 0..40 + self.random.below(200) {
            self.step(true);
            self.misfortune();
        }
        self.rest();
        self.check_at_rest();
        for connection in 0..self.connections.len() {
            self.part(connection);
        }
        self.rest();
        self.check_at_the_end();
        self.tally
    }

    /// A little time goes by.
    fn step(&mut self, active: bool) {
        self.now += Duration::from_nanos(self.random.below(200_000));
        let first = self.random.below(self.ends.len() as u64) as usize;
        for turn in 0..self.ends.len() {
            let at = (first + turn) % self.ends.len();
            if active && self.random.chance(0.3) {
                continue;
            }
            self.serve(at);
            self.receive_work(at, !active);
            if active {
                self.work(at);
            }
        }
        for node in 0..self.nodes.len() {
            if !active || self.random.chance(0.5) {
                self.poll(node);
            }
        }
        if active {
            self.connect_again();
        }
    }

    fn connect_again(&mut self) {
        for connection in 0..self.connections.len() {
            let over = |side: usize| matches!(self.ends[2 * connection + side].phase, Phase::Over);
            let again = over(0) && over(1) && self.connections[connection].again > 0;
            if again && self.random.chance(0.2) {
                self.connections[connection].again -= 1;
                self.settle(connection);
                self.connect(connection);
            }
        }
    }

    /// Cuts, kills, pulls memory away, stops processes, or their interest in messages.
    fn misfortune(&mut self) {
        let connection = self.random.below(self.connections.len() as u64) as usize;
        let at = 2 * connection + self.random.below(2) as usize;
        if self.random.chance(0.003) {
            self.connections[connection]
                .pipes
                .iter_mut()
                .for_each(Pipe::cut);
            self.connections[connection].trouble = true;
            self.tally.cut += 1;
        }
        if self.random.chance(0.003) {
            self.part(connection);
        }
        self.ends[at].deaf |= self.random.chance(0.003);
        if matches!(self.ends[at].phase, Phase::Up) && self.random.chance(0.003) {
            self.ends[at].hung = true;
            self.connections[connection].trouble = true;
        }
        if self.ends[at].ledger.inbox.is_some() && self.random.chance(0.003) {
            let stag = self.ends[at].ledger.region(self.random.chance(0.5));
            self.connections[connection].trouble = true;
            let parts = self.parts(at);
            parts.device.regions.remove(stag);
            parts.end.grants.end_of_region(stag);
            parts.end.ledger.is_whole = false;
        }
    }

    /// One of the programs disconnects, or is killed.
    fn part(&mut self, connection: usize) {
        let at = 2 * connection + self.random.below(2) as usize;
        // One that stands still does nothing; it is left to the other to leave.
        let at = if self.ends[at].hung { at ^ 1 } else { at };
        if !matches!(self.ends[at].phase, Phase::Over) {
            self.tally.cut += 1;
        }
        if matches!(self.ends[at].phase, Phase::Up) && self.random.chance(0.7) {
            let this = &mut self.connections[connection];
            this.trouble |= this.parted.is_some();
            this.parted = Some(at);
            let mut parts = self.parts(at);
            let (qp, mut port) = parts.split();
            qp.disconnect(&mut port);
        } else {
            self.end(at);
        }
    }

    /// Steps until nothing moves any more and nothing is awaited.
    fn rest(&mut self) {
        let mut quiet = 0;
        for _ in 0..STEPS_MAX {
            let before = self.moved;
            self.step(false);
            let deadline = self.deadline();
            if before != self.moved {
                quiet = 0;
            } else if let Some(next) = deadline {
                self.now = self.now.max(next);
            } else {
                quiet += 1;
            }
            if quiet > QUIET {
                return;
            }
        }
        panic!("never at rest");
    }

    fn deadline(&self) -> Option<Duration> {
        let pipes = self.connections.iter().enumerate().flat_map(|(number, c)| {
            let hung = move |side: usize| self.ends[2 * number + 1 - side].hung;
            let pipes = c.pipes.iter().enumerate();
            pipes.filter_map(move |(side, pipe)| (!hung(side)).then_some(pipe))
        });
        let starts = self.ends.iter().filter_map(|end| match &end.phase {
            Phase::Asking(initiator) => initiator.deadline(),
            Phase::Asked(responder) => responder.deadline(),
            Phase::Up => end.qp.deadline().filter(|_| !end.hung),
            Phase::Over => None,
        });
        pipes.filter_map(Pipe::deadline).chain(starts).min()
    }

    fn out_of(&mut self, at: usize) -> &mut Pipe {
        &mut self.connections[at / 2].pipes[at % 2]
    }

    fn into(&mut self, at: usize) -> &mut Pipe {
        &mut self.connections[at / 2].pipes[1 - at % 2]
    }

    fn serve(&mut self, at: usize) {
        let now = self.now;
        if self.ends[at].hung {
            return;
        }
        match self.ends[at].phase {
            Phase::Up => {
                self.on_time(at);
                self.take_in(at);
                self.send_out(at);
                self.follow(at);
            }
            Phase::Over => {
                // Nobody reads any more: whatever comes is answered by a reset.
                if !self.into(at).read(usize::MAX, now).is_empty() {
                    self.into(at).cut();
                    self.out_of(at).cut();
                    self.moved += 1;
                }
            }
            Phase::Asking(_) | Phase::Asked(_) => self.start_up(at),
        }
    }

    /// A deadline of the queue pair's may have passed.
    fn on_time(&mut self, at: usize) {
        let now = self.now;
        if self.ends[at]
            .qp
            .deadline()
            .is_none_or(|deadline| deadline > now)
        {
            return;
        }
        let mut parts = self.parts(at);
        let (qp, mut port) = parts.split();
        let close = qp.handle_timeout(&mut port);
        let next = qp.deadline();
        assert!(
            next.is_none_or(|next| next > now),
            "a deadline that is over is no deadline"
        );
        self.moved += 1;
        self.tally.timeouts += 1;
        self.note_events(at);
        if let Some(close) = close {
            self.tally.closed_in_time += 1;
            self.connections[at / 2].trouble |= close == Close::Abort;
            self.end(at);
        }
    }

    fn start_up(&mut self, at: usize) {
        let now = self.now;
        let octets = self.into(at).read(600, now);
        let over = self.into(at).is_over();
        self.moved += octets.len() as u64;
        let mut established = None;
        let mut failed = false;
        let end = &mut self.ends[at];
        let transmit = match &mut end.phase {
            Phase::Asking(initiator) => {
                initiator.handle_timeout(now);
                let taken = initiator.handle_bytes(&octets, now);
                end.buffer.extend_from_slice(&octets[taken..]);
                if over {
                    initiator.handle_eof();
                }
                match initiator.poll_event() {
                    Some(InitiatorEvent::Accepted(how)) => established = Some(how),
                    Some(_) => failed = true,
                    None => {}
                }
                initiator.poll_transmit()
            }
            Phase::Asked(responder) => {
                responder.handle_timeout(now);
                responder.handle_bytes(&octets, now);
                if over {
                    responder.handle_eof();
                }
                match responder.poll_event() {
                    Some(ResponderEvent::Request(_)) if self.random.chance(0.03) => {
                        responder.reject(Vec::new()).expect("no private data");
                        failed = true;
                    }
                    Some(ResponderEvent::Request(_)) => {
                        established = responder
                            .accept(Vec::new(), end.start.ird, end.start.ord)
                            .ok();
                        failed = established.is_none();
                    }
                    Some(ResponderEvent::Failed(_)) => failed = true,
                    None => {}
                }
                responder.poll_transmit()
            }
            Phase::Up | Phase::Over => None,
        };
        if let Some(octets) = transmit {
            self.moved += 1;
            self.out_of(at).write(&octets, now);
        }
        if let Some(how) = established {
            self.moved += 1;
            self.attach(at, how);
        } else if failed {
            self.end(at);
        }
    }

    fn attach(&mut self, at: usize, how: Established) {
        let end = &mut self.ends[at];
        end.qp.attach(&how, end.emss, end.policy, self.now);
        end.phase = Phase::Up;
        let connection = &mut self.connections[at / 2];
        if at.is_multiple_of(2) {
            // The start-up frames carry no CRC.
            connection.dirty = connection.corrupted() > 0;
            self.tally.connected += 1;
        }
        let speaks_first = at.is_multiple_of(2) && how.rtr.is_none();
        connection.established = Some(how);
        if speaks_first {
            self.speak_first(at);
        }
        self.receive_work(at, true);
        self.take_in(at);
    }

    /// Reads what has arrived, through the buffer or straight to its target.
    fn take_in(&mut self, at: usize) {
        loop {
            let direct = self.random.chance(0.5) && self.ends[at].buffer.is_empty();
            let now = self.now;
            let most = 1 + self.random.below(20_000) as usize;
            let mut parts = self.parts(at);
            let (qp, port) = parts.split();
            let target = if direct {
                qp.direct_target(&port)
            } else {
                None
            };
            let most = target.map_or(most, |target| target.octets.min(most));
            let octets = self.into(at).read(most, now);
            let had = self.ends[at].buffer.len();
            if octets.is_empty() && had == 0 {
                return;
            }
            self.moved += octets.len() as u64;
            let stays = octets.is_empty();
            let mut buffer = std::mem::take(&mut self.ends[at].buffer);
            let mut parts = self.parts(at);
            let (qp, mut port) = parts.split();
            if let Some(target) = target {
                let mut left = &octets[..];
                for span in target.spans() {
                    let (part, rest) = left.split_at(left.len().min(span.len as usize));
                    port.write(span.first(part.len() as u32), part)
                        .expect("just checked");
                    left = rest;
                }
                qp.placed(octets.len(), &mut port);
            } else {
                buffer.extend_from_slice(&octets);
                let received = qp.receive(&mut buffer, &mut port);
                buffer.drain(..received.consumed);
                let open = qp.ending() == Ending::Open;
                assert!(
                    !open || received.need > buffer.len(),
                    "does not go on with what it has"
                );
            }
            self.ends[at].buffer = buffer;
            if stays {
                return;
            }
        }
    }

    fn send_out(&mut self, at: usize) {
        let now = self.now;
        let budget = 1 + self.random.below(60_000) as usize;
        let mut parts = self.parts(at);
        let (qp, mut port) = parts.split();
        if !qp.is_due(&port) {
            return;
        }
        qp.fill(budget, &mut port);
        // None when memory went away under a posted request.
        let octets = pieces_of(qp, &port);
        let Some(octets) = octets else {
            return self.end(at);
        };
        let taken = self.out_of(at).write(&octets, now);
        self.moved += taken as u64;
        let mut parts = self.parts(at);
        let (qp, mut port) = parts.split();
        qp.sent(taken, &mut port);
    }

    /// Looks for faults.
    fn note_events(&mut self, at: usize) {
        while let Some(event) = self.ends[at].qp.poll_event() {
            self.moved += 1;
            if !matches!(event, QpEvent::FirstFpdu) {
                self.tally.faults += 1;
                self.connections[at / 2].trouble = true;
            }
        }
    }

    /// What follows from how far the stream has come.
    fn follow(&mut self, at: usize) {
        self.note_events(at);
        let end = &mut self.ends[at];
        let now = self.now;
        let drained = end.qp.outgoing().queued() == 0 && !end.qp.wants_to_send();
        let ending = end.qp.ending();
        if ending == Ending::Draining && drained {
            self.out_of(at).finish(now);
        }
        if ending == Ending::Closed || self.into(at).is_over() {
            self.end(at);
        }
    }

    /// The stream is over, by what came of it or because the program or its memory is gone, and the queue pair is
    /// told. As long as that goes on receiving what arrived, its own direction stays open.
    pub fn end(&mut self, at: usize) {
        let now = self.now;
        if matches!(self.ends[at].phase, Phase::Over) {
            return;
        }
        let by_the_peer = self.into(at).is_over();
        let mut parts = self.parts(at);
        let (qp, mut port) = parts.split();
        let known = qp.ending() == Ending::HalfClosed;
        if !qp.stream_ended(&mut port) {
            if by_the_peer {
                self.tally.outlived += u64::from(!known);
                return;
            }
            assert!(let_go_in_time(qp, &mut port), "nothing is held any more");
        }
        if parts.end.by_number {
            // It does not notice that its peer has gone: the program ends it.
            let (qp, mut port) = parts.split();
            qp.modify(QpState::Error, &mut port).expect("ERROR");
        }
        parts.end.phase = Phase::Over;
        // A held message may have met a receive too short for it just now.
        self.note_events(at);
        self.moved += 1;
        self.connections[at / 2].trouble |= !by_the_peer;
        if self.into(at).unread() > 0 {
            self.out_of(at).cut();
        }
        self.out_of(at).finish(now);
    }

    /// Programs poll.
    pub fn poll(&mut self, node: usize) {
        while let Some(completion) = self.nodes[node].cq.pop() {
            self.moved += 1;
            match completion.status {
                WcStatus::Success => self.tally.succeeded += 1,
                WcStatus::Flushed => self.tally.flushed += 1,
                _ => self.tally.failed += 1,
            }
            match completion.opcode {
                WcOpcode::Recv | WcOpcode::RecvWriteWithImm => self.received(&completion),
                _ => self.sent(&completion),
            }
        }
    }

    /// A connection that is up on one side is up on both, nothing of it is outstanding, and what was written is there.
    fn check_at_rest(&mut self) {
        for number in 0..self.connections.len() {
            let ends = &self.ends[2 * number..2 * number + 2];
            let up = ends
                .iter()
                .map(|end| matches!(end.phase, Phase::Up))
                .collect::<Vec<_>>();
            let connection = &self.connections[number];
            if connection.corrupted() > 0 || connection.dirty {
                // A damaged length leaves an end waiting for octets that never come.
                continue;
            }
            if ends.iter().any(|end| end.hung) {
                continue;
            }
            assert_eq!(up[0], up[1], "connection {number} is up on one side only");
            if !up[0] {
                continue;
            }
            if ends.iter().any(|end| end.deaf) {
                self.tally.deaf += 1;
            }
            if ends.iter().any(|end| end.deaf && end.waits_for_ever) {
                // What is behind a message that waits without end waits too.
                continue;
            }
            for end in ends {
                // For requests that no completion waits for the peer of a program for InfiniBand is not asked.
                let unasked = end.by_number && !end.ledger.awaits_completion();
                let outstanding = end.qp.has_sends_outstanding() && !unasked;
                assert!(!outstanding, "connection {number}: a send is stuck");
                let queued = end.qp.outgoing().queued();
                assert_eq!(queued, 0, "connection {number}: octets are stuck");
                let held = end.qp.holding();
                assert_eq!(held, None, "connection {number}: a message is held");
            }
            self.tally.at_rest += 1;
            self.check_contents(number);
        }
    }

    fn check_at_the_end(&mut self) {
        for connection in 0..self.connections.len() {
            let corrupted = self.connections[connection].corrupted();
            self.tally.corrupted += corrupted;
            for at in [2 * connection, 2 * connection + 1] {
                if corrupted > 0 || self.ends[at].hung {
                    // A damaged length may leave an end waiting for octets that never come: its program gives up.
                    self.end(at);
                    if let Some(deadline) = self.ends[at].qp.deadline() {
                        self.now = self.now.max(deadline);
                        self.ends[at].hung = false;
                        self.serve(at);
                    }
                }
                assert!(
                    matches!(self.ends[at].phase, Phase::Over),
                    "end {at} never heard the end"
                );
            }
            self.settle(connection);
        }
        for node in &mut self.nodes {
            node.device.check_canaries();
            node.inbox.check_shared(&mut node.device);
        }
    }

    /// Everything of a connection that is over has completed; and where nothing but one end's goodbye ended it, the
    /// other has every message that was complete for the one.
    fn settle(&mut self, connection: usize) {
        for at in [2 * connection, 2 * connection + 1] {
            self.poll(self.ends[at].node);
            self.ends[at].ledger.check_complete();
        }
        let this = &self.connections[connection];
        // Behind a damaged length the end comes before the rest of the FPDU.
        let intact = this.is_faithful() && this.corrupted() == 0;
        if let (Some(at), false, true) = (this.parted, this.trouble, intact) {
            let sender = &self.ends[at].ledger;
            let receiver = &self.ends[at ^ 1].ledger;
            assert!(
                receiver.received() >= sender.completed(),
                "end {} received {} messages of {} that were complete",
                at ^ 1,
                receiver.received(),
                sender.completed()
            );
        }
    }
}

/// The stream is over, and time goes by until nothing waits for a receive any more. Whether the queue pair has done
/// with its stream then.
pub fn let_go_in_time(qp: &mut Qp, port: &mut Port<'_>) -> bool {
    const WAIT: Duration = Duration::from_millis(1);
    qp.set_receive_wait(WAIT);
    if qp.stream_ended(port) {
        return true;
    }
    port.now += WAIT;
    let _ = qp.handle_timeout(port);
    qp.stream_ended(port)
}

/// What the transport may take.
pub fn pieces_of(qp: &Qp, port: &Port<'_>) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    for piece in qp.outgoing().pieces() {
        match piece {
            Piece::Octets(held) => octets.extend_from_slice(held),
            Piece::Memory(span) => octets.extend_from_slice(port.octets_to_send(span)?),
        }
    }
    Some(octets)
}

impl Node {
    fn draw(random: &mut Random) -> Node {
        let mut device = Device::default();
        let shares = random.chance(0.3);
        device.srq = shares.then(|| SharedReceiveQueue::new(64, CAP.max_recv_sge));
        let inbox = Inbox::new(&mut device, PD, 64, random);
        Node {
            device,
            cq: CompletionQueue::new(1 << 16),
            shared: Grants::default(),
            inbox,
        }
    }
}
