//! What the program's calls ask for, and what they share with the thread.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use weft_discovery::{About, Answering, End, TakesCarriers};
use weft_engine::NetworkMaker;
use weft_os::beside;
use weft_os::descriptors::any_is_ours;
use weft_os::lock::{Lock, Locked};
use weft_os::own_thread::OwnThread;
use weft_os::{process, sched};
use weft_settings::datagrams::DatagramRules;
use weft_settings::Settings;
use weft_uoe::destinations::Destinations;

use crate::counts::{Counted, Counts};
use crate::link::{Link, Put};
use crate::mail::{Mail, Mailbox};
use crate::nonces::Nonces;
use crate::port::{Held, Left, Port, LEFT_MAX};
use crate::turns::Turns;
use crate::worker::Worker;

/// Carriers of a process at most.
pub const CARRIERS_MAX: usize = 128;
/// Sockets of a process that others may send to over carriers, at most.
pub const SERVED_MAX: usize = 256;
/// How long a process that ends waits for what it sent to be read.
const ENDING_WITHIN: Duration = Duration::from_millis(100);
/// How long it waits while the other end's TCP has not even taken it: what comes for a closed socket resets its
/// connection, and what had not arrived is lost uncounted.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// The offload of one process and those forked from it.
#[derive(Debug)]
pub struct Offload {
    pub(crate) rules: DatagramRules,
    pub(crate) settings: Settings,
    pub(crate) answering: OnceLock<&'static Answering>,
    /// A rule requires carriers, for some sockets at least.
    pub(crate) is_any_required: bool,
    /// Something waits in a queue of such a socket's, which the thread is to empty.
    pub(crate) is_any_queued: AtomicBool,
    pub(crate) links: Box<[Link]>,
    pub(crate) destinations: Lock<Destinations>,
    pub(crate) nonces: Nonces,
    pub(crate) mail: Lock<Mailbox>,
    pub(crate) served: Lock<[Option<Held>; SERVED_MAX]>,
    /// Sockets that the program has closed and the thread still has, and where these are.
    pub(crate) left: Lock<[Option<Left>; LEFT_MAX]>,
    pub(crate) left_ports: [Port; LEFT_MAX],
    pub(crate) thread: Lock<Worker>,
    pub(crate) own_thread: OwnThread,
    /// Where carriers are taken, and which process this is; 0 until there is a listener.
    pub(crate) takes_port: AtomicU32,
    instance: AtomicU64,
    /// Where its adapter takes them.
    takes_at_adapter: Lock<Option<End>>,
    /// The thread has an adapter.
    pub(crate) has_adapter: AtomicBool,
    /// It is to let go of that.
    pub(crate) lets_go: AtomicBool,
    /// The thread sleeps, and sends are to wake it.
    pub(crate) sleeps: AtomicBool,
    pub(crate) bells_taken: AtomicU64,
    /// Links below this one were used.
    pub(crate) links_used: AtomicUsize,
    /// The program receives from a socket that others may send to over carriers.
    pub(crate) is_serving: AtomicBool,
    pub(crate) confined: AtomicBool,
    pub(crate) ending: AtomicBool,
    pub(crate) ended: AtomicBool,
    pub(crate) turns: Turns,
    pub(crate) counts: Counts,
}

/// What makes the network of an adapter. One value for the process and its children: a library sets it when it is
/// loaded.
static NETWORK: OnceLock<NetworkMaker> = OnceLock::new();

/// Carriers of rules that say `over=adapter` run over what `make` gives. Without this there is no adapter.
pub fn choose_network(make: NetworkMaker) {
    let _ = NETWORK.set(make);
}

/// What was chosen.
pub(crate) fn network() -> Option<NetworkMaker> {
    NETWORK.get().copied()
}

/// The time, as everything here counts it.
#[inline]
pub(crate) fn now() -> Duration {
    weft_discovery::now()
}

impl Offload {
    /// Nothing is offloaded yet; of sockets to come the rules of the settings (`udp`) say whose datagrams may be.
    /// Nothing where no rule does. Allocates, for as long as the process lives.
    pub fn new(settings: &Settings) -> Option<&'static Offload> {
        let rules = settings.udp.clone();
        if !rules.any_uoe() {
            return None;
        }
        weft_os::fork::watch();
        let offload = Offload {
            is_any_required: rules.any_required(),
            is_any_queued: AtomicBool::new(false),
            rules,
            settings: settings.clone(),
            answering: OnceLock::new(),
            links: (0..CARRIERS_MAX).map(|_| Link::new()).collect(),
            destinations: Lock::new(Destinations::new(weft_os::random_u64(), now())),
            nonces: Nonces::new(),
            mail: Lock::new(Mailbox::new()),
            served: Lock::new([None; SERVED_MAX]),
            left: Lock::new([None; LEFT_MAX]),
            left_ports: [const { Port::new() }; LEFT_MAX],
            thread: Lock::new(Worker::default()),
            own_thread: OwnThread::new(),
            takes_port: AtomicU32::new(0),
            instance: AtomicU64::new(0),
            takes_at_adapter: Lock::new(None),
            has_adapter: AtomicBool::new(false),
            lets_go: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            bells_taken: AtomicU64::new(0),
            links_used: AtomicUsize::new(0),
            is_serving: AtomicBool::new(false),
            confined: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            turns: Turns::new(),
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
        let adapter = match self.takes_at_adapter.lock() {
            Locked::Held(adapter) => *adapter,
            Locked::Orphaned(_) | Locked::Again => None,
        };
        (port != 0).then_some(TakesCarriers {
            port,
            instance,
            adapter,
        })
    }

    pub(crate) fn set_takes(&self, port: u16, instance: u64, adapter: Option<End>) {
        self.set_adapter(adapter);
        self.instance.store(instance, Ordering::Release);
        self.takes_port.store(port.into(), Ordering::Release);
    }

    /// The adapter is gone, and takes no carriers.
    pub(crate) fn forget_adapter(&self) {
        self.set_adapter(None);
    }

    fn set_adapter(&self, adapter: Option<End>) {
        let (Locked::Held(mut at) | Locked::Orphaned(mut at)) = self.takes_at_adapter.lock() else {
            return;
        };
        *at = adapter;
    }

    /// Whether something was put in since the thread sent last that the thread is to send.
    pub(crate) fn is_any_for_thread(&self) -> bool {
        self.used().iter().any(Link::is_for_thread)
    }

    /// Something was put in there: wakes the thread, where it sleeps and is to send that. What a program sends that is
    /// not busy leaves at once: nothing gathers with it, and to have somebody else send it takes longer.
    #[inline]
    pub(crate) fn see_off(&self, link: &Link, put: Put, is_busy: bool) -> Put {
        if link.is_for_thread() {
            if self.sleeps.swap(false, Ordering::SeqCst) {
                self.wake();
            }
        } else if !is_busy && put == Put::Done {
            link.flush();
            return Put::Flushed;
        }
        put
    }

    #[inline]
    pub(crate) fn used(&self) -> &[Link] {
        let used = self.links_used.load(Ordering::Relaxed);
        self.links.get(..used).unwrap_or(&self.links)
    }

    /// A carrier is about to take this place.
    pub(crate) fn use_link(&self, place: usize) {
        self.links_used.fetch_max(place + 1, Ordering::Relaxed);
    }

    /// Whether it could be told of the socket once that has a port.
    pub fn awaits_port(&self, port: &Port, fd: RawFd) -> bool {
        let has_port = || beside::local_end(fd).is_some_and(|at| at.port() != 0);
        !port.is_off() && !port.is_served() && !self.is_over() && !has_port()
    }

    #[cold]
    pub(crate) fn serve(&'static self, port: &'static Port, key: u32, fd: RawFd) {
        let has_port = beside::local_end(fd).is_some_and(|at| at.port() != 0);
        if !has_port || self.is_over() || process::is_borrowed() || !port.keep(fd) {
            return port.end_served();
        }
        if let Locked::Held(mut served) | Locked::Orphaned(mut served) = self.served.lock() {
            let own = port.held();
            let is_known = |place: &Option<Held>| *place == Some(own);
            let is_free = |place: &Option<Held>| place.is_none_or(|held| !held.is_alive());
            let known = served.iter().position(is_known);
            if let Some(place) = known.or_else(|| served.iter().position(is_free)) {
                served[place] = Some(own);
            }
        }
        self.ensure_thread();
        // Behind the first look at the thread, which in a child forgets what its parent served.
        self.is_serving.store(true, Ordering::Release);
        self.wake();
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
        let held = port.held();
        let is_known = port.is_served() || port.is_looked_at();
        self.leave_queues(port);
        if is_known {
            self.tell(Mail::Closed { port: held });
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

    /// The program connects the socket anew, or wants something else of it: channels of others to it are opened anew,
    /// as it may hear others then, or not be served any more. What it sends goes on: its channels are each for one
    /// destination, and have its address.
    pub fn begin_anew(&self, port: &'static Port) {
        if let Some(mut paths) = port.paths() {
            paths.peer = None;
            paths.not_required = None;
        }
        if port.is_looked_at() {
            self.tell(Mail::Changed { port: port.held() });
        }
    }

    /// Carriers of the socket send so many bits of packets a second from now on, whatever is lost, and are its alone;
    /// 0: as those of other sockets.
    pub fn set_rate(&self, port: &'static Port, bits: u64) {
        port.set_rate(bits);
        if port.is_looked_at() {
            self.tell(Mail::Rated { port: port.held() });
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
        let has_ended = || self.ended.load(Ordering::Acquire);
        self.await_thread(ENDING_WITHIN, has_ended);
        let is_taken = || !self.used().iter().any(Link::is_under_way);
        self.await_thread(TAKEN_WITHIN - ENDING_WITHIN, || has_ended() || is_taken());
        for link in self.used() {
            link.end_with_process();
            self.count_lost(link);
        }
    }

    /// Counts what a carrier had been given and never left.
    pub(crate) fn count_lost(&self, link: &Link) {
        let dropped = &self.counts.dropped_full;
        dropped.fetch_add(link.take_lost(), Ordering::Relaxed);
    }

    /// The program confines itself: the thread ends, and nothing more is offloaded.
    pub fn confine(&self) {
        self.confined.store(true, Ordering::SeqCst);
        self.flush_all();
        if !self.has_thread() {
            return;
        }
        self.wake();
        self.own_thread.await_end(|| ());
    }

    /// The program is about to close these numbers. Where the adapter's may be among them the thread lets go of it
    /// first: what it sent amid the program's calls might come to what has the numbers then.
    pub fn closing_numbers(&self, first: u32, last: u32) {
        let has_adapter = self.has_adapter.load(Ordering::Acquire);
        if !has_adapter || !any_is_ours(first, last) || !self.has_thread() {
            return;
        }
        self.lets_go.store(true, Ordering::Release);
        self.wake();
        self.await_thread(ENDING_WITHIN, || !self.has_adapter.load(Ordering::Acquire));
    }

    fn await_thread(&self, within: Duration, is_done: impl Fn() -> bool) {
        let begun = now();
        while !is_done() && now() - begun < within {
            sched::pause(Duration::from_micros(100));
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

    pub(crate) fn with_destinations(&self, work: impl FnOnce(&mut Destinations)) {
        if let Locked::Held(mut known) | Locked::Orphaned(mut known) = self.destinations.lock() {
            work(&mut known);
        }
    }
}
