//! What comes on a connection of the adapter's: segments as they arrive, whatever is missing before them.

use std::io;

use weft_engine::carrier::{Arrived, Carrier, Done, Transfer};
use weft_uoe::frame::CONTROL;
use weft_uoe::greeting::GREETING_LEN;
use weft_uoe::messages::Messages;
use weft_uoe::segments::Frame;
use weft_uoe::{Fault, Key, Segments};

/// Octets that wait for what is missing before them at most: more than the adapter's windows promise.
const HELD_MAX: usize = 32 << 20;
/// Octets of datagrams that are there in part at most. The windows bound them too, as what they keep counts there.
const PARTS_MAX: usize = 16 << 20;

/// The frames of such a connection.
#[derive(Debug)]
pub(crate) struct AnyOrder {
    segments: Segments,
    messages: Messages,
    arrived: Arrived,
    /// Where the adapter counts the first octet of the stream.
    base: u64,
    /// Octets that came.
    octets: u64,
    /// How far the adapter was told that it has come.
    told: Done,
}

impl AnyOrder {
    /// From now on segments are handed over as they arrive; the greeting was received.
    ///
    /// # Errors
    /// The connection is over, or does not hand its segments over.
    pub(crate) fn begin(connection: &dyn Carrier, key: Key) -> io::Result<AnyOrder> {
        let pieces = connection.pieces().ok_or(io::ErrorKind::Unsupported)?;
        let first = GREETING_LEN as u64;
        Ok(AnyOrder {
            segments: Segments::new(key, first, HELD_MAX),
            messages: Messages::new(PARTS_MAX),
            arrived: Arrived::default(),
            base: pieces.begin()?.wrapping_sub(first),
            octets: 0,
            told: Done::default(),
        })
    }

    /// Has what arrived since; how many octets that is.
    pub(crate) fn take(&mut self, connection: &dyn Carrier) -> Transfer {
        let Some(pieces) = connection.pieces() else {
            return Transfer::End;
        };
        self.told = self.done();
        pieces.take(self.told, &mut self.arrived)
    }

    /// Whether the other end may send on, and the adapter was not told.
    pub(crate) fn is_untold(&self) -> bool {
        self.told != self.done()
    }

    /// What still comes is nobody's: has it, and drops it.
    pub(crate) fn drop_all(&mut self, connection: &dyn Carrier) -> Transfer {
        let Some(pieces) = connection.pieces() else {
            return Transfer::End;
        };
        self.arrived = Arrived::default();
        let done = Done {
            position: u64::MAX,
            placed: 0,
        };
        pieces.take(done, &mut self.arrived)
    }

    /// How far it has come: the window follows.
    fn done(&self) -> Done {
        let frontier = self.segments.frontier();
        let in_order = frontier - GREETING_LEN as u64;
        // What is given on takes no room, wherever it stands; a part of a datagram does.
        let kept = self.segments.held() + self.messages.held();
        let given = self.octets.saturating_sub(kept as u64);
        Done {
            position: self.base.wrapping_add(frontier),
            placed: given.saturating_sub(in_order),
        }
    }

    /// Gives on what arrived, whole: `sink` is given each datagram or control message with its channel.
    ///
    /// # Errors
    /// What came are no frames of such a carrier, or `sink` says so.
    pub(crate) fn give(
        &mut self,
        mut sink: impl FnMut(u16, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let AnyOrder {
            segments,
            messages,
            arrived,
            base,
            octets,
            told: _,
        } = self;
        let mut each = |(head, payload): Frame<'_>| match head.is_part {
            false => sink(head.channel, payload),
            true if head.channel == CONTROL => Err(Fault::Channel(CONTROL)),
            true => match messages.handle_part(head.channel, payload)? {
                Some(whole) => sink(head.channel, &whole),
                None => Ok(()),
            },
        };
        while let Some((offset, piece)) = arrived.next(base.wrapping_add(segments.frontier())) {
            *octets += piece.len() as u64;
            segments.handle_segment(offset.wrapping_sub(*base), piece, &mut each)?;
        }
        Ok(())
    }

    /// Datagrams of which there were parts, and no room for the whole.
    pub(crate) fn dropped(&self) -> u64 {
        self.messages.dropped()
    }
}
