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

/// Datagrams coming together, within a bound on their octets.
#[derive(Debug)]
pub struct Reassembly {
    datagrams: BTreeMap<FragmentKey, Datagram>,
    octets: usize,
    limit: usize,
}

#[derive(Debug)]
struct Datagram {
    octets: Vec<u8>,
    present: RangeSet,
    len: Option<usize>,
    expires: Duration,
}

impl Reassembly {
    /// Keeps at most `limit` octets; beyond that the oldest datagram gives way.
    pub fn new(limit: usize) -> Reassembly {
        Reassembly {
            datagrams: BTreeMap::new(),
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
        let datagram = self.datagrams.entry(key).or_insert_with(|| Datagram {
            octets: Vec::new(),
            present: RangeSet::default(),
            len: None,
            expires: now + REASSEMBLY_TIME_MAX,
        });
        let before = datagram.octets.len();
        let whole = datagram.add(offset, end, more, octets);
        let after = datagram.octets.len();
        self.octets += after - before;
        match whole {
            Ok(true) => {
                self.octets -= after;
                self.datagrams.remove(&key).map(|datagram| datagram.octets)
            }
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
        while self.octets > self.limit {
            let others = self.datagrams.iter().filter(|(key, _)| *key != newest);
            let oldest = others
                .min_by_key(|(_, datagram)| datagram.expires)
                .map(|(key, _)| *key);
            self.remove(&oldest.unwrap_or(*newest));
        }
    }

    fn remove(&mut self, key: &FragmentKey) {
        if let Some(datagram) = self.datagrams.remove(key) {
            self.octets -= datagram.octets.len();
        }
    }

    fn expire(&mut self, now: Duration) {
        let octets = &mut self.octets;
        self.datagrams.retain(|_, datagram| {
            let keep = datagram.expires > now;
            if !keep {
                *octets -= datagram.octets.len();
            }
            keep
        });
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
}
