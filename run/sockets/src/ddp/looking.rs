//! Whether octets of the stream come next, or the end: framing before them is taken away.

use weft_os::user::UserBuffers;
use weft_stream::Next;

use super::directions::{Held, Receiving};
use super::receiving::{Ahead, Steps};
use super::{Connection, Received};
use crate::Errno;

impl Connection<'_> {
    /// Takes away what stands before the next octets of the stream, where that is framing: credit, targets, the end.
    /// [`Received::Octets`] of 0 says that octets of the stream are there.
    ///
    /// # Errors
    /// The connection is over.
    pub fn look(&self) -> Result<Received, Errno> {
        if !self.is_open() {
            return Ok(Received::Nothing);
        }
        let mut receiving = self.take_receiving()?;
        self.skip_framing(&mut receiving)
    }

    pub(super) fn skip_framing(
        &self,
        receiving: &mut Held<'_, Receiving>,
    ) -> Result<Received, Errno> {
        let (none, mut steps) = (UserBuffers::none(), Steps::default());
        loop {
            if let Next::Payload(_) = receiving.receiver.next() {
                return Ok(Received::Octets(0));
            }
            match self.bounded_step(receiving, &none, 0, &mut steps)? {
                Received::Octets(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Whether octets of the stream are there, or the end. Framing is taken away only where nothing but framing is
    /// there: whoever receives takes it with the octets behind it.
    ///
    /// # Errors
    /// The connection is over.
    pub fn glance(&self) -> Result<Received, Errno> {
        if self.is_open() {
            let mut receiving = self.take_receiving()?;
            if let Ahead::Spans(spans, _) = self.look_ahead(&mut receiving, 1)? {
                if spans.payload() > 0 {
                    return Ok(Received::Octets(0));
                }
            }
        }
        self.look()
    }
}
