//! What comes in parts means what it does whole.

use super::*;

/// As [`read`], of octets that come one by one.
fn read_one_by_one(receiver: &mut Receiver, octets: &[u8]) -> Result<(Vec<u8>, Vec<Event>), Fault> {
    let (mut stream, mut events) = (Vec::new(), Vec::new());
    for octet in octets.chunks(1) {
        let (now, told) = read(receiver, octet)?;
        stream.extend(now);
        events.extend(told);
    }
    Ok((stream, events))
}

/// The header of a Write is taken at once where it is there whole and is the stream's next; all others octet by octet.
#[test]
fn a_header_that_comes_whole_means_what_it_does_octet_by_octet() {
    let next = [write(TO, &[1; 5]), write(TO + 5, &[2; 30])].concat();
    for peer in [own(), foreign()] {
        for (at, bit) in
            (0..frame::WRITE_HEADER_LEN).flat_map(|at| (0..8).map(move |bit| (at, bit)))
        {
            let mut octets = next.clone();
            octets[at] ^= 1 << bit;
            for octets in [&octets, &next] {
                let (mut whole, mut in_parts) = (receiver(&peer), receiver(&peer));
                let came = read(&mut whole, octets);
                assert_eq!(
                    came,
                    read_one_by_one(&mut in_parts, octets),
                    "octet {at}, bit {bit}"
                );
                assert_eq!(whole.next(), in_parts.next());
                assert_eq!(whole.has_begun(), in_parts.has_begun());
                assert_eq!(whole.owes_message(), in_parts.owes_message());
            }
        }
    }
}
