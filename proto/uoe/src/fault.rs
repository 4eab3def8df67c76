//! What a peer can do wrong on a carrier.

use crate::control::NoControl;
use crate::frame::NoFrame;
use crate::greeting::NoGreeting;

/// Why a carrier is closed. The texts are for a person who looks for the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No header begins where one has to.
    #[error("no frame begins at octet {0} of the stream: its check is wrong")]
    Check(u64),
    /// A frame that there cannot be.
    #[error(transparent)]
    Frame(#[from] NoFrame),
    /// A part says something else about its message than an earlier one, or repeats octets of it.
    #[error("parts of datagram {message} on channel {channel} contradict each other")]
    Contradiction {
        /// The channel.
        channel: u16,
        /// The message.
        message: u32,
    },
    /// Datagrams in parts, more at a time than a sender that sends them one after the other can cause.
    #[error("more than {0} datagrams that are there in part")]
    Messages(usize),
    /// A frame reaches into octets that are frames already.
    #[error("the frame at octet {0} of the stream reaches into another one")]
    Overlap(u64),
    /// Octets that wait for those before them, more than the window lets be sent.
    #[error("more than {0} octets that wait for those before them")]
    Held(usize),
    /// What came first is no greeting.
    #[error(transparent)]
    Greeting(#[from] NoGreeting),
    /// What came on channel 0 is no control message.
    #[error(transparent)]
    Control(#[from] NoControl),
    /// A message that does not go with what was said before.
    #[error("channel {0} was used in a way that what was said before does not allow")]
    Channel(u16),
    /// The peer accepts a channel to a socket at which it does not receive.
    #[error("channel {0} was accepted without what was sent to its target by UDP: somebody claims another's address")]
    Challenge(u16),
    /// The peer asks faster than it takes answers.
    #[error("more than {0} control messages that wait to be taken")]
    Controls(usize),
    /// The peer asks for channels that it may not have, again and again.
    #[error("{0} channels, one after the other, that no socket here takes")]
    InVain(u32),
}
