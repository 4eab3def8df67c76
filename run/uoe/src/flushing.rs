//! Gives what waits on carriers to the kernel's TCP: all of it before a program sleeps, and what has waited for some
//! time now and then. A send that finds a carrier full does so itself.

use crate::link::Link;
use crate::offload::Offload;

impl Offload {
    /// Whether something waits to be flushed.
    #[inline]
    pub fn anything_waits(&self) -> bool {
        self.used().iter().any(Link::is_to_be_flushed)
    }

    /// Gives TCP what waits, as far as it takes it at once.
    pub fn flush_all(&self) {
        self.used().iter().for_each(Link::flush);
    }

    /// The same, but for what has begun to wait just now, as `is_young` says of the time that it did, in nanoseconds of
    /// [`weft_os::dgram::now`].
    pub fn flush_aged(&self, is_young: impl Fn(u64) -> bool) {
        let waits = self.used().iter().filter(|link| link.is_to_be_flushed());
        waits
            .filter(|link| !is_young(link.waits_since()))
            .for_each(Link::flush);
    }

    /// When what waits to be flushed began to, of each carrier where something does.
    pub fn waiting_since(&self) -> impl Iterator<Item = u64> + '_ {
        let waits = self.used().iter().filter(|link| link.is_to_be_flushed());
        waits.map(Link::waits_since)
    }

    /// How often nothing was left on a carrier behind a flush, whoever flushed.
    pub fn emptied(&self) -> u64 {
        self.used().iter().map(Link::emptied).sum()
    }
}
