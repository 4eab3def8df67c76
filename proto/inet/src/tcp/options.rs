//! TCP options (RFC 9293 section 3.1, RFC 7323, RFC 2018, RFC 5482).

use super::seq::Seq;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The most octets options can take.
pub const MAX_LEN: usize = 40;
/// Octets of the timestamps option with its padding.
pub const TIMESTAMPS_LEN: usize = 12;
/// The largest shift (RFC 7323 section 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

/// TSval and TSecr (RFC 7323 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The value it echoes; means something only with ACK.
    pub echo: u32,
}

/// Ranges of received octets, left edge included, right edge not (RFC 2018 section 3). Four at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); 4],
    len: u8,
}

impl SackBlocks {
    /// The most that fit into a header.
    pub const MAX: usize = 4;

    /// Adds a block; false when there is no room.
    pub fn push(&mut self, left: Seq, right: Seq) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = (left, right);
        self.len += 1;
        true
    }

    /// The blocks, first one first.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl FromIterator<(Seq, Seq)> for SackBlocks {
    fn from_iter<I: IntoIterator<Item = (Seq, Seq)>>(iter: I) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for (left, right) in iter {
            if !blocks.push(left, right) {
                break;
            }
        }
        blocks
    }
}

/// The options of one segment that this machine knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum segment size, on SYN.
    pub mss: Option<u16>,
    /// Window scale shift, on SYN.
    pub window_scale: Option<u8>,
    /// SACK may be used, on SYN.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
}

impl Options {
    /// Reads options. What is unknown is passed over by its length (RFC 9293 section 3.1, MUST-6); what is malformed
    /// ends the reading, and what stood before it counts (MUST-7: no length may lead out of the header).
    pub fn parse(mut octets: &[u8]) -> Options {
        let mut options = Options::default();
        // The form of nearly all segments (RFC 7323 appendix A).
        if let [NOP, NOP, TIMESTAMPS, 10, body @ ..] = octets {
            if body.len() == TIMESTAMPS_LEN - 4 {
                options.take(TIMESTAMPS, body);
                return options;
            }
        }
        loop {
            match octets {
                [] | [END, ..] => return options,
                [NOP, rest @ ..] => octets = rest,
                [kind, len, rest @ ..] => {
                    let Some(body_len) = usize::from(*len).checked_sub(2) else {
                        return options;
                    };
                    let Some((body, rest)) = rest.split_at_checked(body_len) else {
                        return options;
                    };
                    options.take(*kind, body);
                    octets = rest;
                }
                [_] => return options,
            }
        }
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            // A larger shift is read as the largest (RFC 7323 section 2.3).
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                });
            }
            (SACK, body) if !body.is_empty() && body.len() & 7 == 0 => {
                self.sack = body
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .map(|block| (seq_at(block, 0), seq_at(block, 4)))
                    .collect();
            }
            _ => {}
        }
    }

    /// Writes the options, padded to a multiple of four, and returns how many octets that took. SACK blocks that find
    /// no room are left out.
    pub fn encode(&self, out: &mut [u8; MAX_LEN]) -> usize {
        let mut writer = Writer { out, at: 0 };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            writer.put(&[MSS, 4, a, b]);
        }
        if let Some(shift) = self.window_scale {
            writer.put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            writer.put(&[NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            writer.put(&[NOP, NOP, TIMESTAMPS, 10]);
            writer.put(&value.to_be_bytes());
            writer.put(&echo.to_be_bytes());
        }
        let room = (MAX_LEN - writer.at).saturating_sub(4) / 8;
        let blocks = self.sack.as_slice();
        let blocks = &blocks[..blocks.len().min(room)];
        if !blocks.is_empty() {
            writer.put(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                writer.put(&left.0.to_be_bytes());
                writer.put(&right.0.to_be_bytes());
            }
        }
        writer.at
    }

    /// Octets that [`Options::encode`] will write.
    pub fn encoded_len(&self) -> usize {
        let fixed = 4 * usize::from(self.mss.is_some())
            + 4 * usize::from(self.window_scale.is_some())
            + 4 * usize::from(self.sack_permitted)
            + TIMESTAMPS_LEN * usize::from(self.timestamps.is_some());
        let blocks = self
            .sack
            .as_slice()
            .len()
            .min((MAX_LEN - fixed).saturating_sub(4) / 8);
        fixed + if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }
}

struct Writer<'a> {
    out: &'a mut [u8; MAX_LEN],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, octets: &[u8]) {
        self.out[self.at..self.at + octets.len()].copy_from_slice(octets);
        self.at += octets.len();
    }
}

fn seq_at(octets: &[u8], at: usize) -> Seq {
    Seq(u32::from_be_bytes([
        octets[at],
        octets[at + 1],
        octets[at + 2],
        octets[at + 3],
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(options: Options) -> usize {
        let mut out = [0; MAX_LEN];
        let len = options.encode(&mut out);
        assert_eq!(len % 4, 0);
        assert_eq!(len, options.encoded_len());
        assert_eq!(Options::parse(&out[..len]), options);
        len
    }

    #[test]
    fn options_round_trip() {
        round_trip(Options::default());
        let syn = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Options::default()
        };
        assert_eq!(round_trip(syn), 24);
        let blocks = [(Seq(1), Seq(2)), (Seq(7), Seq(9)), (Seq(20), Seq(30))];
        let ack = Options {
            timestamps: syn.timestamps,
            sack: blocks.into_iter().collect(),
            ..Options::default()
        };
        assert_eq!(round_trip(ack), 40);
    }

    #[test]
    fn a_fourth_block_gives_way_to_timestamps() {
        let sack: SackBlocks = (0..4).map(|i| (Seq(i * 10), Seq(i * 10 + 5))).collect();
        let with = Options {
            timestamps: Some(Timestamps::default()),
            sack,
            ..Options::default()
        };
        let mut out = [0; MAX_LEN];
        let len = with.encode(&mut out);
        assert_eq!(Options::parse(&out[..len]).sack.as_slice().len(), 3);
        round_trip(Options {
            sack,
            ..Options::default()
        });
    }

    #[test]
    fn unknown_is_passed_over_and_malformed_ends_the_reading() {
        let mss = [MSS, 4, 5, 0xb4];
        let unknown = [&[253, 4, 9, 9][..], &mss].concat();
        assert_eq!(Options::parse(&unknown).mss, Some(1460));
        for bad in [&[253, 0][..], &[253, 1], &[253, 60, 1], &[253]] {
            let octets = [&mss[..], bad, &[NOP, WINDOW_SCALE, 3, 2]].concat();
            let options = Options::parse(&octets[..mss.len() + bad.len()]);
            assert_eq!((options.mss, options.window_scale), (Some(1460), None));
        }
        assert_eq!(
            Options::parse(&[WINDOW_SCALE, 3, 200]).window_scale,
            Some(14)
        );
    }
}
