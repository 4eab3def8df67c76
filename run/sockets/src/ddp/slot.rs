//! What a connection is, in memory that all processes of a family share.

mod options;

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::atomic::try_update;
use weft_os::shared::{self, Shared};
use weft_os::{process, sched};
use zerocopy::FromZeros;

use super::directions::{Receiving, Sending};
use super::slots;
pub use super::state::State;
use super::state::{OPEN, OVER, TOLD};
use super::told_maps::ToldMaps;
use super::users::Users;
use crate::Errno;

/// Octets of the stream in one FPDU of ours at most.
pub(super) const PAYLOAD_MAX: usize = 32 << 10;
/// What may have to wait behind a full socket: an FPDU, and messages behind it.
pub(super) const REST_MAX: usize = PAYLOAD_MAX + 1024;
/// The longest FPDU there is, and a peek's beginning of the next.
pub(super) const AREA_MAX: usize = (64 << 10) + 512;

/// A connection in shared memory. Free while it is zero.
#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
pub struct Slot {
    pub(super) state: AtomicU32,
    /// A process forked that had the socket: who has it still, the kernel alone knows.
    is_shared: AtomicU32,
    /// Something is in `rest`.
    has_rest: AtomicU32,
    /// This end has shut the receiving direction down.
    receives_no_more: AtomicU32,
    /// When the slot was taken, in milliseconds; wraps.
    since: AtomicU32,
    /// The process that has the connection, as long as it has; 0 where those have it that it was shared with.
    owner: AtomicU32,
    /// Octets of the stream that make the socket readable, as the program set it; 0 where that is not known yet.
    low_water: AtomicU32,
    /// What the program set `TCP_NODELAY` to: see `options`; 0 where that is not known yet.
    no_delay: AtomicU32,
    /// A message has to come that is all there may be.
    owes_message: AtomicU32,
    /// This end wants FPDUs to have a CRC.
    wants_crc: AtomicU32,
    /// Octets of an FPDU that has to come whole; 0 for none.
    fpdu_awaited: AtomicU32,
    /// FPDUs have a CRC, and are nothing before that was checked.
    pub(super) has_crc: AtomicU32,
    /// It is to be DDP where the other end is Weft, and TCP else.
    prefers: AtomicU32,
    /// The other end, which was asked, is not Weft: the program's octets leave as they are.
    goes_plain: AtomicU32,
    /// It is known what the other end, which was asked, is. Every process that has the connection goes by the first
    /// word that was said of that.
    is_resolved: AtomicU32,
    /// A receive was refused, or hidden, as it was not known what the other end is.
    hides_octets: AtomicU32,
    /// How old the slot has to be before the program's octets leave without a Request, in milliseconds, and one; 0
    /// where that is not known yet.
    wait_until: AtomicU32,
    /// When a part of a Request was first seen, in milliseconds, odd; 0 for never.
    part_since: AtomicU32,
    /// When the program closed the connection, in milliseconds; wraps.
    closed_since: AtomicU32,
    /// A send was refused for want of room that the peer has to give, and nobody has been told of any since.
    is_short: AtomicU32,
    /// What a send failed with that nobody has been told of; 0 for none.
    send_error: AtomicU32,
    /// The peer is not Weft.
    pub(super) is_foreign: AtomicU32,
    /// How often a peer that has said nothing is still made to look, and since when nothing was sent for that.
    pub(super) probes_left: AtomicU32,
    pub(super) probe_since: AtomicU32,
    /// Entries of this end's table of what the peer maps.
    pub(super) map_entries: AtomicU32,
    /// The process that has mapped memory for the peer; 0 for none.
    pub(super) mapped_by: AtomicU32,
    /// The processes that have used the connection and may have it still.
    pub(super) users: Users,
    /// Taken before `sending` where both are.
    pub(super) receiving: Shared<Receiving>,
    pub(super) sending: Shared<Sending>,
    /// Octets that have to leave before any others. Taken with `sending`.
    pub(super) rest: Shared<[u8; REST_MAX]>,
    /// Where FPDUs are looked at as a whole. Taken with `receiving`.
    pub(super) area: Shared<[u8; AREA_MAX]>,
    /// What the peer has mapped.
    pub(super) told_maps: ToldMaps,
}

impl Slot {
    /// So many slots for a test, shared with every process forked from this one.
    pub fn make(count: usize) -> Option<&'static [Slot]> {
        shared::values(count)
    }

    /// From now on a connection of one process, in this network namespace.
    pub(super) fn begin(&self, state: State, crc: bool, network: Option<u64>) {
        self.users.begin(network);
        self.set_wants_crc(crc);
        self.set_fpdu_awaited(0);
        self.set_has_crc(false);
        self.prefers.store(0, Ordering::Relaxed);
        self.wait_until.store(0, Ordering::Relaxed);
        self.goes_plain.store(0, Ordering::Relaxed);
        self.is_resolved.store(0, Ordering::Relaxed);
        self.hides_octets.store(0, Ordering::Relaxed);
        self.is_shared.store(0, Ordering::Relaxed);
        self.has_rest.store(0, Ordering::Relaxed);
        self.receives_no_more.store(0, Ordering::Relaxed);
        self.owner.store(process::member(), Ordering::Relaxed);
        self.low_water.store(0, Ordering::Relaxed);
        self.no_delay.store(0, Ordering::Relaxed);
        self.owes_message.store(0, Ordering::Relaxed);
        self.part_since.store(0, Ordering::Relaxed);
        self.set_short(false);
        self.send_error.store(0, Ordering::Relaxed);
        self.is_foreign.store(0, Ordering::Relaxed);
        self.probes_left.store(0, Ordering::Relaxed);
        self.map_entries.store(0, Ordering::Relaxed);
        self.mapped_by.store(0, Ordering::Relaxed);
        self.restart_clock();
        self.set_state(state);
    }

    /// The receiving direction is about to be shut down.
    pub(super) fn stop_receiving(&self) {
        self.receives_no_more.store(1, Ordering::Release);
    }

    pub(super) fn has_crc(&self) -> bool {
        self.has_crc.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_has_crc(&self, crc: bool) {
        self.has_crc.store(crc.into(), Ordering::Relaxed);
    }

    pub(super) fn prefers(&self) -> bool {
        self.prefers.load(Ordering::Relaxed) != 0
    }

    /// It is to be DDP where the other end is Weft, and TCP else.
    pub fn set_prefers(&self) {
        self.prefers.store(1, Ordering::Relaxed);
    }

    /// Whether the other end, which was asked, is not Weft: the program's octets leave as they are.
    pub(crate) fn goes_plain(&self) -> bool {
        self.goes_plain.load(Ordering::Acquire) != 0
    }

    pub(super) fn set_goes_plain(&self) {
        self.goes_plain.store(1, Ordering::Release);
    }

    pub(super) fn is_resolved(&self) -> bool {
        self.is_resolved.load(Ordering::Acquire) != 0
    }

    pub(super) fn set_resolved(&self) {
        self.is_resolved.store(1, Ordering::Release);
    }

    /// A receive was refused, or hidden, as it is not known what the other end is.
    pub(crate) fn set_hides_octets(&self) {
        self.hides_octets.store(1, Ordering::Relaxed);
    }

    /// Whether one was since this was asked before.
    pub(crate) fn take_hides_octets(&self) -> bool {
        self.hides_octets.load(Ordering::Relaxed) != 0
            && self.hides_octets.swap(0, Ordering::Relaxed) != 0
    }

    pub(super) fn wait_until_ms(&self) -> Option<u32> {
        self.wait_until.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn set_wait_until_ms(&self, ms: u32) {
        self.wait_until
            .store(ms.saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn fpdu_awaited(&self) -> usize {
        self.fpdu_awaited.load(Ordering::Relaxed) as usize
    }

    pub(super) fn set_fpdu_awaited(&self, octets: u32) {
        self.fpdu_awaited.store(octets, Ordering::Relaxed);
    }

    pub(super) fn wants_crc(&self) -> bool {
        self.wants_crc.load(Ordering::Relaxed) != 0
    }

    /// Whether this end wants FPDUs to have a CRC, which the start asks for.
    pub fn set_wants_crc(&self, crc: bool) {
        self.wants_crc.store(crc.into(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn owes_message(&self) -> bool {
        self.owes_message.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(super) fn set_owes_message(&self, owes: bool) {
        self.owes_message.store(owes.into(), Ordering::Relaxed);
    }

    /// Whether a send was refused for want of room that the peer has to give, and nobody has been told of any since.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) != 0
    }

    /// It was, or was not, or somebody has been told.
    #[inline]
    pub fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short.into(), Ordering::Relaxed);
    }

    /// The owner has the connection no longer.
    pub(super) fn disown(&self) {
        let own = process::member();
        let _ = self
            .owner
            .compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether it is for this process to see to it that what was sent leaves.
    pub fn is_left_to(&self, process: u32) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        owner == process || owner == 0 || !process::exists(owner)
    }

    /// Takes the connection from a process that has ended, where nobody else can have it; whether there was one such.
    pub(super) fn take_from_dead(&self, has_ended: impl FnOnce(u32) -> bool) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        let is_alone = owner != 0 && !self.is_shared();
        // Somebody else may look as well.
        let take = || {
            self.owner
                .compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        is_alone && has_ended(owner) && take()
    }

    /// Milliseconds are counted from now on.
    pub fn restart_clock(&self) {
        self.since.store(sched::now_ms(), Ordering::Relaxed);
    }

    /// Milliseconds since the slot was taken, or since somebody set the clock.
    pub fn age_ms(&self) -> u32 {
        sched::now_ms().wrapping_sub(self.since.load(Ordering::Relaxed))
    }

    /// Milliseconds since a part of the start was first seen, which is now where it never was.
    pub(super) fn part_age_ms(&self) -> u32 {
        let now = sched::now_ms() | 1;
        let first = self
            .part_since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(|since| now.wrapping_sub(since), |_| 0)
    }

    /// Whether a part of a Request was seen.
    pub(super) fn has_part(&self) -> bool {
        self.part_since.load(Ordering::Relaxed) != 0
    }

    /// The program closes the connection.
    pub fn begin_to_close(&self) {
        self.closed_since.store(sched::now_ms(), Ordering::Relaxed);
    }

    /// Milliseconds since it did.
    pub fn closed_for_ms(&self) -> u32 {
        sched::now_ms().wrapping_sub(self.closed_since.load(Ordering::Relaxed))
    }

    pub(super) fn receives_no_more(&self) -> bool {
        self.receives_no_more.load(Ordering::Acquire) != 0
    }

    /// The process forks: from now on another may have the connection too.
    pub(super) fn share(&self) {
        self.is_shared.store(1, Ordering::Release);
    }

    /// Whether another process may have the connection too.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub(super) fn has_rest(&self) -> bool {
        self.has_rest.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_has_rest(&self, has_rest: bool) {
        self.has_rest.store(has_rest.into(), Ordering::Relaxed);
    }

    /// As if it had never been taken.
    pub(super) fn clear(&self) {
        slots::clear(&self.receiving);
        slots::clear(&self.sending);
        slots::clear_octets(&self.rest);
        slots::clear_octets(&self.area);
        // Else its page was never touched.
        if self.map_entries.load(Ordering::Relaxed) > 0 {
            self.told_maps.clear();
        }
        // Whose it was must not be said of who takes it next.
        self.owner.store(0, Ordering::Relaxed);
        self.set_state(State::Free);
    }

    /// Whether it is [`State::Open`], as nearly always.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// How far the connection is.
    #[inline]
    pub fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state.to_word(), Ordering::Release);
    }

    /// From `before` to `state`, unless it was over meanwhile.
    pub(super) fn advance(&self, before: State, state: State) -> bool {
        self.state
            .compare_exchange(
                before.to_word(),
                state.to_word(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// The connection is over by this error; whether it was not yet.
    pub(super) fn end(&self, errno: Errno) -> bool {
        let end = |word| (word < OVER).then_some(OVER | errno as u32);
        try_update(&self.state, end).is_ok()
    }

    /// A send failed, of a call or of what was left to leave. The kernel tells of it once, and has.
    pub(super) fn keep_send_error(&self, errno: Errno) {
        self.send_error.store(errno as u32, Ordering::Release);
    }

    /// What the connection ended with, or a send failed with. The program is told once; later calls find it closed.
    pub fn tell_error(&self) -> Option<Errno> {
        let of_send = self.send_error.swap(0, Ordering::AcqRel);
        let tell = |word| (word & (OVER | TOLD) == OVER).then_some(word | TOLD);
        match try_update(&self.state, tell) {
            Ok(word) => Some((word & (OVER - 1)) as Errno),
            Err(_) => (of_send != 0).then_some(of_send as Errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_had_mapped_is_nobodys_with_the_next_connection() {
        use weft_stream::{Map, Target};
        let slot = &Slot::make(1).unwrap()[0];
        slot.begin(State::Connecting, false, None);
        slot.set_map_entries(1);
        let target = Target {
            to: 1,
            stag: 2,
            len: 3,
        };
        slot.told_maps.set(0, &Map { offset: 0, target });
        assert!(slot.told_maps.find(0).is_some());
        slot.clear();
        assert_eq!(slot.told_maps.find(0), None);
    }

    #[test]
    fn a_connection_is_over_once() {
        let slot = &Slot::make(1).unwrap()[0];
        assert_eq!(slot.state(), State::Free);
        assert!(slot.end(libc::ECONNRESET));
        assert!(!slot.end(libc::EPIPE));
        assert!(!slot.advance(State::Plain, State::Open));
        assert_eq!(slot.state(), State::Over(libc::ECONNRESET));
        assert_eq!(slot.tell_error(), Some(libc::ECONNRESET));
        assert_eq!(slot.tell_error(), None);
        assert_eq!(slot.state(), State::Over(libc::ECONNRESET));
    }

    #[test]
    fn the_error_of_a_send_is_told_once_and_ends_nothing() {
        let slot = &Slot::make(1).unwrap()[0];
        slot.begin(State::Connecting, false, None);
        slot.keep_send_error(libc::ECONNRESET);
        assert_eq!(slot.state(), State::Connecting);
        assert_eq!(slot.tell_error(), Some(libc::ECONNRESET));
        assert_eq!(slot.tell_error(), None);
        // One that is over by now is told of once, too.
        slot.keep_send_error(libc::ECONNRESET);
        assert!(slot.end(libc::ETIMEDOUT));
        assert_eq!(slot.tell_error(), Some(libc::ETIMEDOUT));
        assert_eq!(slot.tell_error(), None);
        // It is none of the next connection's.
        slot.keep_send_error(libc::ECONNRESET);
        slot.begin(State::Connecting, false, None);
        assert_eq!(slot.tell_error(), None);
    }

    /// An idle connection has touched its first page only.
    #[test]
    fn what_every_call_needs_is_in_one_page() {
        assert!(std::mem::offset_of!(Slot, rest) < 3500);
        assert!(std::mem::size_of::<Slot>().is_multiple_of(4096));
    }
}
