//! What is found ahead of order is what order would have found, and nothing else.

use super::*;
use crate::ddp::{Tagged, Untagged};
use crate::inbound::{Inbound, InboundConfig, Parse, Segment};
use crate::num::{Msn, QueueNumber, Stag};
use crate::outbound::Outbound;
use crate::terminate::Fault;
use crate::{Established, Role};
use alloc::vec;
use proptest::prelude::*;

const CRC: InboundConfig = InboundConfig {
    crc: true,
    markers: false,
    rfc7306: true,
};
const MARKERS: InboundConfig = InboundConfig {
    markers: true,
    ..CRC
};
const NEITHER: InboundConfig = InboundConfig { crc: false, ..CRC };

fn write(last: bool) -> Header {
    Header::Tagged(Tagged {
        last,
        opcode: Opcode::WRITE,
        stag: Stag(0x0102),
        to: 64,
    })
}

fn send(opcode: Opcode, msn: u32, last: bool) -> Header {
    Header::Untagged(Untagged {
        last,
        opcode,
        invalidate: 0,
        qn: QueueNumber::SEND,
        msn: Msn(msn),
        mo: 0,
    })
}

/// A stream of FPDUs with these headers and so much payload, and where each of them begins.
fn stream(config: InboundConfig, fpdus: &[(Header, usize)]) -> (Vec<u8>, Vec<usize>) {
    let established = Established {
        role: Role::Initiator,
        crc: config.crc,
        markers_tx: config.markers,
        markers_rx: config.markers,
        revision: 1,
        peer_to_peer: false,
        rtr: None,
        ird: 1,
        ord: 1,
        peer_ird: 1,
        peer_ord: 1,
        private_data: Vec::new(),
    };
    let mut outbound = Outbound::new(&established, 65483);
    let (mut out, mut starts) = (Vec::new(), Vec::new());
    for (n, (header, len)) in fpdus.iter().enumerate() {
        let start = outbound.begin(&mut out, header, &[], *len);
        out.extend((0..*len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(n as u8)));
        outbound.seal(&mut out, start);
        starts.push(start);
    }
    (out, starts)
}

/// The envelope of a Write of so many octets.
pub(crate) fn envelope(payload_len: usize) -> Envelope {
    let (octets, _) = stream(CRC, &[(write(false), payload_len)]);
    let mut ahead = FpdusAhead::new(true, false, 0, &octets);
    let found = ahead.next_fpdu().expect("octets").expect("an FPDU");
    found.envelope
}

/// What a look at octets ahead of order finds: each FPDU with its payload, or why there is none.
fn look(
    config: InboundConfig,
    at: usize,
    octets: &[u8],
    aligned: bool,
) -> Vec<Result<(FpduAhead, Vec<u8>), Unplaced>> {
    let inbound = Inbound::with_config(config);
    let mut ahead = inbound
        .fpdus_ahead(at as u64, octets, aligned)
        .expect("a CRC, or the peer's word");
    let mut all = Vec::new();
    while let Some(found) = ahead.next_fpdu() {
        all.push(found.map(|fpdu| (fpdu, ahead.payload().to_vec())));
    }
    all
}

/// Where those begin that were found.
fn starts(at: usize, found: &[Result<(FpduAhead, Vec<u8>), Unplaced>]) -> Vec<usize> {
    let fpdus = found.iter().flatten();
    fpdus.map(|(fpdu, _)| at + fpdu.octets.start).collect()
}

fn header() -> impl Strategy<Value = Header> {
    prop_oneof![
        any::<bool>().prop_map(write),
        any::<bool>().prop_map(|last| send(Opcode::SEND, 1, last)),
    ]
}

fn config() -> impl Strategy<Value = InboundConfig> {
    prop_oneof![Just(CRC), Just(MARKERS)]
}

proptest! {
    /// In any cut of a stream, whatever is found is an FPDU of it, octet for octet; where the cut is at an FPDU, all
    /// whole ones are found.
    #[test]
    fn what_is_found_is_there(
        config in config(),
        fpdus in proptest::collection::vec((header(), 0usize..900), 1..12),
        from: prop::sample::Index,
        to: prop::sample::Index,
        at_fpdu: bool,
    ) {
        let (octets, begins) = stream(config, &fpdus);
        let mut from = from.index(octets.len());
        let to = from + to.index(octets.len() - from + 1);
        if at_fpdu {
            from = *begins.iter().rfind(|start| **start <= from).expect("the first begins at 0");
        }
        let found = look(config, from, &octets[from..to], false);
        for (fpdu, payload) in found.iter().flatten() {
            let start = from + fpdu.octets.start;
            let n = begins.binary_search(&start);
            prop_assert!(n.is_ok(), "no FPDU begins at {}", start);
            let (header, len) = fpdus[n.unwrap()];
            prop_assert_eq!((fpdu.header, fpdu.payload_len, payload.len()), (header, len, len));
            let again = fpdu.envelope.around(payload, start as u64, config.markers);
            prop_assert_eq!(&again, &octets[start..start + fpdu.octets.len()]);
            prop_assert_eq!(fpdu.envelope.wire_len(), again.len());
        }
        let ends = begins.iter().skip(1).copied().chain([octets.len()]);
        let whole: Vec<usize> =
            begins.iter().copied().zip(ends).filter(|(s, e)| *s >= from && *e <= to).map(|(s, _)| s).collect();
        if at_fpdu {
            prop_assert_eq!(starts(from, &found), whole);
        } else if config.markers {
            // Whatever the cut: from the FPDU on that the first marker points to, if it begins here.
            let marker = from.next_multiple_of(512);
            let owner = begins.iter().rfind(|start| **start <= marker);
            let reached = owner.is_some_and(|start| *start >= from) && marker + 4 <= to;
            let behind: Vec<usize> =
                whole.into_iter().filter(|start| reached && Some(start) >= owner).collect();
            prop_assert!(starts(from, &found).ends_with(&behind), "{:?}", found);
        }
    }

    /// Octets that are no stream break nothing, and without a CRC only what fills them is believed.
    #[test]
    fn any_octets_may_be_looked_at(
        crc: bool, markers: bool, at in 0u64..5000, octets in proptest::collection::vec(any::<u8>(), 0..3000)
    ) {
        let mut ahead = FpdusAhead::new(crc, markers, at, &octets);
        let mut end = 0;
        while let Some(found) = ahead.next_fpdu() {
            if let Ok(fpdu) = found {
                prop_assert!(fpdu.octets.start >= end && fpdu.octets.end <= octets.len());
                prop_assert_eq!(ahead.payload().len(), fpdu.payload_len);
                end = fpdu.octets.end;
            }
        }
    }

    /// A stream of which some FPDUs are delivered by their envelopes is the stream that was parsed.
    #[test]
    fn delivered_is_as_parsed(
        config in prop_oneof![Just(CRC), Just(MARKERS), Just(NEITHER)],
        fpdus in proptest::collection::vec((header(), 1usize..900), 1..12),
        early in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let (octets, begins) = stream(config, &fpdus);
        let ends = begins.iter().skip(1).copied().chain([octets.len()]);
        let mut parsed = Inbound::with_config(config);
        let mut mixed = parsed.clone();
        for (n, (start, end)) in begins.iter().copied().zip(ends).enumerate() {
            let mut wire = octets[start..end].to_vec();
            let expected = told(parsed.parse(&mut wire));
            let mut wire = octets[start..end].to_vec();
            let found = if early[n] {
                let found = look(config, start, &wire, true);
                let (fpdu, _) = found[0].as_ref().expect("it is whole");
                told(mixed.deliver(&fpdu.envelope).map(Parse::Segment))
            } else {
                told(mixed.parse(&mut wire))
            };
            prop_assert_eq!(&found, &expected);
            prop_assert!(mixed.is_between_fpdus());
            if found.is_err() {
                break;
            }
            prop_assert_eq!(mixed.first_fpdu_seen(), parsed.first_fpdu_seen());
        }
    }
}

/// What a segment is, without where it was.
fn told(parsed: Result<Parse, Fault>) -> Result<Segment, Fault> {
    match parsed? {
        Parse::Segment(segment) => Ok(Segment {
            payload: 0..0,
            consumed: 0,
            ..segment
        }),
        other => panic!("one FPDU is one segment: {other:?}"),
    }
}

#[test]
fn what_is_no_fpdu_is_not_taken_for_one() {
    let (octets, begins) = stream(CRC, &[(write(false), 40), (write(false), 40)]);
    let second = begins[1];
    let mut damaged = octets.clone();
    damaged[second + 20] ^= 1;
    let found = look(CRC, 0, &damaged, false);
    assert_eq!(
        starts(0, &found),
        [0],
        "the first is not the second's fault"
    );
    assert_eq!(found[1].as_ref().err(), Some(&Unplaced::NoFpdu));
    let cut = look(CRC, 0, &octets[..second - 1], false);
    assert_eq!(cut, [Err(Unplaced::NotWhole)]);
    let short = look(CRC, 0, &[0, 13, 0x81, 0x40, 0, 0, 0, 0], false);
    assert_eq!(short, [Err(Unplaced::NoFpdu)]);
    let one = look(CRC, 0, &octets[..1], false);
    assert_eq!(one, [Err(Unplaced::NotWhole)]);
    assert!(look(CRC, 0, &[], false).is_empty());
}

#[test]
fn without_a_crc_the_peer_has_to_promise_and_to_keep_it() {
    let (octets, _) = stream(NEITHER, &[(write(false), 40), (write(false), 41)]);
    let inbound = Inbound::with_config(NEITHER);
    assert!(inbound.fpdus_ahead(0, &octets, false).is_none());
    assert_eq!(look(NEITHER, 0, &octets, true).iter().flatten().count(), 2);
    let cut = &octets[..octets.len() - 1];
    assert_eq!(look(NEITHER, 0, cut, true), [Err(Unplaced::NotWhole)]);
    let mut version = octets.clone();
    version[2] = 0x80;
    let found = look(NEITHER, 0, &version, true);
    assert_eq!(found, [Err(Unplaced::NoFpdu)]);
}

/// Small FPDUs, thousands of them in one piece, are not walked over again for each of them.
#[test]
fn whether_fpdus_fill_the_octets_is_asked_once() {
    const FPDUS: usize = 3000;
    for markers in [false, true] {
        let config = InboundConfig { markers, ..NEITHER };
        let (octets, _) = stream(config, &[(write(false), 0); FPDUS]);
        let inbound = Inbound::with_config(config);
        let mut ahead = inbound.fpdus_ahead(0, &octets, true).expect("its word");
        let mut found = 0;
        while let Some(fpdu) = ahead.next_fpdu() {
            fpdu.expect("a whole FPDU");
            found += 1;
        }
        assert_eq!((found, ahead.lengths_asked), (FPDUS, FPDUS));
    }
}

#[test]
fn what_acts_and_what_ends_a_message_waits() {
    let cases = [
        (write(false), 1, None),
        (write(false), 0, Some(Unplaced::Control)),
        (write(true), 1, Some(Unplaced::LastSegment)),
        (send(Opcode::SEND_INVALIDATE, 1, false), 1, None),
        (send(Opcode::SEND, 1, true), 1, Some(Unplaced::LastSegment)),
        (
            send(Opcode::READ_REQUEST, 1, true),
            28,
            Some(Unplaced::Control),
        ),
        (send(Opcode::IMMEDIATE, 1, true), 8, Some(Unplaced::Control)),
        (send(Opcode::TERMINATE, 1, true), 4, Some(Unplaced::Control)),
        // Opcodes with the wrong kind of header.
        (send(Opcode::WRITE, 1, false), 1, Some(Unplaced::Control)),
        (
            Header::Tagged(Tagged {
                last: false,
                opcode: Opcode::SEND,
                stag: Stag(1),
                to: 0,
            }),
            1,
            Some(Unplaced::Control),
        ),
    ];
    for (header, len, unplaced) in cases {
        let (octets, _) = stream(CRC, &[(header, len)]);
        let found = look(CRC, 0, &octets, false);
        let (fpdu, _) = found[0].as_ref().expect("a whole FPDU");
        assert_eq!(fpdu.unplaced(PlacePolicy::Safe), unplaced, "{header}");
        let eager = unplaced.filter(|unplaced| *unplaced != Unplaced::LastSegment);
        assert_eq!(fpdu.unplaced(PlacePolicy::Eager), eager, "{header}");
    }
}

/// A segment that was cut anew, 100 octets after an FPDU's front, holds whole FPDUs that only its markers show.
#[test]
fn markers_show_where_fpdus_begin_in_a_segment_cut_anew() {
    let fpdus = vec![(write(false), 400); 5];
    let (octets, begins) = stream(MARKERS, &fpdus);
    let from = begins[1] + 100;
    let found = look(MARKERS, from, &octets[from..], false);
    assert_eq!(starts(from, &found), begins[2..]);
    let (unmarked, begins) = stream(CRC, &fpdus);
    let from = begins[1] + 100;
    let found = look(CRC, from, &unmarked[from..], false);
    assert_eq!(starts(from, &found), [0; 0], "nothing shows it");
}

#[test]
fn a_marker_that_lies_is_believed_no_more_than_the_crc() {
    let (mut octets, begins) = stream(MARKERS, &[(write(false), 400); 4]);
    let from = begins[1] + 100;
    // The first marker behind that now points to 4 octets before the front of its FPDU.
    let marker = from.next_multiple_of(512);
    let pointer = u16_at(&octets, marker + 2) - 4;
    octets[marker + 2..marker + 4].copy_from_slice(&pointer.to_be_bytes());
    let found = look(MARKERS, from, &octets[from..], false);
    let all = starts(from, &found);
    assert!(all.iter().all(|start| begins.contains(start)), "{all:?}");
    assert!(!all.contains(&begins[2]) || marker < begins[2], "{all:?}");
}

/// Without a CRC nothing else tells, and with one the peer may have computed it over markers that are wrong.
#[test]
fn an_fpdu_whose_own_markers_do_not_show_its_front_is_none() {
    let unproven = InboundConfig {
        crc: false,
        ..MARKERS
    };
    let (octets, _) = stream(unproven, &[(write(false), 1200)]);
    assert_eq!(look(unproven, 0, &octets, true).iter().flatten().count(), 1);
    for damaged in [3, 512 + 3, 1024 + 3] {
        let mut octets = octets.clone();
        octets[damaged] ^= 4;
        let found = look(unproven, 0, &octets, true);
        assert!(found.iter().all(Result::is_err), "the octet at {damaged}");
    }
}

/// Its markers lead to the front where the look began, also where a marker stands before that: a CRC is computed once.
#[test]
fn a_damaged_fpdu_is_looked_at_once() {
    for before in [0, 40] {
        let fpdus = [(write(false), before), (write(false), 1200)];
        let (mut octets, begins) = stream(MARKERS, &fpdus[usize::from(before == 0)..]);
        let from = begins[usize::from(before > 0)];
        octets[from + 100] ^= 1;
        let found = look(MARKERS, from, &octets[from..], false);
        assert_eq!(found, [Err(Unplaced::NoFpdu)], "an FPDU at {from}");
    }
}

#[test]
fn a_send_is_open_from_its_first_segment_to_its_last() {
    let mut inbound = Inbound::with_config(CRC);
    let open = |inbound: &Inbound| [1, 2].map(|msn| inbound.send_is_open(Msn(msn)));
    assert_eq!(open(&inbound), [false, false]);
    let mut end = send(Opcode::SEND, 1, true);
    if let Header::Untagged(end) = &mut end {
        end.mo = 8;
    }
    let fpdus = [(send(Opcode::SEND, 1, false), 8), (end, 8)];
    let (mut octets, begins) = stream(CRC, &fpdus);
    let (first, last) = octets.split_at_mut(begins[1]);
    inbound.parse(first).expect("a segment");
    assert_eq!(open(&inbound), [true, false]);
    inbound.parse(last).expect("a segment");
    assert_eq!(open(&inbound), [false, false]);
}

#[test]
fn an_fpdu_that_lacks_payload_or_its_crc_field_is_not_over() {
    let (octets, _) = stream(NEITHER, &[(write(false), 40)]);
    for (missing, is_over) in [(10, false), (4, false), (1, false), (0, true)] {
        let mut inbound = Inbound::with_config(NEITHER);
        let mut there = octets[..octets.len() - missing].to_vec();
        inbound.parse(&mut there).expect("a segment");
        assert_eq!(inbound.is_between_fpdus(), is_over, "{missing} are missing");
    }
}

/// In order a marker that points elsewhere is a fault (RFC 5044 section 4.3), also where a peer's word stands for the
/// CRC.
#[test]
fn markers_that_disagree_make_no_fpdu_whoever_vouches_for_it() {
    let config = InboundConfig {
        markers: true,
        ..NEITHER
    };
    let (mut octets, _) = stream(config, &[(write(false), 1200)]);
    assert_eq!(look(config, 0, &octets, true).iter().flatten().count(), 1);
    let pointer = u16_at(&octets, 514) + 4;
    octets[514..516].copy_from_slice(&pointer.to_be_bytes());
    assert_eq!(look(config, 0, &octets, true), [Err(Unplaced::NoFpdu)]);
}
