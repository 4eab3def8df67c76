//! The socket under the datagram queue pairs of a port: who receives what comes, how what is posted
//! leaves, and at which pace.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use weft_os::lists::{Gather, LIST_MAX};
use weft_os::poll::Interest;
use weft_os::udp::RECEIVED_OCTETS_MAX;
use weft_verbs::types::{Payload, QpNumber};
use weft_verbs::ud::flow::{weight, Flow};
use weft_verbs::ud::header::{Header, Message, HEADER_LEN};
use weft_verbs::ud::{Arrival, Debt, UdQp as Machine};

use super::UdQp;
use crate::carrier::{DatagramSocket, Network, Received, SocketOptions};
use crate::engine::Engine;
use crate::error::Error;
use crate::host::EngineHost;
use crate::numbers::port_of;
use crate::progress::{Flush, Hints, Member, Served, Token};
use crate::stats::Total;

/// Datagrams that leave in one call at most (the kernel's `UDP_MAX_SEGMENTS`).
const BATCH_DATAGRAMS_MAX: usize = 64;
/// Octets of one call at most: an IP packet holds no more.
const BATCH_OCTETS_MAX: usize = 65_000;
/// Octets asked for as the socket's buffers; the kernel gives what `net.core.rmem_max` allows.
const SOCKET_BUFFER_OCTETS: usize = 4 << 20;
/// Receives in a row for whoever was told that there is something.
const TURNS_IN_A_ROW_MAX: usize = 4;
/// Other sockets that are remembered; beyond that all are forgotten, and start anew.
const PEERS_MAX: usize = 4096;
/// A destination to which the way is being found is tried again after so long.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// The sockets of the process, by the port whose queue pairs they serve.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    of_ports: Mutex<HashMap<u16, Arc<UdSocket>>>,
}

impl Sockets {
    /// The socket of a port; `None` when somebody else has the UDP port of that number.
    pub(super) fn of_port(&self, port: u16, engine: &Arc<Engine>) -> Option<Arc<UdSocket>> {
        let mut of_ports = self.of_ports.lock();
        if let Some(socket) = of_ports.get(&port) {
            return Some(socket.clone());
        }
        let socket = UdSocket::open(port, engine).ok()?;
        of_ports.insert(port, socket.clone());
        Some(socket)
    }
}

/// A port of the process's for datagrams.
#[derive(Debug)]
pub(super) struct UdSocket {
    engine: Arc<Engine>,
    socket: Box<dyn DatagramSocket>,
    token: OnceLock<Token>,
    queue_pairs: RwLock<HashMap<u32, Weak<UdQp>>>,
    /// Who holds it receives.
    inbox: Mutex<Vec<u8>>,
    sending: Mutex<Sending>,
}

#[derive(Debug, Default)]
struct Sending {
    peers: HashMap<SocketAddr, Peer>,
    /// Queue pairs that wait: for room in the socket, or for credit.
    waiting: Vec<Arc<UdQp>>,
    /// The socket's own buffer is full.
    full: bool,
    /// Some of those who wait are called again then: the way to where they send is being found.
    tries_again: Option<Duration>,
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
    headers: [[u8; HEADER_LEN]; BATCH_DATAGRAMS_MAX],
    count: usize,
    /// Octets of each but the last, with the header.
    segment: usize,
    local: IpAddr,
    to: SocketAddr,
}

/// How a call to the socket ended.
enum Handed {
    /// The network has the datagrams, or they cannot be delivered.
    Taken,
    Full,
    Memory,
    /// Not in one call.
    TooLong,
    /// The way to the destination is being found.
    NotYet,
}

impl UdSocket {
    /// The socket of a port.
    fn open(port: u16, engine: &Arc<Engine>) -> Result<Arc<UdSocket>, Error> {
        let socket = Arc::new(UdSocket {
            engine: engine.clone(),
            socket: bind(port, &*engine.network)?,
            token: OnceLock::new(),
            queue_pairs: RwLock::new(HashMap::new()),
            inbox: Mutex::new(vec![0; RECEIVED_OCTETS_MAX]),
            sending: Mutex::new(Sending::default()),
        });
        let member = socket.clone();
        let token = engine
            .progress
            .add_source(&*socket.socket, member, Interest::Read)?;
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

    fn receive(&self, inbox: &mut [u8]) -> bool {
        match self.socket.receive(inbox) {
            Ok(received) => {
                self.take(&inbox[..received.octets], &received);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes what one receive gave: datagrams of one sender.
    fn take(&self, octets: &[u8], received: &Received) {
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
        let (mut debt, mut granted, mut dropped) = (None, None, 0);
        while let Some(datagram) = datagrams.next() {
            let (message, payload) = match datagram {
                Some((Header::Message(message), payload)) => (message, payload),
                Some((Header::Credit { mark, room }, _)) => {
                    granted = Some((mark, room));
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
            debt = qp.take(arrival((message, payload)), more).or(debt);
        }
        if dropped > 0 {
            self.engine.stats.add(Total::DatagramsDropped, dropped);
        }
        if let Some(debt) = debt {
            self.send_credit(debt);
        }
        if let Some((mark, room)) = granted {
            self.take_credit(received.from, mark, room);
        }
    }

    /// Tells a sender how far this socket has read.
    pub(super) fn send_credit(&self, debt: Debt) {
        let octets = Header::Credit {
            mark: debt.mark,
            room: self.socket.room(debt.from),
        }
        .encode();
        let mut list = Gather::default();
        list.push(&octets);
        // One that is lost is like any other lost datagram.
        let _ = self.socket.send(&list, debt.from, debt.to, None);
    }

    // --- pace

    fn take_credit(&self, from: SocketAddr, mark: u32, room: u32) {
        let waiting = {
            let mut sending = self.sending.lock();
            let Some(peer) = sending.peers.get_mut(&from) else {
                return;
            };
            peer.flow.grant(mark, room);
            std::mem::take(&mut sending.waiting)
        };
        resume(waiting);
    }

    fn has_room(&self) {
        let waiting = {
            let mut sending = self.sending.lock();
            if !std::mem::take(&mut sending.full) {
                return;
            }
            self.set_interest(Interest::Read);
            std::mem::take(&mut sending.waiting)
        };
        resume(waiting);
    }

    /// Credit may not have come in time; what waits for its way may have it.
    fn handle_timer(&self) {
        let now = self.engine.now();
        let waiting = {
            let mut sending = self.sending.lock();
            let mut expired = sending.tries_again.take_if(|at| *at <= now).is_some();
            for peer in sending.peers.values_mut() {
                expired |= peer.flow.expire(now);
            }
            match expired {
                true => std::mem::take(&mut sending.waiting),
                false => Vec::new(),
            }
        };
        resume(waiting);
    }

    fn set_interest(&self, interest: Interest) {
        if let Some(token) = self.token.get() {
            let progress = &self.engine.progress;
            let _ = progress.change_source(&*self.socket, *token, interest);
        }
    }

    // --- sending

    /// Sends what waits first in a queue pair's send queue, with what goes the same way.
    pub(super) fn send_some(
        &self,
        qp: &UdQp,
        machine: &mut Machine,
        host: &mut EngineHost<'_>,
    ) -> Step {
        let Some(batch) = self.plan(qp, machine) else {
            return Step::Nothing;
        };
        if batch.count > 1 {
            match self.hand_over(&batch, 0..batch.count, machine, host) {
                Handed::Taken => {
                    machine.sent(batch.count, host);
                    return Step::Sent(batch.count);
                }
                Handed::Full => return self.wait_for_room(qp, machine, &batch, 0),
                Handed::NotYet => return self.try_again(qp, machine, &batch, 0),
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
            match self.hand_over(&batch, at..at + 1, machine, host) {
                Handed::Taken | Handed::TooLong => machine.sent(1, host),
                Handed::Full => return self.wait_for_room(qp, machine, &batch, at),
                Handed::NotYet => return self.try_again(qp, machine, &batch, at),
                Handed::Memory => {
                    machine.fail_front(host);
                    return Step::Nothing;
                }
            }
        }
        Step::Sent(batch.count)
    }

    /// What leaves next, as far as the pace allows. If that is nothing although something waits, the
    /// queue pair is called again.
    fn plan(&self, qp: &UdQp, machine: &Machine) -> Option<Batch> {
        let first = machine.waiting(0)?;
        let mut batch = Batch {
            headers: [[0; HEADER_LEN]; BATCH_DATAGRAMS_MAX],
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
        if sending.peers.len() >= PEERS_MAX {
            sending.peers.clear();
        }
        let peer = sending.peers.entry(batch.to).or_default();
        let most = match batch.segment < peer.single_from {
            true => BATCH_DATAGRAMS_MAX.min(BATCH_OCTETS_MAX / batch.segment),
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
            let until = peer.flow.wait(self.engine.now());
            if sending.wait(qp) {
                self.call_at(until);
            }
            return None;
        }
        Some(batch)
    }

    fn call_at(&self, until: Duration) {
        if let Some(token) = self.token.get() {
            self.engine.progress.add_timer(until, *token);
        }
    }

    fn wait_for_room(&self, qp: &UdQp, machine: &Machine, batch: &Batch, sent: usize) -> Step {
        let mut sending = self.sending.lock();
        sending.take_back(machine, batch, sent);
        sending.wait(qp);
        sending.full = true;
        self.set_interest(Interest::ReadWrite);
        Step::Nothing
    }

    fn try_again(&self, qp: &UdQp, machine: &Machine, batch: &Batch, sent: usize) -> Step {
        let at = self.engine.now() + TRY_AGAIN_AFTER;
        let mut sending = self.sending.lock();
        sending.take_back(machine, batch, sent);
        sending.wait(qp);
        if sending.tries_again.is_none() {
            sending.tries_again = Some(at);
            self.call_at(at);
        }
        Step::Nothing
    }

    /// Gives the socket some of a batch, the first of which is the first that waits.
    fn hand_over(
        &self,
        batch: &Batch,
        which: std::ops::Range<usize>,
        machine: &Machine,
        host: &EngineHost<'_>,
    ) -> Handed {
        let mut list = Gather::default();
        for (ahead, header) in batch.headers[which.clone()].iter().enumerate() {
            list.push(header);
            if !push_payload(&mut list, ahead, machine, host) {
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

impl Member for UdSocket {
    fn serve(&self, writable: bool) -> Served {
        if writable {
            self.has_room();
        }
        let mut inbox = self.inbox.lock();
        let received = (0..TURNS_IN_A_ROW_MAX)
            .take_while(|_| self.receive(&mut inbox))
            .count();
        match received {
            0 => Served::Quiet,
            _ => Served::Active,
        }
    }

    fn poll(&self) -> Hints {
        if let Some(mut inbox) = self.inbox.try_lock() {
            self.receive(&mut inbox);
        }
        Hints::default()
    }

    fn on_timer(&self) {
        self.handle_timer();
    }
}

impl Sending {
    /// Of a batch only the first `sent` datagrams have left: the others, which still wait, are not under way.
    fn take_back(&mut self, machine: &Machine, batch: &Batch, sent: usize) {
        let left = (0..batch.count - sent).filter_map(|ahead| machine.waiting(ahead));
        let weight = left.map(|datagram| weight(datagram.len)).sum();
        if let Some(peer) = self.peers.get_mut(&batch.to) {
            peer.flow.take_back(weight);
        }
    }

    /// A queue pair waits; true when that is news.
    fn wait(&mut self, qp: &UdQp) -> bool {
        let news = !qp.waits.swap(true, Ordering::AcqRel);
        if news {
            self.waiting.extend(qp.me.upgrade());
        }
        news
    }
}

/// A port on all addresses, of both versions where the machine has both.
fn bind(port: u16, network: &dyn Network) -> io::Result<Box<dyn DatagramSocket>> {
    let options = SocketOptions {
        v6_only: Some(false),
        ..SocketOptions::default()
    };
    let bind = |ip: IpAddr| {
        let addr = SocketAddr::new(ip, port);
        network.datagrams(addr, &options, Some(SOCKET_BUFFER_OCTETS))
    };
    bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into()))
}

fn resume(waiting: Vec<Arc<UdQp>>) {
    for qp in waiting {
        qp.waits.store(false, Ordering::Release);
        qp.flush();
    }
}

/// Adds a waiting datagram's payload; false when the program's memory is at fault.
fn push_payload<'a>(
    list: &mut Gather<'a>,
    ahead: usize,
    machine: &'a Machine,
    host: &'a EngineHost<'_>,
) -> bool {
    let Some(datagram) = machine.waiting(ahead) else {
        return false;
    };
    match datagram.payload {
        Payload::Inline(octets) => list.push(octets),
        Payload::Gather(sges) => sges.iter().filter(|s| s.length > 0).all(|sge| {
            let span = machine.readable(sge, host);
            let place = span.and_then(|span| host.locate(span));
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
    const EINPROGRESS: i32 = 115;
    match error.raw_os_error() {
        _ if error.kind() == io::ErrorKind::WouldBlock => Handed::Full,
        Some(EINPROGRESS) => Handed::NotYet,
        Some(EFAULT) => Handed::Memory,
        Some(EINVAL | EMSGSIZE | EIO) if segmented => Handed::TooLong,
        _ => {
            crate::debug!("a datagram to {to} is lost: {error}");
            Handed::Taken
        }
    }
}
