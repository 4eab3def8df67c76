//! Fragmentation of IPv4 packets (RFC 791 section 3.2).

use crate::packet::{put_u16, set_packet_len, u16_at, Layout, Version, IPV4_LEN};

/// In the field of the fragment offset: more fragments follow.
const MORE: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;
/// Offsets count in units of so many octets.
const UNIT: usize = 8;
/// A bit in the kind of an option: it stands in every fragment.
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// The fragments of a packet, each of at most `mtu` octets from the IP header on. None for IPv6, which only senders
/// fragment, and where the header leaves no room for a unit. Whether the packet allows it is the caller's to know.
pub(crate) fn fragments(frame: &[u8], layout: &Layout, mtu: usize) -> Option<Vec<Vec<u8>>> {
    let header = &frame[layout.network..layout.transport];
    let room = mtu.checked_sub(header.len())? / UNIT * UNIT;
    if layout.version != Version::V4 || room == 0 {
        return None;
    }
    let field = u16_at(frame, layout.network + 6)?;
    let payload = &frame[layout.transport..layout.end];
    let later = header_of_later_fragments(header);
    let count = payload.len().div_ceil(room);
    let pieces = payload.chunks(room).enumerate();
    Some(
        pieces
            .map(|(index, piece)| {
                let mut fragment = frame[..layout.network].to_vec();
                fragment.extend_from_slice(if index == 0 { header } else { &later });
                fragment.extend_from_slice(piece);
                let offset = (field & OFFSET_MASK) + (index * room / UNIT) as u16;
                let more = if index + 1 < count {
                    MORE
                } else {
                    field & MORE
                };
                put_u16(&mut fragment, layout.network + 6, more | offset);
                set_packet_len(&mut fragment, Version::V4, layout.network);
                fragment
            })
            .collect(),
    )
}

/// The header with only those options that stand in every fragment (RFC 791 section 3.1, "Options").
fn header_of_later_fragments(header: &[u8]) -> Vec<u8> {
    let (fixed, mut options) = header.split_at(IPV4_LEN);
    let mut later = fixed.to_vec();
    while let Some(&kind) = options.first() {
        let len = match kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => 1,
            _ => options.get(1).map_or(0, |len| usize::from(*len)),
        };
        // A malformed option ends them.
        let Some(option) = options.get(..len).filter(|option| !option.is_empty()) else {
            break;
        };
        if kind & COPIED != 0 {
            later.extend_from_slice(option);
        }
        options = &options[len..];
    }
    later.resize(later.len().next_multiple_of(4), END_OF_OPTIONS);
    later[0] = 0x40 | (later.len() / 4) as u8;
    later
}

/// Octets of an IPv4 packet put together again from all its fragments, for tests.
#[cfg(test)]
pub(crate) fn reassembled(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Vec::new();
    for fragment in fragments {
        let layout = Layout::parse(fragment).unwrap();
        let field = u16_at(fragment, layout.network + 6).unwrap();
        let at = usize::from(field & OFFSET_MASK) * UNIT;
        let end = at + layout.end - layout.transport;
        whole.resize(end.max(whole.len()), 0);
        whole[at..end].copy_from_slice(&fragment[layout.transport..layout.end]);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{samples, UDP};
    use proptest::prelude::*;
    use weft_inet::checksum;

    #[test]
    fn options_that_are_not_copied_stay_in_the_first() {
        let mut frame = samples::ipv4(UDP, false, &[7; 600]);
        // Record route (not copied), loose source route (copied), padding.
        let options = [7, 3, 4, 131, 7, 4, 1, 2, 3, 4, 0, 0];
        frame.splice(34..34, options);
        frame[14] = 0x40 | 8;
        set_packet_len(&mut frame, Version::V4, 14);
        let layout = Layout::parse(&frame).unwrap();
        let all = fragments(&frame, &layout, 300).unwrap();
        assert_eq!(all[0][34..46], options);
        assert_eq!(all[1][14] & 15, 7);
        assert_eq!(all[1][34..42], [131, 7, 4, 1, 2, 3, 4, 0]);
        assert_eq!(reassembled(&all), [7; 600]);
    }

    proptest! {
        #[test]
        fn fragments_make_the_packet(len in 1usize..4000, mtu in 28usize..1500, again in 28usize..600) {
            let payload: Vec<u8> = (0..len).map(|at| (at * 31 + at / 256) as u8).collect();
            let frame = samples::ipv4(UDP, false, &payload);
            let once = fragments(&frame, &Layout::parse(&frame).unwrap(), mtu).unwrap();
            // Each fragment may meet a smaller MTU.
            let twice: Vec<Vec<u8>> = once
                .iter()
                .flat_map(|part| fragments(part, &Layout::parse(part).unwrap(), again).unwrap())
                .collect();
            for (all, mtu) in [(&once, mtu), (&twice, again.min(mtu))] {
                prop_assert_eq!(reassembled(all), &payload[..]);
                let more = |part: &Vec<u8>| u16_at(part, 20).unwrap() & MORE != 0;
                prop_assert_eq!(all.iter().filter(|part| !more(part)).count(), 1);
                prop_assert!(!more(all.last().unwrap()));
                for part in all {
                    prop_assert!(part.len() - 14 <= mtu);
                    prop_assert_eq!(checksum::of(&part[14..34]), 0);
                }
            }
        }
    }
}
