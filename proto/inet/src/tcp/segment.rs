//! The TCP header as a value (RFC 9293 section 3.1).

use super::options::{Options, MAX_LEN};
use super::seq::Seq;
use core::fmt;

use bitflags::bitflags;

/// Octets of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Octets of the longest header.
pub const MAX_HEADER_LEN: usize = MIN_HEADER_LEN + MAX_LEN;

bitflags! {
    /// Control bits.
    #[derive(Clone, Copy, PartialEq, Eq, Default)]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronize sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push.
        const PSH = 0x08;
        /// The acknowledgement number counts.
        const ACK = 0x10;
        /// The urgent pointer counts.
        const URG = 0x20;
        /// ECN echo (RFC 3168 section 6.1). Never sent: ECN is not negotiated.
        const ECE = 0x40;
        /// Congestion window reduced. Never sent either.
        const CWR = 0x80;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in ["F", "S", "R", "P", ".", "U", "E", "C"].iter().enumerate() {
            if self.bits() & (1 << bit) != 0 {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// A TCP header. The checksum is the business of whoever knows the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgement number; counts with [`Flags::ACK`].
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window as it stands in the header, before scaling.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: Options,
}

/// Why octets are no TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Fewer octets than the header says or needs.
    Truncated,
    /// The data offset is below 5.
    DataOffset,
}

impl Header {
    /// Reads the header of a segment. Returns it with its length, which is where the data begins.
    pub fn parse(octets: &[u8]) -> Result<(Header, usize), HeaderError> {
        let fixed: &[u8; MIN_HEADER_LEN] = octets.first_chunk().ok_or(HeaderError::Truncated)?;
        let len = usize::from(fixed[12] >> 4) * 4;
        if len < MIN_HEADER_LEN {
            return Err(HeaderError::DataOffset);
        }
        let options = octets
            .get(MIN_HEADER_LEN..len)
            .ok_or(HeaderError::Truncated)?;
        let u16_at = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let seq_at = |at: usize| Seq((u32::from(u16_at(at)) << 16) | u32::from(u16_at(at + 2)));
        let header = Header {
            source: u16_at(0),
            destination: u16_at(2),
            seq: seq_at(4),
            ack: seq_at(8),
            flags: Flags::from_bits_retain(fixed[13]),
            window: u16_at(14),
            urgent: u16_at(18),
            options: Options::parse(options),
        };
        Ok((header, len))
    }

    /// Writes the header with a checksum of zero. Returns its length.
    pub fn encode(&self, out: &mut [u8; MAX_HEADER_LEN]) -> usize {
        let (fixed, options) = out.split_at_mut(MIN_HEADER_LEN);
        let options: &mut [u8; MAX_LEN] = options.try_into().expect("the rest of the header");
        let len = MIN_HEADER_LEN + self.options.encode(options);
        fixed[0..2].copy_from_slice(&self.source.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12] = (len as u8 / 4) << 4;
        fixed[13] = self.flags.bits();
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].fill(0);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        len
    }

    /// Octets that [`Header::encode`] will write.
    pub fn encoded_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.encoded_len()
    }

    /// Sequence numbers a segment with this header and `payload` octets takes: SYN and FIN take one each.
    pub fn sequence_len(&self, payload: usize) -> u64 {
        payload as u64
            + u64::from(self.flags.contains(Flags::SYN))
            + u64::from(self.flags.contains(Flags::FIN))
    }

    /// The answer to a segment for which there is no connection; none to a reset (RFC 9293 section 3.5.2 group 1,
    /// section 3.10.7.1).
    pub fn reset_for(&self, payload: usize) -> Option<Header> {
        if self.flags.contains(Flags::RST) {
            return None;
        }
        let answer = Header {
            source: self.destination,
            destination: self.source,
            ..Header::default()
        };
        Some(if self.flags.contains(Flags::ACK) {
            Header {
                seq: self.ack,
                flags: Flags::RST,
                ..answer
            }
        } else {
            Header {
                ack: self.seq.advanced(self.sequence_len(payload)),
                flags: Flags::RST | Flags::ACK,
                ..answer
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::options::Timestamps;
    use proptest::prelude::*;

    #[test]
    fn header_round_trips() {
        let header = Header {
            source: 1,
            destination: 65535,
            seq: Seq(0xdead_beef),
            ack: Seq(7),
            flags: Flags::ACK | Flags::PSH,
            window: 512,
            urgent: 3,
            options: Options {
                timestamps: Some(Timestamps { value: 9, echo: 8 }),
                ..Options::default()
            },
        };
        let mut out = [0; MAX_HEADER_LEN];
        let len = header.encode(&mut out);
        assert_eq!(len, 32);
        assert_eq!(Header::parse(&out[..len]), Ok((header, 32)));
        assert_eq!(Header::parse(&out[..31]), Err(HeaderError::Truncated));
        out[12] = 0x40;
        assert_eq!(Header::parse(&out), Err(HeaderError::DataOffset));
    }

    #[test]
    fn resets_for_strays() {
        let syn = Header {
            seq: Seq(100),
            flags: Flags::SYN,
            ..Header::default()
        };
        let reset = syn.reset_for(0).unwrap();
        assert_eq!(
            (reset.ack, reset.flags),
            (Seq(101), Flags::RST | Flags::ACK)
        );
        let ack = Header {
            ack: Seq(55),
            flags: Flags::ACK,
            ..Header::default()
        };
        let reset = ack.reset_for(10).unwrap();
        assert_eq!((reset.seq, reset.flags), (Seq(55), Flags::RST));
        assert_eq!(reset.reset_for(0), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((header, len)) = Header::parse(&octets) {
                prop_assert!(len <= octets.len());
                let mut out = [0; MAX_HEADER_LEN];
                let len = header.encode(&mut out);
                prop_assert_eq!(len, header.encoded_len());
            }
        }
    }
}
