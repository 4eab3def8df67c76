//! The thread: it asks, connects and accepts, runs every carrier, fills the sockets' queues and rings.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `asking` | destinations that are asked for, and connections that are begun for them |
//! | `side` | one carrier: its connection, its state machine |
//! | `wire` | that connection: the kernel's, or the adapter's |
//! | `adapter` | the adapter, which the thread runs |
//! | `any_order` | what comes on the adapter's connections, as it arrives |
//! | `greeting` | what is said first on a carrier, and what it is for |
//! | `whose` | which process and which sockets a carrier is for |
//! | `reading` | what comes on its connection |
//! | `channels` | the channels of a carrier |
//! | `rates` | carriers that send at a rate of one socket's |
//! | `closing` | the end of sockets, of channels to them, and of carriers |
//! | `ended` | channels that are over, and whose last datagrams wait for plain ones |
//! | `leaving` | sockets that their programs have closed before all was sent |
//! | `listening` | where others connect to |
//! | `events` | what a carrier's state machine says is to be done |
//! | `names` | sockets that other processes may have, too |
//! | `opening` | channels that sockets here want |
//! | `proofs` | proofs of addresses, sent and heard |
//! | `delivering` | datagrams from a carrier into the queues of sockets |
//! | `requiring` | destinations that a rule requires a channel for |
//! | `showing` | what `weft stat` is shown |
//! | `admitting` | which socket a channel is for, and whether it may have one |
//! | `bells` | sockets whose programs have to be woken |
//! | `refused` | sockets whose programs wait for room to send |

mod adapter;
mod admitting;
mod any_order;
mod asked;
mod asking;
mod bells;
mod channels;
mod closing;
mod delivering;
mod ended;
mod events;
mod greeting;
mod leaving;
mod listening;
mod names;
mod opening;
mod proofs;
mod rates;
mod reading;
mod refused;
mod requiring;
mod showing;
mod side;
mod whose;
mod wire;

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::guarded::Guarded;
use weft_os::net::TcpListener;
use weft_os::poll::{wait_ready, Interest, WAITED_FOR_MAX};
use weft_os::random_u64;
use weft_uoe::control::Why;
use weft_uoe::greeting::{Instance, Nonce};

use crate::mail::Mail;
use crate::offload::{now, Offload};
use adapter::Adapter;
use admitting::Admitting;
use asked::Asked;
use bells::Bells;
use ended::Ended;
use names::Name;
pub(crate) use rates::{full_timeout, time_at_rate};
use refused::Refused;
use requiring::Requiring;
use showing::Showing;
use side::Side;

/// How long what waits for a carrier, or for room on one, may take to leave when the process ends.
const LEAVES_WITHIN: Duration = Duration::from_millis(60);
/// How soon the thread looks again while something is to come that wakes nobody.
const TICK: Duration = Duration::from_millis(1);
/// How long random bits of a channel that is over are known: datagrams with them may be under way.
const NONCES_KEPT: Duration = Duration::from_secs(5);

/// Random bits that nobody can guess.
pub(crate) fn nonce() -> Nonce {
    (u128::from(random_u64()) << 64 | u128::from(random_u64())).to_ne_bytes()
}

/// Runs until the program confines itself or ends.
pub(crate) fn run(offload: &'static Offload) {
    let mut service = Service::new(offload);
    while !offload.is_over() {
        service.turn();
        if offload.is_ending() && service.is_ended() {
            offload.set_ended();
        }
    }
    service.close_all();
    offload.thread_ended();
}

/// The thread, while it runs.
pub(crate) struct Service {
    pub(crate) offload: &'static Offload,
    pub(crate) instance: Instance,
    listener: Option<Guarded<TcpListener>>,
    /// Its carriers are those of rules that say so.
    adapter: Option<Adapter>,
    /// Nothing is accepted until then.
    deaf_until: Option<Duration>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) sides: Vec<Side>,
    pub(crate) admitting: Vec<Admitting>,
    pub(crate) bells: Bells,
    ended: Ended,
    /// Sockets of which this process alone has channels.
    names: Vec<Name>,
    /// Sockets whose programs wait for room to send.
    refused: Vec<Refused>,
    pub(crate) requiring: Vec<Requiring>,
    /// When those are to be looked at.
    pub(crate) required_at: Option<Duration>,
    /// Random bits that are forgotten at these times.
    retired: Vec<(Duration, Nonce)>,
    pub(crate) generations: u32,
    mail: Vec<Mail>,
    showing: Showing,
    ending_since: Option<Duration>,
    is_told_to_end: bool,
}

impl Service {
    fn new(offload: &'static Offload) -> Service {
        let instance = Instance(random_u64());
        offload.nonces.set_bell(nonce());
        let mut service = Service {
            offload,
            instance,
            listener: None,
            adapter: None,
            deaf_until: None,
            asked: Vec::new(),
            sides: Vec::new(),
            admitting: Vec::new(),
            bells: Bells::default(),
            ended: Ended::default(),
            names: Vec::new(),
            requiring: Vec::new(),
            required_at: None,
            refused: Vec::new(),
            retired: Vec::new(),
            generations: 0,
            mail: Vec::new(),
            showing: Showing::new(offload.settings.stat),
            ending_since: None,
            is_told_to_end: false,
        };
        // Sends that came before wait for their queues, and an adapter takes its time to open.
        service.read_mail();
        service.open_adapter();
        service.listen_if_asked();
        service
    }

    /// Sleeps until there is something to do, and does it.
    fn turn(&mut self) {
        let ready = self.wait();
        self.run_adapter();
        self.listen_if_asked();
        self.empty_left();
        self.look_for_proofs();
        self.hear_of_others();
        self.read_mail();
        self.accept(ready.listener);
        self.accept_from_adapter();
        self.poll_asked();
        // Before the sides' turns, which send what is said here.
        self.admit_waiting();
        self.ring_again();
        self.serve_required();
        self.tell_of_room();
        self.end_left();
        self.run_sides(&ready.sides);
        self.deliver_ended();
        self.send_by_adapter();
        self.end_sides();
        self.forget_retired();
        self.let_names_go();
        self.show();
        if self.offload.is_ending() && !self.is_told_to_end {
            self.begin_to_end();
        }
    }

    /// The process ends: carriers are closed once what waits for them, or for room on them, has left, or soon in any
    /// case.
    fn begin_to_end(&mut self) {
        let since = *self.ending_since.get_or_insert_with(now);
        let has_queued = self.requiring.iter().any(|one| one.waits());
        if !has_queued || now() >= since + LEAVES_WITHIN {
            self.is_told_to_end = true;
            self.count_unsent();
            self.shut_all(Why::Ends);
        } else {
            self.look_at(since + LEAVES_WITHIN);
        }
    }

    /// Sleeps; says what is ready.
    fn wait(&mut self) -> Ready {
        self.deaf_until = self.deaf_until.filter(|until| now() < *until);
        let listener = match (&self.listener, self.deaf_until) {
            (Some(listener), None) => listener.number(),
            _ => -1,
        };
        let mut numbers: Vec<(RawFd, Interest)> = vec![
            (self.offload.waker(), Interest::Read),
            (listener, Interest::Read),
        ];
        let sides = self.sides.iter().map(Side::waits_for);
        numbers.extend(sides);
        let adapter = self.adapter.iter().flat_map(Adapter::numbers);
        numbers.extend(adapter.map(|number| (number, Interest::Read)));
        let asked = self.asked.iter().map(Asked::number);
        numbers.extend(asked.map(|number| (number, Interest::Read)));
        let names_from = numbers.len();
        let names = self.names.iter().map(|name| name.number(now()));
        numbers.extend(names.map(|number| (number, Interest::Read)));
        numbers.truncate(WAITED_FOR_MAX);
        let timeout = self.deadline().map(|at| at.saturating_sub(now()));
        let timeout = self.begin_to_sleep(timeout);
        let mut ready = vec![false; numbers.len()];
        if wait_ready(&numbers, &mut ready, timeout).is_err() {
            std::thread::sleep(TICK);
        }
        self.offload.sleeps.store(false, Ordering::Relaxed);
        if ready[0] {
            self.offload.clear_waker();
        }
        for (at, name) in self.names.iter_mut().enumerate() {
            // Those that are too many to be waited for may always be.
            name.note_ready(ready.get(names_from + at).copied().unwrap_or(true));
        }
        Ready {
            listener: ready.get(1).copied().unwrap_or(false),
            sides: ready
                .iter()
                .skip(2)
                .take(self.sides.len())
                .copied()
                .collect(),
        }
    }

    /// When something is to be done that wakes nobody.
    fn deadline(&self) -> Option<Duration> {
        let waits = !self.admitting.is_empty() || !self.ended.is_empty();
        let needs_tick = waits || self.sides.iter().any(Side::needs_tick);
        let tick = needs_tick.then(|| now() + TICK);
        let sides = self.sides.iter().filter_map(Side::deadline);
        let asked = self.asked.iter().map(Asked::deadline);
        let retired = self.retired.iter().map(|(at, _)| *at);
        let others = sides.chain(asked).chain(retired);
        let required = self.required_at;
        let others = others.chain(tick).chain(required).chain(self.shown_at());
        let others = others.chain(self.deaf_until);
        let others = others.chain(self.adapter.as_ref().and_then(Adapter::deadline));
        others.chain(self.bells.deadline()).min()
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.offload.take_mail(&mut mail);
        for one in mail.drain(..) {
            match one {
                Mail::Wants { port, to } => self.handle_wanted(port, to),
                Mail::Own { port, proof, from } => self.handle_own(port, proof, from),
                Mail::Requires { port, to } => self.handle_required(port, to),
                Mail::Left { from, to } => self.handle_left(from, to),
                Mail::Refused { port, to } => self.handle_refused(port, to),
                Mail::Closed { port } => self.handle_closed_port(port),
                Mail::Changed { port } => self.refuse_to(port),
                Mail::Rated { port } => self.handle_rated(port),
            }
        }
        self.mail = mail;
    }

    /// Random bits are known a little longer.
    pub(crate) fn retire(&mut self, nonce: Nonce) {
        self.retired.push((now() + NONCES_KEPT, nonce));
    }

    fn forget_retired(&mut self) {
        let (nonces, now) = (&self.offload.nonces, now());
        self.retired.retain(|(at, nonce)| {
            if *at <= now {
                nonces.remove(nonce);
            }
            *at > now
        });
    }

    /// Whether everything that was sent has been read, or will not be.
    fn is_ended(&self) -> bool {
        self.is_told_to_end && self.sides.is_empty()
    }

    fn close_all(&mut self) {
        self.shut_all(Why::Ends);
        for left in self.offload.left() {
            self.offload.end_left(left.port);
        }
        self.listener = None;
    }
}

struct Ready {
    listener: bool,
    sides: Vec<bool>,
}
