//! What comes on a carrier's connection.

use weft_engine::carrier::Transfer;
use weft_uoe::greeting::{NoGreeting, GREETING_LEN};
use weft_uoe::{Fault, Greeting};

use super::side::{Phase, Side};
use super::wire::Wire;

/// Octets that one read takes.
const READ_OCTETS: usize = 256 * 1024;
/// Memory for what was read: that, and the longest frame's beginning.
const ROOM_OCTETS: usize = READ_OCTETS + 68 * 1024;

impl Side {
    /// Takes in octets; says whether more may be there. `false` also where nothing more will come.
    pub(crate) fn read(&mut self) -> bool {
        if let (Wire::Adapter(connection), Some(any_order)) = (&self.wire, &mut self.any_order) {
            let taken = any_order.take(&**connection);
            return self.has_read(Some(taken)).is_some_and(|octets| octets > 0);
        }
        if self.room.is_empty() {
            self.room = vec![0; ROOM_OCTETS];
        }
        if self.start > 0 {
            self.room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Behind the greeting the adapter hands over segments.
        let wanted = match self.wire.is_adapters() {
            true => GREETING_LEN.saturating_sub(self.end),
            false => READ_OCTETS,
        };
        let most = self.room.len().min(self.end + wanted);
        if most == self.end {
            return false;
        }
        let taken = self.wire.recv(&mut self.room[self.end..most]);
        let octets = self.has_read(taken);
        self.end += octets.unwrap_or(0);
        octets == Some(READ_OCTETS)
    }

    /// What still comes is nobody's: reads it, up to the end.
    pub(crate) fn drop_all(&mut self) {
        if let (Wire::Adapter(connection), Some(any_order)) = (&self.wire, &mut self.any_order) {
            let taken = any_order.drop_all(&**connection);
            self.has_read(Some(taken));
            return;
        }
        while self.read() {
            self.end = 0;
        }
        self.end = 0;
    }

    /// How many octets were read, if any; at its end the carrier is gone.
    fn has_read(&mut self, taken: Option<Transfer>) -> Option<usize> {
        match taken {
            Some(Transfer::Octets(octets)) => Some(octets),
            Some(Transfer::WouldBlock) => None,
            Some(Transfer::End | Transfer::Failed(_)) | None => {
                self.phase = Phase::Gone;
                None
            }
        }
    }

    /// The other end's greeting, once it is there whole.
    pub(crate) fn take_greeting(&mut self) -> Result<Option<Greeting>, Fault> {
        let octets = &self.room[self.start..self.end];
        if !Greeting::may_begin_with(octets) {
            return Err(Fault::Greeting(NoGreeting::Foreign));
        }
        let Some(first) = octets.first_chunk::<GREETING_LEN>() else {
            return Ok(None);
        };
        let greeting = Greeting::parse(first)?;
        self.start += GREETING_LEN;
        Ok(Some(greeting))
    }
}
