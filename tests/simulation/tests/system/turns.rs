//! Two programs that write to each other in turn and look at memory for the other's Write, as programs with flags in
//! memory do (`ib_write_lat`, SHMEM).
//!
//! They bring their queue pairs up themselves, so a Write is complete when the other end has acknowledged it (decision
//! 0009). Where posts have followed acknowledgements closely, an acknowledgement waits for the next post and leaves
//! with it. But a program may think for long before it posts, and the last Write is answered by none.
//!
//! Each queue pair has a driver that sleeps, and wakes for octets, for the queue pair's deadline and for a post; no
//! program that polls comes by. So for whatever a queue pair means to do later it has to have a deadline.
//!
//! Checked is that each Write completes once, in order, after it was placed, and in time: within a round trip and what
//! an acknowledgement may wait.

use std::collections::VecDeque;
use std::time::Duration;

use weft_link::{LinkConfig, Random};
use weft_verbs::cq::CompletionQueue;
use weft_verbs::iwarp::{Role, Stag};
use weft_verbs::qp::{FpduPolicy, Qp, QpConfig};
use weft_verbs::simulated::{Device, PD};
use weft_verbs::types::{
    Access, Payload, QpNumber, QpState, SendFlags, SendOp, SendRequest, WcStatus,
};

use crate::hostile::established;
use crate::memory::{Grants, Port, BASE};
use crate::pipe::Pipe;
use crate::world::{pieces_of, CAP};

/// What an acknowledgement may wait for a post (decision 0009).
const WAIT_MAX: Duration = Duration::from_micros(200);
/// Octets of the longest message, which is inline. The last one is the number of its turn.
const MESSAGE_MAX: u64 = 64;
/// So many octets find room in a pipe: more than two ends have on their way at once.
const ROOM: usize = 1 << 16;

/// What happened over one run or many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Writes that completed.
    completed: u64,
    /// Acknowledgements that waited for a post, and those of them for which none came in time.
    waited: u64,
    in_vain: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.completed += other.completed;
        self.waited += other.waited;
        self.in_vain += other.in_vain;
    }

    /// Acknowledgements waited, for posts that came and for posts that did not.
    pub fn check_that_it_was_about_something(&self) {
        assert!(self.in_vain > 0 && self.waited > self.in_vain, "{self:?}");
    }
}

/// A program with its device.
struct End {
    device: Device,
    cq: CompletionQueue,
    qp: Qp,
    grants: Grants,
    /// Of a shared receive queue, which it has not.
    shared: Grants,
    /// What the peer writes to.
    open: Stag,
    /// Octets that the queue pair has not consumed.
    buffer: Vec<u8>,
    /// Places in the send queue whose completions were polled.
    polled: u64,
    /// Writes that have not completed: their turns, and when they were posted.
    posted: VecDeque<(u8, Duration)>,
    /// It has seen that it is its turn, and thinks: when it posts.
    posts_at: Option<Duration>,
}

struct World {
    random: Random,
    now: Duration,
    ends: [End; 2],
    /// From end 0 to end 1, and back.
    pipes: [Pipe; 2],
    round_trip: Duration,
    /// The turn of the next Write (end 0 has the odd ones), and how many there are.
    turn: u8,
    turns: u8,
    /// Octets of a message.
    len: u64,
    /// How long a program thinks, if it does not pause.
    thought_max: Duration,
    tally: Tally,
}

/// One run; what happened in it.
pub fn run(seed: u64) -> Tally {
    let mut world = World::new(Random::new(seed ^ 0x7002));
    while let Some(next) = world.next_event() {
        world.now = world.now.max(next);
        world.serve(0);
        world.serve(1);
    }
    for end in &world.ends {
        let left = end.posted.front();
        assert_eq!(left, None, "a Write that never completed");
    }
    assert_eq!(world.turn, world.turns + 1, "a Write that was never seen");
    world.tally
}

impl End {
    fn new(role: Role, key: u32) -> End {
        let mut device = Device::default();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let open = device.region(MESSAGE_MAX as usize, BASE, access, key);
        let mut grants = Grants::default();
        grants.grant_to_the_peer(open, MESSAGE_MAX, access);
        let qp = Qp::new(QpConfig {
            number: QpNumber(1),
            pd: PD,
            cap: CAP,
            sq_sig_all: true,
            shared_receive: false,
        });
        let mut end = End {
            device,
            cq: CompletionQueue::new(64),
            qp,
            grants,
            shared: Grants::default(),
            open,
            buffer: Vec::new(),
            polled: 0,
            posted: VecDeque::new(),
            posts_at: None,
        };
        let (qp, mut port) = end.split(Duration::ZERO);
        qp.modify(QpState::Init, &mut port).expect("INIT");
        qp.bring_to(QpState::Rtr).expect("RTR");
        qp.bring_to(QpState::Rts).expect("RTS");
        let established = established(role, true);
        qp.attach(&established, 1448, FpduPolicy::Auto, Duration::ZERO);
        end
    }

    fn split(&mut self, now: Duration) -> (&mut Qp, Port<'_>) {
        let port = Port {
            device: &mut self.device,
            cq: &mut self.cq,
            grants: &mut self.grants,
            shared: &mut self.shared,
            polled: self.polled,
            now,
        };
        (&mut self.qp, port)
    }

    /// The number at the end of the last message of so many octets that was placed.
    fn turn_seen(&mut self, len: u64) -> u8 {
        self.device.octets(self.open)[len as usize - 1]
    }
}

impl World {
    fn new(mut random: Random) -> World {
        let delays = [(); 2].map(|()| Duration::from_micros(random.below(100)));
        let pipe = |delay| Pipe::new(LinkConfig::default().delay(delay), ROOM, 0);
        let mut ends = [Role::Initiator, Role::Responder].map(|role| {
            let key = random.bits() as u32;
            End::new(role, key)
        });
        // A responder has to wait for the initiator's first FPDU (RFC 5044 section 7.1.2).
        ends[0].posts_at = Some(Duration::ZERO);
        let thoughts = [10, 40, 60].map(Duration::from_micros);
        World {
            now: Duration::ZERO,
            ends,
            pipes: delays.map(pipe),
            round_trip: delays.iter().sum(),
            turn: 1,
            turns: 20 + random.below(60) as u8,
            len: 1 + random.below(MESSAGE_MAX),
            thought_max: thoughts[random.below(3) as usize],
            random,
            tally: Tally::default(),
        }
    }

    /// When something happens next.
    fn next_event(&self) -> Option<Duration> {
        let arrivals = self.pipes.iter().filter_map(Pipe::deadline);
        let of_ends = self
            .ends
            .iter()
            .flat_map(|end| [end.qp.deadline(), end.posts_at]);
        arrivals.chain(of_ends.flatten()).min()
    }

    /// Whatever is to happen at an end now.
    fn serve(&mut self, at: usize) {
        self.drive(at);
        if self.ends[at].posts_at.is_some_and(|at| at <= self.now) {
            self.post(at);
        }
        self.poll(at);
    }

    /// The driver wakes for octets or a deadline, or sleeps on. The program sees what was placed.
    fn drive(&mut self, at: usize) {
        let now = self.now;
        let octets = self.pipes[1 - at].read(usize::MAX, now);
        let end = &mut self.ends[at];
        let is_late = end.qp.deadline().is_some_and(|deadline| deadline <= now);
        if octets.is_empty() && !is_late {
            return;
        }
        let waited = end.qp.delays_acknowledgement();
        if is_late {
            let (qp, mut port) = end.split(now);
            let close = qp.handle_timeout(&mut port);
            assert_eq!(close, None, "nothing ends here");
            let in_vain = waited && !end.qp.delays_acknowledgement();
            self.tally.in_vain += u64::from(in_vain);
        }
        if !octets.is_empty() {
            end.buffer.extend_from_slice(&octets);
            let mut buffer = std::mem::take(&mut end.buffer);
            let (qp, mut port) = end.split(now);
            let received = qp.receive(&mut buffer, &mut port);
            buffer.drain(..received.consumed);
            end.buffer = buffer;
            self.look(at);
        }
        let (qp, port) = self.ends[at].split(now);
        if qp.is_due(&port) {
            self.send(at);
        } else if !waited {
            self.tally.waited += u64::from(self.ends[at].qp.delays_acknowledgement());
        }
    }

    /// The program looks at memory. Where it is its turn it will post: mostly soon.
    fn look(&mut self, at: usize) {
        let mine = usize::from(self.turn) % 2 != at;
        if !mine || self.turn > self.turns || self.ends[at].posts_at.is_some() {
            return;
        }
        if self.ends[at].turn_seen(self.len) != self.turn - 1 {
            return;
        }
        let most = match self.random.below(20) {
            0 => Duration::from_millis(1),
            _ => self.thought_max,
        };
        let thought = Duration::from_nanos(self.random.below(most.as_nanos() as u64));
        self.ends[at].posts_at = Some(self.now + thought);
    }

    /// The program writes, and its thread sends that at once.
    fn post(&mut self, at: usize) {
        let (now, turn) = (self.now, self.turn);
        let octets = vec![turn; self.len as usize];
        let rkey = self.ends[1 - at].open;
        let end = &mut self.ends[at];
        end.posts_at = None;
        end.posted.push_back((turn, now));
        let (qp, mut port) = end.split(now);
        let request = SendRequest {
            wr_id: u64::from(turn),
            op: SendOp::Write {
                remote_addr: BASE,
                rkey,
            },
            flags: SendFlags::default(),
            payload: Payload::Inline(&octets),
        };
        qp.post_send(&request, &mut port).expect("room");
        self.turn += 1;
        self.send(at);
    }

    fn send(&mut self, at: usize) {
        let now = self.now;
        let (qp, mut port) = self.ends[at].split(now);
        qp.fill(ROOM, &mut port);
        let octets = pieces_of(qp, &port).expect("inline");
        let taken = self.pipes[at].write(&octets, now);
        assert_eq!(taken, octets.len(), "there is room");
        qp.sent(taken, &mut port);
    }

    fn poll(&mut self, at: usize) {
        while let Some(completion) = self.ends[at].cq.pop() {
            let end = &mut self.ends[at];
            end.polled += u64::from(completion.slots);
            let (turn, posted_at) = end.posted.pop_front().expect("a Write completes once");
            let told = (completion.wr_id, completion.status);
            assert_eq!(told, (u64::from(turn), WcStatus::Success));
            let placed = self.ends[1 - at].turn_seen(self.len);
            assert!(placed >= turn, "turn {turn} is complete and not placed");
            let took = self.now - posted_at;
            let due = self.round_trip + WAIT_MAX;
            assert!(took <= due, "turn {turn} took {took:?}, and not {due:?}");
            self.tally.completed += 1;
        }
    }
}
