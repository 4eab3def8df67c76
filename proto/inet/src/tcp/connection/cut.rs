//! Where segments end.

use super::super::seq::Position;
use super::sender::Sender;
use alloc::collections::VecDeque;

/// A frame to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Octets of data.
    pub len: u64,
    /// Octets of data in each of its segments.
    pub segment: u32,
    /// It ends where the program wants a segment to end.
    pub whole: bool,
}

impl Sender {
    /// The frame that begins at `from` when `limit` octets may leave and a frame holds `frame` octets.
    pub(super) fn next_frame(&self, from: Position, limit: u64, frame: u64) -> Cut {
        let mss = u64::from(self.mss());
        let limit = limit.min(frame.max(mss));
        if self.cuts.back().is_none_or(|last| *last <= from) {
            return plain(limit, mss);
        }
        self.aligned(from, limit, mss)
    }

    /// As many whole pieces as `limit` octets hold, or else a part of one.
    pub(super) fn least_frame(&self, from: Position, limit: u64) -> Cut {
        let mss = u64::from(self.mss());
        let limit = limit.min(mss);
        let whole = self.group(from, limit);
        if whole <= limit {
            return Cut {
                len: whole,
                segment: mss as u32,
                whole: true,
            };
        }
        plain(limit, mss)
    }

    /// Segments of one frame are all equal but the last. So pieces share a frame as long as groups of the same length
    /// follow each other.
    fn aligned(&self, from: Position, limit: u64, mss: u64) -> Cut {
        let mut groups = self.groups(from, mss);
        let first = groups.next_len();
        if first > mss {
            let part = plain(limit.min(first), mss);
            return Cut {
                whole: part.len == first,
                ..part
            };
        }
        let none = Cut {
            len: 0,
            segment: mss as u32,
            whole: false,
        };
        if first > limit {
            return none;
        }
        let mut len = first;
        while self.cuts.back().is_some_and(|last| from + len < *last) {
            let next = groups.next_len();
            if next > first || len + next > limit {
                break;
            }
            len += next;
            if next < first {
                break;
            }
        }
        Cut {
            len,
            segment: first as u32,
            whole: true,
        }
    }

    /// Octets from `from` to the last cut that a segment reaches, or to the first one when it reaches none.
    fn group(&self, from: Position, mss: u64) -> u64 {
        self.groups(from, mss).next_len()
    }

    fn groups(&self, from: Position, mss: u64) -> Groups<'_> {
        Groups {
            cuts: &self.cuts,
            next: self.cuts.partition_point(|cut| *cut <= from),
            from,
            mss,
        }
    }
}

/// Pieces that share a segment, group by group. A frame has many, and looks for its place among the cuts once.
struct Groups<'a> {
    cuts: &'a VecDeque<Position>,
    /// The first cut behind `from`.
    next: usize,
    from: Position,
    mss: u64,
}

impl Groups<'_> {
    /// Octets of the next group; a whole segment where there are no more cuts.
    fn next_len(&mut self) -> u64 {
        let end = self.from + self.mss;
        let Some(mut at) = self.cuts.get(self.next).copied() else {
            self.from = end;
            return self.mss;
        };
        self.next += 1;
        while let Some(cut) = self.cuts.get(self.next).filter(|cut| **cut <= end) {
            at = *cut;
            self.next += 1;
        }
        let len = at - self.from;
        self.from = at;
        len
    }
}

/// Without cuts: whole segments as far as they go.
fn plain(limit: u64, mss: u64) -> Cut {
    let len = if limit > mss {
        limit / mss * mss
    } else {
        limit
    };
    Cut {
        len,
        segment: mss as u32,
        whole: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::Config;
    use super::super::super::seq::Seq;
    use super::*;

    fn sender(cuts: &[u64]) -> Sender {
        let config = Config {
            mtu: 1040,
            ..Config::default()
        };
        let mut sender = Sender::new(Seq(0), &config);
        sender.set_peer_mss(Some(1000), &config);
        sender.cuts.extend(cuts);
        sender.end = 100_000;
        sender
    }

    fn len(cut: Cut) -> (u64, u32) {
        (cut.len, cut.segment)
    }

    #[test]
    fn without_cuts_whole_segments() {
        let sender = sender(&[]);
        assert_eq!(len(sender.next_frame(1, 5000, 0)), (1000, 1000));
        assert_eq!(len(sender.next_frame(1, 5500, 4000)), (4000, 1000));
        assert_eq!(len(sender.next_frame(1, 700, 4000)), (700, 1000));
    }

    #[test]
    fn pieces_share_a_segment_when_they_fit_whole() {
        let sender = sender(&[301, 601, 1101]);
        assert_eq!(len(sender.next_frame(1, 5000, 0)), (600, 600));
        assert_eq!(len(sender.next_frame(601, 5000, 0)), (500, 500));
        assert_eq!(
            len(sender.next_frame(1, 500, 0)),
            (0, 1000),
            "waits for room"
        );
    }

    #[test]
    fn equal_pieces_share_a_large_frame_and_a_shorter_one_ends_it() {
        let sender = sender(&[801, 1601, 2401, 2501, 3301]);
        assert_eq!(len(sender.next_frame(1, 9000, 8000)), (1600, 800));
        assert_eq!(len(sender.next_frame(1601, 9000, 8000)), (1700, 900));
        let sender = self::sender(&[801, 1601, 2401, 3000]);
        assert_eq!(len(sender.next_frame(1, 9000, 8000)), (2999, 800));
    }

    #[test]
    fn a_piece_larger_than_a_segment_is_divided() {
        let sender = sender(&[2501, 2601]);
        assert_eq!(len(sender.next_frame(1, 9000, 0)), (1000, 1000));
        assert_eq!(len(sender.next_frame(2001, 9000, 0)), (600, 600));
    }
}
