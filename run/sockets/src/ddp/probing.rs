//! A peer that overlooks the first FPDU (decision 0020): Linux siw answers a Request before it begins to listen for
//! FPDUs, and one that comes between the two lies there until the next octet comes. So an end that asked and has heard
//! nothing since sends a Write of nothing now and then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::atomic::try_update;
use weft_os::{sched, stream};
use weft_stream::frame;

use super::slot::State;
use super::{Connection, Slot};
use crate::Errno;

/// When one is sent, each in milliseconds behind the one before it.
const AFTER_MS: [u32; 6] = [5, 20, 80, 320, 1280, 5120];

impl Slot {
    /// The peer may overlook what it is sent first.
    pub(super) fn begin_probing(&self) {
        self.probe_since.store(sched::now_ms(), Ordering::Relaxed);
        self.probes_left
            .store(AFTER_MS.len() as u32, Ordering::Release);
    }

    /// It has said something.
    #[inline]
    pub(super) fn end_probing(&self) {
        if self.is_probing() {
            self.probes_left.store(0, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn is_probing(&self) -> bool {
        self.probes_left.load(Ordering::Relaxed) != 0
    }

    /// Milliseconds until the next one.
    fn probe_in_ms(&self) -> u32 {
        let left = self.probes_left.load(Ordering::Relaxed) as usize;
        let after = AFTER_MS.get(AFTER_MS.len().saturating_sub(left));
        let since = self.probe_since.load(Ordering::Relaxed);
        let passed = sched::now_ms().wrapping_sub(since);
        after.map_or(0, |after| after.saturating_sub(passed))
    }
}

impl Connection<'_> {
    /// Sends what makes the peer look, where that is due.
    ///
    /// # Errors
    /// The connection is over, or another thread is at it.
    pub fn probe(&self) -> Result<(), Errno> {
        if !self.slot.is_probing() || self.slot.state() != State::Open {
            return Ok(());
        }
        if stream::unread(self.fd) > 0 {
            self.slot.end_probing();
            return Ok(());
        }
        if self.slot.probe_in_ms() > 0 {
            return Ok(());
        }
        let mut sending = self.take_sending()?;
        // What waits makes it look, too.
        if sending.rest_len == 0 && sending.shut_down == 0 {
            let octets = frame::ready_to_receive(sending.sender.has_crc());
            sending.count_framing(octets.len());
            self.queue(&mut sending, &octets)?;
            self.flush(&mut sending, 0)?;
        }
        self.slot
            .probe_since
            .store(sched::now_ms(), Ordering::Relaxed);
        // Another thread may have ended it.
        let one_less = |left: u32| left.checked_sub(1);
        let _ = try_update(&self.slot.probes_left, one_less);
        Ok(())
    }

    /// How long nobody has to look for that.
    pub(super) fn probe_pause(&self) -> Duration {
        Duration::from_millis(self.slot.probe_in_ms().into())
    }
}
