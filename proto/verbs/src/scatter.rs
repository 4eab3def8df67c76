//! Walking scatter/gather lists.

use crate::types::Sge;

/// The parts of a list that octets `[offset, offset + len)` of a message fall on, in order.
pub(crate) fn pieces(sges: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Sge> + '_ {
    let mut skip = offset;
    let mut left = len;
    sges.iter().filter_map(move |sge| {
        if skip >= sge.length {
            skip -= sge.length;
            return None;
        }
        let length = (sge.length - skip).min(left);
        let piece = Sge {
            addr: sge.addr + u64::from(skip),
            length,
            lkey: sge.lkey,
        };
        skip = 0;
        left -= length;
        (length > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn sge(addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: 1,
        }
    }

    #[test]
    fn ranges_fall_on_the_right_elements() {
        let list = [sge(100, 4), sge(200, 0), sge(300, 8)];
        let walk = |offset, len| -> Vec<(u64, u32)> {
            pieces(&list, offset, len)
                .map(|p| (p.addr, p.length))
                .collect()
        };
        assert_eq!(walk(0, 12), [(100, 4), (300, 8)]);
        assert_eq!(walk(3, 2), [(103, 1), (300, 1)]);
        assert_eq!(walk(4, 8), [(300, 8)]);
        assert_eq!(walk(11, 1), [(307, 1)]);
        assert_eq!(walk(0, 0), []);
        assert_eq!(walk(12, 0), []);
    }
}
