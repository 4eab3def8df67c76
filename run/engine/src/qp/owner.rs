//! Who is above a queue pair: it is given streams and told what becomes of them, and knows nobody of those by name.

use std::any::Any;
use std::fmt::Debug;

use weft_verbs::iwarp::Role;

use crate::error::Error;

/// Whether a queue pair that waits for a stream takes this one, asked under the queue pair's lock. An error says that
/// it is not for this queue pair.
pub(crate) type Admission = Box<dyn Fn(Role) -> Result<(), Error> + Send + Sync>;

/// Where a queue pair's stream comes from. Dropped when the stream is over.
pub(crate) trait Owner: Debug + Send + Sync {
    /// The peer's first FPDU arrived.
    fn on_first_fpdu(&self);

    /// The stream is over; `was_up` says that it had its first FPDU. The thread that saw that may come later than this
    /// one.
    fn on_stream_ended(&self, was_up: bool);
}

/// What makes streams for a queue pair whose program exchanged addresses and numbers by itself, from RTR until it is
/// reset or destroyed.
pub(crate) trait Supplier: Any + Debug + Send + Sync {
    /// Sends wait for a stream. Called under the queue pair's lock.
    fn on_sends_waiting(&self);

    /// A stream is over, and the queue pair may want another one.
    fn on_stream_ended(&self);

    /// The queue pair is reset or destroyed, and has forgotten this already.
    fn end(&self);
}
