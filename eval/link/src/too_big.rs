//! What a router answers to a packet that is too big for its next link (RFC 792, RFC 1191; RFC 4443 section 3.2).

use crate::packet::{finish_ipv4_header, put_u16, set_packet_len, u16_at, Layout, Version};
use crate::packet::{ICMP, ICMPV6};
use weft_inet::checksum::Checksum;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const PACKET_TOO_BIG_V6: u8 = 2;
/// ICMP messages that are errors: about them there is none (RFC 1812 section 4.3.2.7).
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// ICMPv6 messages below this are errors.
const FIRST_INFORMATIONAL: u8 = 128;
/// Octets of a message before what it quotes.
const MESSAGE_LEN: usize = 8;
/// Octets of an answer at most, IP header included (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c)).
const ANSWER_MAX_V4: usize = 576;
const ANSWER_MAX_V6: usize = 1280;
const HOPS: u8 = 64;
/// The bit of an Ethernet address that says it is a group's.
const GROUP: u8 = 1;

/// The frame that tells the sender of `frame` that its packet was too big for a link of `mtu` octets; none where no
/// answer is allowed.
///
/// It comes from where the frame was going, on Ethernet as on IP: the emulator has no address of its own, and that of
/// the destination is one that the sender has a route to.
pub(crate) fn answer(frame: &[u8], layout: &Layout, mtu: u32) -> Option<Vec<u8>> {
    if !may_be_answered(frame, layout) {
        return None;
    }
    let mut answer = Vec::with_capacity(ANSWER_MAX_V6 + layout.network);
    answer.extend_from_slice(&frame[6..12]);
    answer.extend_from_slice(&frame[..6]);
    answer.extend_from_slice(&frame[12..layout.network]);
    match layout.version {
        Version::V4 => put_v4(&mut answer, frame, layout, mtu),
        Version::V6 => put_v6(&mut answer, frame, layout, mtu),
    }
    Some(answer)
}

/// RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 (e): none about errors, to groups, about later fragments.
fn may_be_answered(frame: &[u8], layout: &Layout) -> bool {
    let (source, destination) = layout.addresses(frame);
    let kind = frame.get(layout.transport).copied().unwrap_or_default();
    let for_group = frame[0] & GROUP != 0;
    let from_nobody = source.iter().all(|octet| *octet == 0);
    match layout.version {
        Version::V4 => {
            let later = u16_at(frame, layout.network + 6).is_none_or(|field| field & 0x1fff != 0);
            let is_group = |address: &[u8]| address[0] >= 224;
            let of_error = layout.protocol == ICMP && ERRORS.contains(&kind);
            let local = source[0] == 127 || is_group(source) || is_group(destination);
            !(later || of_error || from_nobody || for_group || local)
        }
        Version::V6 => {
            let is_group = |address: &[u8]| address[0] == 0xff;
            let of_error = layout.protocol == ICMPV6 && kind < FIRST_INFORMATIONAL;
            let group = is_group(source) || is_group(destination);
            !(of_error || from_nobody || for_group || group)
        }
    }
}

fn put_v4(answer: &mut Vec<u8>, frame: &[u8], layout: &Layout, mtu: u32) {
    let network = answer.len();
    let (source, destination) = layout.addresses(frame);
    answer.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, HOPS, ICMP, 0, 0]);
    answer.extend_from_slice(destination);
    answer.extend_from_slice(source);
    let message = answer.len();
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    answer.extend_from_slice(&[UNREACHABLE, FRAGMENTATION_NEEDED, 0, 0, 0, 0]);
    answer.extend_from_slice(&mtu.to_be_bytes());
    quote(answer, frame, layout, ANSWER_MAX_V4 - (message - network));
    let mut sum = Checksum::default();
    sum.add(&answer[message..]);
    put_u16(answer, message + 2, sum.finish());
    set_packet_len(answer, Version::V4, network);
    finish_ipv4_header(answer, network);
}

fn put_v6(answer: &mut Vec<u8>, frame: &[u8], layout: &Layout, mtu: u32) {
    let network = answer.len();
    let (source, destination) = layout.addresses(frame);
    answer.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, ICMPV6, HOPS]);
    answer.extend_from_slice(destination);
    answer.extend_from_slice(source);
    let message = answer.len();
    answer.extend_from_slice(&[PACKET_TOO_BIG_V6, 0, 0, 0]);
    answer.extend_from_slice(&mtu.to_be_bytes());
    quote(answer, frame, layout, ANSWER_MAX_V6 - (message - network));
    set_packet_len(answer, Version::V6, network);
    let own = Layout {
        network,
        transport: message,
        protocol: ICMPV6,
        end: answer.len(),
        is_fragment: false,
        version: Version::V6,
    };
    let mut sum = own.pseudo_sum(answer, answer.len() - message);
    sum.add(&answer[message..]);
    put_u16(answer, message + 2, sum.finish());
}

/// As much of the packet as fits into `room` octets of message.
fn quote(answer: &mut Vec<u8>, frame: &[u8], layout: &Layout, room: usize) {
    let packet = &frame[layout.network..layout.end];
    answer.extend_from_slice(&packet[..packet.len().min(room - MESSAGE_LEN)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{samples, u32_at, UDP};
    use weft_inet::checksum;

    fn of(frame: &[u8], mtu: u32) -> Option<Vec<u8>> {
        answer(frame, &Layout::parse(frame).unwrap(), mtu)
    }

    #[test]
    fn an_ipv4_answer_comes_from_the_destination_and_quotes_the_packet() {
        let frame = samples::ipv4(UDP, true, &samples::udp(&[5; 1400]));
        let answer = of(&frame, 900).unwrap();
        assert_eq!(answer.len(), 14 + 576);
        assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
        assert_eq!(answer[26..34], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(answer[34..36], [3, 4]);
        assert_eq!(u16_at(&answer, 40), Some(900));
        assert_eq!(answer[42..], frame[14..14 + 548]);
        assert_eq!(checksum::of(&answer[14..34]), 0);
        assert_eq!(checksum::of(&answer[34..]), 0);
    }

    #[test]
    fn an_ipv6_answer_is_a_packet_of_the_least_mtu_at_most() {
        let frame = samples::ipv6(UDP, &samples::udp(&[5; 1400]));
        let answer = of(&frame, 1300).unwrap();
        assert_eq!(answer.len(), 14 + 1280);
        assert_eq!(answer[54], PACKET_TOO_BIG_V6);
        assert_eq!(u32_at(&answer, 58), Some(1300));
        assert_eq!(answer[62..], frame[14..14 + 1232]);
        assert!(samples::is_sound(&answer));
        let small = samples::ipv6(UDP, &samples::udp(&[5; 5]));
        assert_eq!(of(&small, 1280).unwrap()[62..], small[14..]);
    }

    #[test]
    fn errors_groups_and_later_fragments_get_no_answer() {
        let unreachable = [3, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(of(&samples::ipv4(ICMP, true, &unreachable), 600), None);
        assert!(of(&samples::ipv4(ICMP, true, &[8, 0, 0, 0]), 600).is_some());
        assert_eq!(of(&samples::ipv6(ICMPV6, &[1, 0, 0, 0]), 1280), None);
        assert!(of(&samples::ipv6(ICMPV6, &[128, 0, 0, 0]), 1280).is_some());

        let mut group = samples::ipv4(UDP, true, &[0; 8]);
        group[30] = 224;
        assert_eq!(of(&group, 600), None);
        let mut broadcast = samples::ipv4(UDP, true, &[0; 8]);
        broadcast[0] = 0xff;
        assert_eq!(of(&broadcast, 600), None);
        let mut later = samples::ipv4(UDP, true, &[0; 8]);
        later[21] = 1;
        assert_eq!(of(&later, 600), None);
        let mut unspecified = samples::ipv6(UDP, &[0; 8]);
        unspecified[22..38].fill(0);
        assert_eq!(of(&unspecified, 1280), None);
    }
}
