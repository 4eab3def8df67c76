//! What a carrier tells its driver.

use crate::control::Why;
use crate::end::End;
use crate::proof::Proof;

/// Something the driver has to know or to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The other end's greeting is there.
    Up,
    /// The peer wants to send datagrams to this end: answer with [`super::Carrier::admit`] or
    /// [`super::Carrier::refuse`].
    Wanted {
        /// The peer's channel.
        channel: u16,
        /// Where they would come from, as the peer says.
        source: End,
        /// The UDP end that they would go to.
        target: End,
    },
    /// This proof is to be sent by UDP, from the socket at `from`.
    Prove {
        /// The datagram.
        proof: Proof,
        /// The UDP end of a socket of this process.
        from: End,
        /// Where it goes.
        to: End,
    },
    /// Datagrams of the peer's may come on this channel.
    Incoming {
        /// The peer's channel.
        channel: u16,
        /// Where they come from: what `recvfrom` reports.
        source: End,
        /// The socket that they are for.
        target: End,
    },
    /// No more datagrams come on this channel, if any did.
    Finished {
        /// The peer's channel.
        channel: u16,
        /// What came on it last comes behind this mark, which was not taken yet.
        mark: Option<u32>,
    },
    /// A channel that this end opened may be used.
    Opened {
        /// The channel.
        channel: u16,
    },
    /// It may not be used, or not any more.
    Lost {
        /// The channel.
        channel: u16,
        /// The reason.
        why: Why,
    },
    /// Say [`super::Carrier::pass`] when all that came on this channel is taken or dropped.
    Barrier {
        /// The peer's channel.
        channel: u16,
        /// The barrier's.
        number: u32,
    },
    /// All that was sent on this channel before the barrier is taken.
    Passed {
        /// The channel.
        channel: u16,
        /// The barrier's.
        number: u32,
    },
    /// The carrier is to be closed when what waits to leave has left. Every channel is lost.
    Closed(Why),
}
