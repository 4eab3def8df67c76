//! The adapter, as the thread runs it: its device, its deadlines, who connects to it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use weft_discovery::End;
use weft_engine::carrier::{Alarm, Carrier, Drive, Listener, Network, SocketOptions};
use weft_os::descriptors::Watched;
use weft_os::guarded::Guarded;
use weft_settings::DiscoveryPort;

use super::listening::BACKLOG;
use super::side::{Phase, Side};
use super::wire::Wire;
use super::Service;
use crate::offload::{now, Offload};

/// An adapter that is this process's.
#[derive(Debug)]
pub(crate) struct Adapter {
    network: Arc<dyn Network>,
    drives: Vec<Driven>,
    listeners: Vec<Box<dyn Listener>>,
}

/// A part of it that has to be run.
#[derive(Debug)]
struct Driven {
    what: Arc<dyn Drive>,
    /// Ready when it is to be run.
    watched: Guarded<Watched>,
    due: Arc<Due>,
}

/// When such a part has to be run at the latest, in nanoseconds. Only the thread uses it.
#[derive(Debug)]
struct Due(AtomicU64);

/// No time.
const NEVER: u64 = u64::MAX;

impl Alarm for Due {
    fn within(&self, time: Duration) {
        let at = u64::try_from((now() + time).as_nanos()).unwrap_or(NEVER);
        // What was said before is not waited for any more: a later time is said where an earlier one is over.
        self.0.store(at, Ordering::Relaxed);
    }
}

impl Due {
    fn at(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn is_over(&self, now: Duration) -> bool {
        u128::from(self.at()) <= now.as_nanos()
    }
}

impl Adapter {
    /// The adapter that the settings describe, if a rule wants one. Why there is none is said in the log.
    pub(crate) fn open(offload: &Offload) -> Option<Adapter> {
        if !offload.rules.any_over_adapter() {
            return None;
        }
        let opened = match crate::offload::network() {
            Some(make) => make(&offload.settings),
            None => Err("this program's hooks have none".to_owned()),
        };
        let opened = opened.and_then(|network| match network.addresses().is_empty() {
            true => Err("the adapter is off (--adapter inline gives it interfaces)".to_owned()),
            false => Ok(network),
        });
        let adapter = opened.and_then(|network| {
            let adapter = Adapter::of(network);
            adapter.ok_or_else(|| "no descriptor is left".to_owned())
        });
        adapter
            .map_err(|why| {
                weft_settings::warn!(
                    "datagrams go over connections of the kernel's, and not over the adapter: {why}"
                );
            })
            .ok()
    }

    fn of(network: Arc<dyn Network>) -> Option<Adapter> {
        let mut drives = Vec::new();
        for what in network.drives() {
            let watched = Watched::apart(what.descriptor()?.as_raw_fd()).ok()?;
            let due = Arc::new(Due(AtomicU64::new(NEVER)));
            what.set_alarm(due.clone());
            drives.push(Driven {
                what,
                watched: Guarded::new(watched),
                due,
            });
        }
        Some(Adapter {
            network,
            drives,
            listeners: Vec::new(),
        })
    }

    /// Takes connections from now on, at the agreed port if that is free; says where.
    pub(crate) fn listen(&mut self, port: DiscoveryPort) -> Option<End> {
        let DiscoveryPort::Agreed(agreed) = port else {
            return None;
        };
        let mut first = None;
        for (address, _) in self.network.addresses() {
            let bind = |port| {
                let at = SocketAddr::new(address, port);
                self.network.bind(at, &SocketOptions::default())
            };
            let Ok(bound) = bind(agreed).or_else(|_| bind(0)) else {
                continue;
            };
            let at = bound.local_addr();
            if let Ok(listener) = bound.listen(BACKLOG) {
                self.listeners.push(listener);
                first = first.or(Some(End::from(at)));
            }
        }
        first
    }

    /// Takes no connections any more.
    pub(crate) fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// The next connection that somebody has made.
    pub(crate) fn accept(&mut self) -> Option<Box<dyn Carrier>> {
        let mut accepted = self.listeners.iter().filter_map(|one| one.accept().ok()?);
        accepted.next().map(|(connection, _)| connection)
    }

    /// Whether it leads there.
    pub(crate) fn leads_to(&self, to: IpAddr) -> bool {
        let source = self.network.source_towards(SocketAddr::new(to, 0));
        let own = self.network.addresses();
        source.is_ok_and(|source| own.iter().any(|(address, _)| *address == source.ip()))
    }

    /// Begins to connect.
    pub(crate) fn connect(&self, to: SocketAddr) -> Option<Box<dyn Carrier>> {
        // A frame's check is for its place in the whole stream: what comes again after four gigabytes has another
        // one. Without timestamps a datagram that fills a packet of UDP fits a segment, with its frame's header.
        let options = SocketOptions {
            without_timestamps: true,
            ..SocketOptions::default()
        };
        self.network.connect(to, &options).ok()
    }

    /// The numbers to wait for.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.drives.iter().map(|drive| drive.watched.number())
    }

    /// When it is to be run though nothing comes.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let at = self.drives.iter().map(|drive| drive.due.at()).min()?;
        (at != NEVER).then(|| Duration::from_nanos(at))
    }

    /// Whether somebody has connected.
    pub(crate) fn has_waiting(&self) -> bool {
        self.listeners.iter().any(|one| one.has_waiting())
    }

    /// Runs it; false where it is gone: its interface, or its descriptors, which the program may close with all others.
    pub(crate) fn run(&mut self) -> bool {
        let mut drives = self.drives.iter_mut();
        drives.all(Driven::run)
    }

    /// Whether its descriptors are still its own.
    fn is_there(&self) -> bool {
        self.drives.iter().all(|drive| drive.watched.is_there())
    }
}

impl Driven {
    fn run(&mut self) -> bool {
        let now = now();
        let goes_on = self.watched.is_there() && self.what.run();
        // What was due and is not any more has left its time.
        if self.due.is_over(now) {
            self.due.0.store(NEVER, Ordering::Relaxed);
        }
        goes_on
    }
}

impl Service {
    /// Opens the adapter, if a rule wants one.
    pub(super) fn open_adapter(&mut self) {
        self.adapter = Adapter::open(self.offload);
        let has_adapter = self.adapter.is_some();
        self.offload
            .has_adapter
            .store(has_adapter, Ordering::Release);
    }

    /// How long to sleep, as what no number shows allows: sends wake the thread from now on, where they have to.
    pub(super) fn begin_to_sleep(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(adapter) = &self.adapter else {
            return timeout;
        };
        self.offload.sleeps.store(true, Ordering::SeqCst);
        let is_there = self.offload.is_any_for_thread()
            || adapter.has_waiting()
            || self.sides.iter().any(Side::is_readable);
        match is_there {
            true => Some(Duration::ZERO),
            false => timeout,
        }
    }

    /// Takes in what came by the adapter; without it its carriers are gone.
    pub(super) fn run_adapter(&mut self) {
        let Some(adapter) = &mut self.adapter else {
            return;
        };
        let lets_go = self.offload.lets_go.swap(false, Ordering::AcqRel);
        if !lets_go && adapter.run() {
            return;
        }
        let why = match lets_go {
            true => "the program closes all descriptors",
            false => "its interface, or its descriptors",
        };
        weft_settings::info!("the adapter that datagrams went over is gone: {why}");
        let gone = self.sides.iter_mut().filter(|side| side.wire.is_adapters());
        gone.for_each(|side| side.phase = Phase::Gone);
        self.end_sides();
        let has_numbers = self.has_adapters_numbers();
        if let Some(adapter) = self.adapter.take().filter(|_| !has_numbers) {
            std::mem::forget(adapter);
        }
        self.offload.forget_adapter();
        self.offload.has_adapter.store(false, Ordering::Release);
    }

    /// Whether the adapter's descriptors are its own. Where the program has closed them, what it opened since has their
    /// numbers, and nothing may be written there: not even that a connection ends.
    pub(super) fn has_adapters_numbers(&self) -> bool {
        self.adapter.as_ref().is_some_and(Adapter::is_there)
    }

    /// Sends what the program's calls have put into carriers of the adapter's.
    pub(super) fn send_by_adapter(&mut self) {
        for side in &mut self.sides {
            let Some(id) = side.link.filter(|_| side.wire.is_adapters()) else {
                continue;
            };
            let link = &self.offload.links[id.place];
            if !link.waits() && !link.has_news() {
                continue;
            }
            let segment = side.wire.emss().unwrap_or(0);
            link.send_by_thread(id.generation, segment, |octets, frames| {
                side.wire.send_frames(octets, frames)
            });
            if side.unsaid.is_none() && !link.waits() {
                side.send_end();
            }
        }
    }

    /// Those who have connected to the adapter.
    pub(super) fn accept_from_adapter(&mut self) {
        for _ in 0..BACKLOG {
            let accepted = self.adapter.as_mut().and_then(Adapter::accept);
            let Some(connection) = accepted else { return };
            self.take_in(Wire::Adapter(connection));
        }
    }
}
