//! The member whose descriptor the epoll set does not watch for a while, because a thread that polls reads it itself.
//!
//! A program that polls for the completion of a Write which the peer has to acknowledge reads the socket itself. Once
//! it has the completion it may go on to spin on memory (`ib_write_lat`), where only the service thread serves it, so
//! that one stays in the epoll set (decision 0002). There it would be woken for each acknowledgement too, when the
//! poller has read it already, and on a machine whose cores all spin it then has no turn left when it is needed. So
//! while the acknowledgement is awaited and polled for, the set does not wait for what this one connection receives:
//! the poller has a *lease* of it. A program that has many Writes under way does not go on to spin on memory, and is
//! left alone with this.
//!
//! What a device receives for connections without a descriptor wakes the set, too. So the device is leased along with
//! the connection: the poller runs it, and what it brings for other connections makes these ready.
//!
//! Who polled for it many times in a row is expected to do so for the next: that lease begins with the post, or what
//! the peer writes in answer would wake the service thread before the first poll.
//!
//! The set waits for it again with the acknowledgement; when pollers read another member first; when the program asks
//! for an event or waits for one; and a millisecond or two after the program has stopped to poll.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::member::Member;

/// A thread has to poll so often in a row and find nothing before it has a lease: what looks once or twice before it
/// asks for an event does not wait by polling.
pub(super) const EMPTY_POLLS_MIN: u32 = 6;

/// The one member that is leased, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// A hint: there may be one.
    any: AtomicBool,
    member: Mutex<Option<Weak<dyn Member>>>,
}

impl Lease {
    /// Whether there may be one.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(super) fn is_of(&self, member: &Arc<dyn Member>) -> bool {
        let leased = self.member.lock();
        leased
            .as_ref()
            .is_some_and(|leased| std::ptr::addr_eq(leased.as_ptr(), Arc::as_ptr(member)))
    }

    /// The same of a member that is not counted, under its own lock.
    pub(super) fn is_at(&self, member: &dyn Member) -> bool {
        let leased = self.member.lock();
        leased
            .as_ref()
            .is_some_and(|leased| std::ptr::addr_eq(leased.as_ptr(), member))
    }

    /// Ends the lease: the set watches the member again.
    pub(super) fn end(&self) {
        self.any.store(false, Ordering::Relaxed);
        let leased = self.member.lock().take();
        if let Some(member) = leased.and_then(|leased| leased.upgrade()) {
            member.end_lease();
        }
    }

    /// Leases a member to the calling thread; the lease of another one ends.
    pub(super) fn give(&self, member: &Arc<dyn Member>) {
        let before = {
            let mut leased = self.member.lock();
            self.any.store(true, Ordering::Relaxed);
            leased.replace(Arc::downgrade(member))
        };
        let before = before.and_then(|before| before.upgrade());
        if let Some(other) = before.filter(|before| !Arc::ptr_eq(before, member)) {
            other.end_lease();
        }
        member.lease();
    }
}
