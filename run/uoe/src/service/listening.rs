//! Where others connect to: who may, and how many.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::guarded::Guarded;
use weft_os::net::TcpListener;
use weft_settings::DiscoveryPort;

use super::greeting::{greeting, Use};
use super::side::Side;
use super::wire::Wire;
use super::Service;
use crate::offload::{now, CARRIERS_MAX};

/// Connections that may wait to be accepted.
pub(super) const BACKLOG: i32 = 64;
/// Connections that were accepted and have not greeted, at most.
const SILENT_MAX: usize = 32;
/// Connections that were accepted and on which no channel was proven, at most.
const STRANGE_MAX: usize = 64;
/// How long nothing is accepted after there was no descriptor or no memory for it: who waits stays, and would wake the
/// thread again at once.
const DEAF_FOR: Duration = Duration::from_millis(100);

impl Service {
    /// Who only sends takes nobody's carriers, and leaves the agreed port to those who do.
    pub(super) fn listen_if_asked(&mut self) {
        let is_serving = self.offload.is_serving.load(Ordering::Acquire);
        if self.listener.is_none() && is_serving {
            self.listen_again();
        } else if self.listener.is_some() && !is_serving {
            self.listener = None;
            if let Some(adapter) = &mut self.adapter {
                adapter.stop_listening();
            }
            self.offload.set_takes(0, self.instance.0, None);
        }
    }

    pub(super) fn accept(&mut self, is_ready: bool) {
        if !is_ready {
            return;
        }
        for _ in 0..BACKLOG {
            let Some(listener) = self.listener.as_mut().and_then(Guarded::get) else {
                return self.listen_again();
            };
            match listener.accept_apart() {
                Ok(Some(stream)) => self.take_in(Wire::of_kernel(stream)),
                Ok(None) => return,
                Err(_) => {
                    self.deaf_until = Some(now() + DEAF_FOR);
                    return;
                }
            }
        }
    }

    /// A connection was made to this process.
    pub(super) fn take_in(&mut self, wire: Wire) {
        // Who connects and says nothing holds a place for a second, who proves nothing for five; whoever comes to more
        // is closed at once.
        let strange = self.sides.iter().filter(|side| side.is_strange());
        let silent = strange.clone().filter(|side| side.link.is_none()).count();
        let has_place = silent < SILENT_MAX && strange.count() < STRANGE_MAX;
        if has_place && self.sides.len() < CARRIERS_MAX {
            let over_adapter = wire.is_adapters();
            let use_of = Use {
                bound: None,
                without_udp: self.offload.rules.any_without_udp() && !over_adapter,
                over_adapter,
                forgives: self.offload.rules.any_forgives(),
                is_rated: false,
            };
            let own = greeting(self.instance, None, use_of);
            self.sides.extend(Side::accepted(wire, own, now()));
        }
    }

    /// Has a listener; where the program has closed its number, another one takes its place.
    fn listen_again(&mut self) {
        self.listener = None;
        if let Some((listener, port)) = listen(self.offload.settings.discovery_port) {
            self.listener = Some(Guarded::new(listener));
            let adapter = self.adapter.as_mut();
            let adapter = adapter.and_then(|one| one.listen(self.offload.settings.discovery_port));
            self.offload.set_takes(port, self.instance.0, adapter);
        }
    }
}

/// Listens at the agreed number if that is free, and else at one of the kernel's choice.
fn listen(port: DiscoveryPort) -> Option<(TcpListener, u16)> {
    let agreed = match port {
        DiscoveryPort::Agreed(agreed) => agreed,
        // Nobody can ask: whoever is asked for is named by the port that is asked at.
        DiscoveryPort::Same => return None,
    };
    let listener = TcpListener::apart(agreed, BACKLOG).or_else(|_| TcpListener::apart(0, BACKLOG));
    let listener = listener.ok()?;
    let port = listener.local_addr().ok()?.port();
    Some((listener, port))
}
