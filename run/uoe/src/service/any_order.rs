//! What comes on a connection of the adapter's: segments as they arrive, whatever is missing before them.
//!
//! Where datagrams may only be so old, what is missing for longer is forgiven: acknowledged, so that nobody sends it
//! again, and waited for no more.

use std::io;
use std::time::Duration;

use weft_engine::carrier::{Arrived, Carrier, Done, Transfer};
use weft_uoe::frame::CONTROL;
use weft_uoe::greeting::GREETING_LEN;
use weft_uoe::messages::Messages;
use weft_uoe::overdue::{self, Overdue};
use weft_uoe::segments::{Forgiven, Frame};
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
    overdue: Overdue,
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
            overdue: Overdue::default(),
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
        now: Duration,
        mut sink: impl FnMut(u16, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let AnyOrder {
            segments,
            messages,
            arrived,
            base,
            octets,
            ..
        } = self;
        let mut each = |(head, payload): Frame<'_>| match head.is_part {
            false => sink(head.channel, payload),
            true if head.channel == CONTROL => Err(Fault::Channel(CONTROL)),
            true => match messages.handle_part(head.channel, payload, now)? {
                Some(whole) => sink(head.channel, &whole),
                None => Ok(()),
            },
        };
        while let Some((offset, piece)) = arrived.next(base.wrapping_add(segments.frontier())) {
            let offset = offset.wrapping_sub(*base);
            // What was forgiven before it was taken is counted already.
            if offset >= segments.floor() {
                *octets += piece.len() as u64;
                segments.handle_segment(offset, piece, now, &mut each)?;
            }
        }
        Ok(())
    }

    /// How old datagrams may be from now on.
    pub(crate) fn set_age(&mut self, age: Option<Duration>, now: Duration) {
        self.segments.set_age(age, now);
    }

    /// Something is missing.
    fn is_incomplete(&self) -> bool {
        self.segments.frontier() != self.segments.end() || !self.messages.is_empty()
    }

    /// When what is missing has to be looked at, if anything is and datagrams may only be so old.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let is_needed = self.segments.age().is_some() && self.is_incomplete();
        is_needed.then_some(self.overdue.look_at())
    }

    /// Forgives what has been missing for too long, on a path with this `round_trip`; `sink` is given control messages
    /// that waited for it. The place in the connection's stream before which nothing is waited for any more.
    ///
    /// # Errors
    /// `sink` says so.
    pub(crate) fn forgive(
        &mut self,
        now: Duration,
        round_trip: Option<Duration>,
        mut sink: impl FnMut(u16, &[u8]) -> Result<(), Fault>,
    ) -> Result<Option<Forgiven>, Fault> {
        let Some(age) = self.segments.age() else {
            return Ok(None);
        };
        self.messages.give_up(age, now);
        let (frontier, end) = (self.segments.frontier(), self.segments.end());
        let wait = overdue::wait(age, round_trip);
        let before = self.overdue.look(frontier, end, wait, now);
        let mut each = |(head, payload): Frame<'_>| sink(head.channel, payload);
        let forgiven = self.segments.forgive(before, &mut each)?;
        Ok(forgiven.map(|forgiven| {
            self.octets += forgiven.octets;
            Forgiven {
                before: self.base.wrapping_add(forgiven.before),
                ..forgiven
            }
        }))
    }

    /// Datagrams of which there were parts and no room for the whole, or that were too old.
    pub(crate) fn dropped(&self) -> u64 {
        self.messages.dropped() + self.segments.late()
    }
}
