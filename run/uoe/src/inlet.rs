//! Datagrams that came over carriers and wait for the program, at one socket.

use std::time::Duration;

use weft_os::dgram::{self, NAME_LEN};
use weft_os::process;
use weft_uoe::queue::{Drop, Limits, Queue};

/// Ends of other sockets that datagrams of one socket come from, at most; those of more are refused.
pub(crate) const SOURCES_MAX: usize = 4096;
/// The most memory that one socket's queue is given, whatever the program says (`SO_RCVBUF`).
const MEMORY_MAX: usize = 16 << 20;
/// Octets of the longest datagram's record, which every queue has room for.
const RECORD_MAX: usize = 66 * 1024;

/// Where datagrams come from, as the socket has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: [u8; NAME_LEN],
    pub(crate) len: usize,
}

/// A source, as the queue remembers it.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    source: Source,
    /// Channels whose datagrams come from it.
    channels: u32,
    /// Datagrams that had been put in when the last of these was over: once all of them are gone, so is the source.
    put: u64,
}

/// A datagram that is handed out.
#[derive(Debug)]
pub struct Waiting<'a> {
    /// All of its octets.
    pub octets: &'a [u8],
    /// The octets of the socket address that it comes from.
    pub name: &'a [u8],
}

/// The queue of one socket. The thread fills it, calls empty it.
#[derive(Debug, Default)]
pub(crate) struct Inlet {
    /// The process whose datagrams these are: a child has none of its parent's.
    process: u32,
    queue: Option<Queue<Vec<u8>>>,
    sources: Vec<Remembered>,
    /// A bell was rung since the queue was empty last.
    pub(crate) is_rung: bool,
    /// Datagrams put in and taken out so far.
    pub(crate) put: u64,
    pub(crate) taken: u64,
    /// Datagrams dropped by the queue that were told of.
    dropped_told: u64,
}

/// What waits once one was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    Nothing,
    /// Half of the queue's room at most.
    Little,
    Much,
}

/// What came of putting one in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutIn {
    /// It waits.
    Waits,
    /// It waits, and nobody was told: a bell is to be rung.
    WaitsUntold,
    /// It was dropped, as the bounds say.
    Dropped,
}

impl Inlet {
    pub(crate) const fn new() -> Inlet {
        Inlet {
            process: 0,
            queue: None,
            sources: Vec::new(),
            is_rung: false,
            put: 0,
            taken: 0,
            dropped_told: 0,
        }
    }

    /// The queue, if it is this process's.
    #[inline]
    fn queue(&mut self) -> Option<&mut Queue<Vec<u8>>> {
        let is_own = self.process == process::id();
        self.queue.as_mut().filter(|_| is_own)
    }

    /// Gives it a queue of so many octets, if it has none. By the thread.
    pub(crate) fn open(&mut self, octets: usize, age: Option<Duration>, drops_oldest: bool) {
        let octets = octets.clamp(RECORD_MAX, MEMORY_MAX);
        let limits = Limits {
            octets,
            drop: match drops_oldest {
                true => Drop::Oldest,
                false => Drop::Newest,
            },
            age,
        };
        if let Some(queue) = self.queue() {
            return queue.set_limits(limits);
        }
        // What a child inherited stays where it is: to free it may hang on a lock that a thread of the parent held.
        std::mem::forget(self.queue.take());
        std::mem::forget(std::mem::take(&mut self.sources));
        *self = Inlet {
            process: process::id(),
            queue: Some(Queue::new(vec![0; octets + RECORD_MAX], limits)),
            ..Inlet::new()
        };
    }

    /// The number of a source, for [`Inlet::put_in`], for one channel more; nothing where there are too many. By the
    /// thread.
    pub(crate) fn source(&mut self, source: Source) -> Option<u32> {
        let passed = self.passed();
        let mut sources = self.sources.iter();
        let known = sources.position(|one| one.source == source);
        // A server that lives for long has more clients than places, one after the other.
        let is_free = |one: &Remembered| one.channels == 0 && one.put <= passed;
        let at = known.or_else(|| self.sources.iter().position(is_free));
        let new = Remembered {
            source,
            channels: 0,
            put: 0,
        };
        let at = match at {
            Some(at) => at,
            None if self.sources.len() >= SOURCES_MAX => return None,
            None => {
                self.sources.push(new);
                self.sources.len() - 1
            }
        };
        if self.sources[at].source != source {
            self.sources[at] = new;
        }
        self.sources[at].channels += 1;
        Some(at as u32)
    }

    /// A channel whose datagrams came from this source is over. By the thread.
    pub(crate) fn leave_source(&mut self, number: u32) {
        if let Some(one) = self.sources.get_mut(number as usize) {
            one.channels = one.channels.saturating_sub(1);
            one.put = self.put;
        }
    }

    /// Datagrams put in that wait no more: taken by the program, or dropped.
    pub(crate) fn passed(&mut self) -> u64 {
        let waiting = self.queue().map_or(0, |queue| queue.len());
        self.put - waiting as u64
    }

    /// Whether one of `len` octets fits without dropping another.
    #[inline]
    pub(crate) fn has_room(&mut self, len: usize, now: Duration) -> bool {
        self.queue().is_some_and(|queue| queue.has_room(len, now))
    }

    /// Puts a datagram in. By the thread.
    #[inline]
    pub(crate) fn put_in(&mut self, octets: &[u8], source: u32, now: Duration) -> PutIn {
        let Some(queue) = self.queue() else {
            return PutIn::Dropped;
        };
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(octets);
            Ok::<(), std::convert::Infallible>(())
        };
        let is_in = queue.push(octets.len(), source, now, fill);
        let is_in = is_in.unwrap_or_else(|never| match never {});
        if !is_in {
            return PutIn::Dropped;
        }
        self.put += 1;
        match std::mem::replace(&mut self.is_rung, true) {
            true => PutIn::Waits,
            false => PutIn::WaitsUntold,
        }
    }

    /// Datagrams that were dropped since this was asked last, for want of room or for their age.
    pub(crate) fn newly_dropped(&mut self) -> u64 {
        let dropped = self.queue().map_or(0, |queue| queue.dropped().sum());
        dropped - std::mem::replace(&mut self.dropped_told, dropped)
    }

    /// The time: to the millisecond or so where nothing in it grows too old.
    #[inline]
    pub(crate) fn time(&mut self) -> Duration {
        let is_exact = self.queue().is_some_and(|queue| queue.has_age());
        match is_exact {
            true => Duration::from_nanos(dgram::now()),
            false => Duration::from_nanos(dgram::now_coarse()),
        }
    }

    /// Whether something waits, by what time it is: one that holds nothing asks for none.
    #[inline]
    pub(crate) fn has_some(&mut self) -> bool {
        if self.queue().is_none_or(|queue| queue.is_empty()) {
            return false;
        }
        let now = self.time();
        !self.is_empty(now)
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&mut self, now: Duration) -> bool {
        self.front(now).is_none()
    }

    /// The first datagram.
    #[inline]
    pub(crate) fn front(&mut self, now: Duration) -> Option<Waiting<'_>> {
        if self.process != process::id() {
            return None;
        }
        let Inlet { queue, sources, .. } = self;
        let record = queue.as_mut()?.front(now)?;
        let source = &sources.get(record.tag as usize)?.source;
        Some(Waiting {
            octets: record.octets,
            name: &source.name[..source.len],
        })
    }

    /// Takes the first one out; says what is left.
    #[inline]
    pub(crate) fn pop(&mut self) -> Rest {
        let Some(queue) = self.queue() else {
            return Rest::Nothing;
        };
        queue.pop();
        let rest = match (queue.is_empty(), queue.is_roomy()) {
            (true, _) => Rest::Nothing,
            (false, true) => Rest::Little,
            (false, false) => Rest::Much,
        };
        self.taken += 1;
        self.is_rung &= rest != Rest::Nothing;
        rest
    }

    /// Throws away what waits, and forgets where it came from. Frees no memory.
    pub(crate) fn clear(&mut self) {
        self.throw_away();
        self.sources.clear();
    }

    /// Throws away what waits.
    pub(crate) fn throw_away(&mut self) {
        if let Some(queue) = self.queue() {
            queue.clear();
        }
        self.is_rung = false;
        self.taken = self.put;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn source(last: u8) -> Source {
        let mut name = [0; NAME_LEN];
        name[..8].copy_from_slice(&[2, 0, 0, 80, 192, 0, 2, last]);
        Source { name, len: 16 }
    }

    fn inlet() -> Inlet {
        process::watch();
        let mut inlet = Inlet::new();
        inlet.open(0, None, false);
        inlet
    }

    #[test]
    fn nobody_is_told_twice_of_what_waits() {
        let mut inlet = inlet();
        let from = inlet.source(source(1)).unwrap();
        assert_eq!(inlet.source(source(1)), Some(from));
        assert_eq!(inlet.put_in(b"one", from, NOW), PutIn::WaitsUntold);
        assert_eq!(inlet.put_in(b"two", from, NOW), PutIn::Waits);
        let first = inlet.front(NOW).unwrap();
        assert_eq!((first.octets, first.name.len()), (&b"one"[..], 16));
        assert_eq!(inlet.pop(), Rest::Little);
        assert_eq!(inlet.pop(), Rest::Nothing, "it was the last");
        assert_eq!(inlet.put_in(b"three", from, NOW), PutIn::WaitsUntold);
        assert_eq!((inlet.put, inlet.taken), (3, 2));
    }

    #[test]
    fn bounds_and_ages_are_those_of_the_rule() {
        let mut inlet = inlet();
        let from = inlet.source(source(1)).unwrap();
        let long = vec![7; 30_000];
        let put = (0..3).map(|_| inlet.put_in(&long, from, NOW));
        let put: Vec<_> = put.collect();
        assert_eq!(put[2], PutIn::Dropped);
        assert_eq!(inlet.newly_dropped(), 1);
        inlet.open(0, Some(Duration::from_millis(20)), true);
        assert_eq!((inlet.put, inlet.passed()), (2, 0));
        assert!(inlet.is_empty(NOW + Duration::from_millis(21)));
        assert_eq!(inlet.newly_dropped(), 2);
        assert_eq!(inlet.passed(), 2, "nobody waits for what was dropped");
    }

    #[test]
    fn a_source_is_forgotten_with_its_last_datagram() {
        let mut inlet = inlet();
        let number_of = |inlet: &mut Inlet, number: u32| {
            let [one, other] = (number as u16).to_be_bytes();
            let mut from = source(one);
            from.name[3] = other;
            inlet.source(from)
        };
        for number in 0..SOURCES_MAX as u32 {
            assert_eq!(number_of(&mut inlet, number), Some(number));
        }
        assert_eq!(number_of(&mut inlet, 5000), None, "there are too many");
        assert_eq!(inlet.put_in(b"of 7", 7, NOW), PutIn::WaitsUntold);
        assert_eq!(number_of(&mut inlet, 7), Some(7), "a second channel");
        inlet.leave_source(7);
        assert_eq!(number_of(&mut inlet, 5000), None);
        inlet.leave_source(7);
        assert_eq!(number_of(&mut inlet, 5000), None, "one of its waits");
        inlet.pop();
        assert_eq!(number_of(&mut inlet, 5000), Some(7));
        inlet.clear();
        assert_eq!(number_of(&mut inlet, 9), Some(0), "of another socket");
    }

    #[test]
    fn one_without_memory_has_nothing() {
        process::watch();
        let mut inlet = Inlet::new();
        assert_eq!(inlet.put_in(b"one", 0, NOW), PutIn::Dropped);
        assert!(inlet.is_empty(NOW) && inlet.pop() == Rest::Nothing);
    }
}
