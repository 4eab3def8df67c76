//! The bodies of the fuzz targets, to be run by the fuzzer and, over the committed corpora, by the tests.
//!
//! Each takes any octets and panics when the code under test breaks a promise: that what comes out does not depend on
//! how the octets were cut, and that what a peer makes this end keep is bounded.

use std::vec::Vec;

use core::time::Duration;

use crate::carrier::{Carrier, Event, Secrets, CHANNELS_MAX};
use crate::control::{Control, Why};
use crate::deframer::{Deframer, Next};
use crate::end::End;
use crate::fault::Fault;
use crate::frame::{Head, Key, CONTROL, HEADER_LEN};
use crate::greeting::{Greeting, Instance, GREETING_LEN};
use crate::messages::Messages;
use crate::proof::Proof;
use crate::segments::Segments;

const HELD_OCTETS_MAX: usize = 4096;
const MESSAGE_OCTETS_MAX: usize = 10_000;

fn key() -> Key {
    Key::new(&[1; 16], &[2; 16])
}

/// What came out: channel and octets of each datagram and control message.
type Seen = Vec<(u16, Vec<u8>)>;

/// Target `uoe_frames`: octets that a read gives, then seeds of the cuts; then what the peer sends. A header's check is
/// made right where its last octet is 0, or nothing behind it would be reached.
pub fn frames(data: &[u8]) {
    let [read, cut, step, octets @ ..] = data else {
        return;
    };
    let octets = with_checks(octets);
    let read = usize::from(*read).max(1);
    let whole = in_order(&octets, octets.len().max(1));
    assert_eq!(
        whole,
        in_order(&octets, read),
        "what comes out depends on the reads"
    );
    let (in_order, fault) = whole;
    let segments = in_any_order(&octets, usize::from(*cut) + 1, usize::from(*step) * 2 + 1);
    // Who has the key may write what looks like a header into a payload, and the fuzzer finds such octets. Where a cut
    // makes a segment begin with them, they are one.
    if has_header_in_payload(&octets) {
        return;
    }
    if let (None, Ok(mut seen)) = (fault, segments) {
        // No frame may be seen in two ways, so the same came, in another order.
        let mut wanted = in_order;
        seen.sort();
        wanted.sort();
        assert_eq!(
            seen, wanted,
            "what comes out depends on the order of segments"
        );
    }
}

/// Target `uoe_greeting`: what an end says first. Read is what was written, and what is refused was never said.
pub fn greeting(data: &[u8]) {
    let mut octets = [0; GREETING_LEN];
    let len = data.len().min(GREETING_LEN);
    octets[..len].copy_from_slice(&data[..len]);
    let may_begin = (0..=GREETING_LEN).all(|len| Greeting::may_begin_with(&octets[..len]));
    let Ok(read) = Greeting::parse(&octets) else {
        // Where it begins as one, it is of versions that are not spoken here.
        assert!(!may_begin || !(octets[8]..=octets[9]).contains(&1));
        return;
    };
    assert!(
        may_begin,
        "one that is read is not given up before it is there"
    );
    assert_eq!(Greeting::parse(&read.to_octets()), Ok(read));
    if let Some(wanted) = read.wanted {
        assert_ne!(wanted.port(), 0);
    }
    // Whoever says it, a carrier comes up once, and goes in the end.
    let (own, now) = (other(), Duration::from_secs(1000));
    let mut carrier = Carrier::new(own, core::net::Ipv4Addr::LOCALHOST.into(), now);
    carrier.handle_greeting(read, now);
    carrier.handle_greeting(own, now);
    assert_eq!(carrier.peer(), Some(&read));
    let (to_peer, from_peer) = carrier.keys().expect("both have greeted");
    assert_eq!(to_peer == from_peer, read.nonce == own.nonce);
    carrier.shut(Why::Ends, now);
    assert!(carrier.is_closed());
}

fn other() -> Greeting {
    Greeting {
        instance: Instance(1),
        nonce: [9; 16],
        policy: 0,
        takes_any_order: false,
        wants_times: false,
        without_udp: false,
        wanted: None,
    }
}

fn with_checks(octets: &[u8]) -> Vec<u8> {
    let (mut octets, mut at) = (octets.to_vec(), 0);
    while let Some(header) = octets.get_mut(at..at + HEADER_LEN) {
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let head = Head {
            len: word(0),
            channel: word(2) & 0x7fff,
            is_part: word(2) & 0x8000 != 0,
        };
        if header[7] == 0 {
            header.copy_from_slice(&head.to_octets(key(), at as u64));
        }
        at += head.frame_len();
    }
    octets
}

/// Whether a header checks at a place where, in the order of the stream, no frame begins.
fn has_header_in_payload(octets: &[u8]) -> bool {
    let mut frame = 0;
    for (at, window) in octets.windows(HEADER_LEN).enumerate() {
        let header = window.first_chunk();
        match header.and_then(|header| Head::parse(header, key(), at as u64)) {
            Some(head) if at == frame => frame = at + head.frame_len(),
            Some(_) => return true,
            None => {}
        }
    }
    false
}

/// Datagrams, parts put together, until a fault.
fn take(messages: &mut Messages, seen: &mut Seen, head: Head, octets: &[u8]) -> Result<(), Fault> {
    let whole = match head.is_part {
        false => Some(octets.to_vec()),
        true => messages.handle_part(head.channel, octets, Duration::ZERO)?,
    };
    assert!(
        messages.held() <= MESSAGE_OCTETS_MAX,
        "more is kept than may be"
    );
    seen.extend(whole.map(|octets| (head.channel, octets)));
    Ok(())
}

fn in_order(octets: &[u8], read: usize) -> (Seen, Option<Fault>) {
    let (mut deframer, mut seen) = (Deframer::new(key(), 0), Seen::new());
    let mut messages = Messages::new(MESSAGE_OCTETS_MAX);
    let (mut at, mut end) = (0, 0);
    while end < octets.len() {
        end = octets.len().min(end + read);
        loop {
            match deframer.next(&octets[at..end]) {
                Err(fault) => return (seen, Some(fault)),
                Ok(Next::Need(need)) => {
                    assert!(need > end - at, "it asks for what there is");
                    break;
                }
                Ok(Next::Frame(head, range)) => {
                    let frame = &octets[at..][range];
                    if let Err(fault) = take(&mut messages, &mut seen, head, frame) {
                        return (seen, Some(fault));
                    }
                    at += head.frame_len();
                }
            }
        }
    }
    (seen, None)
}

fn in_any_order(octets: &[u8], cut: usize, step: usize) -> Result<Seen, Fault> {
    let mut pieces: Vec<_> = octets.chunks(cut).enumerate().collect();
    let count = pieces.len();
    pieces.sort_by_key(|(index, _)| (index.wrapping_mul(step) % count.max(1), *index));
    let mut segments = Segments::new(key(), 0, HELD_OCTETS_MAX);
    let (mut messages, mut seen) = (Messages::new(MESSAGE_OCTETS_MAX), Seen::new());
    let (mut frames, mut controls) = (Vec::new(), 0);
    for (index, piece) in pieces {
        segments.handle_segment(
            (index * cut) as u64,
            piece,
            Duration::ZERO,
            &mut |(head, octets)| {
                controls += usize::from(head.channel == CONTROL);
                frames.push((head, octets.to_vec()));
                Ok(())
            },
        )?;
        assert!(
            segments.held() <= HELD_OCTETS_MAX,
            "more is kept than may be"
        );
    }
    // Parts in another order may be too many at a time: only what came whole is compared then.
    for (head, octets) in frames {
        take(&mut messages, &mut seen, head, &octets)?;
    }
    match messages.dropped() {
        0 => Ok(seen),
        dropped => Err(Fault::Held(dropped as usize)),
    }
}

/// Target `uoe_carrier`: a greeting; then records of kind, length and octets: control messages, proofs, time.
pub fn carrier(data: &[u8]) {
    let Some((greeting, mut rest)) = data.split_first_chunk::<GREETING_LEN>() else {
        return;
    };
    let Ok(peer) = Greeting::parse(greeting) else {
        return;
    };
    assert_eq!(Greeting::parse(&peer.to_octets()), Ok(peer));
    let own = Greeting {
        instance: Instance(1),
        nonce: [1; 16],
        policy: 0,
        takes_any_order: true,
        wants_times: false,
        without_udp: peer.takes_any_order,
        wanted: None,
    };
    let mut now = Duration::from_secs(1000);
    let mut carrier = Carrier::new(own, end(2).address(), now);
    carrier.handle_greeting(peer, now);
    let mut nonce = 0u8;
    while let [kind, len, more @ ..] = rest {
        let (octets, next) = more.split_at(more.len().min(usize::from(*len)));
        rest = next;
        nonce = nonce.wrapping_add(1);
        if *kind % 5 == 2 {
            let first = octets.first().copied().unwrap_or(0);
            now += Duration::from_millis(u64::from(*len) * u64::from(first));
        }
        step(&mut carrier, [*kind, *len, nonce], octets, now);
        answer(&mut carrier, now);
    }
}

fn end(octet: u8) -> End {
    End::new([192, 0, 2, octet & 3].into(), 5000)
}

/// One record.
fn step(carrier: &mut Carrier, [kind, len, nonce]: [u8; 3], octets: &[u8], now: Duration) {
    let first = octets.first().copied().unwrap_or(0);
    match kind % 5 {
        0 => {
            if carrier.handle_control(octets, now).is_err() {
                carrier.handle_gone();
            }
        }
        1 => {
            let proof = Proof::new([first; 16], u32::from(kind / 5 % 3));
            carrier.handle_proof(proof, end(len), end(kind), now);
        }
        2 => {
            carrier.handle_timeout(now);
            let deadline = carrier.deadline();
            assert!(
                deadline.is_none_or(|at| at > now),
                "a deadline that is over"
            );
        }
        3 => {
            let secrets = Secrets {
                nonce: [nonce; 16],
                challenge: [first; 16],
            };
            carrier.open(end(first), end(len), secrets, now);
        }
        _ => {
            let _ = carrier.handle_datagram(u16::from(first), now);
            carrier.barrier(1, 1, now);
        }
    }
}

/// What the driver does then.
fn answer(carrier: &mut Carrier, now: Duration) {
    let mut said = 0;
    while let Some(control) = carrier.poll_control() {
        assert_eq!(Control::parse(control.encode().octets()), Ok(control));
        said += 1;
    }
    let mut events = 0;
    while let Some(event) = carrier.poll_event() {
        events += 1;
        if let Event::Wanted { channel, .. } = event {
            match channel % 3 {
                0 => carrier.refuse(channel, Why::NoSocket, now),
                _ => carrier.admit(channel, [channel as u8; 16], now),
            }
        }
    }
    // One record is about one channel, or about all there may be when the carrier ends.
    assert!(
        said <= 2 * CHANNELS_MAX && events <= 4 * CHANNELS_MAX,
        "{said} {events}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::path::Path;

    /// Runs every file of a committed corpus; gives how many there were.
    fn replay(target: &str, run: fn(&[u8])) -> usize {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let files = fs::read_dir(corpus).expect("corpus folder");
        files
            .map(|file| run(&fs::read(file.expect("entry").path()).expect("file")))
            .count()
    }

    #[test]
    fn corpora() {
        assert!(replay("uoe_frames", frames) > 5);
        assert!(replay("uoe_carrier", carrier) > 3);
        assert!(replay("uoe_greeting", greeting) > 4);
    }

    proptest! {
        #[test]
        fn any_octets_are_a_greeting_or_none(
            is_ours: bool, versions: [u8; 2], rest in prop::collection::vec(any::<u8>(), 0..60)
        ) {
            let magic = if is_ours { *b"WeftUOE\0" } else { *b"Weft UOE" };
            greeting(&[&magic[..], &versions, &rest].concat());
        }

        #[test]
        fn any_octets_are_frames_or_a_fault(
            cuts: [u8; 3],
            parts in prop::collection::vec((0u16..30, 0u16..4, any::<bool>(), prop::collection::vec(0u8..20, 0..40)), 0..20)
        ) {
            let mut octets = cuts.to_vec();
            for (len, channel, is_part, payload) in parts {
                octets.extend(len.to_be_bytes());
                octets.extend((channel | if is_part { 0x8000 } else { 0 }).to_be_bytes());
                octets.extend([0; 4]);
                octets.extend(payload);
            }
            frames(&octets);
        }
    }
}
