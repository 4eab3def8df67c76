//! Collects the octets of one start-up frame from a stream that may come in any pieces.

use crate::mpa::frame::{FrameError, FrameKind, StartFrame, ENHANCED_LEN, HEADER_LEN};
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(super) struct FrameReader {
    kind: FrameKind,
    received: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(kind: FrameKind) -> FrameReader {
        FrameReader {
            kind,
            // A frame without private data.
            received: Vec::with_capacity(HEADER_LEN + ENHANCED_LEN),
        }
    }

    /// Octets of the frame that have come.
    pub(super) fn received(&self) -> usize {
        self.received.len()
    }

    /// Takes octets of the frame, and never one behind it. Gives how many it took, and the frame once it is whole.
    pub(super) fn take(
        &mut self,
        octets: &[u8],
    ) -> Result<(usize, Option<StartFrame>), FrameError> {
        let mut taken = 0;
        loop {
            let need = match StartFrame::parse(self.kind, &self.received)? {
                Ok(frame) => return Ok((taken, Some(frame))),
                Err(_) if taken == octets.len() => return Ok((taken, None)),
                Err(need) => need,
            };
            let end = octets.len().min(taken + need - self.received.len());
            self.received.extend_from_slice(&octets[taken..end]);
            taken = end;
        }
    }
}
