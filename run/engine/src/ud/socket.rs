//! The socket under the datagram queue pairs of a port: who receives what comes, how what is posted
//! leaves, and at which pace.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use weft_os::mem::{Gather, LIST_MAX};
use weft_os::poll::Interest;
use weft_os::udp::{Received, UdpSocket, RECEIVE_MOST};
use weft_verbs::types::{Payload, QpNumber};
use weft_verbs::ud::flow::{weight, Flow};
use weft_verbs::ud::header::{Header, Message, HEADER_LEN};
use weft_verbs::ud::{Arrival, Debt, UdQp as Machine};

use super::UdQp;
use crate::bring_up::port_of;
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::pass::Pass;
use crate::progress::Token;
use crate::stats::Total;

/// Datagrams that leave in one call at most (the kernel's `UDP_MAX_SEGMENTS`).
const BATCH: usize = 64;
/// Octets of one call at most: an IP packet holds no more.
const BATCH_OCTETS: usize = 65_000;
/// Octets asked for as the socket's buffers; the kernel gives what `net.core.rmem_max` allows.
const BUFFER: usize = 4 << 20;
/// Receives in a row for whoever was told that there is something.
const IN_TURN: usize = 4;
/// Other sockets that are remembered; beyond that all are forgotten, and start anew.
const PEERS: usize = 4096;

/// A UDP socket of the process.
#[derive(Debug)]
pub(crate) struct UdSocket {
    socket: UdpSocket,
    token: OnceLock<Token>,
    queue_pairs: RwLock<HashMap<u32, Weak<UdQp>>>,
    /// Who holds it receives.
    inbox: Mutex<Vec<u8>>,
    sending: Mutex<Sending>,
}

#[derive(Debug, Default)]
struct Sending {
    peers: HashMap<SocketAddr, Peer>,
    /// Queue pairs that wait: for room in the socket, or for an answer.
    waiting: Vec<Arc<UdQp>>,
    /// The socket's own buffer is full.
    full: bool,
}

#[derive(Debug)]
struct Peer {
    flow: Flow,
    /// Datagrams at least so long leave one by one: the path takes them in fragments only.
    single_from: usize,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer {
            flow: Flow::default(),
            single_from: usize::MAX,
        }
    }
}

/// What became of a look at a queue pair's send queue.
pub(super) enum Step {
    /// So many datagrams are done with; there may be more.
    Sent(usize),
    /// Nothing is to be sent, or nothing can.
    Nothing,
}

/// Datagrams for one destination.
struct Batch {
    headers: [[u8; HEADER_LEN]; BATCH],
    count: usize,
    /// Octets of each but the last, with the header.
    segment: usize,
    local: IpAddr,
    to: SocketAddr,
}

/// How a call to the kernel ended.
enum Handed {
    /// It has the datagrams, or they cannot be delivered.
    Taken,
    Full,
    Memory,
    /// Not in one call.
    TooLong,
}

impl UdSocket {
    /// The socket of a port.
    pub(crate) fn open(port: u16, engine: &Engine) -> Result<Arc<UdSocket>, Error> {
        let socket = Arc::new(UdSocket {
            socket: UdpSocket::bind(port, BUFFER)?,
            token: OnceLock::new(),
            queue_pairs: RwLock::new(HashMap::new()),
            inbox: Mutex::new(vec![0; RECEIVE_MOST]),
            sending: Mutex::new(Sending::default()),
        });
        let endpoint = Endpoint::Datagrams(socket.clone());
        let token = engine
            .progress
            .add(&socket.socket, endpoint, Interest::Read)?;
        let _ = socket.token.set(token);
        Ok(socket)
    }

    pub(super) fn remember(&self, qp: &Arc<UdQp>) {
        self.queue_pairs
            .write()
            .insert(qp.number.0, Arc::downgrade(qp));
    }

    pub(super) fn forget(&self, number: QpNumber) {
        self.queue_pairs.write().remove(&number.0);
    }

    // --- receiving

    /// Receives, unless another thread does.
    pub(crate) fn serve_if_free(self: &Arc<Self>, engine: &Engine) {
        if let Some(mut inbox) = self.inbox.try_lock() {
            self.receive(&mut inbox, engine);
        }
    }

    /// Receives; `writable` says that a socket that was full has room again.
    pub(crate) fn serve_in_turn(self: &Arc<Self>, engine: &Engine, writable: bool) {
        if writable {
            self.has_room(engine);
        }
        let mut inbox = self.inbox.lock();
        let mut received = false;
        for _ in 0..IN_TURN {
            if !self.receive(&mut inbox, engine) {
                break;
            }
            received = true;
        }
        if received {
            engine.progress.note_datagrams(self);
        }
    }

    fn receive(&self, inbox: &mut [u8], engine: &Engine) -> bool {
        match self.socket.receive(inbox) {
            Ok(received) => {
                self.take(&inbox[..received.octets], &received, engine);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes what one receive gave: datagrams of one sender.
    fn take(&self, octets: &[u8], received: &Received, engine: &Engine) {
        let arrival = |(message, payload): (Message, _)| Arrival {
            message,
            from: received.from.ip(),
            to: received.to,
            payload,
            debt: message.mark.map(|mark| Debt {
                to: received.from,
                from: received.to,
                mark,
            }),
        };
        let mut datagrams = octets
            .chunks(received.segment)
            .map(Header::parse)
            .peekable();
        let (mut debt, mut answered, mut dropped) = (None, None, 0);
        while let Some(datagram) = datagrams.next() {
            let (message, payload) = match datagram {
                Some((Header::Message(message), payload)) => (message, payload),
                Some((Header::Answer { mark, room }, _)) => {
                    answered = Some((mark, room));
                    continue;
                }
                None => {
                    crate::debug!("{} sent what is no datagram of ours", received.from);
                    dropped += 1;
                    continue;
                }
            };
            let found = self.queue_pairs.read().get(&message.to.0).cloned();
            let Some(qp) = found.and_then(|qp| qp.upgrade()) else {
                crate::debug!("{}: there is no queue pair {}", received.from, message.to.0);
                dropped += 1;
                continue;
            };
            let more = || {
                let same = |next: &Option<(Header, &[u8])>| matches!(next, Some((Header::Message(m), _)) if m.to == message.to);
                match datagrams.next_if(same) {
                    Some(Some((Header::Message(message), payload))) => {
                        Some(arrival((message, payload)))
                    }
                    _ => None,
                }
            };
            debt = qp.take(arrival((message, payload)), more, engine).or(debt);
        }
        if dropped > 0 {
            engine.stats.add(Total::DatagramsDropped, dropped);
        }
        if let Some(debt) = debt {
            self.answer(debt);
        }
        if let Some((mark, room)) = answered {
            self.answered(received.from, mark, room, engine);
        }
    }

    /// Tells a sender how far this socket has read.
    pub(super) fn answer(&self, debt: Debt) {
        let octets = Header::Answer {
            mark: debt.mark,
            room: self.socket.room(),
        }
        .encode();
        let mut list = Gather::default();
        list.push(&octets);
        // One that is lost is like any other lost datagram.
        let _ = self.socket.send(&list, debt.from, debt.to, None);
    }

    // --- pace

    fn answered(&self, from: SocketAddr, mark: u32, room: u32, engine: &Engine) {
        let waiting = {
            let mut sending = self.sending.lock();
            let Some(peer) = sending.peers.get_mut(&from) else {
                return;
            };
            peer.flow.answer(mark, room);
            std::mem::take(&mut sending.waiting)
        };
        resume(waiting, engine);
    }

    fn has_room(&self, engine: &Engine) {
        let waiting = {
            let mut sending = self.sending.lock();
            if !std::mem::take(&mut sending.full) {
                return;
            }
            self.set_interest(Interest::Read, engine);
            std::mem::take(&mut sending.waiting)
        };
        resume(waiting, engine);
    }

    /// An answer did not come in time.
    pub(crate) fn on_timer(&self, engine: &Engine) {
        let now = engine.now();
        let waiting = {
            let mut sending = self.sending.lock();
            let mut expired = false;
            for peer in sending.peers.values_mut() {
                expired |= peer.flow.expire(now);
            }
            match expired {
                true => std::mem::take(&mut sending.waiting),
                false => Vec::new(),
            }
        };
        resume(waiting, engine);
    }

    fn set_interest(&self, interest: Interest, engine: &Engine) {
        if let Some(token) = self.token.get() {
            let _ = engine.progress.change(&self.socket, *token, interest);
        }
    }

    // --- sending

    /// Sends what waits first in a queue pair's send queue, with what goes the same way.
    pub(super) fn send_some(
        &self,
        qp: &Arc<UdQp>,
        machine: &mut Machine,
        pass: &mut Pass<'_>,
    ) -> Step {
        let engine = qp.pd.engine();
        let Some(batch) = self.plan(qp, machine, engine) else {
            return Step::Nothing;
        };
        if batch.count > 1 {
            match self.hand_over(&batch, 0..batch.count, machine, pass) {
                Handed::Taken => {
                    machine.sent(batch.count, pass);
                    return Step::Sent(batch.count);
                }
                Handed::Full => return self.wait_for_room(qp, engine),
                Handed::TooLong => {
                    let mut sending = self.sending.lock();
                    let peer = sending.peers.entry(batch.to).or_default();
                    peer.single_from = peer.single_from.min(batch.segment);
                }
                // It is the one's fault; which, shows below.
                Handed::Memory => {}
            }
        }
        for at in 0..batch.count {
            // What was sent before is no longer in front.
            match self.hand_over(&batch, at..at + 1, machine, pass) {
                Handed::Taken | Handed::TooLong => machine.sent(1, pass),
                Handed::Full => return self.wait_for_room(qp, engine),
                Handed::Memory => {
                    machine.fail_front(pass);
                    return Step::Nothing;
                }
            }
        }
        Step::Sent(batch.count)
    }

    /// What leaves next, as far as the pace allows. If that is nothing although something waits, the
    /// queue pair is called again.
    fn plan(&self, qp: &Arc<UdQp>, machine: &Machine, engine: &Engine) -> Option<Batch> {
        let first = machine.waiting(0)?;
        let mut batch = Batch {
            headers: [[0; HEADER_LEN]; BATCH],
            count: 0,
            segment: HEADER_LEN + first.len,
            local: first.target.local,
            to: SocketAddr::new(first.target.peer, port_of(first.target.qp.0)),
        };
        let mut sending = self.sending.lock();
        if sending.full {
            sending.wait(qp);
            return None;
        }
        if sending.peers.len() >= PEERS {
            sending.peers.clear();
        }
        let peer = sending.peers.entry(batch.to).or_default();
        let most = match batch.segment < peer.single_from {
            true => BATCH.min(BATCH_OCTETS / batch.segment),
            false => 1,
        };
        let mut elements = 0;
        while batch.count < most && peer.flow.may_send() {
            let Some(next) = machine.waiting(batch.count) else {
                break;
            };
            elements += 1 + match next.payload {
                Payload::Gather(list) => list.len(),
                Payload::Inline(_) => 1,
            };
            let target = next.target;
            let same = target.peer == first.target.peer
                && target.local == first.target.local
                && port_of(target.qp.0) == batch.to.port();
            if !same || next.len > first.len || elements > LIST_MAX {
                break;
            }
            let message = Message {
                mark: peer.flow.send(weight(next.len)),
                ..next.message
            };
            batch.headers[batch.count] = Header::Message(message).encode();
            batch.count += 1;
            if next.len < first.len {
                break;
            }
        }
        if batch.count == 0 {
            let until = peer.flow.wait(engine.now());
            if sending.wait(qp) {
                self.call_at(until, engine);
            }
            return None;
        }
        Some(batch)
    }

    fn call_at(&self, until: Duration, engine: &Engine) {
        if let Some(token) = self.token.get() {
            engine.progress.add_timer(until, *token);
        }
    }

    fn wait_for_room(&self, qp: &Arc<UdQp>, engine: &Engine) -> Step {
        let mut sending = self.sending.lock();
        sending.wait(qp);
        sending.full = true;
        self.set_interest(Interest::ReadWrite, engine);
        Step::Nothing
    }

    /// Gives the kernel some of a batch, the first of which is the first that waits.
    fn hand_over(
        &self,
        batch: &Batch,
        which: std::ops::Range<usize>,
        machine: &Machine,
        pass: &Pass<'_>,
    ) -> Handed {
        let mut list = Gather::default();
        for (ahead, header) in batch.headers[which.clone()].iter().enumerate() {
            list.push(header);
            if !push_payload(&mut list, ahead, machine, pass) {
                return Handed::Memory;
            }
        }
        let segment = (which.len() > 1).then_some(batch.segment as u16);
        match self.socket.send(&list, batch.local, batch.to, segment) {
            Ok(()) => Handed::Taken,
            Err(error) => of_error(&error, batch.to, segment.is_some()),
        }
    }
}

impl Sending {
    /// A queue pair waits; true when that is news.
    fn wait(&mut self, qp: &Arc<UdQp>) -> bool {
        let news = !qp.waits.swap(true, Ordering::AcqRel);
        if news {
            self.waiting.push(qp.clone());
        }
        news
    }
}

fn resume(waiting: Vec<Arc<UdQp>>, engine: &Engine) {
    for qp in waiting {
        qp.waits.store(false, Ordering::Release);
        qp.flush(engine);
    }
}

/// Adds a waiting datagram's payload; false when the program's memory is at fault.
fn push_payload<'a>(
    list: &mut Gather<'a>,
    ahead: usize,
    machine: &'a Machine,
    pass: &'a Pass<'_>,
) -> bool {
    let Some(datagram) = machine.waiting(ahead) else {
        return false;
    };
    match datagram.payload {
        Payload::Inline(octets) => list.push(octets),
        Payload::Gather(sges) => sges.iter().filter(|s| s.length > 0).all(|sge| {
            let span = machine.readable(sge, pass);
            let place = span.and_then(|span| pass.locate(span));
            place.is_some_and(|(memory, offset)| {
                list.push_registered(memory, offset, sge.length as usize)
            })
        }),
    }
}

fn of_error(error: &io::Error, to: SocketAddr, segmented: bool) -> Handed {
    const EINVAL: i32 = 22;
    const EFAULT: i32 = 14;
    const EMSGSIZE: i32 = 90;
    const EIO: i32 = 5;
    match error.raw_os_error() {
        _ if error.kind() == io::ErrorKind::WouldBlock => Handed::Full,
        Some(EFAULT) => Handed::Memory,
        Some(EINVAL | EMSGSIZE | EIO) if segmented => Handed::TooLong,
        _ => {
            crate::debug!("a datagram to {to} is lost: {error}");
            Handed::Taken
        }
    }
}
