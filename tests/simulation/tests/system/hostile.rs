//! A program on the state machines of production, and a peer that knows the wire and every STag there ever was.
//!
//! The peer sends what a receiver has to take for iWARP: FPDUs with good CRCs and mostly the right numbers, that reach
//! into memory by STags that are its own, another protection domain's, those of other connections, without the right,
//! deregistered, invalidated or made up, in and across every bound. The program meanwhile registers and deregisters,
//! posts, reads from the peer and binds windows.
//!
//! Three checkers look on, none of which asks the tables under test: each access has to have been granted (`memory`);
//! after each step every octet of the device's memory is compared with what it was, and what changed lies in what was
//! granted to be changed; and memory that the peer may not read holds octets of 0x80 and more only, of which none may
//! be in what is sent. Around every region stand canaries. And what nobody deregistered, or invalidated who may, is
//! there for its owner.

mod peer;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use weft_link::Random;
use weft_verbs::cq::CompletionQueue;
use weft_verbs::host::Host as _;
use weft_verbs::iwarp::{
    Established, Header, Opcode, Outbound, PeerFault, ReadRequest, Role, Stag, Untagged,
};
use weft_verbs::outgoing::Piece;
use weft_verbs::qp::{Ending, FpduPolicy, Qp, QpConfig, QpEvent};
use weft_verbs::simulated::{draws, Device};
use weft_verbs::types::{
    Access, Bind, Payload, PdId, QpNumber, QpState, RecvRequest, SendFlags, SendOp, SendRequest,
    Sge, WcOpcode, WcStatus, WindowKind,
};

use crate::memory::{Grant, Grants, Port, Use};
use crate::world::{let_go_in_time, CAP};

/// Domains of the three connections: two share theirs.
const DOMAINS: [PdId; 3] = [PdId(10), PdId(10), PdId(11)];
/// Requests of the peer's that may be open.
const IRD: u16 = 4;
/// The least octet of what the peer may not see.
const SECRET: u8 = 0x80;

/// What happened over one run or many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// FPDUs of the peer's, and those after which its connection was still there.
    sent: u64,
    taken: u64,
    /// Octets of memory that it changed, and octets of payload that it was sent.
    changed: u64,
    seen: u64,
    /// Messages that receives were taken for.
    received: u64,
    /// How often each fault was found.
    faults: BTreeMap<String, u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.taken += other.taken;
        self.changed += other.changed;
        self.seen += other.seen;
        self.received += other.received;
        for (fault, times) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += times;
        }
    }

    /// Each way of reaching too far was tried, and so was each that is allowed.
    pub fn check_that_it_was_about_something(&self) {
        assert!(
            self.taken > 0 && self.changed > 0 && self.seen > 0 && self.received > 0,
            "{self:?}"
        );
        for fault in [
            PeerFault::TaggedStag,
            PeerFault::TaggedBounds,
            PeerFault::TaggedStream,
            PeerFault::TaggedToWrap,
            PeerFault::WriteAccess,
            PeerFault::RemoteStag,
            PeerFault::RemoteBounds,
            PeerFault::RemoteAccess,
            PeerFault::RemoteStream,
            PeerFault::RemoteToWrap,
            PeerFault::InvalidateStag,
            PeerFault::InvalidateStream,
            PeerFault::UnexpectedReadResponse,
            PeerFault::MessageTooLong,
            PeerFault::IrdExceeded,
            PeerFault::MsnRange,
            PeerFault::Crc,
        ] {
            let name = format!("{fault:?}");
            assert!(self.faults.contains_key(&name), "never {name}: {self:?}");
        }
    }
}

/// A region, there or gone.
struct Area {
    stag: Stag,
    pd: PdId,
    iova: u64,
    len: u64,
    access: Access,
    is_there: bool,
    /// Its octets as they have to be.
    octets: Vec<u8>,
}

/// A window of type 2 under one of its keys, as its peer may know it.
struct Window {
    stag: Stag,
    iova: u64,
    len: u64,
}

/// One connection.
struct End {
    pd: PdId,
    qp: Qp,
    grants: Grants,
    /// Its windows, by the STags they began with.
    window: [Stag; 2],
    /// Every binding that was asked for.
    windows: Vec<Window>,
    /// The peer's framing.
    peer: Outbound,
    /// Places in the send queue whose completions were polled.
    polled: u64,
    /// A damaged FPDU is found out.
    crc: bool,
    /// Octets that the queue pair has not consumed.
    buffer: Vec<u8>,
    /// What it sent and nobody has looked at yet.
    sent: Vec<u8>,
    /// Read Requests that the peer has had and not answered, and how much of the first one's response was taken.
    asked: VecDeque<ReadRequest>,
    answered: u64,
    /// Requests of the peer's that were taken and are not answered.
    requests: u16,
    /// What the peer sent was damaged: nobody knows what the queue pair makes of the octets behind it.
    damaged: bool,
    /// Receives that were posted and have not completed, in order.
    receives: VecDeque<u64>,
    /// A Send of the peer's that has segments to come: the next one's header.
    open: Option<Untagged>,
}

struct World {
    random: Random,
    device: Device,
    cq: CompletionQueue,
    areas: Vec<Area>,
    ends: Vec<End>,
    shared: Grants,
    next_wr: u64,
    tally: Tally,
}

/// One run; what happened in it.
pub fn run(seed: u64) -> Tally {
    let mut world = World {
        random: Random::new(seed ^ 0x5EED),
        device: Device::default(),
        cq: CompletionQueue::new(1 << 16),
        areas: Vec::new(),
        ends: Vec::new(),
        shared: Grants::default(),
        next_wr: 1,
        tally: Tally::default(),
    };
    for (number, pd) in DOMAINS.into_iter().enumerate() {
        world.add_end(number, pd);
    }
    for _ in 0..12 {
        world.register();
    }
    for _ in 0..300 {
        let at = world.random.below(3) as usize;
        match world.random.below(3) {
            0 => world.program(at),
            1 => world.attack(at),
            _ => world.transmit(at),
        }
        world.follow(at);
        world.look(at, &[]);
        world.check_that_regions_serve(at);
    }
    world.device.check_canaries();
    world.tally
}

/// What two ends that ask for nothing special agree on.
pub fn established(role: Role, crc: bool) -> Established {
    Established {
        role,
        crc,
        markers_tx: false,
        markers_rx: false,
        revision: 2,
        peer_to_peer: false,
        rtr: None,
        ird: IRD,
        ord: 4,
        peer_ird: 4,
        peer_ord: 4,
        private_data: Vec::new(),
    }
}

impl End {
    /// The STag that a window has now.
    fn key_of_window(&self, which: usize) -> Stag {
        let first = self.window[which];
        let mut bound = self.grants.bound.iter();
        let last = bound.rfind(|bind| bind.rkey.index() == first.index());
        last.map_or(first, |bind| bind.rkey)
    }

    fn port<'a>(
        &'a mut self,
        device: &'a mut Device,
        cq: &'a mut CompletionQueue,
        shared: &'a mut Grants,
    ) -> (&'a mut Qp, Port<'a>) {
        let port = Port {
            device,
            cq,
            grants: &mut self.grants,
            shared,
            polled: self.polled,
            now: Duration::ZERO,
        };
        (&mut self.qp, port)
    }
}

impl World {
    fn split(&mut self, at: usize) -> (&mut Qp, Port<'_>) {
        self.ends[at].port(&mut self.device, &mut self.cq, &mut self.shared)
    }

    fn add_end(&mut self, number: usize, pd: PdId) {
        let qp = Qp::new(QpConfig {
            number: QpNumber(number as u32),
            pd,
            cap: CAP,
            sq_sig_all: true,
            shared_receive: false,
        });
        let window = [(); 2].map(|()| {
            let random = self.random.bits() as u32;
            let stag = self
                .device
                .regions
                .insert_window(WindowKind::Two, pd, draws(random));
            stag.expect("room")
        });
        self.ends.push(End {
            pd,
            qp,
            grants: Grants::default(),
            window,
            windows: Vec::new(),
            peer: Outbound::new(&established(Role::Initiator, true), 1448),
            polled: 0,
            crc: true,
            buffer: Vec::new(),
            sent: Vec::new(),
            asked: VecDeque::new(),
            answered: 0,
            requests: 0,
            damaged: false,
            receives: VecDeque::new(),
            open: None,
        });
        self.connect(number);
    }

    /// A stream from its beginning; what was posted to the one before is gone.
    fn connect(&mut self, at: usize) {
        let crc = self.random.chance(0.7);
        let policy = [FpduPolicy::Auto, FpduPolicy::Emss, FpduPolicy::Large];
        let policy = policy[self.random.below(3) as usize];
        let weft = self.random.chance(0.5);
        let rights = match self.random.chance(0.8) {
            true => Access::from_bits_retain(0xF),
            false => Access::from_bits_retain(self.random.below(16) as u32),
        };
        let (qp, mut port) = self.split(at);
        if !qp.stream_ended(&mut port) {
            assert!(let_go_in_time(qp, &mut port), "nothing is held any more");
        }
        self.poll();
        let left = &self.ends[at].receives;
        assert!(left.is_empty(), "receives that never completed: {left:?}");
        self.ends[at].polled = 0;
        let (qp, mut port) = self.split(at);
        qp.modify(QpState::Reset, &mut port)
            .expect("no stream is left");
        qp.modify(QpState::Init, &mut port).expect("INIT");
        qp.attach(
            &established(Role::Responder, crc),
            1448,
            policy,
            Duration::ZERO,
        );
        qp.set_access(rights);
        if weft {
            qp.set_peer_is_weft();
        }
        let end = &mut self.ends[at];
        end.grants.withheld = Access::from_bits_retain(0xF) - rights;
        end.grants.list.retain(|grant| grant.wr_id.is_none());
        end.peer = Outbound::new(&established(Role::Initiator, crc), 1448);
        end.crc = crc;
        end.buffer.clear();
        end.sent.clear();
        end.asked.clear();
        (end.answered, end.requests, end.damaged) = (0, 0, false);
        end.open = None;
        // A responder sends nothing, and so binds no window, before the initiator has (RFC 5044): mostly it does, and
        // asks for nothing.
        if self.random.chance(0.8) {
            self.ask(at, (Stag(0), 0), 0);
        }
    }

    fn register(&mut self) {
        let random = &mut self.random;
        let pd = DOMAINS[random.below(3) as usize];
        let access = Access::from_bits_retain(random.below(32) as u32);
        let len = 8 * (1 + random.below(300));
        let iova = match random.below(4) {
            0 => 0,
            1 => u64::MAX - len,
            _ => 0x1000 * random.below(1 << 30),
        };
        let key = random.bits() as u32;
        // Through a window it may be read, too.
        let shown = access.contains(Access::REMOTE_READ) || access.contains(Access::MW_BIND);
        let low = if shown { 0 } else { SECRET };
        let octets: Vec<u8> = (0..len)
            .map(|_| low | (random.bits() as u8 & 0x7F))
            .collect();
        let stag = self.device.region_in(pd, len as usize, iova, access, key);
        self.device.octets(stag).copy_from_slice(&octets);
        for end in self.ends.iter_mut().filter(|end| end.pd == pd) {
            end.grants.grant_to_the_peer(stag, len, access);
        }
        self.areas.push(Area {
            stag,
            pd,
            iova,
            len,
            access,
            is_there: true,
            octets,
        });
    }

    /// A region is gone for everybody, and so is what was bound to it.
    fn forget(&mut self, area: usize) {
        self.areas[area].is_there = false;
        let stag = self.areas[area].stag;
        for end in &mut self.ends {
            end.grants.end_of_region(stag);
            let bound = end.grants.bound.iter().filter(|bind| bind.region == stag);
            let keys: Vec<Stag> = bound.map(|bind| bind.rkey).collect();
            for key in keys {
                end.grants.end_of_region(key);
            }
        }
    }

    /// One of the regions that are there, of that domain and with that right.
    fn pick(&mut self, pd: PdId, right: Access) -> Option<usize> {
        let fits = |area: &Area| area.is_there && area.pd == pd && area.access.contains(right);
        let found: Vec<usize> = (0..self.areas.len())
            .filter(|n| fits(&self.areas[*n]))
            .collect();
        let pick = self.random.below(found.len().max(1) as u64) as usize;
        found.get(pick).copied()
    }

    /// A part of a region, as an element of a list.
    fn part(&mut self, area: usize) -> (Sge, u64) {
        let area = &self.areas[area];
        let offset = self.random.below(area.len);
        let length = 1 + self.random.below((area.len - offset).min(600));
        let sge = Sge {
            addr: area.iova + offset,
            length: length as u32,
            lkey: area.stag.0,
        };
        (sge, offset)
    }

    /// The program does something.
    fn program(&mut self, at: usize) {
        let pd = self.ends[at].pd;
        match self.random.below(10) {
            0 if self.areas.iter().filter(|area| area.is_there).count() < 24 => self.register(),
            0 | 1 => {
                let pick = self.random.below(self.areas.len() as u64) as usize;
                if self.areas[pick].is_there && self.random.chance(0.4) {
                    self.device.regions.remove(self.areas[pick].stag);
                    self.forget(pick);
                }
            }
            2..=4 => {
                if let Some(area) = self.pick(pd, Access::LOCAL_WRITE) {
                    self.post_recv(at, area);
                }
            }
            5 | 6 => {
                if let Some(area) = self.pick(pd, Access::LOCAL_WRITE) {
                    let op = SendOp::Read {
                        remote_addr: self.random.bits() >> 1,
                        rkey: Stag(self.random.bits() as u32),
                    };
                    self.post_send(at, op, area, Use::Sink);
                }
            }
            7 => {
                // What is sent of its own will holds nothing secret.
                if let Some(area) = self.pick(pd, Access::REMOTE_READ) {
                    self.post_send(at, SendOp::Send, area, Use::Source);
                }
            }
            _ => self.bind(at),
        }
    }

    fn post_recv(&mut self, at: usize, area: usize) {
        let (sge, offset) = self.part(area);
        let wr_id = self.next_wr;
        self.next_wr += 1;
        self.ends[at].grants.list.push(Grant {
            stag: Stag(sge.lkey),
            offset,
            len: u64::from(sge.length),
            what: Use::Sink,
            wr_id: Some(wr_id),
        });
        let before = self.changeable(at);
        self.ends[at].receives.push_back(wr_id);
        let (qp, mut port) = self.split(at);
        let request = RecvRequest {
            wr_id,
            scatter: &[sge],
        };
        if qp.post_recv(&request, &mut port).is_err() {
            self.ends[at].grants.end_with(wr_id);
            self.ends[at].receives.pop_back();
        }
        // A message that waited for it is there.
        self.look(at, &before);
    }

    fn post_send(&mut self, at: usize, op: SendOp, area: usize, what: Use) {
        let (sge, offset) = self.part(area);
        let wr_id = self.next_wr;
        self.next_wr += 1;
        self.ends[at].grants.list.push(Grant {
            stag: Stag(sge.lkey),
            offset,
            len: u64::from(sge.length),
            what,
            wr_id: Some(wr_id),
        });
        if !self.post(at, wr_id, op, &[sge]) {
            self.ends[at].grants.end_with(wr_id);
        }
    }

    fn post(&mut self, at: usize, wr_id: u64, op: SendOp, list: &[Sge]) -> bool {
        let (qp, mut port) = self.split(at);
        let request = SendRequest {
            wr_id,
            op,
            flags: SendFlags {
                fence: false,
                signaled: true,
                solicited: false,
            },
            payload: Payload::Gather(list),
        };
        qp.post_send(&request, &mut port).is_ok()
    }

    /// Invalidates a window and mostly binds it again, somewhere else and under another key.
    fn bind(&mut self, at: usize) {
        let pd = self.ends[at].pd;
        let Some(area) = self.pick(pd, Access::MW_BIND) else {
            return;
        };
        let which = self.random.below(2) as usize;
        let (sge, _) = self.part(area);
        let mut access = Access::from_bits_retain(self.random.below(16) as u32 & !1);
        if !self.areas[area].access.contains(Access::LOCAL_WRITE) && self.random.chance(0.9) {
            access = Access::REMOTE_READ;
        }
        // Whatever was asked for before and came to nothing with a connection, this is its key.
        let window = self.ends[at].key_of_window(which);
        self.ends[at].grants.given_up.push(window);
        let rkey = Stag(window.0 & !0xFF | (window.0.wrapping_add(1) & 0xFF));
        let wr_id = self.next_wr;
        self.next_wr += 2;
        self.post(at, wr_id, SendOp::LocalInvalidate { stag: window }, &[]);
        if self.random.chance(0.2) {
            return self.transmit(at);
        }
        let zero_based = self.random.chance(0.3);
        let bind = Bind {
            window,
            rkey,
            region: self.areas[area].stag,
            addr: sge.addr,
            len: u64::from(sge.length),
            access,
            zero_based,
        };
        // When it is bound, the port grants it.
        self.ends[at].windows.push(Window {
            stag: rkey,
            iova: if zero_based { 0 } else { sge.addr },
            len: bind.len,
        });
        self.post(at, wr_id + 1, SendOp::BindWindow(bind), &[]);
        // Before the peer ends the connection.
        if self.random.chance(0.8) {
            self.transmit(at);
        }
    }

    /// The transport takes what there is.
    fn transmit(&mut self, at: usize) {
        // An atomic operation is carried out when its answer is made.
        let before = self.changeable(at);
        self.send(at);
        self.look(at, &before);
    }

    fn send(&mut self, at: usize) {
        let (qp, mut port) = self.split(at);
        qp.fill(20_000, &mut port);
        let pieces: Option<Vec<Vec<u8>>> = qp
            .outgoing()
            .pieces()
            .map(|piece| match piece {
                Piece::Octets(held) => Some(held.to_vec()),
                Piece::Memory(span) => port.octets_to_send(span).map(<[u8]>::to_vec),
            })
            .collect();
        // Deregistered while posted: the driver cuts the stream.
        let Some(octets) = pieces.map(|pieces| pieces.concat()) else {
            return self.connect(at);
        };
        qp.sent(octets.len(), &mut port);
        self.ends[at].sent.extend_from_slice(&octets);
        self.read_what_was_sent(at);
    }

    /// What the peer sees: not an octet that is secret.
    fn read_what_was_sent(&mut self, at: usize) {
        let end = &mut self.ends[at];
        while end.sent.len() >= 2 {
            let ulpdu = usize::from(u16::from_be_bytes([end.sent[0], end.sent[1]]));
            let whole = (2 + ulpdu).next_multiple_of(4) + 4;
            if end.sent.len() < whole {
                return;
            }
            let fpdu: Vec<u8> = end.sent.drain(..whole).collect();
            let (header, _) = Header::decode(&fpdu[2..]).expect("a header");
            let body = &fpdu[2 + header.wire_len()..2 + ulpdu];
            let (is_payload, is_request) = match header {
                Header::Tagged(_) => (true, false),
                Header::Untagged(untagged) => (
                    untagged.opcode == Opcode::SEND,
                    untagged.opcode == Opcode::READ_REQUEST,
                ),
            };
            let answers = match header {
                Header::Tagged(tagged) => tagged.last && tagged.opcode == Opcode::READ_RESPONSE,
                Header::Untagged(untagged) => untagged.opcode == Opcode::ATOMIC_RESPONSE,
            };
            end.requests = end.requests.saturating_sub(u16::from(answers));
            if is_payload {
                let secret = body.iter().filter(|octet| **octet >= SECRET).count();
                assert_eq!(secret, 0, "secret octets in {header}");
                self.tally.seen += body.len() as u64;
            } else if is_request {
                end.asked.extend(ReadRequest::decode(body));
            }
        }
    }

    /// The peer asked for something: no more of that may be open than was agreed.
    fn count_request(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.qp.ending() == Ending::Open && !end.damaged {
            end.requests += 1;
            assert!(end.requests <= IRD, "{} requests are open", end.requests);
        }
    }

    /// What follows from how far the stream has come.
    fn follow(&mut self, at: usize) {
        self.poll();
        self.note_faults(at);
        // What the program, or the peer through it, has invalidated. The judge of this end knows already.
        for area in 0..self.areas.len() {
            let there = |end: &End| {
                let stag = self.areas[area].stag;
                let rights = self.areas[area].access.bits() & 0xE;
                end.pd != self.areas[area].pd
                    || rights == 0
                    || end
                        .grants
                        .list
                        .iter()
                        .any(|g| g.stag == stag && g.wr_id.is_none())
            };
            if self.areas[area].is_there && !there(&self.ends[at]) {
                self.forget(area);
            }
        }
        if self.ends[at].qp.ending() != Ending::Open {
            self.transmit(at);
            self.connect(at);
        }
    }

    /// What the queue pair holds against its peer since the last call.
    fn note_faults(&mut self, at: usize) -> Option<PeerFault> {
        let mut found = None;
        while let Some(event) = self.ends[at].qp.poll_event() {
            if let QpEvent::PeerFault(fault) = event {
                let name = format!("{:?}", fault.fault);
                *self.tally.faults.entry(name).or_default() += 1;
                found = Some(fault.fault);
            }
        }
        found
    }

    fn poll(&mut self) {
        while let Some(completion) = self.cq.pop() {
            let end = &mut self.ends[completion.qp.0 as usize];
            end.polled += u64::from(completion.slots);
            if matches!(
                completion.opcode,
                WcOpcode::Recv | WcOpcode::RecvWriteWithImm
            ) {
                let oldest = end.receives.pop_front();
                assert_eq!(oldest, Some(completion.wr_id), "once, and in order");
                if let Some(stag) = completion.invalidated {
                    let opened = end.grants.opened.contains(&stag);
                    assert!(opened, "{stag:?} was never the peer's to invalidate");
                }
                self.tally.received += u64::from(completion.status == WcStatus::Success);
            }
        }
    }

    /// What may be changed through an end at the moment.
    fn changeable(&self, at: usize) -> Vec<(usize, Range<u64>)> {
        let end = &self.ends[at];
        let changes = |grant: &&Grant| grant.what.changes() && end.grants.holds(grant);
        let granted = end.grants.list.iter().filter(changes);
        granted
            .map(|grant| {
                let mut bound = end.grants.bound.iter();
                let bind = bound.rfind(|bind| bind.rkey == grant.stag);
                let stag = bind.map_or(grant.stag, |bind| bind.region);
                let area = self.areas.iter().rposition(|area| area.stag == stag);
                let area = area.expect("a region or a window");
                let base = bind.map_or(0, |bind| bind.addr.wrapping_sub(self.areas[area].iova));
                (area, base + grant.offset..base + grant.offset + grant.len)
            })
            .collect()
    }

    /// Compares all memory with what it has to be; only `allowed` may have changed.
    fn look(&mut self, at: usize, allowed: &[(usize, Range<u64>)]) {
        for number in 0..self.areas.len() {
            let held = self.device.ever_registered(number);
            let area = &mut self.areas[number];
            if held == area.octets {
                continue;
            }
            for (offset, (old, new)) in area.octets.iter().zip(held).enumerate() {
                let granted = |(area, range): &(usize, Range<u64>)| {
                    *area == number && range.contains(&(offset as u64))
                };
                assert!(
                    old == new || allowed.iter().any(granted),
                    "end {at} changed octet {offset} of region {number}"
                );
                self.tally.changed += u64::from(old != new);
            }
            area.octets = held.to_vec();
        }
    }

    /// What nobody deregistered, or invalidated who may, is there for its owner.
    fn check_that_regions_serve(&self, at: usize) {
        for (number, area) in self.areas.iter().enumerate() {
            let serves = || self.device.regions.get(area.stag).is_some();
            assert!(
                !area.is_there || serves(),
                "end {at} took region {number} away"
            );
        }
    }

    /// Octets from the peer, cut anywhere, some of them read straight to their target.
    fn arrive(&mut self, at: usize, octets: &[u8]) {
        let before = self.changeable(at);
        let mut rest = octets;
        while !rest.is_empty() && self.ends[at].qp.ending() == Ending::Open {
            let cut = 1 + self.random.below(rest.len() as u64) as usize;
            let direct = self.random.chance(0.5) && self.ends[at].buffer.is_empty();
            let mut buffer = std::mem::take(&mut self.ends[at].buffer);
            let (qp, mut port) = self.split(at);
            let (mut now, later) = rest.split_at(cut);
            rest = later;
            if let Some(target) = direct.then(|| qp.direct_target(&port)).flatten() {
                let (placed, behind) = now.split_at(target.octets.min(now.len()));
                let mut left = placed;
                for span in target.spans() {
                    let (part, more) = left.split_at(left.len().min(span.len as usize));
                    port.write(span.first(part.len() as u32), part)
                        .expect("just checked");
                    left = more;
                }
                qp.placed(placed.len(), &mut port);
                now = behind;
            }
            buffer.extend_from_slice(now);
            let received = qp.receive(&mut buffer, &mut port);
            buffer.drain(..received.consumed);
            self.ends[at].buffer = buffer;
        }
        // A window may have been bound meanwhile.
        let allowed = [before, self.changeable(at)].concat();
        self.look(at, &allowed);
        self.tally.sent += 1;
        self.tally.taken += u64::from(self.ends[at].qp.ending() == Ending::Open);
    }
}
