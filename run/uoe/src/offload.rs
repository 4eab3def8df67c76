//! What the program's calls ask for, and what they share with the thread.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use weft_discovery::{About, Answering, TakesCarriers};
use weft_os::beside::{self, socket_addr};
use weft_os::dgram;
use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::poll::Waker;
use weft_os::{file, process, sched};
use weft_settings::datagrams::{DatagramRules, Direction};
use weft_settings::DiscoveryPort;
use weft_uoe::admission::{Attempt, Carrier, Policy, Verdict};
use weft_uoe::destinations::{Destinations, Known};
use weft_uoe::proof::Proof;
use weft_uoe::way::{Send, Way};
use weft_uoe::{Control, End};

use crate::counts::{count, Counted, Counts};
use crate::inlet::Waiting;
use crate::link::{Link, Put};
use crate::mail::{Mail, Mailbox};
use crate::nonces::{Nonces, Own};
use crate::paths::Path;
use crate::port::{Held, Place, Port};
use crate::service;

/// Carriers of a process at most.
pub const CARRIERS_MAX: usize = 128;
/// Sockets of a process that others may send to over carriers, at most.
pub const SERVED_MAX: usize = 256;
/// The thread is told so often at most that one socket wants a channel.
const WANTED_EVERY_NS: u64 = 20_000_000;
/// How long who sends on a full carrier sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a process that ends waits for what it sent to be read.
const ENDING_WITHIN: Duration = Duration::from_millis(100);
/// Of so many receives one looks at the kernel's queue first, so that plain peers are heard beside busy carriers.
const KERNEL_TURN: u32 = 32;

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing: it is to go plainly.
    Plain,
    /// It is on its way, or was dropped as datagrams are.
    Done,
    /// It is refused, with this errno.
    Failed(i32),
}

/// A datagram that the program sends.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The socket's descriptor.
    pub fd: RawFd,
    /// The octets of the socket address that it goes to; empty for the connected peer.
    pub to: &'a [u8],
    /// Octets of it.
    pub len: usize,
    /// The program's sends come thick.
    pub is_busy: bool,
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
}

/// The thread, as long as there is one.
#[derive(Debug, Default)]
struct Thread {
    process: u32,
    runs: bool,
    waker: Option<Guarded<Waker>>,
}

/// The offload of one process and those forked from it.
#[derive(Debug)]
pub struct Offload {
    pub(crate) rules: DatagramRules,
    pub(crate) discovery_port: DiscoveryPort,
    answering: OnceLock<&'static Answering>,
    pub(crate) links: Box<[Link]>,
    destinations: Lock<Destinations>,
    pub(crate) nonces: Nonces,
    mail: Lock<Mailbox>,
    served: Lock<[Option<Held>; SERVED_MAX]>,
    thread: Lock<Thread>,
    /// The thread's number in the kernel.
    thread_number: AtomicI32,
    /// Where carriers are taken, and which process this is; 0 until there is a listener.
    takes_port: AtomicU32,
    instance: AtomicU64,
    /// Links below this one were used.
    links_used: AtomicUsize,
    confined: AtomicBool,
    ending: AtomicBool,
    ended: AtomicBool,
    pub(crate) counts: Counts,
}

/// The time, as everything here counts it.
#[inline]
pub(crate) fn now() -> Duration {
    weft_discovery::now()
}

impl Offload {
    /// Nothing is offloaded yet; of sockets to come `rules` say whose datagrams may be. Nothing where no rule does.
    /// Allocates, for as long as the process lives.
    pub fn new(rules: DatagramRules, port: DiscoveryPort) -> Option<&'static Offload> {
        if !rules.any_uoe() {
            return None;
        }
        weft_os::fork::watch();
        let offload = Offload {
            rules,
            discovery_port: port,
            answering: OnceLock::new(),
            links: (0..CARRIERS_MAX).map(|_| Link::new()).collect(),
            destinations: Lock::new(Destinations::new(weft_os::random_u64(), now())),
            nonces: Nonces::new(),
            mail: Lock::new(Mailbox::new()),
            served: Lock::new([None; SERVED_MAX]),
            thread: Lock::new(Thread::default()),
            thread_number: AtomicI32::new(0),
            takes_port: AtomicU32::new(0),
            instance: AtomicU64::new(0),
            links_used: AtomicUsize::new(0),
            confined: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            counts: Counts::default(),
        };
        Some(Box::leak(Box::new(offload)))
    }

    /// Who answers others that ask for this process's sockets. To be called once, before anything else.
    pub fn set_answering(&self, answering: &'static Answering) {
        let _ = self.answering.set(answering);
    }

    /// What has become of datagrams in this process.
    pub fn counted(&self) -> Counted {
        self.counts.counted()
    }

    /// Where this process takes carriers, once it does.
    pub fn takes_carriers(&self) -> Option<TakesCarriers> {
        let port = self.takes_port.load(Ordering::Acquire) as u16;
        let instance = self.instance.load(Ordering::Acquire);
        (port != 0).then_some(TakesCarriers { port, instance })
    }

    pub(crate) fn set_takes(&self, port: u16, instance: u64) {
        self.instance.store(instance, Ordering::Release);
        self.takes_port.store(port.into(), Ordering::Release);
    }

    /// Whether something waits to leave.
    #[inline]
    pub fn anything_waits(&self) -> bool {
        self.used().iter().any(Link::waits)
    }

    /// Gives TCP what waits, as far as it takes it at once.
    pub fn flush_all(&self) {
        self.used().iter().for_each(Link::flush);
    }

    #[inline]
    fn used(&self) -> &[Link] {
        let used = self.links_used.load(Ordering::Relaxed);
        self.links.get(..used).unwrap_or(&self.links)
    }

    /// A carrier is about to take this place.
    pub(crate) fn use_link(&self, place: usize) {
        self.links_used.fetch_max(place + 1, Ordering::Relaxed);
    }

    /// The program receives from this socket, which others know by `key`: they may be told that it takes carriers.
    #[inline]
    pub fn receives(&'static self, port: &'static Port, key: u32, fd: RawFd) {
        if !port.is_off() && port.begin_served() {
            self.serve(port, key, fd);
        }
    }

    #[cold]
    fn serve(&'static self, port: &'static Port, key: u32, fd: RawFd) {
        let has_port = beside::local_end(fd).is_some_and(|at| at.port() != 0);
        if !has_port || self.is_over() || process::is_borrowed() || !port.keep(fd) {
            return port.end_served();
        }
        if let Locked::Held(mut served) | Locked::Orphaned(mut served) = self.served.lock() {
            let is_free = |place: &&mut Option<Held>| place.is_none_or(|held| !held.is_alive());
            if let Some(place) = served.iter_mut().find(is_free) {
                *place = Some(port.held());
            }
        }
        self.ensure_thread();
        if let Some(answering) = self.answering.get() {
            answering.serve(key, About::Datagrams, fd);
        }
    }

    /// The socket is closed.
    pub fn closed(&'static self, port: &'static Port, key: u32) {
        if port.is_served() {
            if let Some(answering) = self.answering.get() {
                answering.leave(key);
            }
        }
        if port.is_served() || port.is_looked_at() {
            self.tell(Mail::Closed { port: port.held() });
        }
        port.end();
    }

    /// Sockets of this process that take datagrams over carriers.
    pub(crate) fn served(&self) -> Vec<Held> {
        let Locked::Held(served) = self.served.lock() else {
            return Vec::new();
        };
        let is_ours = |held: &Held| held.is_alive() && held.port.is_served();
        served.iter().flatten().copied().filter(is_ours).collect()
    }

    /// A datagram of the program's; `fill` writes its octets, and may be called more than once.
    #[inline]
    pub fn send(
        &'static self,
        port: &'static Port,
        sending: Sending<'_>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Sent {
        if port.is_off() || self.is_over() {
            return Sent::Plain;
        }
        let Some(mut paths) = port.paths() else {
            return Sent::Plain;
        };
        let to = match sending.to.is_empty() {
            false => socket_addr(sending.to).map(End::from),
            true if paths.peer.is_some() => paths.peer,
            true => {
                paths.peer = beside::peer_end(sending.fd).map(End::from);
                paths.peer
            }
        };
        let Some(to) = to else {
            return Sent::Plain;
        };
        let since = now();
        let Some(path) = paths.find(to) else {
            if self.is_wanted(to, since) && since.as_nanos() as u64 >= paths.wanted_at {
                paths.wanted_at = since.as_nanos() as u64 + WANTED_EVERY_NS;
                drop(paths);
                self.want(port, sending.fd, to);
            }
            return Sent::Plain;
        };
        let sent = self.send_on(path, sending, &mut fill);
        drop(paths);
        match sent {
            Tried::Sent(sent) => sent,
            Tried::Full => self.send_later(port, sending, to, since, &mut fill),
        }
    }

    /// Puts a datagram on its way.
    #[inline]
    fn send_on(
        &self,
        path: &mut Path,
        sending: Sending<'_>,
        fill: &mut impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Tried {
        let way = path.chooser.choose(Send {
            len: sending.len,
            is_busy: sending.is_busy,
            packet: path.packet,
        });
        let before = match way {
            Way::Plain => return Tried::Sent(Sent::Plain),
            Way::ChannelBehind(number) => {
                let (nonce, name) = (path.mark, sending.to);
                let mark = Proof { nonce, number }.to_octets();
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // A mark that is lost is waited for 20 ms by the receiver.
                let _ = dgram::send(sending.fd, name, &mark, None, flags);
                Some(Control::Behind {
                    channel: path.channel,
                    number,
                })
            }
            Way::Channel | Way::ChannelBarrier(_) => None,
        };
        let Some(link) = self.links.get(path.link.place) else {
            return Tried::Sent(Sent::Plain);
        };
        let put = link.put(path.link, path.channel, sending.len, before, fill);
        let is_put = matches!(put, Ok(Put::Done));
        if let Way::ChannelBarrier(number) = way {
            let channel = path.channel;
            let barrier = Control::Barrier { channel, number };
            if !is_put || !link.say(path.link.generation, &barrier) {
                path.chooser.handle_barrier_not_sent();
            }
        }
        match put {
            Ok(Put::Done) => {
                count(&self.counts.sent);
                Tried::Sent(Sent::Done)
            }
            Ok(Put::Full { said }) => {
                if !said {
                    // The mark is behind plain datagrams, and nothing on the channel says so yet.
                    path.chooser.handle_opened();
                }
                Tried::Full
            }
            Ok(Put::Gone) => {
                path.chooser.handle_lost();
                Tried::Sent(Sent::Plain)
            }
            Err(errno) => Tried::Sent(Sent::Failed(errno)),
        }
    }

    /// The carrier is full: refuses, or waits a little and drops.
    #[cold]
    fn send_later(
        &'static self,
        port: &'static Port,
        sending: Sending<'_>,
        to: End,
        since: Duration,
        fill: &mut impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Sent {
        let may_block = !sending.dont_wait && !file::does_not_wait(sending.fd);
        loop {
            let attempt = Attempt {
                carrier: Carrier::Full,
                others_wait: false,
                has_room: false,
                may_block,
                since,
            };
            match Policy::Prefer.admit(attempt, now()) {
                Verdict::Again => return Sent::Failed(libc::EAGAIN),
                Verdict::Wait(_) => std::thread::sleep(LOOK_AGAIN),
                _ => {
                    count(&self.counts.dropped_full);
                    return Sent::Done;
                }
            }
            let Some(mut paths) = port.paths() else {
                return Sent::Plain;
            };
            let Some(path) = paths.find(to) else {
                return Sent::Plain;
            };
            if let Tried::Sent(sent) = self.send_on(path, sending, fill) {
                return sent;
            }
        }
    }

    /// Whether a channel to this destination is worth having, as busily as it is sent to.
    #[inline]
    fn is_wanted(&self, to: End, now: Duration) -> bool {
        let (Locked::Held(mut known) | Locked::Orphaned(mut known)) = self.destinations.lock()
        else {
            return false;
        };
        known.handle_send(to, now) != Known::Plain
    }

    /// Has the thread ask for a channel.
    #[cold]
    fn want(&'static self, port: &'static Port, fd: RawFd, to: End) {
        let mut name = [0; dgram::NAME_LEN];
        let len = dgram::local_name(fd, &mut name);
        let own = socket_addr(&name[..len]);
        let peer = to.to_socket_addr();
        let ends = [own.unwrap_or(peer), peer];
        let is_ruled = self.rules.uoe(Direction::Send, &ends).is_some();
        if !is_ruled || process::is_borrowed() || !port.keep(fd) {
            self.with_destinations(|known| {
                known.handle_no(to, now());
            });
            return;
        }
        self.ensure_thread();
        let held = port.held();
        self.tell(Mail::Wants {
            port: held,
            to: peer,
        });
    }

    /// The program connects the socket anew, or no more: channels are opened anew, as others may be heard then.
    pub fn connecting(&self, port: &'static Port) {
        if let Some(mut paths) = port.paths() {
            paths.peer = None;
        }
        if port.is_looked_at() {
            self.tell(Mail::Closed { port: port.held() });
        }
    }

    /// Nothing of the socket goes over carriers any more: another process has it too, or it is used past the hooks.
    pub fn leave(&self, port: &'static Port) {
        if port.is_off() {
            return;
        }
        port.switch_off();
        if port.is_looked_at() {
            self.tell(Mail::Closed { port: port.held() });
        }
    }

    /// Hands the datagram that came over a carrier and is next to `deliver`, and takes it out unless it is to `stay`.
    /// Nothing where none is, or the kernel's queue has its turn and something in it.
    #[inline]
    pub fn take<T>(
        &self,
        port: &Port,
        fd: RawFd,
        stay: bool,
        deliver: impl FnOnce(Waiting<'_>) -> T,
    ) -> Option<T> {
        let is_kernels_turn = match port.looked_at_in() {
            Some(place) => place == Place::Kernel,
            None => port.turns.fetch_add(1, Ordering::Relaxed) % KERNEL_TURN == KERNEL_TURN - 1,
        };
        if is_kernels_turn && self.has_plain(port, fd) {
            port.note_look(stay.then_some(Place::Kernel));
            return None;
        }
        let now = now();
        let mut inlet = port.inlet()?;
        let Some(waiting) = inlet.front(now) else {
            port.note_look(stay.then_some(Place::Kernel));
            return None;
        };
        let delivered = deliver(waiting);
        port.note_look(stay.then_some(Place::Inlet));
        if stay {
            return Some(delivered);
        }
        let is_last = inlet.pop();
        drop(inlet);
        count(&self.counts.received);
        port.taken_at
            .store(now.as_nanos() as u64, Ordering::Relaxed);
        if port.is_waited_for() {
            self.tell_taken(port, is_last);
        }
        if is_last {
            // The bell has done its work: a program that asks whether there is something is told no.
            self.has_plain(port, fd);
        }
        Some(delivered)
    }

    /// Octets of the datagram that is next, if it came over a carrier. Else the kernel knows, from whose queue Weft's
    /// own datagrams were taken.
    pub fn next_len(&self, port: &Port, fd: RawFd) -> Option<usize> {
        if port.looked_at_in() == Some(Place::Kernel) && self.has_plain(port, fd) {
            return None;
        }
        let next = port
            .inlet()?
            .front(now())
            .map(|waiting| waiting.octets.len());
        let is_plain = next.is_none() && self.has_plain(port, fd);
        port.note_look(match (next, is_plain) {
            (Some(_), _) => Some(Place::Inlet),
            (None, true) => Some(Place::Kernel),
            (None, false) => None,
        });
        next
    }

    /// Whether there is something for the program at a socket that the kernel calls readable.
    pub fn is_readable(&self, port: &Port, fd: RawFd) -> bool {
        if !port.is_looked_at() {
            return true;
        }
        let waits = port.inlet().is_none_or(|mut inlet| !inlet.is_empty(now()));
        waits || self.has_plain(port, fd)
    }

    /// Takes Weft's own datagrams from the head of the kernel's queue; says whether another one, or an error, is there.
    /// Where something else waits the bell is rung again, so that the socket stays readable.
    pub fn has_plain(&self, port: &Port, fd: RawFd) -> bool {
        let mut took_bell = false;
        let has_plain = loop {
            match self.take_own(port, fd) {
                Head::Own(own) => took_bell |= own == Own::Bell,
                Head::Other => break true,
                Head::Nothing => break false,
            }
        };
        if took_bell && !has_plain && port.inlet().is_some_and(|mut inlet| !inlet.is_empty(now())) {
            self.ring(fd);
        }
        has_plain
    }

    /// Takes the head of the kernel's queue if it is one of Weft's own.
    pub(crate) fn take_own(&self, port: &Port, fd: RawFd) -> Head {
        // One octet more than those of Weft have, so that a longer one shows.
        let mut octets = [0; weft_uoe::proof::PROOF_LEN + 1];
        let mut name = [0; dgram::NAME_LEN];
        let Some(_head) = port.head() else {
            return Head::Other;
        };
        let peeked = match dgram::peek(fd, &mut octets, &mut name, &mut []) {
            Ok(peeked) => peeked,
            Err(libc::EAGAIN) => return Head::Nothing,
            Err(errno) => {
                // The kernel tells of it once.
                port.set_pending(errno);
                return Head::Other;
            }
        };
        let proof = octets.get(..peeked.octets).and_then(Proof::parse);
        let own = proof.and_then(|proof| Some((proof, self.nonces.find(&proof.nonce)?)));
        let Some((proof, own)) = own else {
            return Head::Other;
        };
        if dgram::discard(fd).is_err() {
            return Head::Other;
        }
        if own == Own::OfChannel {
            if let Some(from) = socket_addr(&name[..peeked.name]) {
                self.tell(Mail::Own { proof, from });
            }
        }
        Head::Own(own)
    }

    /// Wakes who waits in the kernel at the socket behind `fd`, which is not connected. Says whether the bell left.
    pub(crate) fn ring(&self, fd: RawFd) -> bool {
        let Some(at) = beside::local_end(fd) else {
            return false;
        };
        let is_v6 = dgram::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
        let ip = match at.ip() {
            ip if !ip.is_unspecified() => ip,
            // One of IPv6 has IPv4 too unless it says otherwise.
            _ if is_v6 => std::net::Ipv6Addr::LOCALHOST.into(),
            _ => std::net::Ipv4Addr::LOCALHOST.into(),
        };
        let (name, len) = beside::socket_name(SocketAddr::new(ip, at.port()), is_v6);
        let bell = Proof {
            nonce: self.nonces.bell(),
            number: weft_uoe::proof::BELL,
        };
        count(&self.counts.bells);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        dgram::send(fd, &name[..len], &bell.to_octets(), None, flags).is_ok()
    }

    /// The thread waits for room, or for all of what came to be taken.
    #[cold]
    fn tell_taken(&self, port: &Port, is_last: bool) {
        // It is told of the last, and now and then before: each time costs a call.
        let turn = port.turns.load(Ordering::Relaxed);
        if (is_last || turn.is_multiple_of(KERNEL_TURN)) && port.take_waited_for() {
            self.wake();
        }
    }

    /// The process is about to end: what waits leaves, and is read or given up.
    pub fn ending(&self) {
        // A child in its parent's memory ends, or becomes another program, without its parent.
        if process::is_borrowed() {
            return;
        }
        self.flush_all();
        if !self.has_thread() || self.ending.swap(true, Ordering::AcqRel) {
            return;
        }
        self.wake();
        self.await_thread(|| self.ended.load(Ordering::Acquire));
    }

    /// The program confines itself: the thread ends, and nothing more is offloaded.
    pub fn confine(&self) {
        self.confined.store(true, Ordering::SeqCst);
        self.flush_all();
        if !self.has_thread() {
            return;
        }
        self.wake();
        let thread = || self.thread_number.load(Ordering::Acquire);
        self.await_thread(|| thread() == 0 || !sched::is_thread(thread()));
    }

    fn await_thread(&self, is_done: impl Fn() -> bool) {
        let begun = now();
        while !is_done() && now() - begun < ENDING_WITHIN {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Whether nothing is offloaded any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.confined.load(Ordering::Relaxed)
    }

    /// Whether the process is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn set_thread_number(&self) {
        self.thread_number
            .store(sched::thread_number(), Ordering::Release);
    }

    pub(crate) fn with_destinations(&self, work: impl FnOnce(&mut Destinations)) {
        if let Locked::Held(mut known) | Locked::Orphaned(mut known) = self.destinations.lock() {
            work(&mut known);
        }
    }

    fn thread(&self) -> Option<Guard<'_, Thread>> {
        let (Locked::Held(mut thread) | Locked::Orphaned(mut thread)) = self.thread.lock() else {
            return None;
        };
        if thread.process != process::id() {
            // A child has none of its parent's threads, and what the parent's was told is not for it.
            *thread = Thread {
                process: process::id(),
                ..Thread::default()
            };
            self.takes_port.store(0, Ordering::Release);
            self.thread_number.store(0, Ordering::Relaxed);
            self.ending.store(false, Ordering::Relaxed);
            self.ended.store(false, Ordering::Relaxed);
            self.counts.clear();
            if let Locked::Held(mut mail) | Locked::Orphaned(mut mail) = self.mail.lock() {
                mail.clear();
            }
        }
        Some(thread)
    }

    fn has_thread(&self) -> bool {
        self.thread().is_some_and(|thread| thread.runs)
    }

    fn ensure_thread(&'static self) {
        let Some(mut thread) = self.thread() else {
            return;
        };
        if thread.runs || self.is_over() {
            return;
        }
        let Ok(waker) = Waker::apart() else { return };
        thread.waker = Some(Guarded::new(waker));
        let started = sched::without_signals(|| {
            std::thread::Builder::new()
                .name("weft-uoe".into())
                .stack_size(256 * 1024)
                .spawn(move || service::run(self))
        });
        thread.runs = started.is_ok();
    }

    /// Tells the thread something.
    fn tell(&self, mail: Mail) {
        if let Locked::Held(mut mailbox) | Locked::Orphaned(mut mailbox) = self.mail.lock() {
            mailbox.put(mail);
        }
        self.wake();
    }

    /// What the thread was told.
    pub(crate) fn take_mail(&self, into: &mut Vec<Mail>) {
        if let Locked::Held(mut mailbox) | Locked::Orphaned(mut mailbox) = self.mail.lock() {
            mailbox.take(into);
        }
    }

    /// Makes the thread look up.
    pub(crate) fn wake(&self) {
        if let Some(mut thread) = self.thread() {
            if let Some(waker) = thread.waker.as_mut().and_then(Guarded::get) {
                waker.wake();
            }
        }
    }

    /// The number that the thread waits for.
    pub(crate) fn waker(&self) -> RawFd {
        let Some(mut thread) = self.thread() else {
            return -1;
        };
        if thread.waker.as_mut().and_then(Guarded::get).is_none() {
            // The program has closed it.
            thread.waker = Waker::apart().ok().map(Guarded::new);
        }
        thread.waker.as_ref().map_or(-1, Guarded::number)
    }

    /// Takes back what woke the thread. What it was told is to be read afterwards.
    pub(crate) fn clear_waker(&self) {
        if let Some(mut thread) = self.thread() {
            if let Some(waker) = thread.waker.as_mut().and_then(Guarded::get) {
                waker.clear();
            }
        }
    }

    /// The thread is gone.
    pub(crate) fn thread_ended(&self) {
        self.takes_port.store(0, Ordering::Release);
        if let Some(mut thread) = self.thread() {
            (thread.runs, thread.waker) = (false, None);
        }
    }
}

enum Tried {
    Sent(Sent),
    Full,
}

/// What is at the head of the kernel's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// One of Weft's own was, and is taken.
    Own(Own),
    /// A datagram of the program's, or an error.
    Other,
    /// Nothing.
    Nothing,
}
