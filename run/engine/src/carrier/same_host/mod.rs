//! A connection between two processes of one machine: two rings in memory that they share, beside the connection that
//! they have anyway ([decision 0035](../../../../docs/decisions/0035-rings-between-processes-of-one-machine.md)).
//!
//! A [`SameHost`] wraps a connection and is, at first, nothing else. One end [offers](Rings::offer) memory, the other
//! [accepts](Rings::accept) it, and from then on each sends by its ring. The connection stays: what was on its way in
//! it comes first, single octets in it are the bells, and its end is the end of a process that did not say so.
//!
//! The octets are the stream that they would have been, so nothing above knows. What the other process writes is not
//! trusted: `protocol` checks its counts, and octets are copied before anybody looks at them.

pub(crate) mod protocol;
#[cfg(test)]
mod protocol_tests;
mod rings;
mod shared;
#[cfg(test)]
mod tests;
mod transfer;

use std::cell::{OnceCell, RefCell, RefMut};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use weft_os::rings::{SharedRings, AREA_OCTETS};
use weft_settings::transport::Policy;

use super::{Carrier, Gather, Interest, Readiness, Rings, Scatter, Source, Transfer};
use protocol::{End, FINISHED, GONE, RESET};
use shared::{Shared, ACCEPTED, OFFERED, SWITCHED, WITHDRAWN};
use transfer::State;

const BELL: [u8; 1] = [0];

/// A connection with rings beside it, once there are any.
#[derive(Debug)]
pub struct SameHost {
    connection: Box<dyn Carrier>,
    shared: OnceCell<Arc<Shared>>,
    state: RefCell<State>,
}

impl SameHost {
    /// Over a connection of which `received` octets of full operation are read already.
    pub(crate) fn over(connection: Box<dyn Carrier>, received: usize) -> SameHost {
        SameHost {
            connection,
            shared: OnceCell::new(),
            state: RefCell::new(State {
                end: End::new(AREA_OCTETS),
                sent: 0,
                received: received as u64,
                sends_by_ring: false,
                reads_ring: false,
                connection_read: false,
                look: false,
                over: None,
                unheard: false,
                aborts: false,
                bell_due: false,
            }),
        }
    }

    fn share(&self, rings: SharedRings, own: usize, wants_crc: bool) -> io::Result<&Shared> {
        let shared = Shared::new(rings, own, wants_crc);
        match self.shared.set(Arc::new(shared)) {
            Ok(()) => self
                .shared
                .get()
                .map(|shared| &**shared)
                .ok_or(io::ErrorKind::Other.into()),
            Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// The memory, where both ends use it.
    #[inline]
    fn in_use(&self) -> Option<(&Shared, RefMut<'_, State>)> {
        let shared = self.shared.get()?;
        Some((shared, self.state.borrow_mut()))
    }

    /// From here on octets leave by the ring.
    fn begin(&self, shared: &Shared, state: &mut State) {
        if !state.sends_by_ring {
            state.sends_by_ring = true;
            // Before the first bell, which must not be taken for an octet.
            shared.words(shared.own)[SWITCHED].store(state.sent + 1, Ordering::SeqCst);
        }
    }

    /// Whether the other end has taken what this one offered.
    fn is_accepted(shared: &Shared) -> bool {
        shared.own == 1
            || shared.offer_word().load(Ordering::SeqCst) & (ACCEPTED | WITHDRAWN) == ACCEPTED
    }

    #[inline]
    fn ring(&self, is_due: bool) {
        if is_due {
            // A connection without room for an octet has others, which wake the other end as well.
            let _ = self.connection.send(&BELL);
        }
    }
}

impl SameHost {
    fn has_room_now(shared: &Shared, state: &mut State) -> bool {
        Self::is_cut(shared, state) || state.end.has_room_again(shared.other()) != Ok(false)
    }

    /// The memory that was offered, if the other end has taken it; an offer that nobody has taken ends.
    fn settle(&self) -> Option<&Shared> {
        let shared = self.shared.get().filter(|shared| !shared.is_foreign())?;
        let is_in_use = self.state.borrow().sends_by_ring || {
            let order = Ordering::SeqCst;
            let offer = shared.offer_word();
            let _ = offer.compare_exchange(OFFERED, WITHDRAWN, order, order);
            Self::is_accepted(shared)
        };
        is_in_use.then_some(shared)
    }
}

impl Source for SameHost {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.connection.descriptor()
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        self.connection.wait_for(interest, readiness);
    }
}

impl Carrier for SameHost {
    fn set_policy(&self, policy: &Policy) -> io::Result<()> {
        self.connection.set_policy(policy)
    }

    fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    fn connect_result(&self) -> io::Result<()> {
        self.connection.connect_result()
    }

    #[inline]
    fn send(&self, octets: &[u8]) -> Transfer {
        self.transfer_out(
            |connection| connection.send(octets),
            |me, shared, state| {
                me.put_in_ring(shared, state, octets.len(), |area, at, (from, len)| {
                    let part = &octets[from..from + len];
                    shared.rings.put(area, at, part).is_ok()
                })
            },
        )
    }

    #[inline]
    fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        self.transfer_out(
            |connection| connection.send_gather(list),
            |me, shared, state| {
                me.put_in_ring(shared, state, list.octets(), |area, at, part| {
                    shared.rings.put_list(area, at, list, part).is_ok()
                })
            },
        )
    }

    fn unreleased(&self) -> usize {
        self.connection.unreleased()
    }

    fn keep_copies(&self) {
        self.connection.keep_copies();
    }

    #[inline]
    fn recv(&self, buffer: &mut [u8]) -> Transfer {
        let buffer = RefCell::new(buffer);
        self.receive(
            |connection| connection.recv(&mut buffer.borrow_mut()),
            |me, shared, state| {
                let mut buffer = buffer.borrow_mut();
                let most = buffer.len();
                me.take_of_ring(shared, state, most, |area, at, (from, len)| {
                    let part = &mut buffer[from..from + len];
                    shared.rings.take(area, at, part).is_ok()
                })
            },
        )
    }

    #[inline]
    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        self.receive(
            |connection| connection.recv_scatter(list),
            |me, shared, state| {
                me.take_of_ring(shared, state, list.octets(), |area, at, part| {
                    shared.rings.take_list(area, at, list, part).is_ok()
                })
            },
        )
    }

    /// The connection stays open in both directions: the other end may need its bell rung for room.
    fn finish(&self) {
        match self.settle() {
            Some(shared) => {
                self.begin(shared, &mut self.state.borrow_mut());
                self.ring(protocol::say(shared.own(), shared.other(), FINISHED));
            }
            None => self.connection.finish(),
        }
    }

    fn is_broken(&self) -> bool {
        let cut = self.shared.get().is_some_and(|shared| {
            let said = shared.state_of_other();
            let finished = shared.own().state.load(Ordering::Relaxed) & FINISHED != 0;
            said & RESET != 0 || finished && said & FINISHED != 0
        });
        cut || self.connection.is_broken()
    }

    fn abort_on_close(&self) {
        self.state.borrow_mut().aborts = true;
        self.connection.abort_on_close();
    }

    fn keep_after_close(&self, time: Duration) {
        self.connection.keep_after_close(time);
    }

    fn emss(&self) -> io::Result<usize> {
        self.connection.emss()
    }

    fn take_new_emss(&self) -> Option<usize> {
        self.connection.take_new_emss()
    }

    fn attached(&self) {
        self.connection.attached();
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.connection.local_addr()
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.connection.peer_addr()
    }

    fn rings(&self) -> Option<&dyn Rings> {
        Some(self)
    }
}

impl Drop for SameHost {
    /// As the kernel closes a socket: a reset where that was asked for or something was not read, else the end of the
    /// stream behind what was sent.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            // Who looks at it finds that it is gone, and lets go of the memory.
            shared.end_quiet();
        }
        let Some(shared) = self.settle() else {
            return;
        };
        let mut state = self.state.borrow_mut();
        let unread = state.end.available(shared.other()) != Ok(0);
        let how = match state.aborts || unread {
            true => RESET,
            false => FINISHED,
        };
        // The end of the connection is the bell.
        protocol::say(shared.own(), shared.other(), GONE | how);
    }
}
