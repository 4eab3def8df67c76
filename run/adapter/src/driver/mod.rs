//! A driver: a device, `weft_inet`'s stack, what its connections have taken and received, and the clock.
//!
//! | file | concern |
//! | --- | --- |
//! | `state.rs` | the loop: frames in, events, deadlines |
//! | `transmit.rs` | frames out |
//! | `commands.rs` | what carriers and listeners ask |
//! | `copies.rs` | memory for what was copied |
//! | `datagrams.rs` | ports for datagrams |
//! | `handing_over.rs` | octets that arrived |
//! | `table.rs` | connections beside the stack |
//! | `looking.rs` | threads that look again and again |
//! | `outgoing.rs` | what was taken to send, copied or referred to |
//! | `windows.rs` | what receive windows promise |
//! | `policies.rs` | how each connection sends |
//! | `showing.rs` | what `weft stat` is shown |
//! | `ports.rs` | addresses that are held, listeners |
//!
//! All of it is behind one lock, which is taken under a queue pair's lock and takes none but those of the engine's list
//! of what is ready and of its timers.

mod commands;
mod copies;
mod datagrams;
mod handing_over;
mod looking;
mod outgoing;
mod policies;
mod ports;
mod showing;
mod state;
mod table;
mod transmit;
mod windows;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use weft_engine::carrier::{Alarm, Drive, Source};
use weft_engine::settings::TransportRules;
use weft_engine::stats::InterfaceRow;
use weft_inet::stack::{Cidr, Mac, Route, Stack, StackConfig};
use weft_inet::tcp::Secret;
use weft_os::descriptors::Watched;
use weft_os::fork::Generation;

use crate::link::Link;

pub(crate) use ports::Holder;
pub use state::Counters;
pub(crate) use state::State;
pub(crate) use table::Key;

/// How long the end of the process is held up by what was taken and is not acknowledged. The kernel goes on for minutes
/// after a program has ended; here nobody is left to do it.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);
/// A thread that holds a lock as the process exits may never let go of it.
const LOCK_TIME_MAX: Duration = Duration::from_millis(20);

/// What a driver is told of its interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name, for messages.
    pub name: String,
    /// Hardware address of the stack.
    pub mac: Mac,
    /// Octets of the largest IP packet.
    pub mtu: u32,
    /// The stack's addresses.
    pub addresses: Vec<Cidr>,
    /// Ways beyond the link.
    pub routes: Vec<Route>,
    /// Solicitations that ask whether somebody else has an IPv6 address before it is used; 0 uses it unasked.
    pub dad_transmits: u32,
    /// How its connections send.
    pub rules: TransportRules,
}

/// A stack on a device.
#[derive(Debug)]
pub struct Driver {
    /// The process that it serves.
    generation: Generation,
    interface: Interface,
    /// The link's descriptor, to be waited on.
    watched: Watched,
    state: Mutex<State>,
}

impl Driver {
    /// A stack that nobody has spoken to, on a link.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(interface: Interface, link: Box<dyn Link>) -> io::Result<Arc<Driver>> {
        let mut secret = [0; 16];
        for half in secret.chunks_mut(8) {
            half.copy_from_slice(&weft_os::random_u64().to_ne_bytes());
        }
        Driver::with_secret(interface, link, secret, weft_os::random_u64())
    }

    /// The same with numbers that anybody knows, so that an input of the fuzzer's is one run.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn unhidden(interface: Interface, link: Box<dyn Link>) -> io::Result<Arc<Driver>> {
        Driver::with_secret(interface, link, [1; 16], 1)
    }

    fn with_secret(
        interface: Interface,
        link: Box<dyn Link>,
        secret: [u8; 16],
        random: u64,
    ) -> io::Result<Arc<Driver>> {
        let config = StackConfig {
            routes: interface.routes.clone(),
            dad_transmits: interface.dad_transmits,
            mtu: interface.mtu,
            ..StackConfig::new(interface.mac, interface.addresses.clone(), Secret(secret))
        };
        let watched = Watched::new(link.descriptor())?;
        let mut state = State::new(link, Stack::new(config), random);
        state.rules = interface.rules.clone();
        Ok(Arc::new(Driver {
            generation: Generation::now(),
            watched,
            state: Mutex::new(state),
            interface,
        }))
    }

    /// What it was told of its interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The address is this driver's.
    pub fn owns(&self, address: IpAddr) -> bool {
        let addresses = &self.interface.addresses;
        addresses.iter().any(|own| own.address == address)
    }

    /// Bits of the longest of its networks that an address is in.
    pub fn on_link(&self, address: IpAddr) -> Option<u8> {
        let near = self.interface.addresses.iter();
        near.filter(|own| own.contains(address))
            .map(|own| own.prefix)
            .max()
    }

    /// Bits of the longest of its routes that leads to an address.
    pub fn leads_to(&self, address: IpAddr) -> Option<u8> {
        let routes = self.interface.routes.iter();
        routes
            .filter(|route| route.destination.contains(address))
            .map(|route| route.destination.prefix)
            .max()
    }

    /// The address that is used towards another.
    pub fn source_for(&self, address: IpAddr) -> Option<IpAddr> {
        let state = self.lock()?;
        state.stack.config().source_for(address, None)
    }

    /// Sums so far.
    pub fn counters(&self) -> Counters {
        self.lock()
            .map_or_else(Counters::default, |state| state.counters)
    }

    /// Its clock goes on by so much.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn pass(&self, time: Duration) {
        self.state.lock().pass(time);
    }

    /// Octets that wait at one connection at most, where they are handed over in pieces.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn waiting_octets_max(&self) -> usize {
        self.state.lock().waiting_octets_max()
    }

    /// What is behind its lock; none in a process that was forked from its own, where a thread that is not there may
    /// hold it.
    #[inline]
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, State>> {
        (!self.generation.is_over()).then(|| self.state.lock())
    }

    /// The process exits: connections end, and what was taken leaves.
    pub(crate) fn leave(&self) {
        if self.generation.is_over() {
            return;
        }
        let end = Instant::now() + LEAVE_TIME_MAX;
        let Some(mut state) = self.state.try_lock_for(LOCK_TIME_MAX) else {
            return;
        };
        state.finish_all();
        while state.has_unfinished() && !state.is_gone() && Instant::now() < end {
            let wait = Duration::from_millis(5);
            // What fails here `run` finds.
            let _ = state.link.wait(wait);
            state.run();
        }
    }
}

impl Source for Driver {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watched.as_fd())
    }
}

impl Drive for Driver {
    fn run(&self) -> bool {
        let Some(mut state) = self.lock() else {
            return false;
        };
        state.run();
        !state.is_gone()
    }

    fn show(&self, row: InterfaceRow) {
        if let Some(mut state) = self.lock() {
            state.show_interface(&self.interface.name, row);
        }
    }

    fn set_alarm(&self, alarm: Arc<dyn Alarm>) {
        if let Some(mut state) = self.lock() {
            state.set_alarm(alarm);
        }
    }
}
