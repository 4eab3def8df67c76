//! Fragments to datagrams (RFC 791 section 3.2, RFC 8200 section 4.5, RFC 5722).

use crate::tcp::ranges::RangeSet;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// How long a datagram may take to come together.
const REASSEMBLY_TIME_MAX: Duration = Duration::from_secs(30);
/// Octets of the largest datagram.
const DATAGRAM_OCTETS_MAX: usize = 65_535;
/// Datagrams that come together at a time. A fragment of eight octets begins one, so a bound on their octets alone lets
/// whoever sends such fragments have some hundred thousand of them.
const DATAGRAMS_MAX: usize = 256;
/// What a datagram takes beside its octets, rounded up.
const DATAGRAM_OVERHEAD: usize = 512;

/// What makes fragments belong together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FragmentKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Identification.
    pub identification: u32,
    /// Protocol, of IPv4.
    pub protocol: u8,
}

/// Datagrams coming together, within a bound on their memory and their number.
#[derive(Debug)]
pub struct Reassembly {
    datagrams: BTreeMap<FragmentKey, Datagram>,
    /// Which datagram began as which, so that the oldest is found without a walk through all.
    by_age: BTreeMap<u64, FragmentKey>,
    /// Datagrams that ever began.
    begun: u64,
    octets: usize,
    limit: usize,
}

#[derive(Debug)]
struct Datagram {
    /// Its place in `by_age`.
    age: u64,
    octets: Vec<u8>,
    present: RangeSet,
    len: Option<usize>,
    expires: Duration,
}

impl Reassembly {
    /// Takes at most `limit` octets of memory; beyond that the oldest datagram gives way.
    pub fn new(limit: usize) -> Reassembly {
        Reassembly {
            datagrams: BTreeMap::new(),
            by_age: BTreeMap::new(),
            begun: 0,
            octets: 0,
            limit,
        }
    }

    /// Octets kept.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// A fragment arrived: `octets` at `offset`, with `more` to follow. Returns the datagram when it is whole.
    ///
    /// Fragments that overlap otherwise than as exact repetitions are an attack: the datagram is dropped (RFC 5722
    /// section 4; for IPv4 nothing forbids it).
    pub fn fragment(
        &mut self,
        key: FragmentKey,
        offset: usize,
        more: bool,
        octets: &[u8],
        now: Duration,
    ) -> Option<Vec<u8>> {
        self.expire(now);
        let end = offset + octets.len();
        // All but the last hold a multiple of eight octets (RFC 8200 section 4.5).
        if end > DATAGRAM_OCTETS_MAX || octets.is_empty() || (more && octets.len() & 7 != 0) {
            return None;
        }
        let datagram = self.datagrams.entry(key).or_insert_with(|| {
            self.begun += 1;
            self.by_age.insert(self.begun, key);
            Datagram {
                age: self.begun,
                octets: Vec::new(),
                present: RangeSet::default(),
                len: None,
                expires: now + REASSEMBLY_TIME_MAX,
            }
        });
        let before = datagram.octets.len();
        let whole = datagram.add(offset, end, more, octets);
        let after = datagram.octets.len();
        self.octets += after - before;
        match whole {
            Ok(true) => self.remove(&key),
            Ok(false) => {
                self.make_room(&key);
                None
            }
            Err(Overlap) => {
                self.remove(&key);
                None
            }
        }
    }

    fn make_room(&mut self, newest: &FragmentKey) {
        while self.memory() > self.limit || self.datagrams.len() > DATAGRAMS_MAX {
            let oldest = self.by_age.values().find(|key| *key != newest);
            let oldest = *oldest.unwrap_or(newest);
            self.remove(&oldest);
        }
    }

    fn memory(&self) -> usize {
        self.octets + self.datagrams.len() * DATAGRAM_OVERHEAD
    }

    fn remove(&mut self, key: &FragmentKey) -> Option<Vec<u8>> {
        let datagram = self.datagrams.remove(key)?;
        self.by_age.remove(&datagram.age);
        self.octets -= datagram.octets.len();
        Some(datagram.octets)
    }

    fn expire(&mut self, now: Duration) {
        // The time each has is the same: who began first expires first.
        while let Some(oldest) = self.by_age.values().next().copied() {
            let datagram = self.datagrams.get(&oldest);
            if datagram.is_some_and(|datagram| datagram.expires > now) {
                break;
            }
            self.remove(&oldest);
        }
    }
}

struct Overlap;

impl Datagram {
    /// Says whether the datagram is whole now.
    fn add(
        &mut self,
        offset: usize,
        end: usize,
        more: bool,
        octets: &[u8],
    ) -> Result<bool, Overlap> {
        let range = offset as u64..end as u64;
        match self.present.first_gap(range.clone()) {
            Some(gap) if gap == range => {}
            None if self.octets[offset..end] == *octets => return Ok(false),
            _ => return Err(Overlap),
        }
        if !more && self.len.replace(end).is_some_and(|len| len != end) {
            return Err(Overlap);
        }
        if self.octets.len() < end {
            self.octets.resize(end, 0);
        }
        if self.len.is_some_and(|len| self.octets.len() > len) {
            return Err(Overlap);
        }
        self.octets[offset..end].copy_from_slice(octets);
        self.present.insert(range);
        Ok(self
            .len
            .is_some_and(|len| self.present.octets() == len as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identification: u32) -> FragmentKey {
        FragmentKey {
            source: IpAddr::from([10, 0, 0, 1]),
            destination: IpAddr::from([10, 0, 0, 2]),
            identification,
            protocol: 17,
        }
    }

    #[test]
    fn any_order_and_repetitions() {
        let mut reassembly = Reassembly::new(100_000);
        let now = Duration::ZERO;
        assert_eq!(reassembly.fragment(key(1), 16, false, &[3; 5], now), None);
        assert_eq!(reassembly.fragment(key(1), 0, true, &[1; 8], now), None);
        assert_eq!(reassembly.fragment(key(1), 0, true, &[1; 8], now), None);
        let whole = reassembly.fragment(key(1), 8, true, &[2; 8], now).unwrap();
        assert_eq!(whole, [&[1; 8][..], &[2; 8], &[3; 5]].concat());
        assert_eq!(reassembly.octets(), 0);
    }

    #[test]
    fn overlaps_drop_the_datagram() {
        let mut reassembly = Reassembly::new(100_000);
        let now = Duration::ZERO;
        reassembly.fragment(key(1), 0, true, &[1; 16], now);
        assert_eq!(reassembly.fragment(key(1), 8, false, &[2; 16], now), None);
        assert_eq!(reassembly.octets(), 0);
    }

    #[test]
    fn memory_and_time_are_bounded() {
        let mut reassembly = Reassembly::new(10_000);
        for id in 0..100 {
            reassembly.fragment(
                key(id),
                8,
                true,
                &[0; 1000],
                Duration::from_millis(id.into()),
            );
            assert!(reassembly.octets() <= 10_000);
        }
        reassembly.fragment(key(200), 0, true, &[0; 8], Duration::from_secs(60));
        assert_eq!(reassembly.octets(), 8);
    }

    /// A fragment of eight octets costs fifty times as much beside them.
    #[test]
    fn small_fragments_are_bounded_by_what_they_cost() {
        for (limit, most) in [(1 << 20, DATAGRAMS_MAX), (10_000, 10_000 / 520)] {
            let mut reassembly = Reassembly::new(limit);
            for id in 0..2000 {
                reassembly.fragment(key(id), 0, true, &[0; 8], Duration::ZERO);
                let kept = reassembly.datagrams.len();
                assert_eq!(kept, most.min(id as usize + 1), "limit {limit}");
            }
            assert_eq!(reassembly.octets(), most * 8);
            // The youngest are there still, and come together.
            for id in 2000 - most as u32..2000 {
                let whole = reassembly.fragment(key(id), 8, false, &[1; 8], Duration::ZERO);
                assert_eq!(whole.map(|octets| octets.len()), Some(16));
            }
            assert_eq!(reassembly.octets() + reassembly.by_age.len(), 0);
        }
    }

    #[test]
    fn each_datagram_has_its_own_time() {
        let mut reassembly = Reassembly::new(100_000);
        let second = |number| Duration::from_secs(number);
        for id in 0..10 {
            reassembly.fragment(key(id), 0, true, &[0; 8], second(id.into()));
        }
        // Numbers 0 to 4 are over.
        reassembly.fragment(key(99), 0, true, &[0; 8], second(34));
        assert_eq!(reassembly.datagrams.len(), 6);
        for id in 0..10 {
            let whole = reassembly.fragment(key(id), 8, false, &[1; 8], second(34));
            assert_eq!(whole.is_some(), id > 4, "number {id}");
        }
    }
}
