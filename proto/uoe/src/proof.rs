//! Datagrams of Weft's own among the program's: what proves who has a UDP socket, what marks the last plain one, and
//! what wakes who waits at a socket.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..8 | `WeftUDP` and a zero |
//! | 8..24 | nonce of the channel and of the direction |
//! | 24..28 | 0: a proof; [`BELL`]: a bell; else the number of a mark, in network order |
//! | 28..44 | challenge, in the proof of a source; else 0 |
//!
//! The hooks take such a datagram out before the program sees it, but only if its nonce is one that this socket waits
//! for: anything else may be a datagram of the program's.

use crate::greeting::Nonce;

/// Octets of a proof or a mark.
pub const PROOF_LEN: usize = 44;

/// The number of a bell: it says nothing but that something waits elsewhere. Marks do not come to it.
pub const BELL: u32 = u32::MAX;

const MAGIC: [u8; 8] = *b"WeftUDP\0";

/// A proof, a mark or a bell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// What nobody knows but the two ends of the channel.
    pub nonce: Nonce,
    /// 0 for a proof; the marks of a channel count from 1; [`BELL`].
    pub number: u32,
    /// Random bits that `Accept` repeats. They travel by UDP alone, so only who receives at the target knows them: who
    /// can forge a source, and is told the rest on the connection, does not. 0 in all but the proof of a source.
    pub challenge: Nonce,
}

impl Proof {
    /// One without a challenge.
    pub fn new(nonce: Nonce, number: u32) -> Proof {
        let challenge = [0; 16];
        Proof {
            nonce,
            number,
            challenge,
        }
    }

    /// The datagram.
    pub fn to_octets(&self) -> [u8; PROOF_LEN] {
        let mut octets = [0; PROOF_LEN];
        octets[..8].copy_from_slice(&MAGIC);
        octets[8..24].copy_from_slice(&self.nonce);
        octets[24..28].copy_from_slice(&self.number.to_be_bytes());
        octets[28..].copy_from_slice(&self.challenge);
        octets
    }

    /// Reads a datagram that may be one.
    #[inline]
    pub fn parse(octets: &[u8]) -> Option<Proof> {
        let octets: &[u8; PROOF_LEN] = octets.try_into().ok()?;
        if octets[..8] != MAGIC {
            return None;
        }
        let (mut nonce, mut number, mut challenge) = ([0; 16], [0; 4], [0; 16]);
        nonce.copy_from_slice(&octets[8..24]);
        number.copy_from_slice(&octets[24..28]);
        challenge.copy_from_slice(&octets[28..]);
        let number = u32::from_be_bytes(number);
        Some(Proof {
            nonce,
            number,
            challenge,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_its_octets_and_nothing_else_is_one() {
        let proof = Proof {
            nonce: *b"sixteen octets!!",
            number: 0x0102_0304,
            challenge: *b"sixteen others!!",
        };
        let octets = proof.to_octets();
        assert_eq!(
            &octets,
            b"WeftUDP\0sixteen octets!!\x01\x02\x03\x04sixteen others!!"
        );
        assert_eq!(Proof::parse(&octets), Some(proof));
        assert_eq!(Proof::parse(&octets[..43]), None);
        assert_eq!(Proof::parse(&[&octets[..], &[0]].concat()), None);
        let mut other = octets;
        other[7] = 1;
        assert_eq!(Proof::parse(&other), None);
    }
}
