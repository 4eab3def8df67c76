//! Names of sockets that this process has channels of: no other process has any of them meanwhile.

use std::os::fd::RawFd;
use std::time::Duration;

use weft_os::guarded::Guarded;
use weft_os::seqpacket::{own_user, Listener};

use super::{Service, TICK};
use crate::offload::now;
use crate::owning::{name_of, HEARD_AFTER};
use crate::port::Held;

/// Others that are heard of in one go. Anybody on the machine can connect to a name.
const HEARD_MAX: usize = 16;
/// How long nobody is heard after so many.
const DEAF_FOR: Duration = Duration::from_millis(100);
/// How long what came over carriers may wait for the program once another process has received from the socket.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How often it is looked whether a name's descriptor is still its own.
const SEEN_TO_EVERY: Duration = Duration::from_millis(20);
/// How soon it is looked again whether it was taken.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One socket's name.
#[derive(Debug)]
pub(crate) struct Name {
    pub(super) port: Held,
    listener: Guarded<Listener>,
    since: Duration,
    deaf_until: Duration,
    /// Somebody may have connected since it was looked at last.
    may_be_met: bool,
    /// When it is to be looked whether the descriptor is still the name's.
    seen_to_at: Duration,
    /// Another process receives from the socket: the name is let go of, by then at the latest.
    given_up_by: Option<Duration>,
}

impl Name {
    /// What to wait for.
    pub(super) fn number(&self, now: Duration) -> RawFd {
        match now < self.deaf_until {
            true => -1,
            false => self.listener.number(),
        }
    }

    /// What the wait for [`Name::number`] said.
    pub(super) fn note_ready(&mut self, is_ready: bool) {
        self.may_be_met |= is_ready;
    }

    /// Whether its descriptor is still its own. The program may close it with all others, which shows soon enough: a
    /// look costs a call of the kernel's.
    fn is_there(&mut self, now: Duration) -> bool {
        if now < self.seen_to_at {
            return true;
        }
        self.seen_to_at = now + SEEN_TO_EVERY;
        self.listener.is_there()
    }
}

/// Whether this process may have channels of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owns {
    Yes,
    /// Others that receive from it have to hear of that first.
    Soon,
    /// Another process has some, or receives from it.
    No,
}

impl Service {
    /// Whether this process may have channels of a socket; takes its name where nobody has it.
    pub(super) fn owns(&mut self, port: Held) -> Owns {
        self.names
            .retain(|name| name.port != port || name.listener.is_there());
        let now = now();
        let is_shared = port.port.is_shared();
        if let Some(name) = self.names.iter().find(|name| name.port == port) {
            return match name.given_up_by {
                Some(_) => Owns::No,
                None if is_shared && now < name.since + HEARD_AFTER => Owns::Soon,
                None => Owns::Yes,
            };
        }
        let Some((name, len)) = port.with_fd(name_of).flatten() else {
            return Owns::No;
        };
        let listener = match Listener::bind(&name[..len]) {
            Ok(listener) => Guarded::new(listener),
            Err(error) => {
                let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
                port.port.owning.set_others(is_taken);
                return Owns::No;
            }
        };
        port.port.owning.set_held(true);
        self.names.push(Name {
            port,
            listener,
            since: now,
            deaf_until: Duration::ZERO,
            may_be_met: true,
            seen_to_at: now + SEEN_TO_EVERY,
            given_up_by: None,
        });
        match is_shared {
            true => Owns::Soon,
            false => Owns::Yes,
        }
    }

    /// Other processes receive from sockets that this one has channels of: those come to an end.
    pub(super) fn hear_of_others(&mut self) {
        let now = now();
        let mut met = Vec::new();
        let may_hear = |name: &&mut Name| name.may_be_met && now >= name.deaf_until;
        for name in self.names.iter_mut().filter(may_hear) {
            name.may_be_met = false;
            let Some(listener) = name.listener.get() else {
                // It is let go of at once.
                name.seen_to_at = now;
                continue;
            };
            for heard in 1..=HEARD_MAX {
                let Ok(Some(other)) = listener.accept() else {
                    break;
                };
                let is_met = other.peer_user() == Some(own_user());
                if is_met && name.given_up_by.is_none() {
                    name.given_up_by = Some(now + TAKEN_WITHIN);
                    met.push(name.port);
                }
                if heard == HEARD_MAX {
                    name.may_be_met = true;
                    name.deaf_until = now + DEAF_FOR;
                }
            }
        }
        for port in met.into_iter().filter(Held::is_alive) {
            port.port.owning.rest(now);
            self.refuse_to(port);
        }
    }

    /// Lets names go that are needed no longer.
    pub(super) fn let_names_go(&mut self) {
        let now = now();
        let mut next = None;
        for mut name in std::mem::take(&mut self.names) {
            if self.needs_name(&mut name, now) {
                let again = name.given_up_by.map(|_| now + LOOK_AGAIN);
                next = [next, again].into_iter().flatten().min();
                self.names.push(name);
            } else if name.port.is_alive() {
                name.port.port.owning.set_held(false);
            }
        }
        if let Some(at) = next {
            self.look_at(at);
        }
    }

    fn needs_name(&self, name: &mut Name, now: Duration) -> bool {
        let port = name.port;
        if !port.is_alive() || port.port.is_off() || !name.is_there(now) {
            return false;
        }
        let peer = self
            .sides
            .iter()
            .flat_map(|side| side.peer_channels.values());
        let own = self
            .sides
            .iter()
            .flat_map(|side| side.own_channels.values());
        let waits = || port.inlet().is_some_and(|mut inlet| !inlet.is_empty(now));
        if let Some(by) = name.given_up_by {
            let is_opening = |channel: &super::channels::OwnChannel| {
                channel.wanted.port == port && !channel.is_open
            };
            if { own }.any(is_opening) {
                return true;
            }
            if now >= by {
                self.throw_away(port);
            }
            return now < by && waits();
        }
        let wants = self.sides.iter().flat_map(|side| &side.wants);
        let is_young = now < name.since + HEARD_AFTER + 10 * TICK;
        is_young
            || { peer }.any(|channel| channel.port == port)
            || { own }.any(|channel| channel.wanted.port == port)
            || { wants }.any(|wanted| wanted.port == port)
            || waits()
    }

    /// What waits at a socket is not taken by this process's program: it is dropped, and counted.
    fn throw_away(&self, port: Held) {
        let Some(mut inlet) = port.inlet() else {
            return;
        };
        let waiting = inlet.put - inlet.passed();
        inlet.throw_away();
        let counter = &self.offload.counts.dropped_received;
        counter.fetch_add(waiting, std::sync::atomic::Ordering::Relaxed);
    }
}
