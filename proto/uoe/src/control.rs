//! Control messages: what the two ends of a carrier tell each other on channel 0.
//!
//! The first octet is the kind, then follow the fields in the order of [`Control`], in network order. Channels are
//! numbered by the end that sends on them, each end for itself.

use crate::end::{End, END_LEN};
use crate::frame::{CHANNEL_MAX, CONTROL_OCTETS_MAX};
use crate::greeting::Nonce;

/// Why something is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// No socket of this process takes datagrams at that end over carriers.
    NoSocket,
    /// The proof of the address did not come in time: UDP does not pass, or somebody claims what is not his.
    NoProof,
    /// There are as many as there may be.
    TooMany,
    /// It has not been used for a while.
    Idle,
    /// The process ends, or lets the socket go.
    Ends,
    /// There is another carrier between the same two processes.
    Twice,
    /// A reason that this end does not know.
    Other,
}

const WHYS: [Why; 7] = [
    Why::NoSocket,
    Why::NoProof,
    Why::TooMany,
    Why::Idle,
    Why::Ends,
    Why::Twice,
    Why::Other,
];

impl Why {
    /// For a person who reads statistics.
    pub fn text(self) -> &'static str {
        match self {
            Why::NoSocket => "no socket there takes datagrams over carriers",
            Why::NoProof => "no proof of the address came by UDP",
            Why::TooMany => "there are as many as there may be",
            Why::Idle => "it was not used",
            Why::Ends => "the process ends, or closed the socket",
            Why::Twice => "another carrier between the same processes is there",
            Why::Other => "a reason that this version does not know",
        }
    }

    fn to_octet(self) -> u8 {
        WHYS.iter().position(|why| *why == self).unwrap_or(0) as u8
    }

    fn from_octet(octet: u8) -> Why {
        WHYS.get(usize::from(octet)).copied().unwrap_or(Why::Other)
    }
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Datagrams from `source` to `target` are to follow on this channel; `nonce` is what proves the target.
    Open {
        /// The channel.
        channel: u16,
        /// The UDP end that they come from, as the sender knows it.
        source: End,
        /// The UDP end that they go to.
        target: End,
        /// To be sent to the source from the very socket that is the target.
        nonce: Nonce,
    },
    /// The target is here. The nonce is to be sent to it from the very socket that is the source.
    Prove {
        /// The channel.
        channel: u16,
        /// What proves the source.
        nonce: Nonce,
    },
    /// The source is proven: the channel may be used.
    Accept {
        /// The channel.
        channel: u16,
        /// What came with the source's proof to the target; 0 where nothing is proven.
        challenge: Nonce,
    },
    /// The channel is not to be used, or not any more: its number is free. From the receiver, once for each channel.
    Refuse {
        /// The channel.
        channel: u16,
        /// The reason.
        why: Why,
    },
    /// Nothing more follows on the channel; on channel 0: on the carrier. From the sender.
    Close {
        /// The channel, or 0.
        channel: u16,
        /// The reason.
        why: Why,
    },
    /// To be answered, so that the sender sees that somebody is there.
    Ping {
        /// What the answer repeats.
        number: u32,
    },
    /// The answer.
    Pong {
        /// Of the ping.
        number: u32,
    },
    /// To be answered when the program has taken, or the receiver dropped, all that came before on this channel.
    Barrier {
        /// The channel.
        channel: u16,
        /// What the answer repeats.
        number: u32,
    },
    /// The answer.
    Passed {
        /// The channel.
        channel: u16,
        /// Of the barrier.
        number: u32,
    },
    /// What follows on this channel comes behind plain datagrams, of which a mark was the last ([`crate::proof`]).
    Behind {
        /// The channel.
        channel: u16,
        /// Of the mark.
        number: u32,
    },
    /// Datagrams wait at the target, which is connected to the source and can be woken by it alone: a bell is to be
    /// sent. From the receiver.
    Ring {
        /// The channel.
        channel: u16,
    },
}

/// Octets of the longest message.
const LONGEST: usize = 3 + 2 * END_LEN + 16;
const _: () = assert!(LONGEST <= CONTROL_OCTETS_MAX);

/// Why octets are no control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a control message of kind {kind} with {octets} octets, which none has")]
pub struct NoControl {
    /// The first octet.
    pub kind: u8,
    /// Octets in all.
    pub octets: usize,
}

/// Writes fields one behind the other.
struct Writer {
    octets: [u8; LONGEST],
    len: usize,
}

impl Writer {
    fn put(mut self, field: &[u8]) -> Writer {
        self.octets[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
        self
    }
}

/// Reads fields one behind the other; `None` where there are too few octets.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (field, rest) = self.0.split_first_chunk::<LEN>()?;
        self.0 = rest;
        Some(*field)
    }

    fn channel(&mut self) -> Option<u16> {
        let channel = u16::from_be_bytes(self.take()?);
        (channel <= CHANNEL_MAX).then_some(channel)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }
}

/// A message as octets.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    octets: [u8; LONGEST],
    len: usize,
}

impl Encoded {
    /// The octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl Control {
    /// The octets that follow the header of its frame.
    pub fn encode(&self) -> Encoded {
        let writer = |kind: u8, channel: u16| {
            let octets = [0; LONGEST];
            let writer = Writer { octets, len: 0 };
            writer.put(&[kind]).put(&channel.to_be_bytes())
        };
        let numbered = |kind: u8, number: u32| {
            let octets = [0; LONGEST];
            let writer = Writer { octets, len: 0 };
            writer.put(&[kind]).put(&number.to_be_bytes())
        };
        let Writer { octets, len } = match *self {
            Control::Open {
                channel,
                source,
                target,
                nonce,
            } => {
                let ends = [source.to_octets(), target.to_octets()];
                writer(1, channel).put(&ends[0]).put(&ends[1]).put(&nonce)
            }
            Control::Prove { channel, nonce } => writer(2, channel).put(&nonce),
            Control::Accept { channel, challenge } => writer(3, channel).put(&challenge),
            Control::Refuse { channel, why } => writer(4, channel).put(&[why.to_octet()]),
            Control::Close { channel, why } => writer(5, channel).put(&[why.to_octet()]),
            Control::Ping { number } => numbered(6, number),
            Control::Pong { number } => numbered(7, number),
            Control::Barrier { channel, number } => writer(8, channel).put(&number.to_be_bytes()),
            Control::Passed { channel, number } => writer(9, channel).put(&number.to_be_bytes()),
            Control::Behind { channel, number } => writer(10, channel).put(&number.to_be_bytes()),
            Control::Ring { channel } => writer(11, channel),
        };
        Encoded { octets, len }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(octets: &[u8]) -> Result<Control, NoControl> {
        let no = NoControl {
            kind: octets.first().copied().unwrap_or(0),
            octets: octets.len(),
        };
        let mut reader = Reader(octets.get(1..).unwrap_or_default());
        let message = Control::fields(no.kind, &mut reader);
        message.filter(|_| reader.0.is_empty()).ok_or(no)
    }

    fn fields(kind: u8, reader: &mut Reader<'_>) -> Option<Control> {
        if kind == 6 || kind == 7 {
            let number = reader.number()?;
            return Some(match kind {
                6 => Control::Ping { number },
                _ => Control::Pong { number },
            });
        }
        let channel = reader.channel()?;
        // Only a whole carrier is closed by channel 0.
        if channel == 0 && kind != 5 {
            return None;
        }
        Some(match kind {
            1 => Control::Open {
                channel,
                source: End::from_octets(&reader.take()?),
                target: End::from_octets(&reader.take()?),
                nonce: reader.take()?,
            },
            2 => Control::Prove {
                channel,
                nonce: reader.take()?,
            },
            3 => Control::Accept {
                channel,
                challenge: reader.take()?,
            },
            4 | 5 => {
                let [why] = reader.take()?;
                let why = Why::from_octet(why);
                match kind {
                    4 => Control::Refuse { channel, why },
                    _ => Control::Close { channel, why },
                }
            }
            8..=10 => {
                let number = reader.number()?;
                match kind {
                    8 => Control::Barrier { channel, number },
                    9 => Control::Passed { channel, number },
                    _ => Control::Behind { channel, number },
                }
            }
            11 => Control::Ring { channel },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn all() -> Vec<Control> {
        let (channel, number, nonce) = (CHANNEL_MAX, 0x0102_0304, [7; 16]);
        let end = |last: u8| End::new([192, 0, 2, last].into(), 5000 + u16::from(last));
        let mut all = std::vec![
            Control::Open {
                channel,
                source: end(1),
                target: end(2),
                nonce
            },
            Control::Prove { channel, nonce },
            Control::Accept {
                channel,
                challenge: nonce,
            },
            Control::Ping { number },
            Control::Pong { number },
            Control::Barrier { channel, number },
            Control::Passed { channel, number },
            Control::Behind { channel, number },
            Control::Ring { channel },
        ];
        for why in WHYS {
            all.push(Control::Refuse { channel, why });
            all.push(Control::Close { channel: 0, why });
        }
        all
    }

    #[test]
    fn what_is_read_is_what_was_said() {
        for control in all() {
            let encoded = control.encode();
            assert_eq!(Control::parse(encoded.octets()), Ok(control));
            for len in 0..encoded.octets().len() {
                assert!(
                    Control::parse(&encoded.octets()[..len]).is_err(),
                    "{control:?} {len}"
                );
            }
            let longer = [encoded.octets(), &[0]].concat();
            assert!(Control::parse(&longer).is_err(), "{control:?}");
        }
    }

    #[test]
    fn kinds_and_channels_have_bounds() {
        assert!(Control::parse(&[0, 0, 1]).is_err());
        assert!(Control::parse(&[12, 0, 1]).is_err());
        assert_eq!(
            Control::parse(&[11, 0x7f, 0xff]),
            Ok(Control::Ring {
                channel: CHANNEL_MAX
            })
        );
        assert!(
            Control::parse(&[11, 0x80, 0]).is_err(),
            "a channel beyond the last"
        );
        assert!(
            Control::parse(&[11, 0, 0]).is_err(),
            "channel 0 has no socket to wake"
        );
        let unknown = Control::parse(&[4, 0, 1, 99]);
        assert_eq!(
            unknown,
            Ok(Control::Refuse {
                channel: 1,
                why: Why::Other
            })
        );
    }

    #[test]
    fn the_octets_are_those_of_the_fields() {
        let number = 0x0102_0304;
        assert_eq!(Control::Ping { number }.encode().octets(), [6, 1, 2, 3, 4]);
        let barrier = Control::Barrier {
            channel: 0x0506,
            number,
        };
        assert_eq!(barrier.encode().octets(), [8, 5, 6, 1, 2, 3, 4]);
        let close = Control::Close {
            channel: 0,
            why: Why::Idle,
        };
        assert_eq!(close.encode().octets(), [5, 0, 0, 3]);
    }

    proptest! {
        /// Any octets are a message or none, and one that is read says the same when it is written.
        #[test]
        fn any_octets_are_read(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(control) = Control::parse(&octets) {
                prop_assert_eq!(Control::parse(control.encode().octets()), Ok(control));
            }
        }
    }
}
