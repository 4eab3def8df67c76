//! Frames that wait to leave by the adapter: segments end where frames do.

use std::collections::VecDeque;

use weft_uoe::frame::{CONTROL, HEADER_LEN};
use weft_uoe::gather::{Gather, GATHERED_OCTETS};

/// Frames that wait at most: there is memory for their lengths once, and a program's send takes none.
const FRAMES_MAX: usize = GATHERED_OCTETS / HEADER_LEN;

/// What is kept of frames that leave by the adapter.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Octets of each that wait to leave, of the first those that are left. Segments end behind one of them.
    lengths: VecDeque<usize>,
    /// Octets that a segment holds: longer datagrams leave in parts.
    segment: usize,
    /// The number of the next datagram that leaves so.
    message: u32,
    /// Memory for a datagram that is to be cut.
    whole: Vec<u8>,
}

impl Frames {
    /// None yet.
    pub(crate) fn new(segment: usize) -> Frames {
        Frames {
            lengths: VecDeque::with_capacity(FRAMES_MAX + 1),
            segment,
            message: 0,
            whole: vec![0; usize::from(u16::MAX)],
        }
    }

    /// A segment holds so many octets from now on.
    pub(crate) fn set_segment(&mut self, octets: usize) {
        self.segment = octets;
    }

    /// Octets of each frame that waits, of the first those that are left.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.lengths.iter().copied()
    }

    /// So many octets have left.
    pub(crate) fn handle_taken(&mut self, mut octets: usize) {
        while let Some(first) = self.lengths.front_mut() {
            if *first > octets {
                *first -= octets;
                return;
            }
            octets -= *first;
            self.lengths.pop_front();
        }
    }

    /// Puts a datagram in, or a control message: each segment begins with a frame, so what no segment holds leaves in
    /// parts. Says whether there was room.
    ///
    /// # Errors
    /// What `fill` says; nothing was put in then.
    #[inline]
    pub(crate) fn push<E>(
        &mut self,
        gather: &mut Gather<Vec<u8>>,
        channel: u16,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Frames {
            lengths,
            segment,
            message,
            whole,
        } = self;
        if lengths.len() >= FRAMES_MAX {
            return Ok(false);
        }
        if HEADER_LEN + len <= *segment || channel == CONTROL {
            let is_in = gather.push(channel, len, fill)?;
            if is_in {
                lengths.push_back(HEADER_LEN + len);
            }
            return Ok(is_in);
        }
        let Some(whole) = whole.get_mut(..len) else {
            return Ok(false);
        };
        fill(whole)?;
        let is_in = gather.push_cut(channel, *message, whole, *segment, |len| {
            lengths.push_back(len);
        });
        *message = message.wrapping_add(u32::from(is_in));
        Ok(is_in)
    }
}
