//! What comes on a carrier's connection.

use weft_os::net::Transfer;
use weft_uoe::greeting::{NoGreeting, GREETING_LEN};
use weft_uoe::{Fault, Greeting};

use super::side::{Phase, Side};

/// Octets that one read takes.
const READ_OCTETS: usize = 256 * 1024;
/// Memory for what was read: that, and the longest frame's beginning.
const ROOM_OCTETS: usize = READ_OCTETS + 68 * 1024;

impl Side {
    /// Takes in octets; says whether more may be there. `false` also where nothing more will come.
    pub(crate) fn read(&mut self) -> bool {
        if self.room.is_empty() {
            self.room = vec![0; ROOM_OCTETS];
        }
        if self.start > 0 {
            self.room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let most = self.room.len().min(self.end + READ_OCTETS);
        let Some(stream) = self.stream.get() else {
            self.phase = Phase::Gone;
            return false;
        };
        match stream.recv(&mut self.room[self.end..most]) {
            Transfer::Octets(octets) => {
                self.end += octets;
                octets == READ_OCTETS
            }
            Transfer::WouldBlock => false,
            Transfer::End | Transfer::Failed(_) => {
                self.phase = Phase::Gone;
                false
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
