//! Which processes have used a connection and may have it still.
//!
//! A process that forks leaves its descriptors to its child, and nobody sees what becomes of those: whether a socket is
//! anybody's the kernel alone knows, and it tells only of those that still have a connection. So whoever makes a call
//! on a connection that was shared enters itself here. A slot that nobody is entered in, and whose socket the kernel
//! does not tell of, is nobody's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weft_os::process;
use zerocopy::FromZeros;

/// Processes that are told apart. With more the slot is freed when the family has ended.
const USERS_MAX: usize = 8;

/// The users of one slot.
#[derive(Debug, FromZeros)]
pub(super) struct Users {
    /// The network namespace of the socket, as the kernel numbers them; 0 where it does not.
    network: AtomicU64,
    /// The processes; 0 for none.
    list: [AtomicU32; USERS_MAX],
    /// There was no place for one.
    is_crowded: AtomicU32,
    /// The process that frees the slot; 0 for none. Whoever enters itself meanwhile is late.
    freed_by: AtomicU32,
}

impl Users {
    /// This process alone.
    pub(super) fn begin(&self, network: Option<u64>) {
        self.network.store(network.unwrap_or(0), Ordering::Relaxed);
        self.is_crowded.store(0, Ordering::Relaxed);
        self.list[1..]
            .iter()
            .for_each(|place| place.store(0, Ordering::Relaxed));
        self.list[0].store(process::member(), Ordering::Relaxed);
        self.freed_by.store(0, Ordering::Release);
    }

    /// The network namespace of the socket, where it is known.
    pub(super) fn network(&self) -> Option<u64> {
        Some(self.network.load(Ordering::Relaxed)).filter(|network| *network != 0)
    }

    /// This process uses the connection; false where the slot is being freed.
    pub(super) fn enter(&self) -> bool {
        let own = process::member();
        if !self.has(own) && !self.take_place(own) {
            self.is_crowded.store(1, Ordering::SeqCst);
        }
        self.freed_by.load(Ordering::SeqCst) == 0
    }

    /// Whether this process is entered.
    pub(super) fn has_own(&self) -> bool {
        self.has(process::member())
    }

    fn has(&self, process: u32) -> bool {
        self.list
            .iter()
            .any(|place| place.load(Ordering::SeqCst) == process)
    }

    /// Takes a place that is free, or that of one that has ended. Whether somebody has ended is asked only where none
    /// is free: a program that has confined itself may not ask.
    fn take_place(&self, own: u32) -> bool {
        let try_place = |place: &AtomicU32, is_free: fn(u32) -> bool| {
            let before = place.load(Ordering::Relaxed);
            is_free(before)
                && place
                    .compare_exchange(before, own, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let is_empty: fn(u32) -> bool = |before| before == 0;
        let is_left: fn(u32) -> bool = |before| !process::exists(before);
        [is_empty, is_left]
            .into_iter()
            .any(|is_free| self.list.iter().any(|place| try_place(place, is_free)))
    }

    /// This process uses it no longer.
    pub(super) fn leave(&self) {
        let own = process::member();
        for place in &self.list {
            let _ = place.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether a process may use it still. `has_ended` is asked of others.
    pub(super) fn are_any(&self, mut has_ended: impl FnMut(u32) -> bool) -> bool {
        let is_there = |place: &AtomicU32| {
            let process = place.load(Ordering::SeqCst);
            process != 0 && !has_ended(process)
        };
        self.is_crowded.load(Ordering::SeqCst) != 0 || self.list.iter().any(is_there)
    }

    /// This process frees the slot, unless another one that lives does; [`Users::begin`] or [`Users::spare`] follows.
    pub(super) fn begin_to_free(&self) -> bool {
        let before = self.freed_by.load(Ordering::SeqCst);
        (before == 0 || !process::exists(before))
            && self
                .freed_by
                .compare_exchange(
                    before,
                    process::member(),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// It does not after all.
    pub(super) fn spare(&self) {
        self.freed_by.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::testing::{await_child, fork};

    #[test]
    fn a_connection_has_users_until_each_has_left_or_ended() {
        process::watch();
        let users = Users::new_zeroed();
        users.begin(Some(7));
        assert_eq!(users.network(), Some(7));
        let has_ended = |process| process::has_ended(process);
        assert!(users.are_any(has_ended));
        assert!(users.enter() && users.enter());
        users.leave();
        assert!(!users.are_any(has_ended), "once is enough");
        // Nobody has these numbers: they are above the kernel's greatest.
        let dead = |at: u32| (1 << 22) + at;
        for (at, place) in users.list.iter().enumerate() {
            place.store(dead(at as u32), Ordering::Relaxed);
        }
        assert!(!users.are_any(has_ended));
        assert!(
            users.enter() && users.are_any(has_ended),
            "the dead make room"
        );
        users
            .list
            .iter()
            .for_each(|place| place.store(1, Ordering::Relaxed));
        assert!(users.enter());
        users
            .list
            .iter()
            .for_each(|place| place.store(0, Ordering::Relaxed));
        assert!(
            users.are_any(has_ended),
            "nobody knows who came when it was full"
        );
    }

    #[test]
    fn a_slot_is_freed_by_one_and_who_comes_meanwhile_is_late() {
        process::watch();
        let users = Box::leak(Box::new(Users::new_zeroed()));
        users.begin(None);
        users.leave();
        assert!(users.begin_to_free() && !users.begin_to_free());
        assert!(!users.enter());
        users.spare();
        assert!(users.enter());
        users.leave();
        users.freed_by.store(1 << 22, Ordering::Relaxed);
        assert!(users.begin_to_free(), "who was at it has died");
        let shared = weft_os::shared::values::<crate::ddp::Slot>(1).unwrap();
        let users = &shared[0].users;
        users.begin(None);
        users.leave();
        let child = fork(|| users.enter());
        assert!(await_child(child));
        assert!(!users.are_any(process::has_ended), "it has ended");
    }
}
