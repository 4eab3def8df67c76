//! What is left of a carrier's octets as its process ends.

use std::sync::atomic::Ordering;

use weft_os::stream::unacknowledged;

use super::{Link, Outlet};

impl Link {
    /// The process ends: what waits never leaves, and nothing is put in any more.
    pub(crate) fn end_with_process(&self) {
        if let Some(mut outgoing) = self.outgoing().filter(|_| self.waits()) {
            self.give_up(&mut outgoing.gather);
            self.waits.store(false, Ordering::Release);
        }
    }

    /// Whether something of it waits to leave, or has left and is not acknowledged; an adapter's connection is
    /// not asked.
    pub(crate) fn is_under_way(&self) -> bool {
        let Some(mut outgoing) = self.outgoing() else {
            return false;
        };
        match &mut outgoing.outlet {
            Some(Outlet::Kernel(stream)) => {
                let unacknowledged = stream.get().map(|stream| unacknowledged(stream.raw()));
                self.waits() || unacknowledged.is_some_and(|octets| octets > 0)
            }
            Some(Outlet::Thread(_)) | None => false,
        }
    }

    /// Datagrams that never left, since this was asked last.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}
