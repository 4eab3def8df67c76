//! Threads that look again and again.

use super::state::State;
use super::table::Key;

/// Looks at a link without frames between two looks at the clock.
const LOOKS_BETWEEN_CLOCKS: u32 = 64;

impl State {
    /// Runs the driver ([`State::run`]) for a thread that is about to look at one connection. Costs little where no
    /// frame is there.
    #[inline]
    pub fn look(&mut self, at: Key) {
        self.look_for(Some(at));
    }

    /// The same for a thread that is about to look at something else than a connection.
    #[inline]
    pub fn look_around(&mut self) {
        self.look_for(None);
    }

    #[inline]
    fn look_for(&mut self, at: Option<Key>) {
        self.looks = self.looks.wrapping_add(1);
        if !self.link.may_have_frame() && !self.looks.is_multiple_of(LOOKS_BETWEEN_CLOCKS) {
            return;
        }
        self.table.at = at;
        self.run();
        self.table.at = None;
    }
}
