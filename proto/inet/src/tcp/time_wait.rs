//! TIME-WAIT: connections that are over but whose peer may not know (RFC 9293 section 3.4.3), a few octets each.

use super::isn::Tuple;
use super::options::{Options, Timestamps};
use super::segment::{Flags, Header};
use super::seq::Seq;
use super::timestamps::Clock;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

/// Twice the maximum segment lifetime. RFC 9293 says four minutes; the field says one.
pub const TIME_WAIT: Duration = Duration::from_secs(60);

/// What remains of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Remains {
    /// SND.NXT and RCV.NXT.
    pub numbers: (Seq, Seq),
    /// Offset of our timestamp clock and the peer's last value.
    pub timestamps: Option<(u32, u32)>,
}

/// The table. When it is full the oldest entry gives way.
#[derive(Debug)]
pub struct TimeWaits {
    entries: BTreeMap<Tuple, (Remains, Duration)>,
    /// In the order of expiry; an entry that was renewed stands here twice, and the first is stale.
    order: VecDeque<(Duration, Tuple)>,
    limit: usize,
}

/// What a segment to a connection in TIME-WAIT leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing.
    Nothing,
    /// This is to be sent.
    Reply(Header),
    /// A new connection begins: the entry is gone.
    Reused,
}

impl TimeWaits {
    /// A table of at most `limit` entries.
    pub fn new(limit: usize) -> TimeWaits {
        TimeWaits {
            entries: BTreeMap::new(),
            order: VecDeque::new(),
            limit: limit.max(1),
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// There is an entry for these two ends.
    pub fn contains(&self, tuple: &Tuple) -> bool {
        self.entries.contains_key(tuple)
    }

    /// A connection is over.
    pub fn insert(&mut self, tuple: Tuple, remains: Remains, now: Duration) {
        self.expire(now);
        while self.entries.len() >= self.limit {
            let Some((_, oldest)) = self.order.pop_front() else {
                break;
            };
            self.entries.remove(&oldest);
        }
        self.renew(tuple, remains, now);
    }

    fn renew(&mut self, tuple: Tuple, remains: Remains, now: Duration) {
        let until = now + TIME_WAIT;
        self.entries.insert(tuple, (remains, until));
        self.order.push_back((until, tuple));
    }

    /// A segment for an entry arrived (RFC 9293 section 3.10.7.4, TIME-WAIT).
    pub fn handle_segment(
        &mut self,
        tuple: &Tuple,
        header: &Header,
        payload: usize,
        now: Duration,
    ) -> Option<Outcome> {
        let (remains, _) = *self.entries.get(tuple).filter(|(_, until)| *until > now)?;
        if header.flags.contains(Flags::RST) {
            // A reset does not end the wait (RFC 1337).
            return Some(Outcome::Nothing);
        }
        if header.flags.contains(Flags::SYN)
            && !header.flags.contains(Flags::ACK)
            && is_new(&remains, header)
        {
            self.entries.remove(tuple);
            return Some(Outcome::Reused);
        }
        if header.flags.contains(Flags::FIN) && self.order.len() < 2 * self.limit {
            self.renew(*tuple, remains, now);
        }
        // A plain ACK of our FIN needs no answer; all else shows that the peer missed something.
        let needs = header.sequence_len(payload) > 0 || header.seq != remains.numbers.1;
        Some(if needs {
            Outcome::Reply(answer(tuple, &remains, now))
        } else {
            Outcome::Nothing
        })
    }

    /// Drops what has expired.
    pub fn expire(&mut self, now: Duration) {
        while let Some((until, tuple)) = self.order.front().copied() {
            if until > now {
                return;
            }
            self.order.pop_front();
            if self
                .entries
                .get(&tuple)
                .is_some_and(|(_, current)| *current <= now)
            {
                self.entries.remove(&tuple);
            }
        }
    }

    /// When the next entry expires.
    pub fn deadline(&self) -> Option<Duration> {
        self.order.front().map(|(until, _)| *until)
    }
}

/// A SYN that cannot be an old one: by its timestamp, or else by its number (RFC 6191 section 2, RFC 1122 section
/// 4.2.2.13).
fn is_new(remains: &Remains, header: &Header) -> bool {
    match (remains.timestamps, header.options.timestamps) {
        (Some((_, recent)), Some(peer)) if peer.value != recent => {
            (peer.value.wrapping_sub(recent) as i32) > 0
        }
        _ => header.seq.distance_from(remains.numbers.1) > 0,
    }
}

fn answer(tuple: &Tuple, remains: &Remains, now: Duration) -> Header {
    let timestamps = remains.timestamps.map(|(offset, recent)| Timestamps {
        value: Clock::value(offset, now),
        echo: recent,
    });
    Header {
        source: tuple.local.port(),
        destination: tuple.remote.port(),
        seq: remains.numbers.0,
        ack: remains.numbers.1,
        flags: Flags::ACK,
        window: 65_535,
        options: Options {
            timestamps,
            ..Options::default()
        },
        ..Header::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    const REMAINS: Remains = Remains {
        numbers: (Seq(100), Seq(500)),
        timestamps: Some((0, 77)),
    };

    fn segment(flags: Flags, seq: u32, stamp: u32) -> Header {
        Header {
            seq: Seq(seq),
            flags,
            options: Options {
                timestamps: Some(Timestamps {
                    value: stamp,
                    echo: 0,
                }),
                ..Options::default()
            },
            ..Header::default()
        }
    }

    #[test]
    fn a_repeated_fin_is_answered_and_a_reset_is_not_heard() {
        let mut waits = TimeWaits::new(10);
        waits.insert(tuple(1), REMAINS, Duration::ZERO);
        let fin = segment(Flags::FIN | Flags::ACK, 499, 78);
        let Some(Outcome::Reply(answer)) = waits.handle_segment(&tuple(1), &fin, 0, Duration::ZERO)
        else {
            panic!("no answer");
        };
        assert_eq!((answer.seq, answer.ack), (Seq(100), Seq(500)));
        let reset = segment(Flags::RST, 500, 78);
        assert_eq!(
            waits.handle_segment(&tuple(1), &reset, 0, Duration::ZERO),
            Some(Outcome::Nothing)
        );
        assert!(waits.contains(&tuple(1)));
    }

    #[test]
    fn a_newer_syn_begins_anew_and_an_older_one_does_not() {
        let mut waits = TimeWaits::new(10);
        waits.insert(tuple(1), REMAINS, Duration::ZERO);
        let old = segment(Flags::SYN, 900, 70);
        assert!(matches!(
            waits.handle_segment(&tuple(1), &old, 0, Duration::ZERO),
            Some(Outcome::Reply(_))
        ));
        let new = segment(Flags::SYN, 5, 90);
        assert_eq!(
            waits.handle_segment(&tuple(1), &new, 0, Duration::ZERO),
            Some(Outcome::Reused)
        );
        assert!(waits.is_empty());
    }

    #[test]
    fn entries_are_bounded_and_expire() {
        let mut waits = TimeWaits::new(3);
        for port in 0..10 {
            waits.insert(tuple(port), REMAINS, Duration::from_secs(u64::from(port)));
        }
        assert_eq!(waits.len(), 3);
        assert!(waits.contains(&tuple(9)));
        waits.expire(Duration::from_secs(9) + TIME_WAIT);
        assert!(waits.is_empty());
    }
}
