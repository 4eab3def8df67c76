//! What programs do: they post at random, know what they posted, and compare what comes back.

use std::collections::{BTreeMap, VecDeque};

use weft_link::Random;
use weft_verbs::simulated::Device;
use weft_verbs::types::{
    Access, Completion, Payload, PdId, PostError, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Sge, Stag, WcStatus,
};

use crate::memory::{Grant, Use, BASE};
use crate::world::{Phase, World, CAP};

const SLOT: u64 = 4096;
/// Places for sources and Read targets.
const SLOTS: u64 = 32;
/// Places that the peer writes and reads.
const OPEN: u64 = 8;
/// Values behind them that the peer works on atomically.
const CELLS: u64 = 4;

/// Memory for receives, a slot each.
pub struct Inbox {
    stag: Stag,
    free: Vec<u64>,
    /// Receives in posting order, and where each has its slot.
    pub posted: VecDeque<u64>,
    places: BTreeMap<u64, u64>,
}

/// A message that was posted: what the peer has to receive.
#[derive(Clone, Copy)]
struct Message {
    wr_id: u64,
    len: u32,
    imm: Option<u32>,
    is_send: bool,
}

struct Posted {
    wr_id: u64,
    signaled: bool,
    slot: u64,
    /// What a Read or an atomic brings.
    brings: Option<Vec<u8>>,
    /// The place of the peer's that is being read.
    locks: Option<u64>,
    /// The peer has to receive something.
    is_message: bool,
}

/// What one end's program knows.
pub struct Ledger {
    local: Stag,
    open: Stag,
    pub inbox: Option<Inbox>,
    free: Vec<u64>,
    posted: VecDeque<Posted>,
    pub polled: u64,
    messages: Vec<Message>,
    /// Messages of this end's that completed well.
    completed: usize,
    received: usize,
    /// What has to be in the peer's open region once everything arrived.
    theirs: Vec<u8>,
    /// The program's memory is all there.
    pub is_whole: bool,
}

/// What a request does once it is posted.
enum Effect {
    Nothing,
    Message(Message),
    Write(u64, Vec<u8>, Option<Message>),
    Brings(Vec<u8>, u64),
    Atomic(u64, u64, u64),
}

struct Plan {
    op: SendOp,
    list: Vec<Sge>,
    inline: Option<Vec<u8>>,
    what: Use,
    effect: Effect,
}

/// The octets of the message that `wr_id` is.
fn pattern(wr_id: u64, len: u64) -> Vec<u8> {
    let mut value = wr_id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let next = |_| {
        value = value.rotate_left(7).wrapping_add(wr_id);
        value as u8
    };
    (0..len).map(next).collect()
}

/// Cuts a range into one to three elements.
fn cut(random: &mut Random, stag: Stag, offset: u64, len: u64) -> Vec<Sge> {
    let mut edges = [random.below(len + 1), random.below(len + 1), len];
    edges.sort_unstable();
    let mut at = 0;
    let mut list = Vec::new();
    for edge in &edges[random.below(3) as usize..] {
        list.push(Sge {
            addr: BASE + offset + at,
            length: (edge - at) as u32,
            lkey: stag.0,
        });
        at = *edge;
    }
    list
}

fn grants_of(list: &[Sge], what: Use, wr_id: u64) -> impl Iterator<Item = Grant> + '_ {
    list.iter().map(move |sge| Grant {
        stag: Stag(sge.lkey),
        offset: sge.addr.wrapping_sub(BASE),
        len: u64::from(sge.length),
        what,
        wr_id: Some(wr_id),
    })
}

impl Inbox {
    pub fn new(device: &mut Device, pd: PdId, slots: u64, random: &mut Random) -> Inbox {
        let len = (slots * SLOT) as usize;
        Inbox {
            stag: device.region_in(pd, len, BASE, Access::LOCAL_WRITE, random.bits() as u32),
            free: (0..slots).map(|slot| slot * SLOT).collect(),
            posted: VecDeque::new(),
            places: BTreeMap::new(),
        }
    }

    /// A receive in a free slot.
    fn draw(&self, whole: bool, random: &mut Random) -> Option<Vec<Sge>> {
        let slot = *self.free.last()?;
        let len = if !whole && random.chance(0.005) {
            random.below(SLOT)
        } else {
            SLOT
        };
        Some(cut(random, self.stag, slot, len))
    }

    fn note(&mut self, wr_id: u64) {
        let slot = self.free.pop().expect("drawn");
        self.posted.push_back(wr_id);
        self.places.insert(wr_id, slot);
    }

    /// What is left in the shared queue is what never completed.
    pub fn check_shared(&self, device: &mut Device) {
        let Some(srq) = &mut device.srq else {
            return;
        };
        let mut left = 0;
        while srq.pop().0.is_some() {
            left += 1;
        }
        assert_eq!(left, self.places.len(), "receives of the shared queue");
    }
}

impl Ledger {
    /// Of a program that has no memory yet.
    pub fn none() -> Ledger {
        Ledger {
            local: Stag(0),
            open: Stag(0),
            inbox: None,
            free: Vec::new(),
            posted: VecDeque::new(),
            polled: 0,
            messages: Vec::new(),
            completed: 0,
            received: 0,
            theirs: Vec::new(),
            is_whole: false,
        }
    }

    pub fn new(device: &mut Device, pd: PdId, shares: bool, random: &mut Random) -> Ledger {
        let all = Access::LOCAL_WRITE
            .union(Access::REMOTE_WRITE)
            .union(Access::REMOTE_READ)
            .union(Access::REMOTE_ATOMIC);
        let open = (OPEN * SLOT + 8 * CELLS) as usize;
        let local = (SLOTS * SLOT) as usize;
        Ledger {
            local: device.region_in(pd, local, BASE, Access::LOCAL_WRITE, random.bits() as u32),
            open: device.region_in(pd, open, BASE, all, random.bits() as u32),
            inbox: (!shares)
                .then(|| Inbox::new(device, pd, u64::from(CAP.max_recv_wr) + 2, random)),
            free: (0..SLOTS).map(|slot| slot * SLOT).collect(),
            theirs: vec![0; open],
            is_whole: true,
            ..Ledger::none()
        }
    }

    pub fn granted_to_the_peer(&self) -> Vec<Grant> {
        vec![Grant {
            stag: self.open,
            offset: 0,
            len: OPEN * SLOT + 8 * CELLS,
            what: Use::Peer,
            wr_id: None,
        }]
    }

    /// A region that the program takes away under its own work.
    pub fn region(&self, open: bool) -> Stag {
        if open {
            self.open
        } else {
            self.local
        }
    }

    pub fn completed(&self) -> usize {
        self.completed
    }

    pub fn received(&self) -> usize {
        self.received
    }

    /// After the end and the last poll.
    pub fn check_complete(&self) {
        let left = self.inbox.as_ref().map_or(0, |inbox| inbox.posted.len());
        assert_eq!(left, 0, "receives that never completed");
        assert!(!self.awaits_completion(), "sends that never completed");
    }

    /// Whether a request is posted that has to complete.
    pub fn awaits_completion(&self) -> bool {
        self.posted.iter().any(|posted| posted.signaled)
    }
}

impl World {
    /// Posts receives: some, or as many as fit.
    pub fn receive_work(&mut self, at: usize, all: bool) {
        let busy = if self.ends[at].lazy { 0.95 } else { 0.4 };
        let end = &self.ends[at];
        // What is posted in the error state is flushed at once; programs that see that stop.
        let failed = end.qp.state() == QpState::Error;
        let rests = matches!(end.phase, Phase::Over) || end.deaf || end.hung || failed;
        if rests || (!all && self.random.chance(busy)) {
            return;
        }
        while self.post_receive(at) {}
        let node = self.ends[at].node;
        if self.nodes[node].device.srq.is_none() {
            return;
        }
        for at in 0..self.ends.len() {
            if self.ends[at].node == node {
                let mut parts = self.parts(at);
                let (qp, mut port) = parts.split();
                qp.on_receives(&mut port);
            }
        }
    }

    fn post_receive(&mut self, at: usize) -> bool {
        let wr_id = self.next_wr;
        let node = &mut self.nodes[self.ends[at].node];
        let end = &mut self.ends[at];
        let own = end.ledger.inbox.as_mut();
        let shared = own.is_none();
        let inbox = own.unwrap_or(&mut node.inbox);
        let Some(scatter) = inbox.draw(self.peaceful, &mut self.random) else {
            return false;
        };
        let grants = if shared {
            &mut node.shared
        } else {
            &mut end.grants
        };
        grants.list.extend(grants_of(&scatter, Use::Sink, wr_id));
        inbox.note(wr_id);
        let request = RecvRequest {
            wr_id,
            scatter: &scatter,
        };
        let posted = match &mut node.device.srq {
            Some(srq) => srq.push(&request),
            None => {
                let mut parts = self.parts(at);
                let (qp, mut port) = parts.split();
                qp.post_recv(&request, &mut port)
            }
        };
        if posted.is_err() {
            self.unpost_receive(at, wr_id);
            return false;
        }
        self.next_wr += 1;
        self.tally.posted += 1;
        self.moved += 1;
        true
    }

    fn unpost_receive(&mut self, at: usize, wr_id: u64) {
        let node = &mut self.nodes[self.ends[at].node];
        let end = &mut self.ends[at];
        node.shared.end_with(wr_id);
        end.grants.end_with(wr_id);
        let inbox = end.ledger.inbox.as_mut().unwrap_or(&mut node.inbox);
        inbox.posted.pop_back();
        let slot = inbox.places.remove(&wr_id).expect("just noted");
        inbox.free.push(slot);
    }

    /// Posts to the send queue.
    pub fn work(&mut self, at: usize) {
        if !matches!(self.ends[at].phase, Phase::Up) {
            return;
        }
        for _ in 0..self.random.below(4) {
            let Some(plan) = self.plan(at) else {
                return;
            };
            if self.post(at, plan).is_err() {
                return;
            }
        }
    }

    /// What a peer that promises no ready-to-receive message is waited for to send.
    pub fn speak_first(&mut self, at: usize) {
        let plan = Plan {
            op: SendOp::Write {
                remote_addr: 0,
                rkey: Stag(1),
            },
            list: Vec::new(),
            inline: None,
            what: Use::Source,
            effect: Effect::Nothing,
        };
        self.post(at, plan).expect("an empty queue");
    }

    fn post(&mut self, at: usize, plan: Plan) -> Result<(), PostError> {
        let wr_id = self.next_wr;
        let flags = SendFlags {
            fence: self.random.chance(0.1),
            // A queue full of silent requests would stay full.
            signaled: self.random.chance(0.7) || self.ends[at].ledger.posted.len() > 12,
            solicited: self.random.chance(0.2),
        };
        let request = SendRequest {
            wr_id,
            op: plan.op,
            flags,
            payload: match &plan.inline {
                Some(octets) => Payload::Inline(octets),
                None => Payload::Gather(&plan.list),
            },
        };
        let mut parts = self.parts(at);
        let slot = *parts.end.ledger.free.last().expect("planned with one");
        if let SendOp::LocalInvalidate { stag } = plan.op {
            parts.end.grants.given_up.push(stag);
        }
        parts
            .end
            .grants
            .list
            .extend(grants_of(&plan.list, plan.what, wr_id));
        // The program knows what it posts before it does: it may complete at once.
        let mut posted = Posted {
            wr_id,
            signaled: flags.signaled,
            slot,
            brings: None,
            locks: None,
            is_message: matches!(
                plan.effect,
                Effect::Message(_) | Effect::Write(_, _, Some(_))
            ),
        };
        match &plan.effect {
            Effect::Brings(octets, place) => {
                posted.brings = Some(octets.clone());
                posted.locks = Some(*place);
            }
            Effect::Atomic(_, original, _) => posted.brings = Some(original.to_ne_bytes().to_vec()),
            _ => {}
        }
        let (qp, mut port) = parts.split();
        if let Err(error) = qp.post_send(&request, &mut port) {
            parts.end.grants.end_with(wr_id);
            return Err(error);
        }
        parts.end.ledger.free.pop();
        parts.end.ledger.posted.push_back(posted);
        parts.end.ledger.take_effect(plan.effect);
        if let SendOp::SendWithInvalidate { stag } = plan.op {
            let theirs = &mut self.ends[at ^ 1].ledger;
            theirs.is_whole &= stag != theirs.open;
        }
        self.next_wr += 1;
        self.tally.posted += 1;
        self.moved += 1;
        Ok(())
    }

    /// What to post next; `None` for nothing.
    fn plan(&mut self, at: usize) -> Option<Plan> {
        let (wr_id, peer) = (self.next_wr, at ^ 1);
        let (their_open, their_local) = (self.ends[peer].ledger.open, self.ends[peer].ledger.local);
        // Damaged octets may look like a message that nobody sent.
        let sent = self.ends[at].ledger.messages.len();
        let waits = self.ends[peer].lazy && self.ends[peer].qp.peer_is_weft();
        let room =
            waits || self.room_at(peer) > sent.saturating_sub(self.ends[peer].ledger.received);
        let node = self.ends[at].node;
        let ledger = &mut self.ends[at].ledger;
        let slot = *ledger.free.last()?;
        let random = &mut self.random;
        let len = match random.below(8) {
            0 => 0,
            1..=4 => random.below(200),
            _ => random.below(SLOT),
        };
        let octets = pattern(wr_id, len);
        if self.nodes[node].device.regions.get(ledger.local).is_some() {
            let source = self.nodes[node].device.octets(ledger.local);
            source[slot as usize..][..octets.len()].copy_from_slice(&octets);
        }
        let list = cut(random, ledger.local, slot, len);
        let inline = (len <= 64 && random.chance(0.5)).then(|| octets.clone());
        let imm = random.chance(0.2).then(|| random.bits() as u32);
        let message = |is_send| Message {
            wr_id,
            len: len as u32,
            imm,
            is_send,
        };
        let place = random.below(OPEN) * SLOT;
        let cell = random.below(CELLS);
        let pick = random.below(100);
        // Mostly no more messages than the peer has receives for.
        let silent = !room && (self.peaceful || random.chance(0.97));
        let plan = |op, effect| {
            Some(Plan {
                op,
                list: list.clone(),
                inline: inline.clone(),
                what: Use::Source,
                effect,
            })
        };
        match pick {
            95.. if self.peaceful => None,
            0..=39 if silent => None,
            0..=39 => {
                let op = imm.map_or(SendOp::Send, |imm| SendOp::SendWithImm { imm });
                plan(op, Effect::Message(message(true)))
            }
            40..=69 => {
                let imm = imm.filter(|_| !silent);
                if ledger
                    .posted
                    .iter()
                    .any(|posted| posted.locks == Some(place))
                {
                    return None;
                }
                let (remote_addr, rkey) = (BASE + place, their_open);
                let op = match imm {
                    Some(imm) => SendOp::WriteWithImm {
                        remote_addr,
                        rkey,
                        imm,
                    },
                    None => SendOp::Write { remote_addr, rkey },
                };
                let told = imm.map(|_| message(false));
                plan(op, Effect::Write(place, octets.clone(), told))
            }
            70..=82 => Some(Plan {
                op: SendOp::Read {
                    remote_addr: BASE + place,
                    rkey: their_open,
                },
                effect: Effect::Brings(
                    ledger.theirs[place as usize..][..len as usize].to_vec(),
                    place,
                ),
                what: Use::Sink,
                inline: None,
                list,
            }),
            83..=94 => {
                let at = OPEN * SLOT + 8 * cell;
                let held = &ledger.theirs[at as usize..][..8];
                let original = u64::from_ne_bytes(held.try_into().expect("eight octets"));
                let (remote_addr, rkey) = (BASE + at, their_open);
                let (op, after) = if random.chance(0.5) {
                    let add = random.bits();
                    (
                        SendOp::FetchAdd {
                            remote_addr,
                            rkey,
                            add,
                        },
                        original.wrapping_add(add),
                    )
                } else {
                    let (compare, swap) =
                        (if random.chance(0.5) { original } else { 1 }, random.bits());
                    let op = SendOp::CompareSwap {
                        remote_addr,
                        rkey,
                        compare,
                        swap,
                    };
                    (op, if compare == original { swap } else { original })
                };
                Some(Plan {
                    op,
                    list: cut(random, ledger.local, slot, 8),
                    inline: None,
                    what: Use::Sink,
                    effect: Effect::Atomic(at, original, after),
                })
            }
            95..=97 if random.chance(0.3) => plan(
                SendOp::LocalInvalidate {
                    stag: Stag(random.bits() as u32),
                },
                Effect::Nothing,
            )
            .map(Plan::bare),
            98 if random.chance(0.3) && !silent => {
                let effect = Effect::Message(Message {
                    imm: None,
                    ..message(true)
                });
                plan(SendOp::SendWithInvalidate { stag: their_open }, effect)
            }
            99 if random.chance(0.3) => Some(self.trespass(at, their_open, their_local, slot)),
            _ => None,
        }
    }

    /// Something that somebody has to refuse.
    fn trespass(&mut self, at: usize, their_open: Stag, their_local: Stag, slot: u64) -> Plan {
        let random = &mut self.random;
        let len = 1 + random.below(500);
        let mut list = cut(random, self.ends[at].ledger.local, slot, len);
        let end = BASE + OPEN * SLOT + 8 * CELLS;
        let mut what = Use::Source;
        let op = match random.below(7) {
            0 => SendOp::Write {
                remote_addr: end - random.below(len),
                rkey: their_open,
            },
            1 => SendOp::Write {
                remote_addr: BASE,
                rkey: their_local,
            },
            2 => SendOp::Write {
                remote_addr: u64::MAX - random.below(len),
                rkey: their_open,
            },
            3 => {
                what = Use::Sink;
                SendOp::Read {
                    remote_addr: BASE - 1 - random.below(len),
                    rkey: their_open,
                }
            }
            4 => {
                what = Use::Sink;
                SendOp::Read {
                    remote_addr: BASE,
                    rkey: Stag(random.bits() as u32),
                }
            }
            5 => SendOp::SendWithInvalidate { stag: their_local },
            _ => {
                // Beyond this program's own memory.
                list = vec![Sge {
                    addr: BASE + SLOTS * SLOT - 1,
                    length: 2,
                    ..list[0]
                }];
                SendOp::Send
            }
        };
        Plan {
            op,
            list,
            inline: None,
            what,
            effect: Effect::Nothing,
        }
    }

    /// Receives that an end has posted.
    fn room_at(&self, at: usize) -> usize {
        let end = &self.ends[at];
        match &end.ledger.inbox {
            Some(inbox) => inbox.posted.len(),
            None => self.nodes[end.node].inbox.places.len() / 4,
        }
    }

    /// A completion of the send queue.
    pub fn sent(&mut self, completion: &Completion) {
        let at = completion.qp.0 as usize;
        let whole = self.connections[at / 2].is_faithful() && self.ends[at ^ 1].ledger.is_whole;
        let node = &mut self.nodes[self.ends[at].node];
        let crate::world::End { ledger, grants, .. } = &mut self.ends[at];
        ledger.polled += u64::from(completion.slots);
        let posted = loop {
            let posted = ledger
                .posted
                .pop_front()
                .expect("a completion of something posted");
            ledger.free.push(posted.slot);
            let well = posted.wr_id != completion.wr_id || completion.status == WcStatus::Success;
            ledger.completed += usize::from(posted.is_message && well);
            if posted.wr_id == completion.wr_id {
                break posted;
            }
            // It ended well and in silence.
            assert!(!posted.signaled, "a send was passed over");
            grants.end_with(posted.wr_id);
        };
        let success = completion.status == WcStatus::Success;
        if let (Some(brings), true) = (&posted.brings, success && whole && ledger.is_whole) {
            let got = &node.device.octets(ledger.local)[posted.slot as usize..][..brings.len()];
            assert!(got == brings, "a Read or atomic brought something else");
            self.tally.compared += 1;
        }
    }

    /// A completion of a receive queue.
    pub fn received(&mut self, completion: &Completion) {
        let at = completion.qp.0 as usize;
        let faithful = self.connections[at / 2].is_faithful();
        let message = {
            let sender = &self.ends[at ^ 1].ledger;
            sender.messages.get(self.ends[at].ledger.received).copied()
        };
        let node = &mut self.nodes[self.ends[at].node];
        let ledger = &mut self.ends[at].ledger;
        let own = ledger.inbox.is_some();
        let inbox = ledger.inbox.as_mut().unwrap_or(&mut node.inbox);
        if own {
            assert_eq!(
                inbox.posted.pop_front(),
                Some(completion.wr_id),
                "receives complete in order"
            );
        }
        let slot = inbox
            .places
            .remove(&completion.wr_id)
            .expect("a receive completes once");
        inbox.free.push(slot);
        if completion.status != WcStatus::Success {
            return;
        }
        ledger.received += 1;
        if !faithful {
            return;
        }
        let message = message.expect("a message that was sent");
        assert_eq!(
            (completion.byte_len, completion.imm),
            (message.len, message.imm)
        );
        if message.is_send {
            let octets = &node.device.octets(inbox.stag)[slot as usize..][..message.len as usize];
            assert!(
                octets == pattern(message.wr_id, u64::from(message.len)),
                "a message's octets"
            );
            self.tally.compared += 1;
        }
    }

    /// What each end wrote is what is in the other's memory.
    pub fn check_contents(&mut self, connection: usize) {
        let faithful = self.connections[connection].is_faithful();
        for at in [2 * connection, 2 * connection + 1] {
            let writer = &self.ends[at ^ 1].ledger;
            let owner = &self.ends[at];
            if faithful && owner.ledger.is_whole && writer.is_whole {
                let held = self.nodes[owner.node].device.octets(owner.ledger.open);
                assert!(held == writer.theirs, "what was written to end {at}");
                self.tally.compared += 1;
            }
        }
    }
}

impl Plan {
    /// Without payload.
    fn bare(self) -> Plan {
        Plan {
            list: Vec::new(),
            inline: None,
            ..self
        }
    }
}

impl Ledger {
    fn take_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing | Effect::Brings(..) => {}
            Effect::Message(message) => self.messages.push(message),
            Effect::Write(place, octets, message) => {
                self.theirs[place as usize..][..octets.len()].copy_from_slice(&octets);
                self.messages.extend(message);
            }
            Effect::Atomic(at, _, after) => {
                self.theirs[at as usize..][..8].copy_from_slice(&after.to_ne_bytes());
            }
        }
    }
}
