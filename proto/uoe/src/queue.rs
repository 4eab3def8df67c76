//! Datagrams that wait, within bounds: the sender's that cannot leave yet, the receiver's that nobody has taken.

use core::time::Duration;

use crate::ring::{record_len, Record, Ring};

/// Which datagram is dropped where there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Drop {
    /// Those that have waited longest, as many as make room: what is there is as fresh as can be.
    Oldest,
    /// The one that comes, as a socket's receive queue does.
    #[default]
    Newest,
}

/// The bounds of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Octets of all datagrams that wait, with 16 for each and what fills up to 8: `SO_SNDBUF` or `SO_RCVBUF`. The
    /// memory is a bound of its own.
    pub octets: usize,
    /// Which is dropped where there is no room.
    pub drop: Drop,
    /// How long one may wait. `None`: for ever.
    pub age: Option<Duration>,
}

/// What became of datagrams that were not taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Because there was no room.
    pub full: u64,
    /// Because they had waited too long.
    pub late: u64,
}

impl Dropped {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.full + self.late
    }
}

/// Datagrams that wait.
#[derive(Clone, Debug)]
pub struct Queue<M> {
    ring: Ring<M>,
    limits: Limits,
    dropped: Dropped,
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Queue<M> {
    /// An empty queue in this memory.
    pub fn new(memory: M, limits: Limits) -> Queue<M> {
        Queue {
            ring: Ring::new(memory),
            limits,
            dropped: Dropped::default(),
        }
    }

    /// Other bounds from now on. What waits already is measured by them when the next one comes.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether what waits may come to have waited too long.
    #[inline]
    pub fn has_age(&self) -> bool {
        self.limits.age.is_some()
    }

    /// What was dropped so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Datagrams that wait, those that are late among them.
    #[inline]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether a datagram of `len` octets would be put in without dropping any that is not late.
    pub fn has_room(&mut self, len: usize, now: Duration) -> bool {
        self.drop_late(now);
        self.fits(len) && self.ring.has_room(len)
    }

    /// Puts a datagram in, which `fill` writes, and drops what the bounds say. Says whether it is in.
    ///
    /// # Errors
    /// What `fill` says. Nothing was put in then.
    #[inline]
    pub fn push<E>(
        &mut self,
        len: usize,
        tag: u32,
        now: Duration,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.drop_late(now);
        loop {
            if self.fits(len) && self.ring.push(len, tag, now, &mut fill)? {
                return Ok(true);
            }
            self.dropped.full += 1;
            let could_fit = record_len(len) <= self.limits.octets && self.ring.could_hold(len);
            if self.limits.drop == Drop::Newest || self.ring.is_empty() || !could_fit {
                return Ok(false);
            }
            self.ring.pop();
        }
    }

    /// Whether at least half of the room is free: who waits for some is not woken for each datagram that goes.
    #[inline]
    pub fn is_roomy(&self) -> bool {
        self.ring.taken() <= self.limits.octets / 2
    }

    fn fits(&self, len: usize) -> bool {
        self.ring.taken() + record_len(len) <= self.limits.octets
    }

    /// The first datagram that is not late.
    #[inline]
    pub fn front(&mut self, now: Duration) -> Option<Record<'_>> {
        self.drop_late(now);
        self.ring.front()
    }

    /// Takes the first datagram out. After [`Queue::front`], that is the one it gave.
    #[inline]
    pub fn pop(&mut self) {
        self.ring.pop();
    }

    /// Drops all, and counts them as datagrams for which there was no room.
    pub fn clear(&mut self) {
        while !self.ring.is_empty() {
            self.ring.pop();
            self.dropped.full += 1;
        }
    }

    /// Drops what has waited too long.
    #[inline]
    fn drop_late(&mut self, now: Duration) {
        let Some(age) = self.limits.age else {
            return;
        };
        while self
            .ring
            .front()
            .is_some_and(|first| now > first.since.saturating_add(age))
        {
            self.ring.pop();
            self.dropped.late += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn queue(drop: Drop, age: Option<Duration>) -> Queue<Vec<u8>> {
        let limits = Limits {
            octets: 96,
            drop,
            age,
        };
        Queue::new(vec![0; 1000], limits)
    }

    fn push(queue: &mut Queue<Vec<u8>>, octet: u8, len: usize, now: Duration) -> bool {
        let fill = |room: &mut [u8]| {
            room.fill(octet);
            Ok::<(), ()>(())
        };
        queue.push(len, u32::from(octet), now, fill).unwrap()
    }

    fn tags(queue: &mut Queue<Vec<u8>>, now: Duration) -> Vec<u32> {
        let mut tags = Vec::new();
        while let Some(record) = queue.front(now) {
            tags.push(record.tag);
            queue.pop();
        }
        tags
    }

    #[test]
    fn the_newest_or_the_oldest_make_room() {
        for (drop, wanted) in [(Drop::Newest, [1, 2, 3]), (Drop::Oldest, [3, 4, 5])] {
            let mut queue = queue(drop, None);
            let taken = [1, 2, 3, 4, 5].map(|octet| push(&mut queue, octet, 16, ms(0)));
            assert_eq!(taken[3], drop == Drop::Oldest);
            assert_eq!(queue.dropped(), Dropped { full: 2, late: 0 });
            assert_eq!(tags(&mut queue, ms(0)), wanted);
        }
    }

    #[test]
    fn one_that_is_longer_than_all_room_drops_no_other() {
        let mut queue = queue(Drop::Oldest, None);
        assert!(push(&mut queue, 1, 16, ms(0)));
        assert!(!push(&mut queue, 2, 200, ms(0)));
        assert_eq!(queue.dropped().full, 1);
        assert_eq!(tags(&mut queue, ms(0)), [1]);
    }

    #[test]
    fn who_waited_too_long_is_late() {
        let mut queue = queue(Drop::Newest, Some(ms(20)));
        assert!(push(&mut queue, 1, 16, ms(0)));
        assert!(push(&mut queue, 2, 16, ms(10)));
        assert_eq!(queue.front(ms(20)).map(|record| record.tag), Some(1));
        assert_eq!(queue.front(ms(21)).map(|record| record.tag), Some(2));
        assert!(
            push(&mut queue, 3, 16, ms(40)),
            "room is made by those that are late"
        );
        assert_eq!(queue.dropped(), Dropped { full: 0, late: 2 });
        assert_eq!(tags(&mut queue, ms(41)), [3]);
    }

    proptest! {
        /// What went in came out, waits or was counted; and what came out was in order and not late.
        #[test]
        fn nothing_is_dropped_without_being_counted(
            oldest: bool, age in prop::option::of(1u64..50),
            steps in prop::collection::vec((0u8..4, 0usize..60, 0u64..10), 0..200)
        ) {
            let drop = if oldest { Drop::Oldest } else { Drop::Newest };
            let mut queue = queue(drop, age.map(ms));
            let (mut now, mut offered, mut out) = (ms(0), Vec::new(), Vec::new());
            for (step, len, pause) in steps {
                now += ms(pause);
                if step == 0 {
                    if let Some(record) = queue.front(now) {
                        prop_assert!(age.is_none_or(|age| now - record.since <= ms(age)));
                        out.push((record.tag, record.octets.to_vec()));
                        queue.pop();
                    }
                } else {
                    let number = offered.len() as u8;
                    offered.push((u32::from(number), vec![number; len]));
                    let had_room = queue.has_room(len, now);
                    let before = queue.dropped();
                    let is_in = push(&mut queue, number, len, now);
                    prop_assert!(!had_room || is_in && queue.dropped() == before);
                }
                prop_assert_eq!(offered.len(), out.len() + queue.len() + queue.dropped().sum() as usize);
            }
            let mut rest = offered.iter();
            prop_assert!(out.iter().all(|one| rest.any(|other| other == one)), "out of order, or changed");
        }
    }
}
