//! Sequence numbers: the circular 32 bits of the wire, and positions that never wrap.

use core::fmt;

/// A sequence number as it stands in a header (RFC 9293 section 3.4).
///
/// It is circular, so it has a distance and no order. Inside the machine a [`Position`] takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

/// A place in one direction of a connection, counted from its SYN: the SYN has position 0, the first octet of data
/// position 1, the FIN the position behind the last octet. It does not wrap, so it may be compared.
pub type Position = u64;

/// The position of the first octet of data.
pub const FIRST_OCTET: Position = 1;

impl Seq {
    /// The number `octets` further on.
    #[inline]
    pub fn advanced(self, octets: u64) -> Seq {
        Seq(self.0.wrapping_add(octets as u32))
    }

    /// How far `self` is ahead of `other`: negative when it is behind. Right while they are less than 2^31 apart.
    #[inline]
    pub fn distance_from(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The position of this number in a direction that began with `initial`, of all that it could mean the nearest to
    /// `near`. None when that lies before the SYN.
    #[inline]
    pub fn position(self, initial: Seq, near: Position) -> Option<Position> {
        let distance = self.distance_from(initial.advanced(near));
        near.checked_add_signed(i64::from(distance))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seq({})", self.0)
    }
}

// A circular number must not be given an order by accident: with `Ord` the two impls below would be ambiguous.
const _: fn() = || {
    trait NoOrder<Marker> {
        fn check() {}
    }
    struct Ordered;
    impl<T> NoOrder<()> for T {}
    impl<T: PartialOrd> NoOrder<Ordered> for T {}
    <Seq as NoOrder<_>>::check();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_over_the_wrap() {
        assert_eq!(Seq(3).distance_from(Seq(u32::MAX - 1)), 5);
        assert_eq!(Seq(u32::MAX - 1).distance_from(Seq(3)), -5);
        assert_eq!(Seq(u32::MAX).advanced(2), Seq(1));
    }

    #[test]
    fn positions_go_on_where_numbers_wrap() {
        let initial = Seq(u32::MAX - 10);
        for position in [0u64, 5, 11, 1 << 31, (1 << 32) + 7, 1 << 40] {
            let seq = initial.advanced(position);
            for near in [position, position + 1000, position.saturating_sub(1000)] {
                assert_eq!(seq.position(initial, near), Some(position));
            }
        }
    }

    #[test]
    fn there_is_nothing_before_the_syn() {
        assert_eq!(Seq(99).position(Seq(100), 0), None);
        assert_eq!(Seq(100).position(Seq(100), 0), Some(0));
    }
}
