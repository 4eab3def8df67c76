//! What two ends of a bring-up say of themselves: the private data of the MPA Request and Reply.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..8 | `WEFTQP` and the version, 0x0001 |
//! | 8..12 | the queue pair spoken to |
//! | 12..16 | the queue pair that speaks |
//! | 16..20 | the packet sequence number the speaker expects (its `rq_psn`) |
//!
//! Numbers are in network byte order.

const MAGIC: &[u8; 8] = b"WEFTQP\x00\x01";
/// Octets of a hello.
pub(super) const LEN: usize = 20;

/// One end's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// The queue pair spoken to.
    pub(super) to: u32,
    /// The queue pair that speaks.
    pub(super) from: u32,
    /// The first packet sequence number it expects of the other: only who was told by the
    /// program knows it.
    pub(super) expects: u32,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        octets[..8].copy_from_slice(MAGIC);
        for (field, value) in [self.to, self.from, self.expects].into_iter().enumerate() {
            octets[8 + 4 * field..12 + 4 * field].copy_from_slice(&value.to_be_bytes());
        }
        octets
    }

    pub(super) fn parse(octets: &[u8]) -> Option<Hello> {
        let octets: &[u8; LEN] = octets.try_into().ok()?;
        let word = |at: usize| {
            u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        (&octets[..8] == MAGIC).then(|| Hello {
            to: word(8),
            from: word(12),
            expects: word(16),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_stand_where_the_table_says() {
        let hello = Hello {
            to: 0x00AB_CDEF,
            from: 0x0012_3456,
            expects: 0x00FE_DCBA,
        };
        let octets = hello.encode();
        assert_eq!(&octets[..8], b"WEFTQP\x00\x01");
        assert_eq!(octets[8..12], [0x00, 0xAB, 0xCD, 0xEF]);
        assert_eq!(octets[12..16], [0x00, 0x12, 0x34, 0x56]);
        assert_eq!(octets[16..], [0x00, 0xFE, 0xDC, 0xBA]);
        assert_eq!(Hello::parse(&octets), Some(hello));
    }

    #[test]
    fn anything_else_is_nobodys_word() {
        let octets = Hello {
            to: 1,
            from: 2,
            expects: 3,
        }
        .encode();
        assert_eq!(Hello::parse(&octets[..LEN - 1]), None);
        assert_eq!(Hello::parse(&[&octets[..], &[0]].concat()), None);
        for at in 0..8 {
            let mut wrong = octets;
            wrong[at] ^= 1;
            assert_eq!(Hello::parse(&wrong), None, "octet {at}");
        }
    }
}
